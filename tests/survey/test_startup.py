"""What a plan adds up to."""

from __future__ import annotations

import pytest

from kafkalog.errors import Finding, Reason
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
    ("actions", "before", "end", "verdict", "n_bytes"),
    [
        (("kept", "kept"), 20, 20, "starts", 0),
        (("kept", "recovered"), 20, 20, "recovers", 0),
        (("kept", "cut", "deleted"), 30, 15, "loses", 150),
        (("kept", "kept"), 20, 10, "loses", 0),
        (("cut", "deleted"), None, 5, "loses", 150),
    ],
)
def test_all_that_is_cut_or_deleted_is_lost(
    actions: tuple[SegmentAction, ...], before: int | None, end: int, verdict: str, n_bytes: int
) -> None:
    row = plan(*actions, before=before, end=end)
    assert (row.verdict, row.n_bytes_lost) == (verdict, n_bytes)
    assert row.as_dict()["verdict"] == verdict


def test_losses_that_touch_are_one() -> None:
    row = plan("kept", "cut", before=20, end=15)
    row.lost = [
        Finding(Reason.CRC_MISMATCH, "", "a.log", base_offset=15, last_offset=16, n_records=2, certainty="exact"),
        Finding(Reason.CRC_MISMATCH, "", "a.log", base_offset=17, last_offset=19, n_records=1, certainty="exact"),
    ]
    assert [(one.first_offset, one.end_offset, one.n_records) for one in row.losses] == [(15, 20, 3)]
    assert (row.loss.n_records, row.loss.first_offset, row.loss.last_offset) == (3, 15, 19)
