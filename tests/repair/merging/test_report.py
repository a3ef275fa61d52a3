"""What a merge says that no copy has."""

from __future__ import annotations

from pathlib import Path

from merges import expected, replica
from salvages import output_of as content

import kafkalog


def test_a_lost_end_is_said(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log, damaged=(9,))
    report = kafkalog.merge([a], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)[:9]
    assert [(one.start_offset, one.end_offset) for one in report.partitions[0].missing] == [(9, None)]
    b = replica(tmp_path / "b", log)
    report = kafkalog.merge([a, b], dry_run=True)
    assert report.ok
    assert report.partitions[0].leader == str(b)
