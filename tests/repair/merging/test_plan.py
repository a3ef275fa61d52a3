"""Which copy leads, which fills its holes, and what no copy has."""

from merges import expected, replica
from salvages import output_of as content
from writing import sound

import kafkalog
from kafkalog import format as kf


def test_another_epoch_where_the_leaders_history_is_lost_is_a_cut(tmp_path):
    leader = [(1, 1), (1, 2), (1, 3), (1, 4)]
    a = replica(tmp_path / "a", leader, damaged=(0,), epochs=False)
    b = replica(tmp_path / "b", leader[:2], epochs=False)
    c = replica(tmp_path / "c", [(0, 8), (0, 9)])
    report = kafkalog.merge([c, a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(leader)
    [merged] = report.partitions
    assert (merged.replicas[0].truncate_to, merged.replicas[0].differs_from) == (0, None)
    assert report.ok


def test_copies_that_differ_in_one_epoch_are_not_mixed(tmp_path):
    leader = [(0, offset) for offset in range(10)]
    other = [*leader[:4], (0, 99), *leader[5:]]
    a = replica(tmp_path / "a", leader, damaged=(2, 6))
    b = replica(tmp_path / "b", other[:9])
    report = kafkalog.merge([a, b], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == [one for n, one in enumerate(expected(leader)) if n != 6]
    assert report.partitions[0].replicas[1].differs_from == 4
    assert not report.ok


def test_lost_segments_and_older_ones_come_from_a_copy(tmp_path):
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


def test_a_copy_without_segments(tmp_path):
    log = [(0, 1), (0, 2)]
    a = replica(tmp_path / "a", log)
    b = replica(tmp_path / "b", log)
    (b / kf.segment_file_name(0)).unlink()
    assert kafkalog.merge([b, a], output=tmp_path / "out").ok
    assert content(tmp_path / "out" / "t-0") == expected(log)
    (a / kf.segment_file_name(0)).write_bytes(bytes(100))
    kafkalog.merge([b, a], output=tmp_path / "nothing")
    assert content(tmp_path / "nothing" / "t-0") == []


def test_a_lost_end_is_said(tmp_path):
    log = [(0, offset) for offset in range(10)]
    a = replica(tmp_path / "a", log, damaged=(9,))
    report = kafkalog.merge([a], output=tmp_path / "out")
    assert content(tmp_path / "out" / "t-0") == expected(log)[:9]
    assert [(one.start_offset, one.end_offset) for one in report.partitions[0].missing] == [(9, 10)]
    b = replica(tmp_path / "b", log)
    report = kafkalog.merge([a, b], dry_run=True)
    assert report.ok
    assert report.partitions[0].leader == str(b)


def test_batches_that_are_taken_for_compacted_ones_are_said(tmp_path):
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


def test_the_plan_names_the_source_the_bytes_and_the_evidence_of_each_piece_and_what_is_in_doubt(tmp_path):
    log = [(0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    a = replica(tmp_path / "a", log, damaged=(1, 3))
    b = replica(tmp_path / "b", [*log[:2], (0, 77)], epochs=False)
    plan = kafkalog.merge([b, a], dry_run=True).partitions[0].plan
    size = (a / kf.segment_file_name(0)).stat().st_size // len(log)
    pieces = [(one.source, one.first_offset, one.start, one.end, one.why) for one in plan.pieces]
    assert pieces == [
        (str(a), 0, 0, size, "leader"),
        (str(b), 1, size, 2 * size, "leader epoch"),
        (str(a), 2, 2 * size, 3 * size, "leader"),
        (str(a), 4, 4 * size, 5 * size, "leader"),
    ]
    assert [(one.first_offset, one.end_offset) for one in plan.holes] == [(3, 4)]
    assert [(one.source, one.first_offset, one.why) for one in plan.doubts] == [(str(b), 2, "cut")]
    assert plan.log_start_offset == 0
