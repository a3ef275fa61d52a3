"""What a plan adds up to."""

from __future__ import annotations

import pytest

from kafkalog.survey.startup import PartitionPlan, SegmentAction, SegmentPlan


def plan(*actions: SegmentAction, before: int | None, end: int) -> PartitionPlan:
    """Segments of ten offsets and 100 bytes each; a cut one keeps half of them."""
    left = {"cut": 50, "deleted": 0, "emptied": 0}
    segments = [
        SegmentPlan(f"{10 * number:020d}.log", 10 * number, action, 100, left.get(action, 100))
        for number, action in enumerate(actions)
    ]
    return PartitionPlan("t-0", None, segments, log_end_offset=end, log_end_offset_before=before)


@pytest.mark.parametrize(
    ("actions", "before", "end", "verdict", "n_records", "n_bytes"),
    [
        (("kept", "kept"), 20, 20, "starts", None, 0),
        (("kept", "recovered"), 20, 20, "recovers", None, 0),
        (("kept", "cut", "deleted"), 30, 15, "loses", 15, 150),
        (("kept", "kept"), 20, 10, "loses", 10, 0),
        (("cut", "deleted"), None, 5, "loses", 0, 150),
    ],
)
def test_all_that_is_cut_or_deleted_is_lost(
    actions: tuple[SegmentAction, ...], before: int | None, end: int, verdict: str, n_records: int | None, n_bytes: int
) -> None:
    row = plan(*actions, before=before, end=end)
    assert (row.verdict, row.n_bytes_lost) == (verdict, n_bytes)
    assert (None if row.loss is None else row.loss.n_records) == n_records
    assert row.loss is None or row.loss.n_unknown == (before is None)
    assert row.as_dict()["verdict"] == verdict


def test_segments_that_expire_early_are_lost_too() -> None:
    row = plan("kept", "kept", "cut", before=30, end=25)
    row.segments[0].is_expired_early = True
    assert row.loss is not None
    assert (row.loss.n_records, row.loss.first_offset, row.loss.last_offset) == (15, 0, 29)
    assert row.n_bytes_lost == 150
