"""Segments that a real broker moved to remote storage, and a transaction of metadata that its controller aborted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builder import batch_v2, record_v2
from conformance.jars import class_path, java
from conformance.kafka import QUICK_JVM, Broker, Client, wait_until
from message_bytes import encoded, uvarint

import kafkalog
from kafkalog.protocol.definitions import messages

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_STORAGE = Path(__file__).with_name("FolderStorage.java")
_TOPICS = ("kept", "deleted")
_UNBORN = "AAAAAAAAAAAAAAAAAAAAZw"


class Told(NamedTuple):
    log_dir: Path
    """After the broker moved segments of both topics, and the one topic was deleted."""
    before: kafkalog.RemoteLog
    """Read before that topic was deleted."""
    latest_tiered: int
    """Of the other topic, as the broker said."""
    folder: Path
    """Where the broker moved segments to."""
    dumped: dict[Path, str]
    """What Kafka's tool prints of `.log` files."""
    topics: set[str]
    """Which there are, as the broker said."""
    consumed: list[dict[str, Any]]
    """The records of the other topic, as a consumer got them."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    program = java()
    folder = tmp_path_factory.mktemp("remote")
    storage = folder / "storage"
    storage.mkdir()
    kafka = class_path(program)
    compiler = [program, "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", str(folder), "-cp", kafka, str(_STORAGE)], check=True)
    jars = os.pathsep.join([str(folder), kafka])
    broker = Broker(
        program,
        jars,
        folder,
        **{
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "FolderStorage",
            "remote.log.storage.manager.class.path": str(folder),
            "remote.log.storage.manager.impl.prefix": "rsm.config.",
            "rsm.config.folder": str(storage),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            "rlmm.config.remote.log.metadata.topic.num.partitions": 2,
            "remote.log.manager.task.interval.ms": 200,
            "log.initial.task.delay.ms": 300,
            "log.retention.check.interval.ms": 300,
        },
    )

    def tool(name: str, *arguments: str, at: str = "--bootstrap-server") -> str:
        command = [program, *QUICK_JVM, "-cp", jars, f"org.apache.kafka.tools.{name}", *arguments]
        return subprocess.run([*command, at, broker.address], check=True, capture_output=True, text=True).stdout

    def states(topic: str) -> list[str]:
        return [one.state for one in kafkalog.remote_log(broker.log_dir, topics=topic)]

    try:
        broker.start()
        for topic in _TOPICS:
            settings = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1048576")
            tool("TopicCommand", "--create", "--topic", topic, *(f"--config={one}" for one in settings))
            numbers = ("--num-records", "4000", "--record-size", "1000", "--throughput", "-1")
            tool("ProducerPerformance", "--topic", topic, *numbers, at="--bootstrap-server")
        wait_until(
            lambda: all(states(topic).count("COPY_SEGMENT_FINISHED") >= 3 for topic in _TOPICS), "segments are copied"
        )
        before = kafkalog.remote_log(broker.log_dir)
        tool("TopicCommand", "--delete", "--topic", "deleted")
        wait_until(lambda: not states("deleted"), "remote segments are deleted")
        first = broker.log_dir / "kept-0" / f"{0:020d}.log"
        wait_until(lambda: not first.exists(), "copied segments are deleted")
        tiered = tool("GetOffsetShell", "--topic", "kept", "--time", "latest-tiered")
        client = Client(program, jars, folder)
        client.server = broker.address
        consumed = client.consume(folder / "consumed", ["kept"]).records["kept"]
        client.close()
        broker.stop()
        _begin_a_transaction(broker.log_dir / "__cluster_metadata-0")
        broker.start()
        topics = set(tool("TopicCommand", "--list").split())
        broker.kill()
        dumped = {}
        for topic, decoder in (("__remote_log_metadata", "remote-log"), ("__cluster_metadata", "cluster")):
            for path in sorted(broker.log_dir.glob(f"{topic}-*/*.log")):
                options = ["--print-data-log", f"--{decoder}-metadata-decoder", "--files", str(path)]
                command = [program, *QUICK_JVM, "-cp", jars, "org.apache.kafka.tools.DumpLogSegments", *options]
                dumped[path] = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield Told(broker.log_dir, before, int(tiered.split(":")[2]), storage, dumped, topics, consumed)
    finally:
        if broker.is_running:
            broker.kill()


def _begin_a_transaction(path: Path) -> None:
    """Append what a controller had written that ended within a transaction of its own."""

    def record(kind: str, **given: object) -> bytes:
        message = messages()[f"{kind}Record"]
        fields = {field.name: field.default for field in message.fields} | given
        return b"\x01" + uvarint(message.key or 0) + b"\0" + encoded(message.fields, fields, 0, True)

    records = [record("BeginTransaction", name="a change"), record("Topic", name="unborn", topicId=_UNBORN)]
    partition = kafkalog.open(path)
    batch = batch_v2(
        [record_v2(number, 0, key=None, value=value) for number, value in enumerate(records)],
        base_offset=partition.log_end_offset,
        leader_epoch=int(partition.leader_epochs["epoch"][-1]),
    )
    with partition.segments[-1].path.open("ab") as log:
        log.write(batch)


def test_segments_are_those_in_the_storage(told: Told) -> None:
    found = kafkalog.remote_log(told.log_dir)
    assert not found.findings
    assert not found.deleting
    assert {one.topic for one in found} == {"kept"}
    assert {one.topic for one in told.before} == set(_TOPICS)
    assert max(one.end_offset for one in found) == told.latest_tiered
    ends = [one.end_offset + 1 for one in found]
    assert [one.start_offset for one in found] == [0, *ends[:-1]]
    assert sorted(path.stat().st_size for path in told.folder.rglob("*.log")) == sorted(
        one.size_in_bytes for one in found
    )


def test_remote_and_local_segments_are_what_a_consumer_gets(told: Told, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    wanted = [(record["offset"], record["timestamp"], record["value"]) for record in told.consumed]
    assert len(wanted) == 4000
    joined = kafkalog.open(told.log_dir, tiered=told.folder)["kept", 0]
    assert any(segment.path.is_tiered for segment in joined.segments)
    assert not all(segment.path.is_tiered for segment in joined.segments)
    assert _records(joined) == wanted
    report = kafkalog.verify_tiered(told.folder, told.log_dir)
    assert report.ok
    assert not [fault for fault in report.faults if fault.topic == "kept"]
    alone = kafkalog.open(kafkalog.tiered_location(None, told.folder))["kept", 0]
    assert _records(alone) == wanted[: told.latest_tiered + 1]
    kafkalog.restore_tiered(told.folder, tmp_path / "new", told.log_dir, topics="kept")
    restored = kafkalog.open(tmp_path / "new")
    assert _records(restored["kept", 0]) == wanted
    assert kafkalog.verify(restored).ok


def _records(partition: Any) -> list[tuple[int, int, bytes]]:
    columns = partition.to_numpy(columns=["offset", "timestamp", "value"])
    return [*zip(columns.offset.tolist(), columns.timestamp.tolist(), columns.value, strict=True)]


def test_records_are_those_that_kafkas_tool_prints(told: Told) -> None:
    kinds = set()
    for path, text in told.dumped.items():
        topic = path.parent.name.rpartition("-")[0]
        dump = kafkalog.dump(path, print_data_log=True, topic_decoder=topic.strip("_").replace("_", "-"))
        assert b"".join(dump.chunks()).decode() == text
        kinds |= {record.type for record in kafkalog.history(told.log_dir, topic)}
    assert {"RemoteLogSegmentMetadata", "RemoteLogSegmentMetadataUpdate"} < kinds
    assert {"BeginTransaction", "AbortTransaction", "EndTransaction", "Topic"} < kinds


def test_a_transaction_of_metadata_that_the_controller_aborted(told: Told) -> None:
    kinds = [record.type for record in kafkalog.history(told.log_dir, "__cluster_metadata")]
    assert kinds.count("AbortTransaction") == 1
    found = kafkalog.metadata(told.log_dir)
    assert not found.findings
    assert {row["topic"] for row in found.topics} == told.topics
    assert "unborn" not in told.topics
