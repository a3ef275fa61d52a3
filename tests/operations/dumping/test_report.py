"""The lists at the end are bounded."""

from __future__ import annotations

import numpy as np

from kafkalog.operations.dumping.report import MAX_PAIRS, Report


def test_lists_are_bounded_and_say_how_much_they_leave_out() -> None:
    report = Report()
    pairs = np.arange(2 * (MAX_PAIRS + 5)).reshape(2, -1)
    report.add_pairs("gap", "x", pairs[:, :MAX_PAIRS])
    report.add_pairs("gap", "x", pairs[:, MAX_PAIRS:])
    lines = list(report.lines())
    assert len(lines) == MAX_PAIRS + 2
    assert lines[-1] == "  ... and 5 more"
