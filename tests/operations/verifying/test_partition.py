"""What contradicts itself between segments, snapshots, epochs and checkpoints is found."""

import shutil
import struct
from pathlib import Path

import pytest
from damaged_partitions import change, put, reasons

import kafkalog
from kafkalog.errors import Reason


def second(partition, suffix):
    """The second file of a kind."""
    return sorted(partition.glob(f"*{suffix}"))[1]


FILE_DAMAGE = {
    "snapshot": ("*.snapshot", put(8, b"\xff"), "snapshot_crc"),
    "epochs": ("leader-epoch-checkpoint", put(0, b"7"), "checkpoint_syntax"),
    "metadata": ("partition.metadata", lambda data: data.clear(), "checkpoint_syntax"),
}


@pytest.mark.parametrize("kind", FILE_DAMAGE)
def test_damage_to_the_other_files_of_a_partition_is_found(partition, kind):
    pattern, edit, reason = FILE_DAMAGE[kind]
    path = sorted(partition.glob(pattern))[-1]
    change(path, edit)
    assert reasons(partition) == {path.name: {reason}}
    assert reasons(partition, indexes_only=True) == {}


@pytest.mark.parametrize(
    ("old", "new", "starts"),
    [
        (b"version: 0", b"version: 1", True),
        (b"version: 0", b"\xef\xbb\xbfversion: 0", True),
        (b"\n", b"\r\n", True),
        (b"topic_id: ", b"topic_id: " + b"A" * 22, False),
        (b"topic_id: ", b"topic_id: " + b"A" * 22 + b"\n", False),
        (b"\ntopic_id", b"", False),
    ],
)
def test_verify_and_preflight_agree_on_the_topic_id(partition, old, new, starts):
    path = partition / "partition.metadata"
    path.write_bytes(path.read_bytes().replace(old, new))
    assert kafkalog.verify(partition).ok == starts
    assert (kafkalog.preflight(partition, clean=True).verdict != "does not start") == starts


def test_an_empty_snapshot_is_a_note_where_a_broker_was_killed(log_dir):
    shutdown = log_dir / ".kafka_cleanshutdown"
    shutdown.unlink(missing_ok=True)
    older, *_, newest = sorted((log_dir / "p-multi-0").glob("*.snapshot"))
    content = older.read_bytes()

    def found():
        findings = kafkalog.verify(log_dir, topics="p-multi").findings
        return [(Path(one.path or "").name, one.reason.value, one.damage) for one in findings]

    newest.write_bytes(b"")
    assert found() == [(newest.name, "snapshot_size", False)]
    newest.write_bytes(content[:9])  # a broker writes it in one go: this is none of its doing
    assert found() == [(newest.name, "snapshot_size", True)]
    newest.write_bytes(b"")
    shutdown.touch()
    assert found() == [(newest.name, "snapshot_size", True)]
    shutdown.unlink()
    newest.write_bytes(content)
    older.write_bytes(b"")
    assert found() == [(older.name, "snapshot_size", True)]


def test_leader_epochs_that_fall_or_that_the_checkpoint_does_not_have_are_found(partition):
    log = sorted(partition.glob("*.log"))[1]
    table = kafkalog.Segment(log).batches
    at = int(table.position[5])
    change(log, put(at + 12, struct.pack(">i", 77)))  # no checksum covers it
    assert reasons(partition) == {log.name: {"epoch_order"}, "leader-epoch-checkpoint": {"epoch_checkpoint"}}
    loss = kafkalog.verify(partition).partitions[0].loss
    assert (loss.n_records, loss.n_unknown, loss.last_offset) == (0, 0, None)  # all records are read
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n3 5\n3 9\n")
    assert reasons(partition)["leader-epoch-checkpoint"] == {"epoch_order"}


def test_a_checkpoint_without_the_epochs_of_batches_is_a_note(partition):
    """As a power loss leaves it. A broker starts on it, and takes its next epoch for the first one (KAFKA-16541)."""
    path = partition / "leader-epoch-checkpoint"
    for data in ("", "0\n", "0\n0\n"):
        path.write_text(data)
        assert [(one.reason, one.damage) for one in kafkalog.verify(partition).findings] == [
            ("epoch_checkpoint", False)
        ]


def test_an_epoch_that_begins_behind_the_log_is_a_note(partition):
    end = kafkalog.Partition(partition).log_end_offset
    path = partition / "leader-epoch-checkpoint"
    for epochs, n_notes in ((f"0 {end}\n", 0), (f"0 {end + 1}\n", 1)):
        path.write_text(f"0\n1\n{epochs}")
        found = [one for one in kafkalog.verify(partition).findings if one.path == str(path)]
        assert [(one.reason.value, one.damage, one.base_offset) for one in found] == [
            ("epoch_checkpoint", False, end + 1)
        ] * n_notes


def test_segments_that_overlap_are_found(partition):
    first, second, *_ = sorted(partition.glob("*.log"))
    for path in partition.glob(f"{second.stem}.*"):
        path.rename(path.with_name(path.name.replace(second.stem, f"{10:020d}")))
    found = reasons(partition)
    assert "offset_order" in found[first.name]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_damaged_checkpoints_of_the_log_dir_are_found_once(log_dir, name):
    (log_dir / name).write_text("0\n5\n")
    result = kafkalog.verify(log_dir)
    assert [(Path(finding.path or "").name, finding.reason.value) for finding in result.findings] == [
        (name, "checkpoint_syntax")
    ]


def test_a_log_start_offset_behind_the_end_of_the_log_is_damage(log_dir, tmp_path):
    shutil.copytree(log_dir / "p-multi-1", tmp_path / "p-multi-1")
    end = kafkalog.Partition(tmp_path / "p-multi-1").log_end_offset
    for start, expected in ((end, []), (end + 1, [Reason.LOG_START_BEHIND_END])):
        (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\np-multi 1 {start}\n")
        (partition,) = kafkalog.verify(tmp_path / "p-multi-1").partitions
        assert [finding.reason for finding in partition.findings if finding.damage] == expected


@pytest.mark.parametrize(("lines", "line"), [("-1 0", 3), ("0 -5", 3), ("0 0\n0 9", 4), ("0 0\n1 9\n2 9", 5)])
def test_epochs_that_do_not_rise_from_0_are_found_by_their_line(log_dir_copy, lines, line):
    path = log_dir_copy / "p-multi-0" / "leader-epoch-checkpoint"
    path.write_text(f"0\n{len(lines.splitlines())}\n{lines}\n")
    found = [one for one in kafkalog.verify(log_dir_copy / "p-multi-0").findings if one.path == str(path)]
    assert [one.reason for one in found] == [kafkalog.Reason.EPOCH_ORDER]
    assert f"line {line}:" in found[0].detail
