"""Adds up bytes of partitions: files by kind, batches by day and codec. Each sum is over all bytes of the files."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.records.batch_table import BatchTable

_DAY_MS: Final = 86_400_000
_NO_DAY: Final = "no timestamp"
_NO_BATCH: Final = "no batch"
_KINDS: Final = (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX, kf.TRANSACTION_INDEX_SUFFIX, ".snapshot")


class SpaceMeter:
    """Bytes of partitions.

    Attributes
    ----------
    n_log_bytes, n_batch_bytes : int
        Bytes of the segments, and of the batches in them. The rest is torn, damaged or preallocated.
    """

    def __init__(self) -> None:
        self.n_log_bytes = self.n_batch_bytes = 0
        self._counts: dict[str, dict[Any, Counter[str]]] = {
            name: defaultdict(Counter) for name in ("days", "codecs", "files")
        }

    def add(self, batches: BatchTable) -> None:
        """Count batches by day and codec."""
        sizes = batches.size_in_bytes.astype(np.int64)
        self.n_batch_bytes += int(sizes.sum())
        days = np.where(batches.max_timestamp >= 0, batches.max_timestamp // _DAY_MS, -1)
        for name, values in (("days", days), ("codecs", batches.codec.astype(np.int64))):
            found, rows = np.unique(values, return_inverse=True)
            n_bytes, n_batches = np.bincount(rows, sizes), np.bincount(rows)
            for value, size, n in zip(found.tolist(), n_bytes.tolist(), n_batches.tolist(), strict=True):
                self._counts[name][value] += Counter(n_bytes=int(size), n_batches=n)

    def add_files(self, directory: Path, n_log_bytes: int) -> int:
        """Count the files of a partition directory; return the bytes of all of them."""
        self.n_log_bytes += n_log_bytes
        total = 0
        for entry in os.scandir(directory):
            try:
                size = entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
            except OSError:
                continue  # a running broker has deleted it
            total += size
            kind = os.path.splitext(entry.name)[1]
            self._counts["files"][kind if kind in _KINDS else "other"] += Counter(n_bytes=size, n_files=1)
        return total

    def rows(self, name: str) -> list[tuple[str, int, int]]:
        """Return name, number and bytes of each day, codec or kind of file; what is in no batch is a row."""
        labels: dict[str, Callable[[Any], str]] = {"days": _day, "codecs": kf.codec_name, "files": str}
        counts = self._counts[name]
        number = "n_files" if name == "files" else "n_batches"
        found = [(labels[name](value), counts[value][number], counts[value]["n_bytes"]) for value in sorted(counts)]
        rest = self.n_log_bytes - self.n_batch_bytes
        return [*found, (_NO_BATCH, 0, rest)] if rest and name != "files" else found


def _day(number: int) -> str:
    # NumPy's days go further than Python's
    return _NO_DAY if number < 0 else str(np.datetime64(number, "D"))
