"""Adds up bytes of partitions: files by kind, batches by day and codec, and the keys with the most bytes.

Sums of files and batches are over all bytes. Those of keys take bounded memory, and have a bound of their error.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.records.batch_table import BatchTable
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place
from kafkalog.text import MILLISECONDS

_DAY_MS: Final = MILLISECONDS["d"]
_NO_DAY: Final = "no timestamp"
NO_BATCH: Final = "no batch"
_SMALL: Final = 1024
SPACE_TABLES: Final = """
days: Bytes by day. By the largest timestamp of each batch, UTC.
    day, n_batches number, n_bytes bytes
codecs: Bytes by codec. Batches as they are stored.
    codec, n_batches number, n_bytes bytes
files: Bytes by kind of file. All files of the partitions.
    kind, n_files number, n_bytes bytes
"""
"""Definitions of the tables that a `SpaceMeter` fills."""


class SpaceMeter:
    """Bytes of partitions: of the segments, of the batches in them, and of the headers of v2 batches.

    `n_small` counts batches of less than 1 KiB. Bytes of segments in no batch are torn, damaged or preallocated.
    """

    def __init__(self) -> None:
        self.n_log_bytes = self.n_batch_bytes = self.n_batches = self.n_small = self.n_header_bytes = 0
        self._counts: dict[str, dict[Any, Counter[str]]] = {
            name: defaultdict(Counter) for name in ("days", "codecs", "files")
        }

    def add(self, batches: BatchTable) -> None:
        """Count batches by day and codec."""
        sizes = batches.size_in_bytes.astype(np.int64)
        self.n_batch_bytes += int(sizes.sum())
        self.n_batches += len(batches)
        self.n_small += int((sizes < _SMALL).sum())
        self.n_header_bytes += kf.RECORD_BATCH_OVERHEAD * int((batches.magic >= 2).sum())
        days = np.where(batches.max_timestamp >= 0, batches.max_timestamp // _DAY_MS, -1)
        for name, values in (("days", days), ("codecs", batches.codec.astype(np.int64))):
            found, rows = np.unique(values, return_inverse=True)
            n_bytes, n_batches = np.bincount(rows, sizes), np.bincount(rows)
            for value, size, n in zip(found.tolist(), n_bytes.tolist(), n_batches.tolist(), strict=True):
                self._counts[name][value] += Counter(n_bytes=int(size), n_batches=n)

    def add_files(self, directory: Place, n_log_bytes: int) -> int:
        """Count the files of a partition directory; return the bytes of all of them."""
        self.n_log_bytes += n_log_bytes
        total = 0
        listing = Listing.or_empty(directory)  # a running broker may have removed it
        files = set(listing.files)
        for name in listing.names:
            is_stored = name in files and not listing.entries[name].is_symlink()
            try:
                size = stored_bytes(listing.status(name)) if is_stored else 0
            except OSError:
                continue  # a running broker has deleted it
            total += size
            kind = os.path.splitext(name)[1]
            self._counts["files"][kind if kind in kf.SEGMENT_SUFFIXES else "other"] += Counter(n_bytes=size, n_files=1)
        return total

    def rows(self, name: str) -> list[tuple[str, int, int]]:
        """Return name, number and bytes of each day, codec or kind of file; bytes in no batch are a row."""
        labels: dict[str, Callable[[Any], str]] = {"days": _day, "codecs": kf.codec_name, "files": str}
        counts = self._counts[name]
        number = "n_files" if name == "files" else "n_batches"
        found = [(labels[name](value), counts[value][number], counts[value]["n_bytes"]) for value in sorted(counts)]
        rest = self.n_log_bytes - self.n_batch_bytes
        return [*found, (NO_BATCH, 0, rest)] if rest and name != "files" else found


def stored_bytes(status: Any) -> int:
    """The bytes that a file takes, without the holes of a sparse one such as a preallocated index."""
    n_blocks = getattr(status, "st_blocks", None)
    size: int = status.st_size
    return size if n_blocks is None else min(size, n_blocks * _BLOCK)


_BLOCK: Final = 512
"""Of `st_blocks`, whatever the file system."""


def _day(number: int) -> str:
    # NumPy's days go further than Python's
    return _NO_DAY if number < 0 else str(np.datetime64(number, "D"))


CAPACITY: Final = 100_000
_LONGEST: Final = 256
"""Longer keys are kept as their first bytes and a hash."""

Key = bytes | None


class HeavyHitters:
    """Sums by key. At most `capacity` keys are kept; twice as many are held between two reductions.

    With `only`, sums are exact, and of these keys alone: the second pass over the same records. `total` has records and
    bytes of all keys. `error` is the most bytes by which a sum is too small; keys that are not kept have at most as
    many.
    """

    def __init__(self, capacity: int = CAPACITY, only: Iterable[Key] | None = None) -> None:
        self._capacity, self.error, self.total = capacity, 0, [0, 0]
        self._sums: dict[Key, list[int]] = {} if only is None else {key: [0, 0] for key in only}
        self._is_open = only is None

    def add(self, keys: Iterable[Key], n_records: Iterable[int], n_bytes: Iterable[int]) -> None:
        """Add records and bytes of some keys."""
        for key, n, size in zip(keys, n_records, n_bytes, strict=True):
            short = key if key is None or len(key) <= _LONGEST else shortened(key)
            self.total[0] += n
            self.total[1] += size
            known = self._sums.get(short)
            if known is not None:
                known[0] += n
                known[1] += size
            elif self._is_open:
                self._sums[short] = [n, size]
        if self._is_open and len(self._sums) > 2 * self._capacity:
            self._reduce()

    def _reduce(self) -> None:
        sizes = np.array([size for _, size in self._sums.values()], np.int64)
        # the largest sum of those that have to go
        taken = int(np.partition(sizes, len(sizes) - self._capacity - 1)[len(sizes) - self._capacity - 1])
        self.error += taken
        self._sums = {key: [n, size - taken] for key, (n, size) in self._sums.items() if size > taken}

    @property
    def sums(self) -> Mapping[Key, list[int]]:
        """Records and bytes by key."""
        return self._sums

    def largest(self, n: int) -> list[tuple[Key, int, int]]:
        """Return the keys with the most bytes, with records and bytes, the largest first."""
        rows = [(key, n_records, n_bytes) for key, (n_records, n_bytes) in self._sums.items()]
        return sorted(rows, key=lambda row: (-row[2], row[0] or b""))[:n]


def shortened(key: bytes) -> bytes:
    """Return a long key as its first bytes and a hash, so that two keys stay different."""
    return key[: _LONGEST - 80] + b"...sha256:" + hashlib.sha256(key).hexdigest().encode()
