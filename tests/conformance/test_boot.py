"""Stock brokers start on what `kafkalog.boot` makes, and serve what the brokers of the golden sets served."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conformance.clusters import listeners, run_commands, served, three_brokers
from conformance.kafka import Client, wait_until
from coordinator_records import drawn, expiring_groups
from effort import spared
from golden_sets import truth, truth_topics, unpacked
from tiered_sets import TieredSet

import kafkalog
from kafkalog.booting import boot as booting
from kafkalog.booting.coordinators import coordinator_partition
from kafkalog.cli.app import main
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.system_topics.coordinator_load import load_failures
from kafkalog.writing.partition_writer import PartitionWriter

pytestmark = pytest.mark.broker

QUICK = {
    "log.retention.check.interval.ms": 700,
    "log.cleaner.backoff.ms": 300,
    "log.initial.task.delay.ms": 300,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
}
"""So that retention and cleaner run while the tests look."""


def logs(root):
    return {
        f"{path.parent.name}/{path.name}": (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.glob("*/*.log"))
        if not path.parent.name.startswith("__cluster_metadata")
    }


def check_logs(before, root):
    """Old bytes are where they were."""
    for name, (size, digest) in before.items():
        data = (root / name).read_bytes()
        assert hashlib.sha256(data[:size]).hexdigest() == digest, name


def check_records(client, name, tmp_path):
    n = 0
    topics = [topic for topic in truth_topics(name) if not topic.startswith("__")]
    for level in ("read_uncommitted", "read_committed"):
        found = client.consume(tmp_path / "read.jsonl", topics, isolation=level).records
        for topic in topics:
            wanted = [shown(one) for one in truth(name, topic, level)]
            assert [shown(one) for one in found[topic]] == wanted, (topic, level)
            n += len(wanted)
    return n


def shown(record):
    """A record as clients of all versions show it: for those without a time, they do not agree."""
    epoch = record["leader_epoch"]
    headers = [(one.encode() if isinstance(one, str) else one, value) for one, value in record["headers"]]
    time = (record["timestamp"], record["timestamp_type"]) if record["timestamp"] > 0 else None
    place = record["partition"], record["offset"], time, -1 if epoch is None else epoch
    return (*place, record["key"], record["value"], headers)


@pytest.fixture(scope="module")
def own_client(tmp_path_factory):
    """A client that no other module's broker has."""
    with Client(tmp_path_factory.mktemp("client")) as client:
        yield client


@pytest.mark.slow
def test_the_newest_broker_serves_the_log_dir_of_4_4(own_client, tmp_path):
    source, out = unpacked("k44"), tmp_path / "out"
    report = kafkalog.boot(source, out, nodes=listeners())
    wanted = {
        (one.name, row.topic, row.partition): (row.offset, row.leader_epoch, row.metadata)
        for one in kafkalog.groups(source)
        for row in one.offsets
        if one.type != "share"
    }
    before = logs(out / "data")
    with served(own_client, report, **QUICK):
        assert check_records(own_client, "k44", tmp_path) > 15_000
        found = {
            (group["group"], topic, partition): (offset, epoch, metadata)
            for group in own_client.ask("groups")["groups"]
            for topic, partition, offset, epoch, metadata in group["offsets"]
        }
        assert wanted
        assert {key: found.get(key) for key in wanted} == wanted
        end = kafkalog.open(source)["p-default", 0].log_end_offset
        assert own_client.ask("send", topic="p-default", records=5)["offsets"] == [*range(end, end + 5)]
        end += 5
        sent = own_client.ask("send", topic="p-default", records=3, transactional_id="new")["offsets"]
        assert sent == [*range(end, end + 3)]
    check_logs(before, out / "data")


def seven_records(root, n=7):
    """A partition with one batch of producer 0, which is not expired."""
    now = time.time_ns() // 10**6
    with PartitionWriter(root / "collide-0", producer=(0, 0)) as writer:
        writer.append({"value": [b"old"] * n, "timestamp": [now] * n})
    return root


@pytest.mark.slow
def test_the_newest_broker_serves_the_log_dir_of_2_8_and_groups_from_a_file(own_client, tmp_path):
    (tmp_path / "more").mkdir()
    sources = [unpacked("k28"), seven_records(tmp_path / "more")]
    commits = tmp_path / "commits.jsonl"
    names = [f"group-{number}" for number in range(30)]
    rows = [{"group": name, "topic": "p-v2-none", "partition": 0, "offset": 100 + n} for n, name in enumerate(names)]
    commits.write_text("\n".join(map(json.dumps, rows)))
    report = kafkalog.boot(sources, tmp_path / "out", groups=commits, nodes=listeners())
    before = logs(tmp_path / "out" / "data")
    with served(own_client, report, **QUICK):
        assert check_records(own_client, "k28", tmp_path) > 10_000
        found = {one["group"]: one["offsets"] for one in own_client.ask("groups")["groups"]}
        assert found == {name: [["p-v2-none", 0, 100 + number, -1, ""]] for number, name in enumerate(names)}
        assert len({coordinator_partition(name, 50) for name in names}) > 15
        for number, protocol in ((3, "classic"), (4, "consumer")):
            answer = own_client.ask("resume", group=names[number], topic="p-v2-none", protocol=protocol)
            assert answer["offset"] == 100 + number
        # with an id that the log has, these would be acknowledged at the old offsets and not be written
        assert own_client.ask("send", topic="collide", records=7)["offsets"] == [*range(7, 14)]
    check_logs(before, tmp_path / "out" / "data")
    assert kafkalog.open(tmp_path / "out" / "data")["collide", 0].log_end_offset == 14


@pytest.mark.slow
@pytest.mark.parametrize("version", spared(["3.9.1", "4.0.1", "4.4.0"], 2))
def test_brokers_of_other_releases_serve_the_log_dir_of_4_4(own_client, tmp_path, version):
    release = version.rpartition(".")[0]
    report = kafkalog.boot(unpacked("k44"), tmp_path / "out", release=release, nodes=listeners())
    before = logs(tmp_path / "out" / "data")
    with served(own_client, report, complains=True, version=version):
        assert check_records(own_client, "k44", tmp_path) > 15_000
    check_logs(before, tmp_path / "out" / "data")


@pytest.mark.slow
def test_three_nodes_follow_the_best_copy(own_client, tmp_path):
    whole, sources = tmp_path / "whole" / "orders-0", []
    whole.parent.mkdir()
    with PartitionWriter(whole, topic_id="AAAAAAAAAAAAAAAAAAAAAQ") as writer:
        for first in (0, 10, 20, 30):
            writer.append({"value": [b"v%d" % i for i in range(first, first + 10)]})
    for number, n in ((1, 30), (2, 40), (3, 20)):
        source = tmp_path / f"broker-{number}"
        source.mkdir()
        kafkalog.truncate(whole, to_offset=n, output=source / "orders-0")
        (source / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={number}\n")
        sources.append(source)
    report = kafkalog.boot(sources, tmp_path / "out", nodes=listeners(3))
    with served(own_client, report) as brokers:
        rows = own_client.consume(tmp_path / "read.jsonl", ["orders"]).records["orders"]
        assert [row["value"] for row in rows] == [b"v%d" % i for i in range(40)]
        wait_until(lambda: len({*map(size, brokers)}) == 1, "the others catch up")
        assert own_client.ask("send", topic="orders", records=2)["offsets"] == [40, 41]
    read = [kafkalog.read_table(broker.log_dir, topics="orders") for broker in brokers]
    assert read[0].num_rows == 42
    assert read[0].equals(read[1])
    assert read[0].equals(read[2])


def test_outputs_of_all_commands_that_repair_or_make_partitions_are_served(own_client, tmp_path):
    """Salvage, merge, convert, tiered restore and load, in one boot."""
    wanted = {}

    def some(set_name, name, folder):
        return Path(shutil.copytree(unpacked(set_name) / f"{name}-0", tmp_path / folder / f"{name}-0"))

    def truths(set_name, topic):
        levels = ("read_uncommitted", "read_committed")
        return {level: [shown(one) for one in truth(set_name, topic, level)] for level in levels}

    # a batch in the middle of a closed segment is damaged: its records are lost, and no others
    damaged = some("k44", "p-none-java", "damaged")
    log = sorted(damaged.glob("*.log"))[0]
    batches = kafkalog.open(log).batches
    lost = range(int(batches.base_offset[3]), int(batches.last_offset[3]) + 1)
    data = bytearray(log.read_bytes())
    data[int(batches.position[3]) + 70] ^= 1
    log.write_bytes(data)
    kafkalog.salvage(damaged.parent, tmp_path / "salvaged")
    rows = truths("k44", "p-none-java")
    wanted["p-none-java"] = {level: [row for row in found if row[1] not in lost] for level, found in rows.items()}
    assert len(wanted["p-none-java"]["read_committed"]) == len(rows["read_committed"]) - len(lost)
    # each replica misses the end, or a piece that the other one has
    copies = [some("k44", "p-txn", name) for name in ("one", "other")]
    end = kafkalog.open(copies[0]).log_end_offset
    kafkalog.truncate(copies[0], to_offset=end - 30, in_place=True, backup=tmp_path / "cut")
    sorted(copies[1].glob("*.log"))[0].unlink()
    kafkalog.merge(copies, tmp_path / "merged")
    wanted["p-txn"] = truths("k44", "p-txn")
    mixed = some("k28", "p-v0v1v2-mixed", "old")
    kafkalog.convert(mixed.parent, tmp_path / "converted")
    wanted["p-v0v1v2-mixed"] = truths("k28", "p-v0v1v2-mixed")
    tiered = TieredSet(some("k44", "p-zstd-java", "local").parent, tmp_path / "remote")
    tiered.move("p-zstd-java-0")
    kafkalog.restore_tiered(tiered.remote, tmp_path / "restored", tiered.log_dir)
    wanted["p-zstd-java"] = truths("k44", "p-zstd-java")
    lines = [f"k{i % 9},{i},{1_700_000_000_000 + i}" for i in range(50)]
    (tmp_path / "rows.csv").write_text("\n".join(["key,value,timestamp", *lines, ""]))
    words = ["--topic", "loaded", "--partitions", "3", "--encoding", "utf8", "--compression", "zstd", "-q"]
    assert main(["load", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "loaded"), *words]) == 0
    made = [tmp_path / name for name in ("salvaged", "merged", "converted", "restored", "loaded")]
    report = kafkalog.boot(made, tmp_path / "out", nodes=listeners())
    with served(own_client, report, **QUICK):
        for level in ("read_uncommitted", "read_committed"):
            found = own_client.consume(tmp_path / "read.jsonl", [*wanted, "loaded"], isolation=level).records
            rows = sorted(found.pop("loaded"), key=lambda row: row["timestamp"])
            assert [(row["key"], row["value"]) for row in rows] == [(b"k%d" % (i % 9), b"%d" % i) for i in range(50)]
            keys = [base64.b64encode(row["key"]).decode() for row in rows]
            asked = own_client.ask("murmur2", keys=keys, partitions=3)["partitions"]
            assert [row["partition"] for row in rows] == asked
            for topic, rows in found.items():
                assert [essence(shown(row)) for row in rows] == [essence(row) for row in wanted[topic][level]], topic


def essence(row):
    """A record without its leader epoch, which converted ones have not."""
    return (*row[:3], *row[4:])


class KilledCluster(NamedTuple):
    """What three brokers left that were killed at once, and what their clients saw before."""

    log_dirs: list[Path]
    records: dict[str, dict[str, list[tuple[Any, ...]]]]
    """Of the quiet topics, by isolation level."""
    acknowledged: dict[tuple[int, int], bytes]
    """Values of the topic that was written to, by partition and offset."""
    groups: list[Any]


QUIET = [{"name": "orders", "partitions": 3}, {"name": "payments.v1_x", "partitions": 2}]


@contextmanager
def ending(client):
    """End a client at once, whatever it is doing."""
    try:
        yield
    finally:
        client.kill()
        client.close()


@pytest.fixture(scope="module")
def killed_cluster(own_client, tmp_path_factory):
    """Three stock nodes, each a broker and a controller; every topic has three replicas."""
    folder = tmp_path_factory.mktemp("three")
    writer = Client(folder)
    with ending(writer), three_brokers(folder, own_client) as brokers:
        writer.server = own_client.server
        made = [*QUIET, {"name": "busy", "partitions": 2}]
        own_client.ask("create", topics=[{**one, "replicas": 3, "configs": {}} for one in made])
        for one in QUIET:
            how = {"seed": 1, "first": 0, "kind": "headers", "topic": one["name"], "partitions": one["partitions"]}
            codecs = ["none", "zstd"]
            own_client.ask("produce", **how, records=400, per_batch=9, codecs=codecs, idempotent=True)
            own_client.ask("transactions", **how, rounds=4, fence=True, open=True)
        for group in ("a", "b", "some group"):
            own_client.ask("commit", group=group, topic="orders")
        records = {level: quiet(own_client, folder, level) for level in ("read_uncommitted", "read_committed")}
        groups = committed(own_client)
        stream = {"topic": "busy", "partitions": 2, "file": str(folder / "acknowledged")}

        def write():
            with pytest.raises(RuntimeError):
                writer.ask("stream", **stream)

        thread = threading.Thread(target=write)
        thread.start()
        wait_until(lambda: len(lines(folder / "acknowledged")) > 2000, "the producer writes")
        for broker in brokers:
            broker.kill()
    thread.join()
    rows = [line.split() for line in lines(folder / "acknowledged")]
    acknowledged = {(int(partition), int(offset)): value.encode() for partition, offset, value in rows}
    return KilledCluster([broker.log_dir for broker in brokers], records, acknowledged, groups)


def lines(path):
    """The complete lines of a file that somebody writes to."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def quiet(client, folder, level):
    found = client.consume(folder / "read.jsonl", [one["name"] for one in QUIET], isolation=level).records
    return {topic: [shown(record) for record in some] for topic, some in found.items()}


def committed(client):
    found = client.ask("groups")["groups"]
    return sorted((one["group"], sorted(one["offsets"])) for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_killed_cluster_is_served_again(own_client, tmp_path, killed_cluster, nodes):
    sources = killed_cluster.log_dirs
    before = [logs(source) for source in sources]
    out = tmp_path / "out"
    report = kafkalog.boot(sources, out, nodes=listeners(nodes))
    assert report.ok, report.text()
    with served(own_client, report):
        for level, wanted in killed_cluster.records.items():
            assert quiet(own_client, tmp_path, level) == wanted
        busy = own_client.consume(tmp_path / "read.jsonl", ["busy"]).records["busy"]
        found = {(row["partition"], row["offset"]): row["value"] for row in busy}
        assert len(killed_cluster.acknowledged) > 2000
        assert killed_cluster.acknowledged.items() <= found.items()
        assert committed(own_client) == killed_cluster.groups
        end = max(offset for partition, offset in found if partition == 0) + 1
        assert own_client.ask("send", topic="busy", records=3)["offsets"] == [end, end + 1, end + 2]
    assert [logs(source) for source in sources] == before


def known(data):
    """The partitions that a node's metadata log has now."""
    cluster = read_cluster_metadata(data)
    assert cluster is not None
    return [one for topic in cluster.topic_ids for one in cluster.partitions(topic).values()]


@pytest.mark.slow
def test_one_of_three_controllers_is_rescued(own_client, tmp_path):
    kafkalog.write_table({"value": [b"x"] * 20}, tmp_path / "log", topic="orders")
    report = kafkalog.boot(tmp_path / "log", tmp_path / "out", nodes=listeners(3))
    data = tmp_path / "out" / "node-1" / "data"
    with served(own_client, report):
        assert own_client.ask("send", topic="orders", records=2)["offsets"] == [20, 21]
        # those of internal topics, too
        wait_until(lambda: all(len(one.isr) == len(one.replicas) for one in known(data)), "replicas are in sync")
    told = kafkalog.rescue_quorum(data, dry_run=True)
    assert (told.is_dynamic, told.voters, told.orphaned) == (True, [1, 2, 3], {})
    state = data / "__cluster_metadata-0" / "quorum-state"
    state.write_bytes(bytes(120))
    found = kafkalog.rescue_quorum(data / "__cluster_metadata-0", backup=tmp_path / "before")
    assert found.is_written
    assert [step for step in found.next_steps() if step.startswith(f"move away what stops the start: {state}")]
    state.unlink()
    assert kafkalog.preflight(data, topics="!*").problems == []
    report.nodes = report.nodes[:1]
    properties = tmp_path / "out" / "node-1" / "server.properties"
    lines = [line for line in properties.read_text().splitlines() if "bootstrap.servers" not in line]
    properties.write_text("\n".join([*lines, f"controller.quorum.bootstrap.servers={report.nodes[0].controller}", ""]))
    with served(own_client, report, complains=True, leaderless=True):
        rows = own_client.consume(tmp_path / "read.jsonl", ["orders"]).records["orders"]
        assert len(rows) == 22
        assert own_client.ask("send", topic="orders", records=2)["offsets"] == [22, 23]


def size(broker):
    return sum(path.stat().st_size for path in (broker.log_dir / "orders-0").glob("*.log"))


@pytest.mark.slow
def test_a_missing_partition_goes_on_where_it_was(own_client, tmp_path):
    kafkalog.write_table({"value": [b"x"] * 20}, tmp_path / "log", topic="orders", partitions=2)
    shutil.rmtree(tmp_path / "log" / "orders-0")
    (tmp_path / "log" / "replication-offset-checkpoint").write_text("0\n1\norders 0 70\n")
    report = kafkalog.boot(tmp_path / "log", tmp_path / "out", nodes=listeners())
    with served(own_client, report):
        assert own_client.ask("send", topic="orders", records=2)["offsets"] == [70, 71]


@pytest.mark.slow
def test_without_its_producer_ids_a_broker_acknowledges_what_it_does_not_write(own_client, tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    monkeypatch.setattr(booting._Boot, "_next_producer_id", lambda boot: 0)
    report = kafkalog.boot(seven_records(tmp_path / "old"), tmp_path / "out", nodes=listeners())
    with served(own_client, report):
        assert own_client.ask("send", topic="collide", records=7)["offsets"] == [*range(7)]
    assert kafkalog.open(tmp_path / "out" / "data")["collide", 0].log_end_offset == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["k44", "k28"])
def test_two_boots_with_cleaner_and_retention_keep_every_byte(own_client, tmp_path, name):
    report = kafkalog.boot(unpacked(name), tmp_path / "out", nodes=listeners())
    before = logs(tmp_path / "out" / "data")
    for _ in range(2):
        with served(own_client, report, **QUICK):
            time.sleep(5)
            check_records(own_client, name, tmp_path)
        check_logs(before, tmp_path / "out" / "data")


@pytest.mark.slow
@pytest.mark.parametrize("seed", spared([1, 5], 2))
def test_a_broker_loads_the_groups_that_boot_does_not_name(tmp_path, seed):
    rng = random.Random(seed)
    source = tmp_path / "log"
    source.mkdir()
    for number in range(50):
        with PartitionWriter(source / f"__consumer_offsets-{number}") as writer:
            pairs = drawn(rng, rng.randrange(1, 8))
            writer.append({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
    expected = {one.path.rpartition("/")[2] for one in load_failures(LogDir(source))}
    assert 5 < len(expected) < 45
    report = kafkalog.boot(source, tmp_path / "new", nodes=listeners())
    assert not report.ok
    with Client(tmp_path) as client, served(client, report, complains=True) as (broker,):
        loaded = re.compile(r"(Failed to load|Finished loading of) metadata from (__consumer_offsets-\d+)")
        wait_until(lambda: len({one for _, one in loaded.findall(broker.log.read_text())}) == 50, "all are loaded")
        said = loaded.findall(broker.log.read_text())
    assert {where for verb, where in said if verb.startswith("Failed")} == expected


@pytest.mark.slow
def test_the_next_commands_delete_no_record(own_client, tmp_path):
    (tmp_path / "log").mkdir()
    config = kafkalog.LogConfig(segment_bytes=20_000)
    for topic in ("old", "own"):
        with PartitionWriter(tmp_path / "log" / f"{topic}-0", config=config) as writer:
            for number in range(100):
                # older than any retention
                writer.append({"value": [bytes([number]) * 1000], "timestamp": [1_500_000_000_000 + number]})
    topics = ["old", "own", "p-retention", "p-none-java", "p-txn", "p-compact"]
    settings = {"own": {"retention.ms": "-1"}}
    sources = [unpacked("k44"), tmp_path / "log"]
    report = kafkalog.boot(
        sources, tmp_path / "out", topics=topics, settings=settings, nodes=listeners(), include_unknown=True
    )
    commands = report.next_commands()
    deleting = [line for line in commands if line.startswith("#")]
    assert {line.partition("--topic ")[2].split()[0] for line in deleting} == {"old", "p-retention", "p-none-java"}
    before = logs(tmp_path / "out" / "data")
    with served(own_client, report, complains=True, **QUICK):
        run_commands(commands, tmp_path)
        time.sleep(5)
        check_logs(before, tmp_path / "out" / "data")
        # what stands in the comments does delete
        run_commands([line.partition(": ")[2] for line in deleting], tmp_path)
        place = tmp_path / "out" / "data"
        wait_until(lambda: not (place / "old-0" / f"{0:020d}.log").exists(), "records past the retention go")
        assert (place / "own-0" / f"{0:020d}.log").exists()


@pytest.mark.slow
def test_the_commits_that_a_broker_deletes_are_those_of_the_forecast(own_client, tmp_path):
    now = time.time_ns() // 10**6
    (tmp_path / "log").mkdir()
    seven_records(tmp_path / "log")
    pairs, gone = expiring_groups(now)
    with PartitionWriter(tmp_path / "log" / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
    report = kafkalog.boot(tmp_path / "log", tmp_path / "out", groups="as-was", nodes=listeners())
    settings = {"offsets.retention.minutes": 3 * 1440, "offsets.retention.check.interval.ms": 1000}
    (tmp_path / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    before = {group.name: {one.topic for one in group.offsets} for group in kafkalog.groups(tmp_path / "out" / "data")}
    plans = kafkalog.preflight(tmp_path / "out" / "data", config=tmp_path / "server.properties").partitions
    forecast = {name: n for plan in plans for name, n in plan.expiring_commits.items()}
    assert forecast == {name: len(topics) for name, topics in gone.items() if topics}
    with served(own_client, report, **settings):
        time.sleep(5)
        found = {one["group"]: {row[0] for row in one["offsets"]} for one in own_client.ask("groups")["groups"]}
    assert {name: before[name] - found.get(name, set()) for name in before} == {name: {*gone[name]} for name in before}


@pytest.mark.slow
def test_commits_that_expire_by_themselves_stay(own_client, tmp_path):
    now = time.time_ns() // 10**6
    (tmp_path / "log").mkdir()
    seven_records(tmp_path / "log")
    times = {"expired": now - 2 * 86_400_000, "soon": now + 20_000}
    value = {"offset": 5, "metadata": "ret", "commitTimestamp": now - 3 * 86_400_000}
    pairs = [
        encode_keyed_record(
            "OffsetCommit", 1, {"group": name, "topic": "collide", "partition": 0}, {**value, "expireTimestamp": at}
        )
        for name, at in times.items()
    ]
    with PartitionWriter(tmp_path / "log" / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
    report = kafkalog.boot(tmp_path / "log", tmp_path / "out", nodes=listeners())
    assert report.ok
    with served(own_client, report, **{"offsets.retention.check.interval.ms": 1000}):
        time.sleep(max(times["soon"] / 1000 - time.time(), 0) + 5)
        found = {one["group"]: one["offsets"] for one in own_client.ask("groups")["groups"]}
    assert found == {name: [["collide", 0, 5, -1, "ret"]] for name in times}
