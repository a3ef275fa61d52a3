"""Distributions: figures of many numbers, right or nearly so, in memory that does not grow."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.indexes.distribution import Distribution

MOST = 2**63 - 1


def distribution(*parts: list[int]) -> Distribution:
    made = Distribution()
    for part in parts:
        made.add(np.array(part, np.int64))
    return made


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
