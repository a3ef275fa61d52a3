"""A 2.8.2 broker serves converted logs: v2 as that version knows it, whatever they were made of."""

import re
import shutil

import golden_sets
import pytest
from conformance.kafka import OldBroker, lines_said, wait_until

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAYS = {
    "p-v0-none": {},
    "p-v0-lz4": {},
    "p-v0-compact-gzip": {"compression": "snappy"},
    "p-v1-snappy": {"compression": "zstd", "batch_size": 5000},
    "p-v1-logappend": {},
    "p-v0v1v2-mixed": {"compression": "lz4"},
    "p-v1v2-compact": {"batch_size": 2000},
    "p-v2-txn": {"compression": "gzip"},
}
TROUBLE = re.compile("ERROR|Recovering|truncat|orrupt")


def test_an_old_broker_serves_converted_logs(client, tmp_path):
    with OldBroker(tmp_path, **{"log.cleaner.enable": "false"}) as broker:
        with broker.serving(client):
            topics = [{"name": name, "partitions": 1, "configs": {"retention.ms": -1}} for name in WAYS]
            client.ask("create", topics=topics)
        put_in_place(broker.log_dir, tmp_path / "converted")
        with broker.serving(client):
            # a broker under ZooKeeper takes requests before it leads
            wait_until(lambda: len(client.last_stable_offsets()) >= len(WAYS), "all partitions have leaders")
            read = {
                level: client.consume(tmp_path / f"{level}.jsonl", list(WAYS), isolation=level).records
                for level in ("read_uncommitted", "read_committed")
            }
    said = lines_said(broker.log.read_text(errors="replace"))
    assert [line for line in said if TROUBLE.search(line)] == []
    for level, records in read.items():
        for name in WAYS:
            expected = golden_sets.truth("k28", name, level)
            assert len(expected) > 50
            assert [facts(record) for record in records[name]] == [facts(as_v2(record)) for record in expected], name


def put_in_place(log_dir, staging):
    staging.mkdir()
    for name, options in WAYS.items():
        directory = log_dir / f"{name}-0"
        # a broker under ZooKeeper does without partition.metadata
        shutil.rmtree(directory)
        kafkalog.convert(golden_sets.partitions("k28")[directory.name], staging / directory.name, threads=1, **options)
        (staging / directory.name).rename(directory)


def as_v2(record):
    """A v0 message has no timestamp; as v2 it has -1, of CreateTime."""
    return {**record, "timestamp": -1, "timestamp_type": 0} if record["timestamp_type"] == -1 else record


def facts(record):
    return tuple(record[name] for name in ("offset", "timestamp", "timestamp_type", "key", "value"))
