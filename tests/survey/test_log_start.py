"""A checkpointed log start offset past the end of the log: the records are there, and a broker's start deletes them."""

import shutil

import pytest
from loss_reports import of_convert, of_salvage, of_scan, of_verify

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.log.tail import LogTail
from kafkalog.scanning.following import follow
from kafkalog.storage.broker_lock import hold_locks

NAME = "p-multi-0"


@pytest.fixture
def root(log_dir, tmp_path):
    place = tmp_path / "logs"
    place.mkdir()
    shutil.copytree(log_dir / NAME, place / NAME)
    return place


def put_start(root, start):
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\np-multi 0 {start}\n")


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("past", [1, 10**6])
def test_readers_return_the_records_and_a_start_is_forecast_to_delete_as_many(root, past, tmp_path, capsys):
    end = kafkalog.Partition(root / NAME).log_end_offset
    whole = kafkalog.read_table(root, columns=["offset"])["offset"].to_pylist()
    put_start(root, end + past)
    reports = {"verify": of_verify(root), "salvage": of_salvage(root), "scan": of_scan(root)}
    reports["convert"] = of_convert(root)
    assert {name: one.losses for name, one in reports.items()} == {name: [] for name in reports}
    assert reports["scan"].kept == reports["salvage"].kept == whole
    assert reports["convert"].kept == len(whole)
    scan = kafkalog.scan(root)
    assert scan.count_rows() == len(whole)
    for findings in (
        kafkalog.verify(root).findings,
        scan.findings,
        kafkalog.salvage(root, dry_run=True).findings.rows,
    ):
        [found] = [one for one in findings if one.reason is Reason.LOG_START_BEHIND_END]
        assert (found.damage, found.n_records, found.path) == (True, 0, str(root / "log-start-offset-checkpoint"))
        assert f"past the log end {end}" in found.detail
        assert str(end + past) in found.detail
    assert kafkalog.verify(root).ok is False
    for clean in (True, False):
        [row] = kafkalog.preflight(root, clean=clean).partitions
        assert (row.verdict, row.loss.n_records) == ("loses", len(whole))
        assert {one.certainty for one in row.losses} == {"exact"}
    report = kafkalog.report(root)
    assert report.as_dict()["start"][0]["n_records_lost"] == len(whole)
    assert main(["ls", str(root), "--json"]) == 1
    listed = capsys.readouterr().out
    assert f'"log_start_offset": {whole[0]}' in listed
    assert main(["cat", str(root), "--columns", "offset"]) == 1
    assert len(capsys.readouterr().out.splitlines()) >= len(whole)
    main(["export", str(root), "-o", str(tmp_path / "out.csv"), "--columns", "offset"])
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(whole) + 1


def test_a_start_at_the_end_hides_all_records(root):
    put_start(root, kafkalog.Partition(root / NAME).log_end_offset)
    assert kafkalog.read_table(root).num_rows == 0
    assert kafkalog.verify(root).ok


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("past", [1, 10**6])
def test_who_follows_the_log_begins_where_a_scan_begins(root, past):
    partition = kafkalog.Partition(root / NAME)
    key, end = partition.topic_partition, partition.log_end_offset
    put_start(root, end + past)
    tail = LogTail(
        lambda: kafkalog.LogDir(root), lambda key: True, isolation_level="read_uncommitted", on_corruption="raise"
    )
    for _ in range(2):
        assert tail.ends() == {key: end}
        assert tail.starts() == {key: partition.segments[0].base_offset}
    assert next(follow(root, pause=0)).count_rows() == kafkalog.scan(root).count_rows() > 0
    (root / ".lock").touch()
    with hold_locks([root]):  # the checkpoint may be newer than the segments
        assert tail.starts() == {key: end + past}
