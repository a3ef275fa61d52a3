"""Copies that lack segments, or have older ones."""

from __future__ import annotations

from pathlib import Path

from merges import expected, replica
from salvages import output_of as content
from writing import sound

import kafkalog
from kafkalog import format as kf


def test_lost_segments_and_older_ones_come_from_a_copy(tmp_path: Path) -> None:
    log = [(0, offset) for offset in range(30)]
    a = replica(tmp_path / "a", log, bases=(0, 10, 20))
    b = replica(tmp_path / "b", log[:25], bases=(0, 7, 14, 21))
    (a / kf.segment_file_name(0)).unlink()
    (a / kf.segment_file_name(10)).write_bytes(bytes(500))
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)
    assert sound(tmp_path / "out" / "t-0") == []
    assert report.ok
    assert [(one.start_offset, one.end_offset, one.source) for one in report.partitions[0].ranges] == [
        (0, 20, str(b)),
        (20, 30, str(a)),
    ]
    assert kafkalog.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(30)), "none counts as deleted"


def test_a_copy_without_segments(tmp_path: Path) -> None:
    log = [(0, 1), (0, 2)]
    a = replica(tmp_path / "a", log)
    b = replica(tmp_path / "b", log)
    (b / kf.segment_file_name(0)).unlink()
    assert kafkalog.merge([b, a], output=tmp_path / "out").ok
    assert content(tmp_path / "out" / "t-0") == expected(log)
    (a / kf.segment_file_name(0)).write_bytes(bytes(100))
    kafkalog.merge([b, a], output=tmp_path / "nothing")
    assert content(tmp_path / "nothing" / "t-0") == []
