"""Sums by key in bounded memory: the keys with the largest sums, and by how much a sum may be too small.

Misra and Gries' summary, as merged by Agarwal and others (2012): when there are too many keys, the same amount is taken
off all of them, and those with less are dropped. The subtracted sum bounds the error of every sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

CAPACITY: Final = 100_000
_LONGEST: Final = 256
"""Longer keys are kept as their first bytes and a hash."""

Key = bytes | None


class HeavyHitters:
    """Sums by key.

    Parameters
    ----------
    capacity : int
        The most keys that are kept. Twice as many are held between two reductions.
    only : iterable of bytes or None, optional
        Sum exactly, and these keys alone: the second pass over the same records.

    Attributes
    ----------
    total : list of int
        Records and bytes of all keys.
    error : int
        The most bytes by which a sum is too small; keys that are not kept have at most as many.
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
