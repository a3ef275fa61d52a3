"""Partitions under other names: directories that a broker has renamed, and archives; advice leads to their records."""

import json
import tarfile

import pytest
from booting.test_boot_metadata import append_metadata
from merges import batch, replica
from metadata_logs import topic_id, write_metadata
from salvages import output_of

import kafkalog
from kafkalog import format as kf
from kafkalog.booting.sources import Sources
from kafkalog.cli.app import main
from kafkalog.log import set_apart
from kafkalog.log.set_apart import only_copies, packed_partitions
from kafkalog.protocol.encoder import encode_metadata_record

LOG = [(1, offset) for offset in range(24)]
ALL = [batch(offset, LOG[offset]) for offset in range(24)]
SUFFIX = "0123456789abcdef" * 2
OTHER_ID = topic_id(7)


def identify(directory, number):
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}")
    return directory


def disk_with(tmp_path, kind, topics):
    """A log dir with `u-0`, and with `t-0` renamed by a broker; its metadata log has some topics."""
    disk = tmp_path / "disk"
    apart = identify(replica(disk, LOG, bases=(0, 6, 12, 18)), 0).rename(disk / f"t-0.{SUFFIX}-{kind}")
    identify(replica(tmp_path / "other", LOG), 1).rename(disk / "u-0")
    write_metadata(disk, topics, {}, node_id=1, epoch=1)
    (disk / ".kafka_cleanshutdown").write_text("")
    text = "version=1\ncluster.id=kafkalogBrokenDisks01w\nnode.id=1\ndirectory.id=X0qcQdqYVPjkhw06oncc2A\n"
    (disk / "meta.properties").write_text(text)
    return disk, apart


def damage(disk):
    """Damage a batch, so that reports advise a boot."""
    (log,) = (disk / "u-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[80] ^= 255
    log.write_bytes(data)


def steps_of(command, capsys):
    main([*map(str, command), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    return [step["command"] for row in rows for step in row.get("next", ())]


EXISTING = {"t": topic_id(0), "u": topic_id(1)}


@pytest.mark.parametrize(("kind", "first"), [("future", "report"), ("delete", "preflight"), ("stray", "report")])
def test_advice_serves_the_only_copy_of_a_topic_that_exists(tmp_path, capsys, kind, first):
    disk, apart = disk_with(tmp_path, kind, EXISTING)
    (step,) = steps_of([first, disk], capsys)
    named = [] if kind == "future" else [str(apart)]
    assert step == ["kafkalog", "boot", str(disk), *named, "-o", f"{disk}-booted"]
    assert main([*step[1:], "-q"]) == (kind == "future")  # its end is not proven
    assert output_of(tmp_path / "disk-booted" / "data" / "t-0") == ALL


@pytest.mark.parametrize("kind", ["future", "delete", "stray"])
def test_each_report_names_the_command_that_serves_an_only_copy(tmp_path, capsys, kind):
    disk, apart = disk_with(tmp_path, kind, EXISTING)
    command = f"kafkalog boot {disk}{'' if kind == 'future' else f' {apart}'} -o DIR serves it"
    for one in ("ls", "verify", "report"):
        main([one, str(disk)])
        assert command in "".join(capsys.readouterr()).replace("\\", ""), one
    report = kafkalog.boot(disk, tmp_path / "out", dry_run=True)
    (lost,) = [one for one in report.findings.rows if one.damage]
    if kind == "future":
        assert "the only copy of t-0" in lost.detail
    else:
        assert f"It is in {apart}" in lost.detail
        assert command in report.text()
    replica(disk, LOG, bases=(0, 6))
    identify(disk / "t-0", 0)
    for one in ("ls", "verify", "report"):
        main([one, str(disk)])
        assert "No other directory" not in "".join(capsys.readouterr()), one


@pytest.mark.parametrize("topics", [{"u": topic_id(1)}, {"t": OTHER_ID, "u": topic_id(1)}])
def test_a_deleted_topic_comes_back_only_if_its_directory_is_named(tmp_path, capsys, topics):
    disk, apart = disk_with(tmp_path, "delete", topics)
    for one in ("preflight", "report", "verify"):
        assert not any(str(apart) in step for step in steps_of([one, disk], capsys)), one
    assert not any(str(apart) == one.path for one in kafkalog.verify(disk).findings)
    report = kafkalog.boot(disk, tmp_path / "out")
    assert f"To bring it back: kafkalog boot {disk} {apart} -o DIR" in report.text()
    assert not list((tmp_path / "out" / "data").glob("t-0/*.log")) or not output_of(tmp_path / "out" / "data" / "t-0")
    report = kafkalog.boot([disk, apart], tmp_path / "asked")
    if "t" in topics:
        assert "it belongs to another topic of that name" in report.text()
    else:
        assert output_of(tmp_path / "asked" / "data" / "t-0") == ALL


def test_an_earlier_topic_of_that_name_is_not_renamed_to_the_new_one(tmp_path):
    disk, apart = disk_with(tmp_path, "delete", {"t": OTHER_ID, "u": topic_id(1)})
    texts = [one.detail for one in kafkalog.preflight(disk).findings.rows]
    assert any("the directory of t-0 is missing" in text for text in texts)
    assert not any(apart.name in text for text in texts)


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_a_packed_partition_is_named_with_what_to_do(tmp_path, capsys, suffix):
    disk, apart = disk_with(tmp_path, "delete", EXISTING)
    for path in [*apart.iterdir()]:
        path.unlink()
    apart.rmdir()
    packed = disk / f"t-0{suffix}"
    packed.write_bytes(b"packed")
    for one in ("ls", "verify", "report", "preflight"):
        main([one, str(disk)])
        text = "".join(capsys.readouterr()).replace("\\", "")
        assert f"{packed.name} has the name of a partition: unpack it here first" in text, one
        if one in ("report", "preflight"):
            assert f"# first unpack {packed.name}: kafkalog boot {disk} -o {disk}-booted" in text
    (lost,) = [one for one in kafkalog.boot(disk, tmp_path / "out").findings.rows if one.damage]
    assert f"{packed} may have it: unpack it first" in lost.detail
    (tmp_path / "only").mkdir()
    packed.rename(tmp_path / "only" / packed.name)
    with pytest.raises(kafkalog.NotKafkaError, match="unpack it first"):
        kafkalog.verify(tmp_path / "only")


def test_an_archive_of_a_partition_that_is_there_is_a_backup():
    names = {"t-0.tar.gz", "t-0", "u-1.tgz", "u-2.tar", "notes-3.txt", "t-4.tar.zst", f"t-5.{SUFFIX}-delete.tar"}
    assert {*map(str, packed_partitions(names).values())} == {"u-1", "u-2", "t-4"}


@pytest.mark.parametrize("is_first", [True, False])
def test_an_older_metadata_log_does_not_bring_a_deleted_topic_back(tmp_path, capsys, is_first):
    disk, apart = disk_with(tmp_path, "delete", EXISTING)
    append_metadata(disk, encode_metadata_record("RemoveTopic", 0, topicId=topic_id(0)))
    second = tmp_path / "second"
    write_metadata(second, EXISTING, {}, node_id=1, epoch=1)
    damage(disk)
    given = [disk, second] if is_first else [second, disk]
    for one in ("report", "verify"):
        assert not any(str(apart) in step for step in steps_of([one, *given], capsys)), one
    report = kafkalog.boot(given, tmp_path / "out", dry_run=True)
    assert "To bring it back" in report.text()
    assert "serves it" not in report.text()


def test_a_replica_that_was_moved_to_other_nodes_has_no_note_and_no_step(tmp_path, capsys):
    disk, apart = disk_with(tmp_path, "delete", {"u": topic_id(1)})
    ids = {"partitionId": 0, "topicId": topic_id(0), "leader": 2, "leaderEpoch": 1, "partitionEpoch": 0}
    partition = encode_metadata_record("Partition", 1, **ids, replicas=[2, 3], isr=[2, 3], directories=[OTHER_ID] * 2)
    append_metadata(disk, encode_metadata_record("Topic", 0, name="t", topicId=topic_id(0)), partition)
    damage(disk)
    for one in ("ls", "verify", "report"):
        main([one, str(disk)])
        assert "No other directory" not in "".join(capsys.readouterr()), one
    for one in ("verify", "report"):
        (step,) = steps_of([one, disk], capsys)
        assert str(apart) not in step, one


@pytest.mark.parametrize("kind", ["future", "delete"])
def test_an_archive_is_copied_to_a_local_directory_first(tmp_path, capsys, kind):
    disk, _ = disk_with(tmp_path, kind, EXISTING)
    with tarfile.open(tmp_path / "disk.tar", "w") as packed:
        packed.add(disk, "disk")
    main(["ls", f"tar://disk::{tmp_path / 'disk.tar'}"])
    text = capsys.readouterr().err
    assert "No other directory here has t-0. Copy the log dir to a local directory" in text
    assert "kafkalog boot tar" not in text


def test_one_id_of_a_topic_tells_whether_it_exists(tmp_path, monkeypatch):
    disks = [tmp_path / name for name in "abcd"]
    for number, disk in enumerate(disks):
        for partition in range(number, 40, 4):
            (disk / f"t-{partition}").mkdir(parents=True)
            identify(disk / f"t-{partition}", 0)
    apart = disks[0] / f"t-40.{SUFFIX}-delete"
    apart.mkdir()
    identify(apart, 0)
    read = []
    monkeypatch.setattr(set_apart, "known_topic_id", lambda path: read.append(path) or topic_id(0))
    (one,) = only_copies([apart], [kf.TopicPartition("t", number) for number in range(40)], disks)
    assert one.exists
    assert len(read) == 2


@pytest.mark.parametrize("has_segments", [True, False])
def test_a_copy_that_a_broker_was_making_counts_only_without_another(tmp_path, has_segments):
    disk, apart = disk_with(tmp_path, "future", EXISTING)
    (disk / kf.METADATA_DIRECTORY).rename(tmp_path / kf.METADATA_DIRECTORY)
    for path in apart.glob("*18.*") if has_segments else ():
        path.unlink()
    identify(replica(disk, LOG), 0)
    for path in () if has_segments else (disk / "t-0").glob("*.log"):
        path.unlink()
    report = kafkalog.boot(disk, tmp_path / "out", strict=has_segments)
    (t,) = [one for one in report.topics if one.name == "t"]
    assert t.replication_factor == 1
    assert output_of(tmp_path / "out" / "data" / "t-0") == ALL
    (served,) = [one.source for one in report.partitions if one.topic == "t"]
    assert (served == str(apart)) != has_segments


@pytest.mark.parametrize("is_first", [True, False])
def test_a_stray_that_is_named_counts_before_and_after_its_log_dir(tmp_path, is_first):
    disk, apart = disk_with(tmp_path, "stray", {"u": topic_id(1)})
    found = Sources.find([apart, disk] if is_first else [disk, apart], include_stray=True)
    assert [one.is_asked_for for one in found.copies[kf.TopicPartition("t", 0)]] == [True]


@pytest.mark.parametrize("is_same", [True, False])
def test_log_dirs_in_a_log_dir_are_advised_if_they_are_of_its_cluster(tmp_path, capsys, is_same):
    disk, _ = disk_with(tmp_path, "future", EXISTING)
    damage(disk)
    inner = disk / "backup"
    inner.mkdir()
    # a topic id in common does not make it one: a backup may lie on the disk of another cluster
    for number, name in ((5, f"x-0.{SUFFIX}-delete"), (6, "v-0"), (1, "u-1")):
        identify(replica(tmp_path / name, LOG), number).rename(inner / name)
    write_metadata(inner, {**EXISTING, "x": topic_id(5), "v": topic_id(6)}, {}, node_id=1, epoch=1)
    cluster = "kafkalogBrokenDisks01w" if is_same else "anotherClusterIdAAAAAA"
    (inner / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    for one in ("report", "verify"):
        (step,) = steps_of([one, disk], capsys)
        assert (str(inner) in step) == is_same
        assert (str(inner / f"x-0.{SUFFIX}-delete") in step) == is_same
    assert kafkalog.preflight(disk).next[0].after == ""


def damaged_move(tmp_path, lost, n, kind="future"):
    """Two disks of a broker, of which it was moving a partition to the second one; the first has damage since."""
    disk, _ = disk_with(tmp_path, kind, EXISTING)
    moving = tmp_path / "second" / f"t-0.{SUFFIX}-{kind}"
    moving.parent.mkdir()
    identify(replica(tmp_path / "new", LOG[:n]), 0).rename(moving)
    (tmp_path / "second" / "meta.properties").write_text((disk / "meta.properties").read_text())
    for path in disk.glob(f"t-0.{SUFFIX}-*"):
        path.rename(disk / "t-0")
    (disk / kf.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 24\n")
    for base in lost:
        (disk / "t-0" / f"{base:020}.log").unlink()
    return disk, moving


@pytest.mark.parametrize(("lost", "n"), [((6,), 20), ((18,), 24), ((6, 18), 24), ((0,), 10), ((), 24), ((6,), 7)])
def test_a_copy_that_a_broker_was_making_fills_what_the_other_lost(tmp_path, lost, n):
    disk, moving = damaged_move(tmp_path, lost, n)
    report = kafkalog.boot([moving.parent, disk], tmp_path / "out")
    kept = {*range(24)} - {offset for base in lost for offset in range(max(base, n), base + 6)}
    assert output_of(tmp_path / "out" / "data" / "t-0") == [ALL[offset] for offset in sorted(kept)]
    assert report.ok == (len(kept) == 24)
    (t,) = [one for one in report.topics if one.name == "t"]
    assert t.replication_factor == 1
    assert any(one.path == str(moving) and "left out" in one.detail for one in report.findings.rows) == (not lost)
    assert kafkalog.boot([disk, moving.parent], tmp_path / "strict", dry_run=True, strict=not lost).ok == report.ok


@pytest.mark.parametrize("has_epochs", [True, False])
def test_a_copy_that_a_broker_was_making_proves_that_the_other_lost_its_end(tmp_path, has_epochs):
    disk, moving = damaged_move(tmp_path, (6, 12, 18), 24)
    (disk / "t-0" / f"{0:020}.log").write_bytes(b"")
    for path in disk.glob("t-0/*"):
        if path.suffix == ".snapshot" or (path.name == kf.LEADER_EPOCH_CHECKPOINT and not has_epochs):
            path.unlink()
    kafkalog.boot([disk, moving.parent], tmp_path / "out")
    assert output_of(tmp_path / "out" / "data" / "t-0") == ALL


def test_a_copy_of_an_earlier_topic_fills_nothing(tmp_path):
    disk, moving = damaged_move(tmp_path, (6,), 24)
    identify(moving, 7)
    report = kafkalog.boot([disk, moving.parent], tmp_path / "out")
    assert output_of(tmp_path / "out" / "data" / "t-0") == [*ALL[:6], *ALL[12:]]
    assert not report.ok
