"""What is rebuilt is what Kafka 2.8 rebuilds, the last version that writes message formats v0 and v1."""

import time
from pathlib import Path

import pytest
from conformance.history import EVERY_CODEC, Topic
from conformance.kafka import QUIET, Client, OldBroker, copy_tree, wait_until
from conformance.test_rebuild import DERIVED, bare_copy, derived_files, epochs_below

import kafkalog
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.state.producers import read_snapshot

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BUSY = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
    "log.initial.task.delay.ms": 500,
}
SMALL = {"segment.bytes": 4000, "index.interval.bytes": 512, "retention.ms": -1}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
FORMATS = {"v0": "0.9.0", "v1": "0.10.2", "v2": "2.8"}
CODECS = {"v0": EVERY_CODEC[:4], "v1": EVERY_CODEC[:4], "v2": EVERY_CODEC}


def topics():
    """Formats by codecs, and what else changes an index or a snapshot."""
    chosen = {}
    for name, version in FORMATS.items():
        small = {**SMALL, "message.format.version": version}
        compacted = {**COMPACTED, "message.format.version": version}
        for codec in CODECS[name]:
            chosen[f"{name}-{codec}"] = Topic("plain", (codec,), 1, 90, configs=small)
        chosen[f"{name}-backwards"] = Topic("backwards", ("none", "gzip"), 2, 150, configs=small)
        chosen[f"{name}-compacted"] = Topic("keyed", ("none", "gzip"), 1, 300, configs=compacted)
        chosen[f"{name}-stamped"] = Topic(
            "plain", ("none", "lz4"), 1, 90, configs={**small, "message.timestamp.type": "LogAppendTime"}
        )
        dense = {"segment.bytes": 6000, "segment.index.bytes": 96, "index.interval.bytes": 0, "retention.ms": -1}
        # a message an append: of more, recovery makes more entries than an append does, and stops at a full index
        chosen[f"{name}-dense"] = Topic(
            "plain", ("none",), 1, 60, 1, configs={**dense, "message.format.version": version}
        )
    chosen["mixed"] = Topic("plain", ("none", "snappy"), 2, 80, configs={**SMALL, "message.format.version": "0.9.0"})
    chosen["idempotent"] = Topic("plain", ("none", "lz4", "zstd"), 2, 160, idempotent=True, configs=SMALL)
    chosen["transactions"] = Topic("headers", partitions=3, transactions=10, fence=True, configs=SMALL)
    chosen["compacted-transactions"] = Topic("keyed", partitions=1, transactions=12, configs=COMPACTED)
    return chosen


def test_kafka_2_8_rebuilds_the_same_from_every_format(tmp_path):
    with Client(tmp_path) as client, OldBroker(tmp_path, **BUSY) as broker:
        with broker.serving(client):
            write_everything(broker, client)
            broker.kill()
        broker.properties |= QUIET
        total = rebuilt_by_both(broker, client, tmp_path / "crashed")
        assert total["partitions"] >= 30
        assert total[".index"] >= 100
        assert total[".txnindex"] >= 2
        assert total[".snapshot"] >= 30

        # a second time from a clean stop whose marker got lost, in segments that were appended to after a restart
        with broker.serving(client):
            for number, (name, topic) in enumerate(topics().items()):
                # a dense index that missed an entry at the restart has no room for it: recovery fails on a full index
                if number % 3 == 0 and not name.endswith("dense"):
                    topic.produce(client, name, 900 + number, 20)
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
        total = rebuilt_by_both(broker, client, tmp_path / "stopped")
        assert total["partitions"] >= 30


def write_everything(broker, client):
    made = [{"name": name, "partitions": one.partitions, "configs": one.configs} for name, one in topics().items()]
    client.ask("create", topics=made)
    for number, (name, topic) in enumerate(topics().items()):
        topic.produce(client, name, number)
    for seed, version in enumerate((FORMATS["v2"], FORMATS["v1"], FORMATS["v2"])):
        client.ask("alter", topic="mixed", configs={"message.format.version": version})
        topics()["mixed"].produce(client, "mixed", 50 + seed)
    compacted = [name for name, topic in topics().items() if "cleanup.policy" in topic.configs]
    checkpoint = broker.log_dir / "cleaner-offset-checkpoint"

    def is_cleaned(name):
        bases = sorted(int(path.stem) for path in (broker.log_dir / f"{name}-0").glob("*.log"))
        return (read_offset_checkpoint(checkpoint) or {}).get(kafkalog.TopicPartition(name, 0), -1) >= bases[-1]

    wait_until(lambda: all(map(is_cleaned, compacted)), "everything is compacted")
    # a transaction is left open by the crash
    topics()["transactions"].produce(client, "transactions", 77, 30)


def rebuilt_by_both(broker, client, ours):
    """What is left of a log dir without derived files, rebuilt by the broker where it lies and by us in a copy."""
    bare_copy(broker.log_dir, ours)
    logs = {path.relative_to(ours): path.read_bytes() for path in ours.rglob("*.log")}
    copy_tree(ours, broker.log_dir)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.log_dir / name).unlink(missing_ok=True)
    now = int(time.time() * 1000)
    with broker.serving(client):
        broker.kill()
    intervals = {name: topic.configs["index.interval.bytes"] for name, topic in topics().items()}
    for directory in (path for path in ours.iterdir() if path.is_dir()):
        interval = intervals.get(directory.name.rpartition("-")[0], 4096)
        report = kafkalog.reindex(directory, kinds=KINDS, in_place=True, now=now, index_interval_bytes=interval)
        assert report.findings.rows == []
    return compare(logs, broker.log_dir, ours)


def compare(logs, theirs, ours):
    """Derived files have to be equal; how many, by suffix."""
    n = dict.fromkeys((*DERIVED, "partitions"), 0)
    for directory in sorted(path.name for path in ours.iterdir() if path.is_dir()):
        now = {path.relative_to(theirs): path.read_bytes() for path in (theirs / directory).glob("*.log")}
        if any(logs.get(name) != data for name, data in now.items()):
            continue  # the coordinator ended a transaction
        n["partitions"] += 1
        expected, found = derived_files(theirs / directory), derived_files(ours / directory)
        assert sorted(found) == sorted(expected), directory
        for name, data in expected.items():
            where = f"{directory}/{name}"
            suffix = Path(name).suffix
            n[suffix] += 1
            if suffix == ".snapshot":
                # entries come out of a hash map of Scala's, whose order is another
                mine, yours = (read_snapshot(root / where).entries.tolist() for root in (ours, theirs))
                assert sorted(mine) == sorted(yours), where
            else:
                assert data == found[name] + bytes(len(data) - len(found[name])), where  # allocated ahead
        end = kafkalog.Partition(ours / directory).log_end_offset
        # an old format in between made the broker forget where the epoch began; the batches still tell
        if not directory.startswith("mixed-"):
            assert epochs_below(ours / directory, end) == epochs_below(theirs / directory, end), directory
    return n
