"""A broker serves converted logs as it served what they were made of."""

import hashlib
import shutil

import golden_sets
import pytest
from conformance.history import FLOODED, INTERNAL, TOPICS
from conformance.kafka import QUIET, Broker, copy_tree, lines_said, parse_dump

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAYS = (
    {},
    {"compression": "zstd", "compression_level": 5, "batch_size": 4000},
    {"compression": "none", "config": kafkalog.LogConfig(segment_ms=20_000)},
    {"batch_size": 300},
    {"compression": "gzip"},
    {"drop": [("offset", "in", tuple(range(0, 10_000, 3)))]},
)
OLD = ("p-v0-none", "p-v0-lz4", "p-v0-compact-gzip", "p-v1-rdk", "p-v1-snappy", "p-v1-logappend", "p-v0v1v2-mixed")
TROUBLE = ("ERROR", "Recovering", "truncat", "orrupt", "stray", "Found invalid")
"""What a broker says of logs that are not as it left them."""
UNTOUCHED = (*FLOODED, *INTERNAL)


def ways():
    for number, name in enumerate(name for name in TOPICS if name not in UNTOUCHED):
        yield name, WAYS[number % len(WAYS)]


def converted(log_dir, target, topic, **options):
    """Partitions of a topic, in place of those that are in a stopped broker's log dir."""
    kafkalog.convert(log_dir, target, topics=topic, threads=1, **options)
    for path in sorted(target.iterdir()):
        if (log_dir / path.name).exists():
            shutil.rmtree(log_dir / path.name)
        path.rename(log_dir / path.name)
    target.rmdir()


def test_a_broker_serves_converted_logs_as_the_ones_before(history):
    folder = history.folder / "converting"
    folder.mkdir()
    broker = Broker(folder, **QUIET)
    copy_tree(history.clean.log_dir, broker.log_dir)
    for number, (name, options) in enumerate(ways()):
        converted(broker.log_dir, folder / str(number), name, **options)
    n_checked = check_with_the_dump_tool(history, broker.log_dir, [name for name, _ in ways()])
    assert n_checked > 60

    with broker.serving(history.client):
        history.client.ask(
            "create",
            topics=[
                {"name": name, "partitions": 1, "configs": {"retention.ms": -1, "cleanup.policy": "delete"}}
                for name in OLD
            ],
        )
        theirs = history.client.consume(history.folder / "converted.jsonl")
        committed = history.client.consume(history.folder / "converted.committed.jsonl", isolation="read_committed")
        stable = history.client.last_stable_offsets()
    assert trouble(broker) == []
    topics = [name for name, _ in ways()]
    assert len(topics) > 15
    n_dropped = 0
    for name, options in ways():
        every = 3 if "drop" in options else 10**9
        for ours, before in ((theirs, history.clean.truth), (committed, history.clean.committed)):
            expected = [record for record in before.records[name] if record["offset"] % every or every > 3]
            # leader epochs, too, are those of the batches
            assert ours.records[name] == expected, name
            n_dropped += len(before.records[name]) - len(expected)
    assert n_dropped > 100
    assert {key: stable[key] for key in history.clean.stable if key[0] in topics} == {
        key: offset for key, offset in history.clean.stable.items() if key[0] in topics
    }
    stopped = hashes(broker.log_dir, topics)

    for name in OLD:
        mine = broker.log_dir / f"{name}-0"
        metadata = (mine / "partition.metadata").read_bytes()
        shutil.rmtree(mine)
        kafkalog.convert(golden_sets.partitions("k28")[f"{name}-0"], mine.parent.parent / f"{name}-0", threads=1)
        (mine.parent.parent / f"{name}-0").rename(mine)
        (mine / "partition.metadata").write_bytes(metadata)
    assert check_with_the_dump_tool(history, broker.log_dir, OLD) > 10
    with broker.serving(history.client):
        old = history.client.consume(history.folder / "old.jsonl", list(OLD))
        history.client.ask(
            "produce",
            topic=OLD[0],
            kind="plain",
            partitions=1,
            seed=1,
            first=0,
            records=5,
            codecs=["none"],
            per_batch=5,
            idempotent=False,
        )
        more = history.client.consume(history.folder / "more.jsonl", [OLD[0]])
    assert trouble(broker) == []
    assert len(stopped) > 100
    assert hashes(broker.log_dir, topics) == stopped
    for name in OLD:
        expected = [
            (record["offset"], record["key"], record["value"], *stamp(record))
            for record in golden_sets.truth("k28", name)
        ]
        assert [
            (record["offset"], record["key"], record["value"], record["timestamp"], record["timestamp_type"])
            for record in old.records[name]
        ] == expected, name
    ends = [record["offset"] for record in more.records[OLD[0]]]
    assert ends == list(range(len(ends)))
    assert len(ends) == len(old.records[OLD[0]]) + 5


def hashes(log_dir, topics):
    """Of all files of some topics, less those in which a broker notes each time that it becomes the leader."""
    return {
        str(path.relative_to(log_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for topic in topics
        for path in sorted(log_dir.glob(f"{topic}-[0-9]*/*"))
        if path.name != "leader-epoch-checkpoint"
    }


def stamp(record):
    """A v0 message, which has no timestamp, reads as -1 of type CreateTime once it is v2."""
    return (-1, 0) if record["timestamp_type"] == -1 else (record["timestamp"], record["timestamp_type"])


def trouble(broker):
    """Lines of the broker's log of the last start that should not be there."""
    lines = lines_said(broker.log.read_text(errors="replace"))
    # what is raft's is recovered at each start
    return [line for line in lines if any(word in line for word in TROUBLE) and "__cluster_metadata" not in line]


def check_with_the_dump_tool(history, log_dir, topics):
    """How many files Kafka's own tool finds valid; it has to be all of them."""
    files = [str(path) for topic in topics for path in sorted(log_dir.glob(f"{topic}-[0-9]/*.log"))]
    out = history.folder / "converted.dump"
    history.client.ask("dump", logs=files, file=str(out))
    dumped = parse_dump(out.read_text())
    assert sorted(dumped) == sorted(files)
    assert all(batch["isvalid"] == "true" for batches in dumped.values() for batch in batches)
    return len(files)
