"""What is opened by what is at a path, and which partitions are chosen of it."""

import os
import pickle
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import golden_sets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import thinned
from rebuilds import copied_partition
from refusals import fails_with

import kafkalog
from kafkalog import TopicPartition
from kafkalog.errors import KafkalogError, NotKafkaError, ReadError
from kafkalog.log.open import open, open_buffer, open_log_dir, open_partition, open_segment, partitions_of
from kafkalog.log.recovery import rows_to_replay
from kafkalog.scanning import execution
from kafkalog.state.producers import ProducerState

NAME = "00000000000000000000.log"


def test_a_directory_of_a_partition_is_listed_once(log_dir, monkeypatch):
    spies = [Mock(wraps=os.listdir), Mock(wraps=os.scandir)]
    for name, spy in zip(("listdir", "scandir"), spies, strict=True):
        monkeypatch.setattr(os, name, spy)
    opened = open_partition(log_dir / "p-multi-0")
    assert sum(spy.call_count for spy in spies) == 1
    monkeypatch.undo()
    assert [one.path for one in opened.segments] == [one.path for one in kafkalog.Partition(opened.path).segments]


def test_directories_that_are_set_apart_come_after_the_others_by_topic_and_number(log_dir_copy):
    for name, number in (("p-multi-0", 10), ("p-multi-1", 2), ("p-multi-2", 1)):
        (log_dir_copy / name).rename(log_dir_copy / f"p-multi-{number}.c9eefd1639d646409599f16e98f3d811-delete")
    found = [one.topic_partition for one in partitions_of(open(log_dir_copy), "p-*", set_apart=True)]
    at = found.index(TopicPartition("p-multi", 1))
    assert found[:at] == sorted(found[:at])
    assert found[at:] == [TopicPartition("p-multi", number) for number in (1, 2, 10)]


def test_a_directory_that_a_broker_deletes_is_named_with_the_way_to_its_records(log_dir_copy, run, tmp_path):
    name = "p-multi-0.c9eefd1639d646409599f16e98f3d811-delete"
    apart = (log_dir_copy / "p-multi-0").rename(log_dir_copy / name)
    for command in (f"cat -n 1 {log_dir_copy}", f"cat -t p-multi -p 0 {log_dir_copy}", f"salvage {log_dir_copy} -o"):
        code, _, err = run(*command.split(), *([str(tmp_path / "a")] if command.endswith("-o") else []))
        assert f"{name}: left_out: not read: a broker renamed this directory to delete it" in err, command
        assert "Name the directory to read its records" in err
        assert code == 0
    # named, it is read, and said to be what it is
    for command in (f"cat -n 1 {apart}", f"salvage {apart} -o {tmp_path / 'b'}"):
        _, out, err = run(*command.split())
        assert out
        assert f"{name}: unknown_file: a broker renamed this directory to delete it" in err, command
    assert kafkalog.read_table(tmp_path / "b").num_rows == kafkalog.read_table(apart).num_rows > 0
    # also next to its log dir
    both = kafkalog.read_table([log_dir_copy, apart], columns=["topic", "partition", "offset"])
    assert both.num_rows == kafkalog.read_table(log_dir_copy).num_rows + kafkalog.read_table(apart).num_rows
    assert name not in run("cat", "-n", "1", log_dir_copy, apart)[2]
    report = kafkalog.boot([log_dir_copy, apart], dry_run=True)
    assert [one.log_end_offset for one in report.partitions if (one.topic, one.partition) == ("p-multi", 0)] == [125]
    assert not any(name in (one.path or "") for one in report.findings.rows)
    plans = kafkalog.preflight([log_dir_copy, apart]).partitions  # a broker loads it with its log dir
    assert [one.path for one in plans].count(str(apart)) == 1
    assert name not in run("cat", "-n", "1", "-t", "p-txn", str(log_dir_copy))[2]


def test_opening_a_thousand_segments_opens_none_of_them(tmp_path, monkeypatch):
    calls = []
    sizes = []

    def counting(function, *args, **options):
        calls.append(function.__name__)
        return function(*args, **options)

    for n in (2, 1000):
        directory = tmp_path / f"orders-{n}"
        directory.mkdir()
        for number in range(n):
            (directory / f"{number:020d}.log").touch()
        with monkeypatch.context() as counted:
            for name in ("open", "stat", "lstat", "listdir", "scandir", "fstat"):
                counted.setattr(os, name, partial(counting, getattr(os, name)))
            assert len(open_partition(directory).segments) == n
        sizes.append(calls[:])
        calls.clear()
    assert sizes[0] == sizes[1]
    assert sizes[0].count("scandir") + sizes[0].count("listdir") == 1


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (b"x", TypeError, "not b'x'; open_buffer opens the bytes"),
        (5, TypeError, "not 5"),
        (None, TypeError, "not None"),
        ([], ValueError, "no path given"),
        ("/nonexistent/x", ReadError, "no such file or directory"),
        ("nope://bucket/x", ValueError, "^nope://bucket/x: "),
        (["nope://bucket/x"], ValueError, "^nope://bucket/x: "),
    ],
)
def test_what_is_no_path_is_refused(path, error, message):
    with pytest.raises(error, match=message):
        kafkalog.open(path)


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"isolation_level": "read_committed"}])
@pytest.mark.parametrize("binary_type", thinned([pa.binary(), pa.binary_view()], 2))
def test_bytes_in_memory_are_read_as_their_file_is(log_dir, binary_type, options, monkeypatch):
    # so that threads have several windows of a file to read
    monkeypatch.setattr(execution, "_TOGETHER_BYTES", 0)
    monkeypatch.setattr(execution, "_MIN_WINDOW_BYTES", 2000)
    wanted = {"columns": ["offset", "timestamp", "key", "value", "headers"], "binary_type": binary_type, **options}
    for path in sorted(log_dir.glob("*-0/*.log")):
        of_file = kafkalog.scan(path, **wanted).to_table()
        for data in (path.read_bytes(), np.fromfile(path, np.uint8), pa.py_buffer(path.read_bytes())):
            assert kafkalog.scan(open_buffer(data), **wanted).to_table() == of_file, path


def test_bytes_in_memory_have_no_other_files(log_dir, tmp_path, monkeypatch):
    # neither what is in the working directory, nor what it is called, says anything about them
    content = (log_dir / "p-multi-0" / NAME).read_bytes()
    directory = tmp_path / "other-7"
    directory.mkdir()
    (directory / "buffer.log").write_bytes(b"x")
    (directory / "buffer.index").write_bytes(b"xxx")
    (directory / "00000000000000000005.log").write_bytes(b"")
    monkeypatch.chdir(directory)
    segment = open_buffer(content, name="buffer.log")
    assert (segment.topic_partition, segment.offset_index, segment.next_base_offset) == (None, None, None)
    assert segment.to_table().num_rows == segment.next_offset == 120
    named = open_buffer(content, topic_partition=("orders", 2))
    assert set(named.to_table(columns=["topic"])["topic"].to_pylist()) == {"orders"}
    assert open_buffer(b"").to_table().num_rows == 0
    with fails_with("offset_outside_segment"):
        open_buffer(content, base_offset=50).to_table()


def test_a_plan_of_bytes_in_memory_is_one_part_that_pickles(log_dir):
    segment = open_buffer((log_dir / "p-multi-0" / NAME).read_bytes())
    (part,) = kafkalog.scan(segment).plan(target_bytes=1)
    assert pickle.loads(pickle.dumps(part)).to_table().num_rows == 120
    assert kafkalog.dataset(segment).count_rows(filter=pc.field("offset") >= 100) == 20


def test_damage_in_memory_is_said_as_that_of_a_file(log_dir, tmp_path):
    content = bytearray((log_dir / "p-multi-0" / NAME).read_bytes())
    content[100] ^= 1
    path = tmp_path / NAME
    path.write_bytes(content[:-3])
    of_file = kafkalog.scan(path, on_corruption="skip")
    of_bytes = kafkalog.scan(open_buffer(content[:-3], name=str(path)), on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        wanted = of_file.to_table()
    with pytest.warns(kafkalog.CorruptionWarning):
        assert of_bytes.to_table() == wanted
    assert of_bytes.findings == of_file.findings
    assert len(of_bytes.findings) == 2


def names(found):
    return [one.path.name if isinstance(one, kafkalog.Partition) else str(type(one)) for one in found]


def test_partitions_are_chosen_by_topic_and_number(log_dir):
    opened = open(log_dir)
    assert names(partitions_of(opened, "p-multi")) == ["p-multi-0", "p-multi-1", "p-multi-2"]
    assert names(partitions_of(opened, ["p-m*", "p-txn"], [0])) == ["p-multi-0", "p-txn-0"]
    assert len(names(partitions_of(opened))) == 10
    among = {kafkalog.TopicPartition("p-multi", 1)}
    assert names(partitions_of(opened, among=among)) == ["p-multi-1"]
    one = open(log_dir / "p-multi-0")
    assert names(partitions_of(one)) == names(partitions_of(one, "p-multi", 0)) == ["p-multi-0"]
    for wanted in ({"topics": "other"}, {"partitions": 1}):
        with pytest.raises(kafkalog.errors.UnknownNameError, match=r"no .* here; there are"):
            names(partitions_of(one, **wanted))
    assert names(partitions_of(one, "!p-multi")) == []
    assert names(partitions_of(open(log_dir / "p-multi-0" / NAME))) == ["p-multi-0"]


def test_one_that_cannot_be_opened_hides_no_other(log_dir_copy):
    opened = open(log_dir_copy)
    target = log_dir_copy / "p-multi-1"
    target.rename(log_dir_copy.parent / "moved")
    found = list(partitions_of(opened, "p-multi"))
    assert [isinstance(one, KafkalogError) for one in found] == [False, True, False]


def test_of_several_replicas_the_one_that_leads_counts(tmp_path):
    roots = [tmp_path / f"broker{number}" for number in range(4)]
    for root in roots:
        root.mkdir()
    for number, (epoch, n) in enumerate([(3, 50), (4, 10), (4, 12), (4, 11)]):
        for partition in (0, 1):
            with kafkalog.PartitionWriter(roots[number] / f"t-{partition}", leader_epoch=epoch) as writer:
                writer.append({"value": [b"x"] * n})
        (roots[number] / "meta.properties").write_text(f"version=1\nnode.id={number}\n")
    for order in (roots, roots[::-1]):
        found = open_log_dir(order)
        assert found["t"]["t-0"].path == found["t", 0].path == found.path_of(next(iter(found))).path
        assert found["t", 0].path.parent == roots[2]
        assert len(found.findings) == 3, "one for each broker, not for each partition"
        assert not any(one.damage for one in found.findings)
        assert "2 partitions (t-0, t-1) that are also open as replicas of another broker. kafkalog" in str(
            found.findings[0]
        )
    (path,) = (roots[2] / "t-1").glob("*.log")
    path.write_bytes(b"x" * 100)
    assert open_log_dir(roots)["t", 1].path.parent == roots[3]


def test_who_wants_one_kind_is_told_of_another(log_dir):
    partition, segment = log_dir / "p-multi-0", log_dir / "p-multi-0" / NAME
    assert open_partition(partition).log_end_offset == kafkalog.Partition(partition).log_end_offset
    assert open_segment(segment).base_offset == 0
    assert open_log_dir(partition).topics == open_log_dir(segment.parent).topics == ["p-multi"]
    for function, path, other in (
        (open_partition, log_dir, "open_log_dir"),
        (open_partition, segment, "open_segment"),
        (open_segment, partition, "open_partition"),
    ):
        with pytest.raises(NotKafkaError, match=other):
            function(path)


def test_many_indexes_hold_no_descriptors(log_dir):
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else pytest.skip("no /proc")
    kept = [kafkalog.open(log_dir) for _ in range(20)]
    for one in kept:
        assert all(segment.offset_index is not None for segment in one["p-multi", 0].segments)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_damaged_swap_file_hides_no_segments(log_dir, tmp_path):
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    (directory / f"{0:020d}.log.swap").write_bytes(b"\0")
    partition = kafkalog.Partition(directory)
    assert [finding.reason for finding in partition.findings] == ["partial_tail"]
    assert partition.findings[0].damage
    with pytest.warns(kafkalog.CorruptionWarning):
        assert kafkalog.scan(partition).count_rows() == kafkalog.scan(log_dir / "p-multi-0").count_rows()


def test_what_can_be_known_of_a_partition(log_dir):
    opened = kafkalog.open(log_dir)
    assert isinstance(opened, kafkalog.LogDir)
    partition = opened["p-multi", 0]
    assert partition.topic_partition == ("p-multi", 0)
    assert partition.high_watermark == 125
    assert partition.log_end_offset == 125
    assert partition.leader_epochs.dtype.names == ("epoch", "start_offset")
    assert partition.leader_epochs.tolist()[0] == (0, 0)
    assert partition.topic_id is not None
    assert len(partition.topic_id) == 22
    assert opened.properties()["version"] == "1"
    assert TopicPartition("p-multi", 0) in opened
    assert ("absent", 0) not in opened
    assert not opened.is_live
    with pytest.raises(KeyError):
        opened["absent", 0]


def test_a_swap_left_by_a_crash_counts_as_a_broker_would_count_it(log_dir_copy):
    directory = log_dir_copy / "p-compact-0"
    expected = kafkalog.read_table(directory)
    first = max(sorted(directory.glob("*.log"))[:-1], key=lambda path: path.stat().st_size)
    first.rename(first.with_name(first.name + ".swap"))
    scan = kafkalog.scan(directory)
    assert scan.to_table().equals(expected)
    assert "swap_file" in [finding.reason for finding in scan.findings]
    unfinished = directory / (first.name + ".cleaned")
    unfinished.touch()
    assert kafkalog.scan(directory).count_rows() < expected.num_rows


@pytest.mark.parametrize("start", [82, 83])
def test_a_log_start_offset_beyond_the_end_hides_no_record_without_a_word(log_dir, tmp_path, start):
    shutil.copytree(log_dir / "p-multi-2", tmp_path / "log" / "p-multi-2")
    (tmp_path / "log" / "log-start-offset-checkpoint").write_text(f"0\n1\np-multi 2 {start}\n")
    scan = kafkalog.scan(tmp_path / "log")
    if start == 82:  # as after all records were deleted
        assert scan.count_rows() == len(scan.findings) == 0
        return
    with pytest.warns(kafkalog.CorruptionWarning, match="log_start_behind_end"):
        assert scan.count_rows() == 82
    assert [(one.reason, one.n_records) for one in scan.findings] == [("log_start_behind_end", 0)]
    assert kafkalog.scan(tmp_path / "log", include_deleted=True).count_rows() == 82
    for saved, save in (("salvaged", kafkalog.salvage), ("merged", lambda path, **to: kafkalog.merge([path], **to))):
        save(tmp_path / "log", output=tmp_path / saved)
        assert kafkalog.scan(tmp_path / saved).count_rows() == 82
    assert [one.reason for one in kafkalog.salvage(tmp_path / "log", dry_run=True).findings.rows] == [
        "log_start_behind_end"
    ]


def test_leaving_out_rows_leaves_producers_as_they_would_be():
    n_left_out = 0
    for set_name in ("k44", "k44_extra"):
        for path in golden_sets.partitions(set_name).values():
            whole, some = ProducerState(), ProducerState()
            for segment in kafkalog.Partition(path).segments:
                batches = segment.batches
                rows = rows_to_replay(batches)
                n_left_out += int((batches.producer_id >= 0).sum()) - rows.size
                told = batches[rows]
                ended = whole.update(batches, log_position=batches.base_offset).tolist()
                assert some.update(told, log_position=told.base_offset).tolist() == ended
                assert some.entries().tobytes() == whole.entries().tobytes()
    assert n_left_out > 100


@pytest.fixture
def partition(tmp_path):
    return copied_partition(tmp_path)


def test_an_empty_disk_that_is_called_as_a_partition_is_none(tmp_path):
    disks = [tmp_path / "disk-1", tmp_path / "disk-2"]
    kafkalog.write_table({"value": [b"x"]}, disks[0], topic="t")
    disks[1].mkdir()
    log_dir = kafkalog.open_log_dir(disks)
    assert [*map(str, log_dir)] == ["t-0"]
    assert [(one.path, one.damage) for one in log_dir.findings] == [(str(disks[1]), False)]
    # in a log dir, it is a partition whose files are gone
    (disks[0] / "gone-0").mkdir()
    assert [*map(str, kafkalog.open_log_dir(disks[0]))] == ["gone-0", "t-0"]


def test_a_log_dir_is_found_below_all_directories_of_an_archive(log_dir_copy, tmp_path):
    below = tmp_path / "restored" / "srv" / "backup" / "var" / "lib" / "kafka"
    below.mkdir(parents=True)
    log_dir_copy.rename(below / "data")
    assert kafkalog.open(tmp_path / "restored").paths == [below / "data"]
