"""What a merge says that no copy has."""

from __future__ import annotations

from pathlib import Path

from merges import expected, replica
from salvages import output_of as content

import kafkalog
from kafkalog import format as kf


def test_a_lost_end_is_said(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log, damaged=(9,))
    report = kafkalog.merge([a], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)[:9]
    assert [(one.start_offset, one.end_offset) for one in report.partitions[0].missing] == [(9, 10)]
    b = replica(tmp_path / "b", log)
    report = kafkalog.merge([a, b], dry_run=True)
    assert report.ok
    assert report.partitions[0].leader == str(b)


def test_batches_that_are_taken_for_compacted_ones_are_said(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log)
    (a / kf.segment_file_name(0)).write_bytes(b"".join(one for at, one in enumerate(expected(log)) if at not in (4, 7)))
    b = replica(tmp_path / "b", log[:9])
    report = kafkalog.merge([a, b], dry_run=True)
    [finding] = report.findings.rows
    assert (finding.reason, finding.path, finding.base_offset) == (kafkalog.Reason.OFFSET_GAP, str(b), 4)
    assert not finding.damage
    assert report.ok
    assert [one["n_batches_left"] for one in report.as_dict()["partitions"][0]["replicas"]] == [0, 2]
    assert any("2 batches not merged" in line for line in report.lines())
    report = kafkalog.merge([replica(tmp_path / "c", log, damaged=(4, 7)), b], dry_run=True)
    assert report.findings.rows == []
    assert [one.n_batches_left for one in report.partitions[0].replicas] == [0, 0]
