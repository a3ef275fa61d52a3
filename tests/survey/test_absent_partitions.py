"""A partition whose directory is gone is a loss in preflight if a checkpoint proves records, and only then."""

import shutil

import pytest
from metadata_logs import DIRECTORY_IDS, write_meta_properties, write_metadata, write_server_properties

import kafkalog
from kafkalog import TopicPartition
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.state.checkpoints import encode_offset_checkpoint

ENDS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")


def made(root, *, metadata=True, disk=0):
    """A log dir with two topics of ten records each."""
    write_meta_properties(root, disk=disk)
    topics = ["gone", "here"]
    if metadata:
        write_metadata(root, topics, {})
    for number, topic in enumerate(topics):
        table = {"value": [b"x"] * 10, "timestamp": [1000] * 10}
        identity = bytes(15) + bytes([number + 1])
        with kafkalog.PartitionWriter(root / f"{topic}-0", topic_id=identity) as writer:
            writer.append(table)
    checkpoint(root, gone=10, here=10)
    return root


def checkpoint(root, **ends):
    data = encode_offset_checkpoint({TopicPartition(topic, 0): end for topic, end in ends.items()})
    for name in ENDS:
        (root / name).write_bytes(data)


def row_of(found, topic="gone"):
    return next((row for row in found.partitions if row.path.endswith(f"/{topic}-0")), None)


def test_what_a_checkpoint_proves_is_lost(tmp_path, capsys):
    root = made(tmp_path / "data")
    assert kafkalog.preflight(root).ok
    shutil.rmtree(root / "gone-0")
    found = kafkalog.preflight(root)
    row = row_of(found)
    assert (found.verdict, row.verdict) == ("loses", "loses")
    (lost,) = row.losses
    assert (lost.first_offset, lost.end_offset, lost.n_records, lost.certainty) == (0, 10, 10, "at_most")
    assert lost.reason is Reason.SEGMENT_MISSING
    assert row_of(found, "here").verdict == "recovers"
    assert main(["preflight", str(root)]) == 1
    out, err = capsys.readouterr()
    assert "the directory of gone-0 is missing" in out
    assert "lost: " in err
    assert "at most 10 records, offsets 0..10" in err
    report = kafkalog.report(root)
    assert report.summary["n_records_lost"] == 10
    assert not report.ok
    # a selection is one
    assert kafkalog.preflight(root, topics="here").ok
    assert row_of(kafkalog.preflight(root, topics="gone")).verdict == "loses"


@pytest.mark.parametrize("ends", [{"here": 10}, {"here": 10, "gone": 0}])
def test_a_topic_without_records_in_a_checkpoint_loses_nothing(ends, tmp_path):
    root = made(tmp_path / "data")
    shutil.rmtree(root / "gone-0")
    checkpoint(root, **ends)
    found = kafkalog.preflight(root)
    assert found.ok
    assert row_of(found) is None
    (note,) = (one for one in found.findings.rows if "no directory of gone-0" in one.detail)
    assert ("the topics are new" in note.detail) is ("gone" not in ends)
    assert kafkalog.preflight(root, topics="here").findings.rows == []


def test_without_checkpoints_the_number_is_unknown(tmp_path):
    root = made(tmp_path / "data")
    shutil.rmtree(root / "gone-0")
    for name in ENDS:
        (root / name).unlink()
    found = kafkalog.preflight(root)
    row = row_of(found)
    assert (found.verdict, row.verdict) == ("loses", "loses")
    assert (row.loss.n_records, row.loss.n_unknown) == (0, 1)


def test_a_directory_that_a_broker_renamed_is_named(tmp_path):
    root = made(tmp_path / "data")
    (root / "gone-0").rename(root / "gone-0.0123456789abcdef0123456789abcdef-stray")
    (lost,) = row_of(kafkalog.preflight(root)).lost
    assert "Rename gone-0.0123456789abcdef0123456789abcdef-stray to gone-0 first" in lost.detail


def test_the_metadata_log_may_be_elsewhere(tmp_path, capsys):
    root = made(tmp_path / "data", metadata=False)
    write_metadata(tmp_path / "controller", ["gone", "here"], {})
    shutil.rmtree(root / "gone-0")
    assert row_of(kafkalog.preflight(root)) is None
    assert row_of(kafkalog.preflight(root, metadata=tmp_path / "controller")).verdict == "loses"
    assert main(["preflight", str(root), "--metadata", str(tmp_path / "controller")]) == 1
    assert "the directory of gone-0 is missing" in capsys.readouterr().out


def test_what_may_be_on_another_disk_is_not_lost(tmp_path):
    # the metadata has both topics on the first disk
    first, second = made(tmp_path / "1"), made(tmp_path / "2", metadata=False, disk=1)
    for topic in ("gone", "here"):
        shutil.rmtree(second / f"{topic}-0")
    checkpoint(second)
    write_metadata(tmp_path / "controller", ["gone", "here"], {})
    assert kafkalog.preflight(second, metadata=tmp_path / "controller").partitions == []
    config = write_server_properties(tmp_path / "server.properties", [first, second])
    assert row_of(kafkalog.preflight([first, second], config=config)).verdict == "recovers"
    shutil.rmtree(first / "gone-0")
    for options in ({}, {"config": config}):
        (lost,) = row_of(kafkalog.preflight([first, second], **options)).losses
        assert lost.n_records == 10
        assert lost.path == str(first / "gone-0")


def test_partitions_on_a_disk_that_is_not_named_are_noted_with_its_id(tmp_path, capsys):
    root = made(tmp_path / "data", disk=1)
    shutil.rmtree(root / "gone-0")
    checkpoint(root, here=10)
    expected = (
        "no directory of gone-0, which the metadata log has on this broker: they are in the log dir with directory id"
        f" {DIRECTORY_IDS[0]}, which is not named: name it, too, unless it is lost"
    )
    found = kafkalog.preflight(root)
    assert found.ok
    assert [one.detail for one in found.findings.rows if "gone-0" in one.detail] == [expected]
    assert expected in [one.detail for one in kafkalog.report(root).findings.rows]
    assert main(["preflight", str(root)]) == 0
    assert expected in "".join(capsys.readouterr())
    # with that disk, nothing is missing
    write_meta_properties(tmp_path / "other", disk=0)
    with kafkalog.PartitionWriter(tmp_path / "other" / "gone-0", topic_id=bytes(15) + b"\1") as writer:
        writer.append({"value": [b"x"]})
    both = kafkalog.preflight([root, tmp_path / "other"])
    assert [one.detail for one in both.findings.rows if "gone-0" in one.detail] == []


def test_partitions_of_which_nothing_says_where_they_are_may_be_on_another_disk(tmp_path):
    root = made(tmp_path / "data", metadata=False)
    write_metadata(root, ["gone", "here", "third"], {}, directories=["A" * 22])
    (note,) = [one for one in kafkalog.report(root).findings.rows if "third-0" in one.detail]
    assert "if the broker has more log dirs, name these, too" in note.detail
    assert not note.damage


def test_an_empty_disk_has_lost_what_no_other_disk_has(tmp_path):
    # the metadata has both topics on the first disk, which is replaced by a new one
    second = made(tmp_path / "2", metadata=False, disk=1)
    write_metadata(second, ["gone", "here"], {})
    shutil.rmtree(second / "gone-0")
    checkpoint(second, here=10)
    assert row_of(kafkalog.preflight(second)) is None
    (tmp_path / "1" / "lost+found").mkdir(parents=True)
    found = kafkalog.preflight([tmp_path / "1", second])
    assert [(one.path, one.loss.n_unknown) for one in found.partitions if one.losses] == [(f"{tmp_path}/1/gone-0", 1)]
    report = kafkalog.report([tmp_path / "1", second])
    assert (report.ok, report.summary["n_unknown_losses"]) == (False, 1)
