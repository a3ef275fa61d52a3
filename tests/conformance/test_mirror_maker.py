"""A real MirrorMaker 2 between two brokers: groups continue at the right records, or the answer says why not."""

import random
import signal
import subprocess
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest
from conformance.history import COMPACTED, Topic
from conformance.jars import java, mirror_maker
from conformance.kafka import PATIENCE, Broker, jvm, wait_until

import kafkalog
from kafkalog.cli import main
from kafkalog.comparing.content import compare
from kafkalog.comparing.translation import translate

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEGMENT = {"internal.segment.bytes": 20_000}
TOPICS = {
    "orders": Topic("headers", ("none", "lz4", "zstd"), 3, 600, configs=SEGMENT),
    "repeated": Topic("plain", ("none", "gzip"), 2, 200, configs=SEGMENT),
    "transactions": Topic("headers", partitions=2, transactions=14, configs=SEGMENT),
    "compacted": Topic("keyed", ("none", "zstd"), 2, 600, configs={**COMPACTED, **SEGMENT}),
}
CLEANER = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 10**9,
}
INTERNAL = {f"{name}.topic.replication.factor": 1 for name in ("checkpoints", "heartbeats", "offset-syncs")}
INTERNAL |= {f"{name}.storage.replication.factor": 1 for name in ("offset", "status", "config")}


class MirrorMaker:
    """MirrorMaker 2 in its dedicated mode, from one broker to another, whose copies are called ``primary.NAME``."""

    def __init__(self, folder, source, target):
        self._folder, self._process, self._n_starts = folder, None, 0
        properties = {
            "clusters": "primary, backup",
            "primary.bootstrap.servers": source.address,
            "backup.bootstrap.servers": target.address,
            "primary->backup.enabled": "true",
            "primary->backup.topics": ", ".join(TOPICS),
            "primary->backup.groups": "group-.*",
            "backup->primary.enabled": "false",
            "primary.consumer.isolation.level": "read_committed",
            # its batches have to fit into the segments, whose size it copies
            "backup.producer.batch.size": 4000,
            "replication.factor": 1,
            "tasks.max": 2,
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "refresh.topics.interval.seconds": 2,
            "refresh.groups.interval.seconds": 2,
            "offset.flush.interval.ms": 1000,
            **INTERNAL,
        }
        self._config = folder / "mirror.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def start(self):
        """Start it; it copies some seconds later."""
        self._n_starts += 1
        command = jvm(
            "org.apache.kafka.connect.mirror.MirrorMaker",
            self._config,
            jars=mirror_maker(java()),
            said="info",
            memory="384m",
        )
        with (self._folder / f"mirror-{self._n_starts}.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def end(self, how=signal.SIGTERM):
        """End it: in order, or as a crash, after which it copies some records again."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()


class Mirrored(NamedTuple):
    """Two log dirs, and what consumers of both got while the brokers ran."""

    a: Any
    b: Any
    written: dict[tuple[str, int], dict[int, tuple[Any, ...]]]
    """By partition of `a` and offset, all that readers ever got, also before the compaction."""
    copied: dict[tuple[str, int], list[tuple[int, tuple[Any, ...]]]]
    committed: dict[tuple[str, str, int], int]
    checkpoints: dict[tuple[str, str, int], int]
    """What MirrorMaker itself committed in `b`."""


def content(record):
    """What makes a record, wherever it is."""
    headers = tuple((name, value) for name, value in record["headers"])
    return record["key"], record["value"], record["timestamp"], headers


def by_partition(truth):
    """What a consumer got: by partition, offsets and contents in order."""
    found = defaultdict(list)
    for topic, records in truth.records.items():
        for record in records:
            found[topic, record["partition"]].append((record["offset"], content(record)))
    return found


def consumed(client, broker, file, topics):
    """All committed records of topics."""
    client.server = broker.address
    return by_partition(client.consume(file, topics, isolation="read_committed"))


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory, client):
    """Two brokers and a MirrorMaker that was killed and started again while producers wrote."""
    rng = random.Random(43)
    before = client.server
    folders = [tmp_path_factory.mktemp(name) for name in ("primary", "backup", "mirror")]
    with Broker(folders[0], **CLEANER) as primary, Broker(folders[1], **CLEANER) as backup:
        for broker in (primary, backup):
            broker.start()
            client.server = broker.address
            client.ask("ready")
        mirror = MirrorMaker(folders[2], primary, backup)
        try:
            yield _play(rng, client, primary, backup, mirror, folders[2])
        finally:
            mirror.end(signal.SIGKILL)
            client.server = before


def _play(rng, client, primary, backup, mirror, scratch):
    written = defaultdict(dict)
    committed = {}
    names = [f"primary.{name}" for name in TOPICS]

    def read():
        for place, records in consumed(client, primary, scratch / "records", [*TOPICS]).items():
            written[place] |= dict(records)

    def produce(seed):
        client.server = primary.address
        for number, (name, topic) in enumerate(TOPICS.items()):
            # the same records several times
            topic.produce(client, name, 7 if name == "repeated" else seed + number)
        read()

    def commit(groups):
        for group in groups:
            offsets = [[*place, rng.randint(0, max(records) + 1)] for place, records in written.items()]
            client.server = primary.address
            client.ask("commit_at", group=group, offsets=offsets)
            committed.update({(group, topic, partition): offset for topic, partition, offset in offsets})

    def has_all():
        got = consumed(client, backup, scratch / "records", names)
        ends = {place: records[max(records)] for place, records in written.items()}
        return all(
            (some := got[f"primary.{topic}", partition]) and some[-1][1] == end
            for (topic, partition), end in ends.items()
        )

    client.server = primary.address
    client.ask("create", topics=[
        {"name": name, "partitions": topic.partitions, "configs": {"retention.ms": -1, **topic.configs}}
        for name, topic in TOPICS.items()
    ])  # fmt: skip
    produce(100)
    mirror.start()
    wait_until(lambda: {*names} <= _topics_of(client, backup), "MirrorMaker makes the topics")
    wait_until(has_all, "MirrorMaker copies")
    commit(["group-early"])
    produce(300)
    mirror.end(signal.SIGKILL)
    produce(500)
    mirror.start()
    wait_until(has_all, "MirrorMaker copies what is left")
    commit([f"group-{number}" for number in range(6)])
    wait_until(lambda: len(_groups_of(client, backup)) >= 7, "MirrorMaker translates offsets")
    mirror.end()
    copied = consumed(client, backup, scratch / "records", names)
    checkpoints = _groups_of(client, backup)
    backup.stop()
    # compaction takes more from the source than from the copy
    wait_until(lambda: _is_compacted(primary), "the cleaner runs")
    primary.stop()
    return Mirrored(primary.log_dir, backup.log_dir, dict(written), copied, committed, checkpoints)


def _topics_of(client, broker):
    client.server = broker.address
    return {topic for topic, _ in client.last_stable_offsets()}


def _groups_of(client, broker):
    """The offsets of groups: by group, topic and partition."""
    client.server = broker.address
    return {
        (row["group"], topic.removeprefix("primary."), partition): offset
        for row in client.ask("groups")["groups"]
        for topic, partition, offset, *_ in row["offsets"]
        if row["group"].startswith("group-")
    }


def _is_compacted(broker):
    checkpoint = broker.log_dir / "cleaner-offset-checkpoint"
    return checkpoint.is_file() and "compacted" in checkpoint.read_text()


def offsets_in(log_dir, topic, partition):
    """The offsets of the committed records that a log has now."""
    records = kafkalog.read_table(
        log_dir, topics=topic, partitions=[partition], isolation_level="read_committed", columns=["offset"]
    )
    return records["offset"].to_pylist()


def test_the_copies_have_the_same_records(mirrored, capsys):
    found = compare(mirrored.a, mirrored.b, topics=[*TOPICS], isolation_level="read_committed")
    assert [(one.topic_a, one.topic_b) for one in found.topics] == [
        (name, f"primary.{name}") for name in sorted(TOPICS)
    ]
    for one in found.topics:
        # each side compacts when it likes
        assert one.topic_a == "compacted" or not (one.n_missing_in_a or one.n_missing_in_b), one
    assert main(["diff", "--content", str(mirrored.a), str(mirrored.b), "-t", "orders"]) in (0, 1)
    assert "orders = primary.orders" in capsys.readouterr().out


def test_each_group_goes_on_at_the_right_record(mirrored):
    found = translate(mirrored.a, mirrored.b, groups="group-*", isolation_level="read_committed").offsets
    places = {(one.group, one.from_topic, one.from_partition): one for one in found}
    assert places.keys() == mirrored.committed.keys()
    certainties = defaultdict(Counter)
    for (group, topic, partition), committed in mirrored.committed.items():
        one = places[group, topic, partition]
        assert one.topic == f"primary.{topic}", one
        certainties[topic][one.certainty] += 1
        records = mirrored.written[topic, partition]
        there = mirrored.copied[f"primary.{topic}", partition]
        if one.offset is None:
            continue
        # of equal records, any may be the one that is unread
        unread = Counter(what for offset, what in records.items() if offset >= committed)
        # each side compacts when it likes, also after its consumer has read it
        left = Counter(records[at] for at in offsets_in(mirrored.a, topic, partition) if at >= committed)
        kept = {*offsets_in(mirrored.b, one.topic, partition)}
        got = Counter(what for offset, what in there if offset >= one.offset)
        assert left & Counter(what for offset, what in there if offset in kept) <= got, one
        theirs = mirrored.checkpoints.get((group, topic, partition))
        if theirs is not None:
            assert one.offset >= theirs, one
        if one.certainty == "exact":
            assert got <= unread, one
        else:
            assert one.why, one
    assert mirrored.checkpoints
    for topic in ("orders", "transactions"):
        assert {*certainties[topic]} == {"exact"}
