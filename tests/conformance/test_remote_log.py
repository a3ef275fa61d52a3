"""Segments that a real broker moved to remote storage, and a transaction of metadata that its controller aborted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builder import batch_v2, record_v2
from conformance.clusters import listeners, served
from conformance.history import rows
from conformance.jars import class_path, java, tiered_storage
from conformance.kafka import Broker, Client, wait_until

import kafkalog
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.storage.location import is_tiered

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_TOPICS = {"kept": 1, "txn": 2, "deleted": 1}
_LEVELS = ("read_uncommitted", "read_committed")
_UNBORN = "AAAAAAAAAAAAAAAAAAAAZw"
Rows = list[dict[str, Any]]


class Told(NamedTuple):
    log_dir: Path
    """After the broker moved segments of all topics, and the one topic was deleted."""
    before: kafkalog.RemoteLog
    """Read before that topic was deleted."""
    latest_tiered: int
    """Of the topic `kept`, as the broker said."""
    folder: Path
    """Where the broker moved segments to."""
    dumped: dict[Path, str]
    """What Kafka's tool prints of `.log` files."""
    topics: set[str]
    """Which there are, as the broker said."""
    consumed: dict[str, Rows]
    """The records of the tiered topics, by isolation level, as a consumer got them."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    storage = folder / "storage"
    storage.mkdir()
    jars = os.pathsep.join([class_path(java()), tiered_storage(java())])
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(storage),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 2,
        "remote.log.manager.task.interval.ms": 200,
        "log.initial.task.delay.ms": 300,
        "log.retention.check.interval.ms": 300,
        "log.segment.delete.delay.ms": 100,
    }

    def states(topic):
        return [one.state for one in kafkalog.remote_log(broker.log_dir, topics=topic)]

    with Client(folder) as client, Broker(folder, jars=jars, **properties) as broker:
        broker.start()
        client.server = broker.address
        settings = {"remote.storage.enable": "true", "internal.segment.bytes": 20_000, "local.retention.bytes": 20_000}
        configs = {**settings, "retention.ms": -1}  # the records are old
        client.ask("create", topics=[{"name": one, "partitions": n, "configs": configs} for one, n in _TOPICS.items()])
        content = {"kind": "headers", "first": 0, "seed": 1}
        for topic, codecs in (("kept", ["none", "gzip", "snappy", "lz4", "zstd"]), ("deleted", ["none"])):
            options = {"partitions": 1, "records": 600, "per_batch": 10, "codecs": codecs, "idempotent": True}
            client.ask("produce", topic=topic, **content, **options)
        client.ask("transactions", topic="txn", partitions=2, rounds=60, fence=False, open=False, **content)
        wait_until(
            lambda: all(states(topic).count("COPY_SEGMENT_FINISHED") >= 3 * n for topic, n in _TOPICS.items()),
            "segments are copied",
        )
        before = kafkalog.remote_log(broker.log_dir)
        client.ask("delete_topic", topic="deleted")
        wait_until(lambda: not states("deleted"), "remote segments are deleted")
        firsts = [broker.log_dir / f"{topic}-0" / f"{0:020d}.log" for topic in ("kept", "txn")]
        wait_until(lambda: not any(first.exists() for first in firsts), "copied segments are deleted")
        tiered = broker.tool("GetOffsetShell", "--topic", "kept", "--time", "latest-tiered")
        consumed = {level: _consumed(client, folder, level) for level in _LEVELS}
        broker.stop()
        _begin_a_transaction(broker.log_dir / "__cluster_metadata-0")
        broker.start()
        topics = set(broker.tool("TopicCommand", "--list").split())
        broker.kill()
        dumped = {}
        for topic, decoder in (("__remote_log_metadata", "remote-log"), ("__cluster_metadata", "cluster")):
            for path in sorted(broker.log_dir.glob(f"{topic}-*/*.log")):
                options = ["--print-data-log", f"--{decoder}-metadata-decoder", "--files", path]
                dumped[path] = broker.tool("DumpLogSegments", *options, server=False)
        yield Told(broker.log_dir, before, int(tiered.split(":")[2]), storage, dumped, topics, consumed)


def _consumed(client, folder, level):
    found = client.consume(folder / "consumed", ["kept", "txn"], isolation=level).records
    return [record for topic in ("kept", "txn") for record in found[topic]]


def _read(log_dir, level):
    """The same of files, as a consumer gets it."""
    found = rows(log_dir, ["kept", "txn"], isolation_level=level)
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _begin_a_transaction(path):
    """Append what a controller had written that ended within a transaction of its own."""
    records = [
        encode_metadata_record("BeginTransaction", 0, name="a change"),
        encode_metadata_record("Topic", 0, name="unborn", topicId=_UNBORN),
    ]
    partition = kafkalog.open(path)
    batch = batch_v2(
        [record_v2(number, 0, key=None, value=value) for number, value in enumerate(records)],
        base_offset=partition.log_end_offset,
        leader_epoch=int(partition.leader_epochs["epoch"][-1]),
    )
    with partition.segments[-1].path.open("ab") as log:
        log.write(batch)


def test_segments_are_those_in_the_storage(told):
    found = kafkalog.remote_log(told.log_dir)
    assert not found.findings
    assert not found.deleting
    assert {one.topic for one in found} == {"kept", "txn"}
    assert {one.topic for one in told.before} == set(_TOPICS)
    kept = [one for one in found if one.topic == "kept"]
    assert max(one.end_offset for one in kept) == told.latest_tiered
    ends = [one.end_offset + 1 for one in kept]
    assert [one.start_offset for one in kept] == [0, *ends[:-1]]
    assert sorted(path.stat().st_size for path in told.folder.rglob("*.log")) == sorted(
        one.size_in_bytes for one in found
    )


def test_remote_and_local_segments_are_what_consumers_get(told):
    joined = kafkalog.open(told.log_dir, tiered=told.folder.as_uri())
    for key in ("kept-0", "txn-0", "txn-1"):
        assert {is_tiered(segment.path) for segment in joined[key].segments} == {True, False}
    n_records = [len(told.consumed[level]) for level in _LEVELS]
    assert n_records[0] > n_records[1] > 600
    for level in _LEVELS:
        assert _read(joined, level) == told.consumed[level]
    report = kafkalog.verify_tiered(told.folder, told.log_dir)
    assert report.ok
    assert not [fault for fault in report.faults if fault.topic in ("kept", "txn")]
    alone = kafkalog.open(kafkalog.tiered_location(None, told.folder))["kept", 0]
    offsets = [row["offset"] for row in told.consumed["read_uncommitted"] if row["topic"] == "kept"]
    assert alone.to_numpy(columns=["offset"]).offset.tolist() == offsets[: told.latest_tiered + 1]


def test_a_stock_broker_serves_the_restored_log_dir(told, tmp_path):
    findings = kafkalog.restore_tiered(told.folder, tmp_path / "new", told.log_dir, topics=["kept", "txn"])
    assert not [finding for finding in findings if finding.damage]
    restored = kafkalog.open(tmp_path / "new")
    assert kafkalog.verify(restored).ok
    report = kafkalog.boot(tmp_path / "new", tmp_path / "out", nodes=listeners())
    with Client(tmp_path) as client, served(client, report):
        for level in _LEVELS:
            assert _read(restored, level) == told.consumed[level]
            assert _consumed(client, tmp_path, level) == told.consumed[level]


def test_records_are_those_that_kafkas_tool_prints(told):
    kinds = set()
    for path, text in told.dumped.items():
        topic = path.parent.name.rpartition("-")[0]
        dump = kafkalog.dump(path, print_data_log=True, topic_decoder=topic.strip("_").replace("_", "-"))
        assert b"".join(dump.chunks()).decode() == text
        kinds |= {record.type for record in kafkalog.history(told.log_dir, topic)}
    assert {"RemoteLogSegmentMetadata", "RemoteLogSegmentMetadataUpdate"} < kinds
    assert {"BeginTransaction", "AbortTransaction", "EndTransaction", "Topic"} < kinds


def test_a_transaction_of_metadata_that_the_controller_aborted(told):
    kinds = [record.type for record in kafkalog.history(told.log_dir, "__cluster_metadata")]
    assert kinds.count("AbortTransaction") == 1
    found = kafkalog.metadata(told.log_dir)
    assert not found.findings
    assert {row["topic"] for row in found.topics} == told.topics
    assert "unborn" not in told.topics
