"""Distributions of many numbers in bounded memory: exact mean and maximum, percentiles within 1.6 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.html import JsonFields

EXACT_BITS: Final = 7
"""Leading bits of a number that are kept; the relative error is below 1/64."""

_HALF: Final = 1 << EXACT_BITS - 1
_N_BUCKETS: Final = (64 - EXACT_BITS) * _HALF + 2 * _HALF


@dataclass(frozen=True, slots=True)
class Spread(JsonFields):
    """Summary of a distribution."""

    n: int
    """How many numbers there are; if 0, the other fields are None."""
    mean: float | None
    p50: int | None
    p99: int | None
    """Percentiles, rounded down to `EXACT_BITS` bits: exact below 128, else up to 1.6 % low."""
    max: int | None


class Distribution:
    """Counts numbers from 0 to 2**63 - 1 in logarithmic buckets.

    Attributes
    ----------
    n : int
    smallest, largest : int or None
    """

    __slots__ = ("_counts", "_sum", "largest", "n", "smallest")

    def __init__(self) -> None:
        self.n = 0
        self.smallest: int | None = None
        self.largest: int | None = None
        self._sum = 0.0
        self._counts: npt.NDArray[np.int64] | None = None

    def add(self, values: npt.NDArray[np.int64]) -> None:
        """Count int64[n], none negative."""
        if not values.size:
            return
        total = float(values.sum(dtype=np.float64))
        self._combine(values.size, total, int(values.min()), int(values.max()), buckets(values))

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another distribution."""
        if other._counts is not None and other.smallest is not None and other.largest is not None:
            self._combine(other.n, other._sum, other.smallest, other.largest, other._counts)

    def _combine(self, n: int, total: float, smallest: int, largest: int, counts: npt.NDArray[np.int64]) -> None:
        self.n += n
        self._sum += total
        self.smallest = smallest if self.smallest is None else min(self.smallest, smallest)
        self.largest = largest if self.largest is None else max(self.largest, largest)
        self._counts = counts.copy() if self._counts is None else self._counts + counts

    def histogram(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sizes in rising order, rounded down, and how many numbers have each."""
        if self._counts is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        used = np.flatnonzero(self._counts)
        return bucket_starts(used), self._counts[used]

    def percentile(self, percent: int) -> int | None:
        """The nearest-rank percentile, rounded down to `EXACT_BITS` bits; None if there are no numbers."""
        if self.smallest is None:
            return None
        sizes, counts = self.histogram()
        return max(nearest_rank(sizes, counts, percent), self.smallest)

    def spread(self) -> Spread:
        """The summary."""
        if not self.n:
            return Spread(0, None, None, None, None)
        return Spread(self.n, self._sum / self.n, self.percentile(50), self.percentile(99), self.largest)


def nearest_rank(sizes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], percent: int) -> int:
    """The first of the rising sizes whose cumulative count reaches `percent`."""
    seen = np.cumsum(counts)
    wanted = -(-int(seen[-1]) * percent // 100)
    return int(sizes[np.searchsorted(seen, wanted, side="left")])


def rounded(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers rounded down to `EXACT_BITS` bits."""
    shift = _shifts(values)
    down: npt.NDArray[np.int64] = (values >> shift) << shift
    return down


def buckets(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many numbers fall into each bucket, for all buckets in order."""
    return np.bincount(bucket_numbers(values), minlength=_N_BUCKETS).astype(np.int64)


def bucket_numbers(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each number."""
    shift = _shifts(values)
    numbers: npt.NDArray[np.int64] = shift * _HALF + (values >> shift)
    return numbers


def bucket_starts(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The smallest number of each bucket."""
    shift = np.maximum(numbers // _HALF - 1, 0)
    starts: npt.NDArray[np.int64] = (numbers - shift * _HALF) << shift
    return starts


def _shifts(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many low bits of each number are dropped."""
    # The bit length comes from the exponent of the float. A number of more than 53 bits may be rounded up to the next
    # power of two, which the last line corrects.
    exponents = (values.astype(np.float64).view(np.int64) >> 52) - 1022
    shifts: npt.NDArray[np.int64] = np.maximum(exponents - EXACT_BITS, 0)
    return shifts - ((values >> shifts < _HALF) & (shifts > 0))
