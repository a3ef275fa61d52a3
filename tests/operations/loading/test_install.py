"""A finished partition comes into a stopped broker's log dir under the id that the broker knows, or not at all."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import golden_sets
import pyarrow as pa
import pytest
from faults import Faulty
from files import broker_on
from refusals import fails_with
from writing import columns_of, draw, files_in, sound, write

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.errors import (
    CorruptionError,
    NotKafkaError,
    OutputExistsError,
    Reason,
    TruncatedTailError,
    UnsafePathError,
    WriteError,
)
from kafkalog.format import OFFSET_CHECKPOINTS
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.properties import read_properties

IDENTITY = "version=1\nnode.id=1\ncluster.id=x\n"
TOPIC_ID = "Bi_SuNQpR1iN9_1u84nflQ"


@pytest.fixture
def root():
    """A directory above log dirs."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


@pytest.fixture
def log_dir(root):
    """A log dir that a real broker left, without most of its partitions."""
    source, target = golden_sets.unpacked("k44"), root / "logs"
    target.mkdir()
    for path in source.iterdir():
        if path.is_file() or path.name in ("__cluster_metadata-0", "p-empty-0", "p-delrec-0", "p-txn-0"):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, target / path.name)
    return target


def lines(log_dir, key):
    """Checkpoints that speak of a partition."""
    return [name for name in OFFSET_CHECKPOINTS if key in (read_offset_checkpoint(log_dir / name) or {})]


def state(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_it_comes_under_the_id_that_the_cluster_has(log_dir, root):
    expected = read_properties(log_dir / "p-empty-0" / "partition.metadata")
    write(root / "p-empty-0", 80, topic_id=TOPIC_ID)
    source = files_in(root / "p-empty-0")
    report = kafkalog.install(root / "p-empty-0", log_dir)
    target = log_dir / "p-empty-0"
    assert read_properties(target / "partition.metadata") == expected
    assert report.topic_id == (expected or {})["topic_id"]
    assert files_in(root / "p-empty-0") == source
    assert {**files_in(target), "partition.metadata": b""} == {**source, "partition.metadata": b""}
    assert (report.n_segments, report.log_end_offset, report.is_replaced, report.is_rebuilt) == (2, 80, True, False)
    assert report.findings == []
    assert sound(target) == []
    assert sorted(os.listdir(root)) == ["logs", "p-empty-0"]
    shutil.rmtree(target)
    kafkalog.install(root / "p-empty-0", log_dir)  # also where the directory is gone
    assert read_properties(target / "partition.metadata") == expected


def test_what_was_noted_about_an_older_one_is_forgotten(log_dir, root):
    key, other = kafkalog.TopicPartition("p-delrec", 0), kafkalog.TopicPartition("p-txn", 0)
    known = lines(log_dir, key)
    assert set(known) >= {"log-start-offset-checkpoint", "replication-offset-checkpoint"}
    others = {name: read_offset_checkpoint(log_dir / name) for name in known}
    write(root / "p-delrec-0", 10)
    old = state(log_dir)
    with fails_with("output_exists"):
        kafkalog.install(root / "p-delrec-0", log_dir)
    assert state(log_dir) == old
    report = kafkalog.install(root / "p-delrec-0", log_dir, replace=True)
    assert report.checkpoints == known
    assert lines(log_dir, key) == []
    for name, offsets in others.items():
        found = read_offset_checkpoint(log_dir / name)
        assert found == {one: offset for one, offset in (offsets or {}).items() if one != key}
    assert lines(log_dir, other)
    assert kafkalog.open(log_dir)[key].log_start_offset == 0
    assert kafkalog.scan(log_dir, topics="p-delrec").count_rows() == 10


def test_a_log_start_inside_a_segment_comes_along(log_dir, root):
    source = golden_sets.unpacked("k44")
    shutil.rmtree(log_dir / "p-delrec-0")
    report = kafkalog.install(source / "p-delrec-0", log_dir, replace=True)
    assert report.log_start_offset == 334
    assert (read_offset_checkpoint(log_dir / OFFSET_CHECKPOINTS[1]) or {})[
        kafkalog.TopicPartition("p-delrec", 0)
    ] == 334
    assert kafkalog.scan(log_dir, topics="p-delrec").count_rows() == 166


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".snapshot", "padding", "garbage"])
def test_what_a_clean_start_would_miss_is_made_anew(log_dir, root, lost):
    write(root / "p-empty-0", 120, producer=(4, 0))
    right = files_in(root / "p-empty-0")
    for path in sorted((root / "p-empty-0").iterdir()):
        if path.suffix == lost:
            path.unlink()
        elif path.suffix == ".index" and lost == "padding":
            os.truncate(path, 4096)
        elif path.suffix == ".timeindex" and lost == "garbage":
            path.write_bytes(b"\xff" * 24)
    report = kafkalog.install(root / "p-empty-0", log_dir)
    assert report.is_rebuilt
    found = files_in(log_dir / "p-empty-0")
    assert sound(log_dir / "p-empty-0") == []
    for name, content in right.items():
        if name.endswith((".log", "index")) and lost != ".index":  # nothing tells how far apart its entries were
            assert found[name] == content, name
    assert f"{120:020d}.snapshot" in found


def test_what_a_broker_would_not_serve_is_refused(log_dir, root):
    old = state(log_dir)
    path = root / "p-empty-0"
    write(path, 100)
    log = max(path.glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole + b"torn")
    with pytest.raises(TruncatedTailError):
        kafkalog.install(path, log_dir)
    with pytest.raises(TruncatedTailError):
        kafkalog.install(path, log_dir, verify=False)
    log.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptionError):
        kafkalog.install(path, log_dir)
    log.write_bytes(whole)
    (root / "p-unheard-of-0").mkdir()
    for name, problem in [("p-unheard-of-0", "has no topic"), ("p-empty-7", "no partition 7")]:
        shutil.copytree(path, root / name, dirs_exist_ok=True)
        with pytest.raises(UnsafePathError, match=problem):
            kafkalog.install(root / name, log_dir)
    with fails_with("unsafe_path"):
        kafkalog.install(path, log_dir, topic_id=TOPIC_ID)
    (root / "p-multi-0").mkdir()
    with pytest.raises(NotKafkaError):
        kafkalog.install(root / "p-multi-0", log_dir)
    with pytest.raises(UnsafePathError):
        kafkalog.install(log_dir / "p-txn-0", log_dir)
    (root / "no-log-dir").mkdir()
    with fails_with("not_kafka"):
        kafkalog.install(path, root / "no-log-dir")
    assert state(log_dir) == old
    properties = (log_dir / "meta.properties").read_text()
    (log_dir / "meta.properties").write_text(properties.replace("node.id=1", "node.id=2"))
    with fails_with("unsafe_path"):
        kafkalog.install(path, log_dir)


def test_an_id_has_to_come_from_somewhere(root, log_dir):
    plain = root / "plain"
    plain.mkdir()
    (plain / "meta.properties").write_text(IDENTITY)
    write(root / "p-txn-0", 10, topic_id=TOPIC_ID)
    with fails_with("unsafe_path"):
        kafkalog.install(root / "p-txn-0", plain)
    assert kafkalog.install(root / "p-txn-0", plain, topic_id="A" * 21 + "Q").topic_id == "A" * 21 + "Q"
    shutil.rmtree(plain / "p-txn-0")
    topics = read_cluster_metadata(log_dir)
    assert topics is not None
    report = kafkalog.install(root / "p-txn-0", plain, metadata_log_dir=log_dir)
    assert report.topic_id == topics.topic_ids["p-txn"]
    assert kafkalog.install(root / "p-txn-0", plain, replace=True).topic_id == report.topic_id
    (plain / "meta.properties").write_text("version=0\nbroker.id=1\n")
    shutil.rmtree(plain / "p-txn-0")
    assert kafkalog.install(root / "p-txn-0", plain).topic_id is None
    assert not (plain / "p-txn-0" / "partition.metadata").exists()


def test_epochs_that_the_cluster_has_not_come_to_are_told(log_dir, root):
    write(root / "p-empty-0", 10, leader_epoch=40)
    report = kafkalog.install(root / "p-empty-0", log_dir)
    assert [finding.reason for finding in report.findings] == [Reason.EPOCH_ORDER]
    assert "go to 40, the cluster's to 9" in report.findings[0].detail


def test_a_running_broker_is_not_disturbed(log_dir, root):
    write(root / "p-empty-0", 10)
    (log_dir / ".lock").touch()
    old = state(log_dir)
    with broker_on(log_dir), fails_with("unsafe_path"):
        kafkalog.install(root / "p-empty-0", log_dir)
    assert state(log_dir) == old


@pytest.mark.parametrize("name", [pytest.param("p-empty-0", marks=pytest.mark.slow), "p-delrec-0"])
def test_the_nth_failure_leaves_the_log_dir_as_it_was(log_dir, root, name):
    with PartitionWriter(root / name, config=LogConfig(segment_bytes=3000)) as writer:
        writer.append(columns_of(draw(60)))
    old = state(log_dir)
    left = sorted(os.listdir(root))

    def fault(call):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    n = n_told = 0
    for n in range(1, 1000, 3):
        faulty = Faulty(n, fault)
        told = None
        try:
            with faulty.installed():
                kafkalog.install(root / name, log_dir, replace=True, verify=False)
        except WriteError as error:
            told = error.detail
        if told is not None:
            n_told += 1
            assert told.startswith(os.strerror(errno.ENOSPC))
            assert state(log_dir) == old, n
        else:
            assert kafkalog.scan(log_dir / name).count_rows() == 60
            shutil.rmtree(log_dir)
            log_dir.mkdir()
            for file, content in old.items():
                (log_dir / file).parent.mkdir(exist_ok=True)
                (log_dir / file).write_bytes(content)
        assert sorted(os.listdir(root)) == left
        if faulty.n_calls < n:
            break
    assert n_told > 15


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_a_load_with_one_partition_too_many_touches_none(log_dir, root, replace, dry_run):
    for number in range(3):
        shutil.copytree(golden_sets.unpacked("k44") / f"p-multi-{number}", log_dir / f"p-multi-{number}")
    if not replace:
        for path in (log_dir / "p-multi-0").iterdir():
            if path.name != "partition.metadata":
                path.unlink()  # the first one is empty, and could be filled
    (root / "x.csv").write_text("value\na\nb\n")
    old = state(log_dir)
    options = {"topic": "p-multi", "encoding": "utf8", "install": True, "dry_run": dry_run}
    refused = (UnsafePathError, "no partition 3") if replace else (OutputExistsError, "p-multi-1")
    with pytest.raises(refused[0], match=refused[1]):
        kafkalog.load([root / "x.csv"], log_dir, partitions=4, replace=replace, **options)
    assert state(log_dir) == old
    assert (log_dir / ".lock").exists() == (not dry_run)
    kafkalog.load([root / "x.csv"], log_dir, partitions=3, replace=True, **options)
    assert (state(log_dir) == old) == dry_run
    if not dry_run:
        assert sum(kafkalog.scan(log_dir / f"p-multi-{number}").count_rows() for number in range(3)) == 2
        assert lines(log_dir, kafkalog.TopicPartition("p-multi", 0)) == []
        assert not any(finding.damage for finding in kafkalog.verify(log_dir / "p-multi-0").findings)
    assert sorted(os.listdir(root)) == ["logs", "x.csv"]


@pytest.mark.parametrize("text", ["", "version: 0\ntopic_id: x", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_topic_id_that_is_none_is_an_error_about_its_file(text, tmp_path):
    broker = tmp_path / "broker"
    (broker / "t-0").mkdir(parents=True)
    (broker / "meta.properties").write_text("version=1\nnode.id=1\n")
    (broker / "t-0" / "partition.metadata").write_text(text)
    kafkalog.write_table(pa.table({"value": [b"v"]}), tmp_path / "new", topic="t")
    with pytest.raises(kafkalog.SidecarError) as caught:
        kafkalog.install(tmp_path / "new" / "t-0", broker)
    assert caught.value.path == str(broker / "t-0" / "partition.metadata")


def test_a_load_takes_the_topics_settings_from_the_cluster_unless_they_are_given(log_dir, root):
    metadata = read_cluster_metadata(log_dir)
    assert metadata is not None
    assert metadata.settings[2, "p-compact-gzip"]["internal.segment.bytes"] == "12000"
    keys, values = [bytes([n % 250]) for n in range(400)], [bytes(400)] * 400
    path = root / "table.arrow"
    table = pa.table({"topic": ["p-compact-gzip"] * 400, "key": keys, "value": values})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    result = kafkalog.load(path, log_dir, install=True, partitions=1)
    assert any("settings of p-compact-gzip come from the cluster's metadata" in note for note in result.notes)
    assert len(list((log_dir / "p-compact-gzip-0").glob("*.log"))) > 5
    given = kafkalog.LogConfig()
    result = kafkalog.load(path, log_dir, install=True, replace=True, partitions=1, config=given)
    assert not any("taken from" in note for note in result.notes)
    assert len(list((log_dir / "p-compact-gzip-0").glob("*.log"))) == 1


@pytest.mark.slow
def test_the_nth_failure_of_a_load_leaves_every_partition_as_it_was(log_dir, root):
    names = [f"p-multi-{number}" for number in range(3)]
    for name in names:
        shutil.copytree(golden_sets.unpacked("k44") / name, log_dir / name)
    table = "".join(f"{i},{i % 3}\n" for i in range(30))
    (root / "x.csv").write_text(f"value,partition\n{table}")
    (root / "old").mkdir()
    shutil.copytree(log_dir, root / "old" / "logs")
    old = state(log_dir)
    left = sorted(os.listdir(root))

    def fault(call):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    n = n_told = 0
    for n in range(1, 1000, 4):
        faulty = Faulty(n, fault)
        try:
            with faulty.installed():
                kafkalog.load([root / "x.csv"], log_dir, topic="p-multi", encoding="utf8", install=True, replace=True)
        except WriteError:
            n_told += 1
            assert state(log_dir) == old, n
        else:
            assert [kafkalog.scan(log_dir / name).count_rows() for name in names] == [10, 10, 10]
            shutil.rmtree(log_dir)
            shutil.copytree(root / "old" / "logs", log_dir)
        assert sorted(os.listdir(root)) == left
        if faulty.n_calls < n:
            break
    assert n_told > 15


def test_a_load_into_a_brokers_log_dir_without_a_topic_id_has_a_note(tmp_path):
    kafkalog.sample(tmp_path / "log")
    for number, dry_run in enumerate((True, False)):
        notes = kafkalog.write_table({"value": [b"v"]}, tmp_path / "log", topic="new", dry_run=dry_run).notes
        assert "-stray and later deletes them" in notes[0], number
        assert "--install" in notes[0]
    notes = kafkalog.write_table({"value": [b"v"]}, tmp_path / "log", topic="known", topic_id="A" * 21 + "Q").notes
    assert not any("-stray" in note for note in notes)
    kafkalog.write_table({"value": [b"v"]}, tmp_path / "plain", topic="a")
    notes = kafkalog.write_table({"value": [b"v"]}, tmp_path / "plain", topic="b").notes
    assert not any("-stray" in note for note in notes)
