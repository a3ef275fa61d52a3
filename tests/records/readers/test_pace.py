"""The faster way is taken, and the other is tried now and then."""

from __future__ import annotations

import pytest

from kafkalog.records.readers.pace import Pace


def taken(mapped_ns: int, read_ns: int, n: int) -> list[bool]:
    """Which of n windows are mapped where both ways take so long a byte."""
    pace, ways = Pace(), []
    for _ in range(n):
        ways.append(pace.maps_next())
        pace.took(ways[-1], 1000 * (mapped_ns if ways[-1] else read_ns), 1000)
    return ways


@pytest.mark.parametrize(("mapped", "read", "is_mapped"), [(10, 13, True), (13, 10, False), (1, 1000, True)])
def test_the_faster_way_is_taken_after_a_few_trials(mapped: int, read: int, is_mapped: bool) -> None:
    ways = taken(mapped, read, 320)
    assert ways[192:].count(is_mapped) >= 128 - 4
    assert {True, False} == set(ways[256:288])  # the other one is still tried


def test_one_disturbed_trial_changes_little() -> None:
    pace = Pace()
    for way, ns in ((True, 10**9), (False, 1)):
        pace.took(way, ns, 1)
    assert pace.ratio < 1.25


def test_a_window_without_bytes_says_nothing() -> None:
    pace = Pace()
    pace.took(True, 5, 0)
    pace.took(False, 5, 0)
    assert pace.ratio == Pace().ratio
