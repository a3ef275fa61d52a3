"""Distances between the entries of an offset index, and the interval that they agree with."""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.indexes.spacing import LARGEST_APPEND, Gaps, Spacing


def gaps(interval: int | None, *pairs: tuple[int, int]) -> Gaps:
    found = Gaps(interval)
    for gap, last in pairs:
        found.add(np.array([gap]), np.array([last]))
    return found


def test_entries_are_summed_up() -> None:
    found = gaps(None, (4200, 200), (4500, 1000), (4100, 100))
    assert found.spacing() == Spacing(3, (4000 + 3500 + 4000) // 3, 4100, True)
    assert gaps(None).spacing() == Spacing(0, 0, 2**62, False)
    found = Gaps(None)
    found.add(np.array([], np.int64), np.array([], np.int64))
    assert found.spacing().n == 0


@pytest.mark.parametrize(
    ("pairs", "is_usual"),
    [
        ([(4097, 1), (4200, 200)], True),  # 4096
        ([(4096, 1), (4200, 200)], False),  # a gap is more than the interval
        ([(1025, 2), (1100, 77)], True),  # 1024
        ([(1001, 2), (1100, 105)], True),  # 1000
        ([(900, 10), (950, 60)], False),
        ([(4097, 1)], False),  # one gap proves nothing
    ],
)
def test_an_interval_is_usual_if_no_gap_contradicts_a_power_of_two_or_ten(
    pairs: list[tuple[int, int]], is_usual: bool
) -> None:
    assert gaps(None, *pairs).spacing().is_usual == is_usual
    assert not gaps(4096, *pairs).spacing().is_usual  # where it is known, nothing is inferred


def test_the_end_of_a_log_says_nothing_of_the_interval_from_above() -> None:
    found = gaps(None, (4200, 200))
    found.add(np.array([300]), np.array([100]), is_open=True)
    assert found.spacing() == Spacing(2, 2100, 4200, True)


def test_too_few_entries_are_said_with_the_setting() -> None:
    wide = 8 * 4096 + 1
    assert gaps(None, (wide + 10, 11), (50_000, 100)).finding() == ""
    assert (
        "up to 70000 bytes without an entry where index.interval.bytes is 4096 (the default)"
        in gaps(None, (70_000, 7_000), (65_000, 3_000)).finding()
    )
    assert "is 1024 (the topic's setting)" in gaps(1024, (9_000, 10), (9_500, 10)).finding()
    assert gaps(1024, (9_000, 10), (1_100, 100), (1_200, 190)).finding() == ""
    # most are narrow, and one is wider than any append
    huge = 8 * 1024 + LARGEST_APPEND
    assert gaps(1024, (huge + 1, 1), (1_100, 100), (1_200, 190)).finding() == ""
    assert gaps(1024, (huge + 2, 1), (1_100, 100), (1_200, 190)).finding() != ""


def test_a_segment_contradicts_one_that_is_far_denser() -> None:
    dense, sparse = Spacing(4, 1000, 1030, True), Spacing(3, 8 * 1030 + 1, 9000, False)
    assert sparse.contradicts(dense)
    assert not sparse._replace(n=0).contradicts(dense)
    assert not sparse._replace(is_usual=True).contradicts(dense)
    assert not sparse._replace(passed_bytes=8 * 1030).contradicts(dense)
    assert not sparse.contradicts(dense._replace(n=3))
    assert not sparse.contradicts(dense._replace(least_gap_bytes=100_000))
    assert not Spacing(3, 8 * 512, 9000, False).contradicts(dense._replace(least_gap_bytes=10))
