"""Distributions: figures of many numbers, right or nearly so, in memory that does not grow."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.indexes.distribution import Distribution, bucket_numbers, bucket_starts, buckets, rounded

MOST = 2**63 - 1


def distribution(*parts: list[int]) -> Distribution:
    made = Distribution()
    for part in parts:
        made.add(np.array(part, np.int64))
    return made


def test_sizes_are_rounded_down_by_less_than_a_64th() -> None:
    sizes = np.unique(np.concatenate([np.arange(1, 5000), 2 ** np.arange(31), 2 ** np.arange(1, 31) - 1, [2**31 - 1]]))
    down = rounded(sizes.astype(np.int64))
    assert (down <= sizes).all()
    assert (sizes - down < sizes / 64).all()
    assert len(np.unique(down)) < 64 * 31
    assert (down[sizes < 128] == sizes[sizes < 128]).all()


@given(st.lists(st.integers(0, MOST) | st.integers(0, 63).map(lambda bit: (1 << bit) - 1), min_size=1, max_size=50))
def test_a_bucket_is_a_rounded_number(values: list[int]) -> None:
    numbers = np.array(values, np.int64)
    assert bucket_starts(bucket_numbers(numbers)).tolist() == rounded(numbers).tolist()
    assert [value >> max(value.bit_length() - 7, 0) << max(value.bit_length() - 7, 0) for value in values] == rounded(
        numbers
    ).tolist()
    assert buckets(numbers).sum() == len(values)


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=20), max_size=5))
def test_figures_are_those_of_all_numbers_whatever_the_parts(parts: list[list[int]]) -> None:
    values = sorted(value for part in parts for value in part)
    spread = distribution(*parts).spread()
    merged = Distribution()
    for part in parts:
        merged.merge(distribution(part))
    for found in (spread, merged.spread()):
        assert found.n == len(values)
        if not values:
            assert set(found.as_dict().values()) == {0, None}
            continue
        mean = statistics.fmean(values)
        assert found.mean == pytest.approx(mean)
        assert found.max == values[-1]
        for percent, percentile in ((50, found.p50), (99, found.p99)):
            exact = values[math.ceil(len(values) * percent / 100) - 1]
            assert percentile is not None
            assert exact - exact / 64 <= percentile <= exact


def test_numbers_near_the_largest_are_counted() -> None:
    spread = distribution([MOST, MOST - 1, 2**62]).spread()
    assert (spread.n, spread.max, spread.p99) == (3, MOST, 127 << 56)
