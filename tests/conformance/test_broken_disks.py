"""Disks of killed clusters with random damage: `boot` serves what is intact on any of them, and a broker goes on."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import builder
import pytest
from broken_clusters import KINDS, Batch, do_damage, intact_batches, said
from conformance.clusters import listeners, run_commands, served, three_brokers
from conformance.kafka import Client, copy_tree
from conformance.test_boot import QUICK, logs, shown
from effort import seeds, spared

import kafkalog
from kafkalog import format as kf

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LEVELS = ("read_uncommitted", "read_committed")
RELEASES = {"4.4.0": "4.4", "4.3.1": "4.3", "3.9.1": "3.9"}


class Written(NamedTuple):
    """A topic, and how it is written to."""

    replicas: int
    partitions: int = 1
    kind: str = "plain"
    is_transactional: bool = False
    configs: Mapping[str, Any] = MappingProxyType({})


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
TOPICS = {
    "single": Written(1, 3, "headers"),
    "single-payments": Written(1, 3, is_transactional=True),
    "single-table": Written(1, 2, "keyed", configs=COMPACTED),
    "orders": Written(3, 1, "headers"),
    "trimmed": Written(3),
    "payments": Written(3, 2, is_transactional=True),
    "table": Written(3, 1, "keyed", configs=COMPACTED),
}
START = 45
"""Where the log of `trimmed` begins: in the middle of a segment."""


class KilledDisks(NamedTuple):
    """Log dirs of three brokers that were killed, the third one earlier, and what clients saw before."""

    version: str
    log_dirs: list[Path]
    records: dict[str, dict[tuple[str, int], list[tuple[Any, ...]]]]
    """By isolation level and partition."""
    groups: list[Any]
    logs: dict[str, list[Batch]]
    """The batches of each partition, as they were on any disk."""


def write(client, topics, seed):
    for number, name in enumerate(topics):
        topic = TOPICS[name]
        how = {"seed": 100 * seed + number, "first": 1000 * seed, "kind": topic.kind, "topic": name}
        how |= {"partitions": topic.partitions}
        if topic.is_transactional:
            client.ask("transactions", **how, rounds=6, fence=seed == 2, open=seed == 2)
        else:
            client.ask("produce", **how, records=120, per_batch=7, codecs=["none", "zstd"], idempotent=True)


def read(client, folder, topics):
    """What clients of both levels get, by partition."""
    found = {}
    for level in LEVELS:
        rows = client.consume(folder / "read.jsonl", list(topics), isolation=level).records
        found[level] = {}
        for topic, some in rows.items():
            for row in some:
                found[level].setdefault((topic, row["partition"]), []).append(shown(row))
    return found


def offsets_of_groups(client):
    found = client.ask("groups")["groups"]
    return sorted((one["group"], sorted(row[:3] for row in one["offsets"])) for one in found)


def batches_of(folder):
    """The batches of a partition directory."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for start, end in builder.batch_positions(data):
            base, _, epoch, _, _, _, delta = struct.unpack_from(">qiibIhi", data, start)
            if end - start > 60:  # not the zeros of a preallocated file
                found.append(Batch(base, base + delta, epoch, data[start:end]))
    return found


def kill_a_cluster(client, folder, version):
    """Write, stop the third broker, write more, and stop the others."""
    small = "segment.bytes" if version.startswith("3") else "internal.segment.bytes"
    properties = {
        **QUICK,
        "replica.high.watermark.checkpoint.interval.ms": 300,
        "log.flush.start.offset.checkpoint.interval.ms": 300,
        "broker.session.timeout.ms": 2500,
        "broker.heartbeat.interval.ms": 500,
        "log.index.size.max.bytes": 100_000,
    }
    single = [name for name, topic in TOPICS.items() if topic.replicas == 1]
    others = [name for name in TOPICS if name not in single]
    with three_brokers(folder, client, version, **properties) as brokers:
        common = {"retention.ms": -1, "max.message.bytes": 4_000_000, small: 4000, "min.insync.replicas": 1}
        made = [
            {"name": name, "partitions": one.partitions, "replicas": one.replicas, "configs": {**common, **one.configs}}
            for name, one in TOPICS.items()
        ]
        client.ask("create", topics=made)
        write(client, TOPICS, 1)
        for group in ("simple", "classic", "consumer"):
            client.ask("commit", group=group, topic="orders")
        client.ask("resume", group="classic", topic="orders", protocol="classic", commit=20)
        if not version.startswith("3"):
            client.ask("resume", group="consumer", topic="orders", protocol="consumer", commit=30)
        client.ask("delete_records", topic="trimmed", partition=0, before=START)
        records = read(client, folder, single)
        time.sleep(2)
        brokers[2].kill()
        time.sleep(4)
        client.server = brokers[0].properties["listeners"].partition(",")[0].partition("//")[2]
        write(client, others, 2)
        client.ask("commit", group="late", topic="orders")
        more = read(client, folder, others)
        for level in LEVELS:
            records[level] |= more[level]
        groups = offsets_of_groups(client)
        time.sleep(2)
        for broker in brokers[:2]:
            broker.kill()
    log_dirs = [broker.log_dir for broker in brokers]
    found = {}
    for log_dir in log_dirs:
        for path in log_dir.iterdir():
            if path.is_dir() and not path.name.startswith("__cluster_metadata"):
                some = {one.data: one for one in [*found.get(path.name, ()), *batches_of(path)]}
                found[path.name] = sorted(some.values(), key=lambda one: one.first)
    return KilledDisks(version, log_dirs, records, groups, found)


@pytest.fixture(scope="module")
def own_client(tmp_path_factory):
    with Client(tmp_path_factory.mktemp("client")) as client:
        yield client


@pytest.fixture(scope="module", params=spared(RELEASES, 3))
def killed(request, own_client, tmp_path_factory):
    return kill_a_cluster(own_client, tmp_path_factory.mktemp("killed"), request.param)


class Disks:
    """Damaged copies of the disks of a killed cluster."""

    def __init__(self, killed, root, seed):
        self.rng, self.killed, self.done = random.Random(seed), killed, []
        self.disks = [copy_tree(one, root / f"disk-{number}") for number, one in enumerate(killed.log_dirs, 1)]

    def logs(self, folder):
        return sorted(folder.glob("*.log"))

    def damage(self, n):
        for _ in range(n):
            number = self.rng.randrange(3)
            names = sorted(path.name for path in self.disks[number].iterdir() if path.name in self.killed.logs)
            do_damage(self, self.rng.choice(KINDS), number, self.rng.choice(names or sorted(self.killed.logs)))

    def intact(self, name):
        """The batches of a partition that are whole on any disk, or None if no disk has a log of it."""
        folders = [disk / name for disk in self.disks if self.logs(disk / name)]
        some = [intact_batches(self, folder, [self.killed.logs[name]]) for folder in folders]
        return sorted(set().union(*some)) if folders else None


def expected(disks, level):
    """The records that clients of a level get, of those that are intact on any disk; by partition."""
    found = {}
    for (topic, partition), rows in disks.killed.records[level].items():
        batches = disks.intact(f"{topic}-{partition}")
        kept = {offset for one in batches or () for offset in range(one.first, one.last + 1)}
        found[topic, partition] = [row for row in rows if row[1] in kept]
    return found


def check_said(disks, report):
    """What is lost in the middle of a log is said, and nothing else; returns the partitions that lost something."""
    missing, lossy = {f"{plan.name}-{number}" for plan in report.topics for number in plan.missing}, set()
    for name, log in disks.killed.logs.items():
        batches = disks.intact(name)
        lost, _ = said(report, name)
        named = name in missing or any(one.damage for one in report.findings.rows if f"/{name}" in (one.path or ""))
        if named:
            lossy.add(name)
        if batches is None:
            lossy.add(name)
            assert named, (name, "no disk has it, and that is not said")
            continue
        kept = {offset for one in batches for offset in range(one.first, one.last + 1)}
        known = {offset for one in log for offset in range(one.first, one.last + 1)}
        if topic_of(name) == "table":
            continue  # each copy was cleaned at another time: gaps of one are filled in others
        # what a log has lost at its start looks like retention, and at its end as if it had not been written
        bases = {int(path.stem) for disk in disks.disks for path in disk.glob(f"{name}/*.log")}
        begin = min(kept | bases)
        inner = {offset for offset in known - kept if kept and begin <= offset < max(kept)}
        if topic_of(name) == "trimmed":
            inner = {offset for offset in inner if offset >= START}
        assert not lost & kept, (name, "said to be lost, and served", sorted(lost & kept))
        assert inner <= lost, (name, "lost, and not said", sorted(inner - lost))
        if inner:
            lossy.add(name)
    return lossy


def topic_of(name):
    return name.rpartition("-")[0]


def check_records(disks, client, folder, lossy):
    """Clients get what is intact on any disk."""
    got = read(client, folder, TOPICS)
    for level in LEVELS:
        for (topic, partition), rows in expected(disks, level).items():
            served_rows = got[level].get((topic, partition), [])
            where, name = (level, topic, partition), f"{topic}-{partition}"
            if TOPICS[topic].configs == COMPACTED:
                check_table(disks, where, rows, served_rows, name in lossy)
            elif level == "read_committed" and name in lossy:
                # of a transaction whose marker is lost, nothing is committed
                assert {row[1] for row in served_rows} <= {row[1] for row in rows}, where
            else:
                assert [row[1] for row in served_rows] == [row[1] for row in rows], where
                assert served_rows == rows, where


def check_table(disks, where, rows, served_rows, is_lossy):
    """Each key has its last value; copies that were cleaned at other times have other old ones."""
    last = {row[4]: row for row in rows}
    assert is_lossy or {row[4]: row for row in served_rows} == last, where
    known = {row[1]: row for row in disks.killed.records["read_uncommitted"][where[1:]]}
    assert all(known.get(row[1], row) == row for row in served_rows), where


def check_groups(disks, client, report, lossy):
    got, wanted = offsets_of_groups(client), disks.killed.groups
    if any(name.startswith(kf.CONSUMER_OFFSETS) for name in lossy):
        assert not report.ok
        assert {group for group, _ in got} <= {group for group, _ in wanted}
        return
    assert got == wanted


def ends(client):
    return {(one["topic"], one["partition"]): one["latest"] for one in client.ask("offsets", times={})["partitions"]}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", seeds(1))
def test_a_broker_serves_what_is_intact_on_any_disk(own_client, tmp_path, killed, seed):
    disks = Disks(killed, tmp_path, seed * 10 + int(killed.version[2]))
    disks.damage(disks.rng.choice((1, 2, 3, 5, 8)))
    print(killed.version, seed, disks.done)
    before = [logs(disk) for disk in disks.disks]
    sources = [*disks.disks]
    disks.rng.shuffle(sources)
    nodes = listeners(3 if seed % 4 == 3 else 1)
    report = kafkalog.boot(sources, tmp_path / "out", nodes=nodes, release=RELEASES[killed.version])
    print(report.text())
    assert [logs(disk) for disk in disks.disks] == before
    lossy = check_said(disks, report)
    assert report.ok == (not lossy), lossy
    with served(own_client, report, complains=True, version=killed.version):
        check_records(disks, own_client, tmp_path, lossy)
        check_groups(disks, own_client, report, lossy)
        if seed % 3 == 0:
            run_commands(report.next_commands(), tmp_path, killed.version)
            check_records(disks, own_client, tmp_path, lossy)
        write_more(own_client)
        groups, before = offsets_of_groups(own_client), ends(own_client)
    with served(own_client, report, complains=True, version=killed.version):
        assert ends(own_client) == before
        assert offsets_of_groups(own_client) == groups
        assert own_client.ask("send", topic="orders", records=1)["offsets"] == [before["orders", 0]]
    for node in report.nodes if len(nodes) == 1 else ():
        # the advice ends here
        data = Path(node.directory) / "data"
        assert kafkalog.verify(data).ok
        assert kafkalog.preflight(data).next == []


def write_more(client):
    """Records and transactions go on where the logs end."""
    for topic in TOPICS:
        if TOPICS[topic].configs == COMPACTED:
            continue
        at = ends(client)[topic, 0]
        for how in ({}, {"transactional_id": "new"}):
            sent = client.ask("send", topic=topic, records=3, **how)["offsets"]
            assert sent == [*range(at, at + 3)], topic
            at += 3
    client.ask("commit", group="new", topic="orders")
