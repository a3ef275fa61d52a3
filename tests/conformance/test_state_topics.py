"""Groups, transactions and the cluster's metadata are what a real broker's Admin client told right before its end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conformance.jars import class_path, java
from conformance.kafka import Broker

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_PROGRAM = Path(__file__).with_name("StateTold.java")


class Told(NamedTuple):
    log_dir: Path
    said: dict[str, Any]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """What the client said, and the log dir of the broker, which was killed right after."""
    program = java()
    jars = class_path(program)
    folder = tmp_path_factory.mktemp("state")
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = Broker(program, jars, folder, **{"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"})
    try:
        broker.start()
        with (folder / "told.log").open("wb") as log:
            command = [program, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars, str(_PROGRAM), broker.address]
            process = subprocess.Popen(
                [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError((folder / "told.log").read_text()[-4000:])
            broker.kill()
            yield Told(broker.log_dir, json.loads(line))
        finally:
            process.kill()
            process.communicate()
    finally:
        if broker.is_running:
            broker.kill()


def test_groups_members_and_offsets(told: Told) -> None:
    found = {group.name: group for group in kafkalog.groups(told.log_dir)}
    said = told.said["groups"]
    assert set(found) == set(said)
    for name, expected in said.items():
        group = found[name]
        assert (group.type, group.state) == (expected["type"].lower(), expected["state"]), name
        offsets = {f"{one.topic}-{one.partition}": [one.offset, one.metadata] for one in group.offsets}
        assert offsets == expected["offsets"], name
        members = [
            {
                "id": one.member_id,
                "client": one.client_id,
                "host": one.client_host,
                "assigned": {topic: sorted(partitions) for topic, partitions in one.assigned.items()},
            }
            for one in group.members
        ]
        assert members == expected["members"], name


def test_offsets_as_of_a_time(told: Told) -> None:
    assert len(told.said["commits"]) == 6
    for one in told.said["commits"]:
        (group,) = kafkalog.groups(told.log_dir, groups=one["group"], end_timestamp=one["time"])
        assert [offset.offset for offset in group.offsets] == [one["offset"] + partition for partition in range(3)]


def test_transactions(told: Told) -> None:
    found = kafkalog.transactions(told.log_dir)
    said = told.said["transactions"]
    assert {one.transactional_id for one in found} == set(said)
    for one in found:
        expected = said[one.transactional_id]
        assert (one.state, [one.producer_id, one.producer_epoch]) == (expected["state"], expected["producer"])
        assert one.timeout_ms == expected["timeout"]
        partitions: dict[str, list[int]] = {}
        for topic, partition in one.partitions:
            partitions.setdefault(topic, []).append(partition)
        assert partitions == expected["partitions"]
        if one.state == "Ongoing":
            assert one.start_timestamp == expected["start"]
            assert {(part.topic, part.partition) for part in one.open} == {("bills", 0), ("orders", 1)}
        else:
            assert not one.open
    assert not found.hanging


def test_the_clusters_metadata(told: Told) -> None:
    found = kafkalog.metadata(told.log_dir)
    said = told.said
    assert not found.findings
    topics = {
        row["topic"]: {"id": row["topic_id"], "configs": row["configs"], "partitions": []} for row in found.topics
    }
    for row in found.partitions:
        topics[row["topic"]]["partitions"].append({name: row[name] for name in ("leader", "replicas", "isr")})
    assert topics == said["topics"]
    assert {row["name"]: row["level"] for row in found.features} == said["features"]
    assert [[row["resource_name"], row["principal"], row["host"]] for row in found.acls] == said["acls"]
    assert [(row["pattern_type"], row["operation"], row["permission"]) for row in found.acls] == [
        ("prefixed", "read", "allow")
    ]
    quotas: dict[str, dict[str, float]] = {}
    for row in found.quotas:
        entity = ", ".join(f"{kind}={name}" for kind, name in sorted(row["entity"].items()))
        quotas.setdefault(f"{{{entity}}}", {})[row["key"]] = row["value"]
    assert quotas == said["quotas"]
    assert {row["user"]: f"{row['mechanism']} {row['iterations']}" for row in found.scram} == said["scram"]
    others = {(row["resource_type"], row["resource_name"], row["name"]): row["value"] for row in found.configs}
    assert others["broker", "", "log.cleaner.threads"] == "1"
    assert others["group", "sharing", "share.auto.offset.reset"] == "earliest"
