"""Groups, transactions and metadata of all kinds are what a real broker's Admin client told right before its end.

Groups of each protocol with members that come and go, offsets that expired or were deleted, topics that were made
again, a quorum of KIP-853, cleaned internal topics, quotas, ACLs, credentials and tokens.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builder import batch_v2, record_v2
from conformance.kafka import Broker, free_ports, jvm

import kafkalog
from kafkalog.protocol.definitions import messages

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_PROGRAM = Path(__file__).with_name("StateKinds.java")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:ann",
    "delegation.token.secret.key": "something",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": _SCRAM,
    "transaction.two.phase.commit.enable": "true",
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
    "log.initial.task.delay.ms": 500,
    "offsets.retention.check.interval.ms": 300,
    "share.coordinator.snapshot.update.records.per.snapshot": 5,
    "share.coordinator.state.topic.num.partitions": 2,
    "metadata.log.max.record.bytes.between.snapshots": 6000,
    "offsets.topic.num.partitions": 4,
}


_NOT_WRITTEN = {
    "__cluster_metadata": {
        "AbortTransaction": "for a controller that ends within a transaction of its own; see test_remote_log",
        "FenceBroker": "before 3.3",
        "UnfenceBroker": "before 3.3",
        "ZkMigrationState": "3.4 to 3.9",
        "PartitionChange": "by the broker that is restarted",
        "UnregisterBroker": "by the broker that is taken out of the cluster",
    },
    "__consumer_offsets": {"LegacyOffsetCommit": "before 0.9"},
    "__transaction_state": {},
    "__share_group_state": {},
}
"""The types of records that no part of `StateKinds` makes a broker write, and who does or did."""


class QuorumBroker(Broker):
    """A broker whose controllers may change (KIP-853), with a listener for users."""

    users = ""

    def _prepare(self):
        super()._prepare("--standalone")

    def _role(self):
        properties = super()._role()
        _, _, controller = str(properties.pop("controller.quorum.voters")).partition("@")
        (port,) = free_ports(1)
        self.users = f"127.0.0.1:{port}"
        listeners = f"PLAINTEXT://{self.address},SASL_PLAINTEXT://{self.users}"
        protocols = ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
        return properties | {
            "controller.quorum.bootstrap.servers": controller,
            "listener.security.protocol.map": ",".join(protocols),
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": listeners,
        }


class Told(NamedTuple):
    log_dir: Path
    said: dict[str, Any]
    hung: kafkalog.Transactions
    freed: kafkalog.Transactions


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the client said, and the log dir of the broker, which was killed right after."""
    folder = tmp_path_factory.mktemp("kinds")
    broker = QuorumBroker(folder, **_PROPERTIES)
    process = None
    try:
        broker.start()
        command = jvm(_PROGRAM, broker.address, broker.users, memory="256m")
        with (folder / "told.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        if process.stdout.readline() != "waiting\n":
            raise RuntimeError((folder / "told.log").read_text()[-4000:])
        for group, retention in (("kept-shortly", 200), ("kept-long", 86_400_000)):
            _old_commit(broker.address, group, retention)
        _produce_without_coordinator(broker.address)
        hung = _transactions(broker.log_dir, folder / "copy-1")
        (one,) = hung.hanging
        words = shlex.split(one.abort_command.replace("HOST:PORT", broker.address))
        broker.tool("TransactionsCommand", *words[1:], server=False)
        freed = _transactions(broker.log_dir, folder / "copy-2")
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "told.log").read_text()[-4000:])
        broker.kill()
        yield Told(broker.log_dir, json.loads(line), hung, freed)
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        if broker.is_running:
            broker.kill()


def _text(text):
    return struct.pack(">h", len(text)) + text.encode()


def _request(address, kind, version, body):
    host, _, port = address.partition(":")
    head = struct.pack(">hhi", kind, version, 7) + _text("test")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)[4:]


def _old_commit(address, group, retention):
    """A commit of version 2, which says for how long it is kept."""
    body = _text(group) + struct.pack(">i", -1) + _text("") + struct.pack(">qi", retention, 1) + _text("orders")
    answer = _request(address, 8, 2, body + struct.pack(">iiq", 1, 0, 5) + _text("kept for a while"))
    assert answer.endswith(b"\0\0")


def _produce_without_coordinator(address):
    """Write into a transaction that no coordinator knows, as producers did whose `AddPartitionsToTxn` came too late."""
    now = int(time.time() * 1000)
    batch = batch_v2(
        [record_v2(0, 0, key=b"k", value=b"hangs")],
        transactional=True,
        producer_id=777_777,
        producer_epoch=0,
        base_sequence=0,
        base_timestamp=now,
        max_timestamp=now,
    )
    body = _text("ghost") + struct.pack(">hii", -1, 5000, 1) + _text("ordinary")
    answer = _request(address, 0, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)
    assert struct.unpack_from(">h", answer, 4 + len(_text("ordinary")) + 8) == (0,), answer


def _transactions(log_dir, copy):
    """As of now, out of a copy of what the broker is writing."""
    # the broker runs: what it deletes may be gone before it is copied
    shutil.copytree(log_dir, copy, ignore=shutil.ignore_patterns("*.index", "*.timeindex", "*.tmp", "*-delete"))
    return kafkalog.transactions(copy, transaction_max_timeout_ms=1, now=int(time.time() * 1000) + 60_000)


def test_the_command_that_ends_a_hanging_transaction_ends_it(told):
    (one,) = told.hung.hanging
    assert (one.topic, one.partition, one.producer_id, one.is_blocking) == ("ordinary", 0, 777_777, True)
    assert not told.freed.hanging
    assert not [part for transaction in told.freed for part in transaction.open if part.topic == "ordinary"]


def test_groups_members_and_offsets(told):
    found = {group.name: group for group in kafkalog.groups(told.log_dir)}
    said = told.said["groups"]
    assert sorted(found) == sorted(said)
    assert "kept-shortly" not in found
    assert found["kept-long"].offsets[0].offset == 5
    assert {one["type"] for one in said.values()} == {"Classic", "Consumer", "Share", "Streams"}
    for name, expected in said.items():
        group = found[name]
        assert (group.type, group.state) == (expected["type"].lower(), expected["state"]), name
        if expected.get("epoch") is not None:
            assert (group.epoch, group.assignment_epoch) == (expected["epoch"], expected["targetEpoch"]), name
        offsets = {
            f"{one.topic}-{one.partition}": [one.offset, one.metadata, one.leader_epoch]
            for one in group.offsets
            if one.offset >= 0
        }
        if group.type == "share":
            starts = {where: [one[0], "", one[1]] for where, one in expected["offsets"].items()}
            assert offsets == starts, name
        else:
            assert offsets == expected["offsets"], name
        assert group.protocol in (None, expected.get("assignor")), name
        assert sorted(map(_member, group.members)) == sorted(
            json.dumps([one[key] for key in ("id", "client", "host", "assigned")], sort_keys=True)
            for one in expected["members"]
        ), name
    assert found["by-regex"].protocol == "range"
    assert found["by-regex"].members[0].subscribed == ["~ord.*"]


def _member(one):
    # Kafka's client names the tasks of a streams group
    assigned = {topic: sorted(partitions) for topic, partitions in (one.tasks or one.assigned).items()}
    return json.dumps([one.member_id, one.client_id, one.client_host, assigned], sort_keys=True)


def test_offsets_as_of_a_time(told):
    assert len(told.said["commits"]) == 4
    for one in told.said["commits"]:
        (group,) = kafkalog.groups(told.log_dir, groups="timed", end_timestamp=one["time"])
        assert [offset.offset for offset in group.offsets] == [one["offset"] + partition for partition in range(3)]


def test_internal_topics_were_cleaned(told):
    log_dir = kafkalog.open_log_dir(told.log_dir)
    found = [log_dir[key] for key in log_dir if key.topic == "__consumer_offsets"]
    assert any(one.log_end_offset > 3 * kafkalog.scan(one).count_rows() for one in found), "most records are gone"


def test_transactions(told):
    transactions = kafkalog.transactions(told.log_dir)
    assert not transactions.hanging
    found = {one.transactional_id: one for one in transactions}
    said = told.said["transactions"]
    assert set(found) == set(said)
    for name, expected in said.items():
        one = found[name]
        assert (one.state, [one.producer_id, one.producer_epoch]) == (expected["state"], expected["producer"]), name
        assert one.timeout_ms == expected["timeout"], name
        partitions = {}
        for topic, partition in one.partitions:
            partitions.setdefault(topic, []).append(partition)
        assert partitions == expected["partitions"], name
        if one.state == "Ongoing":
            assert one.start_timestamp == expected["start"]
            assert sorted((part.topic, part.partition) for part in one.open) == sorted(one.partitions), name
        else:
            assert not one.open, name


def test_the_clusters_metadata(told):
    found, said = kafkalog.metadata(told.log_dir), told.said
    assert not found.findings
    assert list((told.log_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    topics = {row["topic"]: {"id": row["topic_id"], "partitions": []} for row in found.topics}
    for row in found.partitions:
        names = ("leader", "replicas", "isr", "elr", "last_known_elr")
        topics[row["topic"]]["partitions"].append({name: row[name] for name in names})
    assert topics == said["topics"]
    assert {row["name"]: row["level"] for row in found.features} == said["features"]
    assert "kraft.version" in said["features"]
    assert [[row["id"], row["directory_id"]] for row in found.voters] == said["quorum"]["voters"]
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    upper = ("resource_type", "pattern_type", "operation", "permission")
    assert sorted(
        [row[name].upper().replace("-", "_") if name in upper else row[name] for name in names] for row in found.acls
    ) == sorted(said["acls"])
    quotas = {}
    for row in found.quotas:
        quotas.setdefault(json.dumps(row["entity"], sort_keys=True), {})[row["key"]] = row["value"]
    assert quotas == {json.dumps(entity, sort_keys=True): limits for entity, limits in said["quotas"]}
    assert sorted([row["user"], row["mechanism"], row["iterations"]] for row in found.scram) == sorted(said["scram"])
    times = ("issue_timestamp", "max_timestamp", "expiration_timestamp")
    assert sorted(
        [row["id"], row["owner"], row["requester"], *(row[name] for name in times), row["renewers"]]
        for row in found.tokens
    ) == sorted(said["tokens"])
    configs = {
        f"{row['resource_type'].upper().replace('-', '_')}|{row['resource_name']}|{row['name']}": row["value"]
        for row in found.configs
    }
    assert configs == said["configs"]
    for row in found.topics:
        assert row["configs"] == {
            name.rpartition("|")[2]: value
            for name, value in configs.items()
            if name.startswith(f"TOPIC|{row['topic']}|")
        }


def _types(log_dir, topic):
    return {record.type for record in kafkalog.history(log_dir, topic)}


@pytest.mark.parametrize("topic", _NOT_WRITTEN)
def test_records_of_every_type_were_written_but_of_those_that_cannot_be(told, topic):
    known = {re.sub("(Key|Value|Record)$", "", one.name) for one in messages().values() if one.topic == topic}
    assert known - _types(told.log_dir, topic) <= set(_NOT_WRITTEN[topic])


def test_a_broker_that_is_restarted_and_taken_out_of_the_cluster(tmp_path):
    broker = Broker(tmp_path)

    def replicas():
        found = kafkalog.metadata(broker.log_dir)
        assert not found.findings
        return [(row["leader"], row["isr"], row["elr"]) for row in found.partitions]

    with broker:
        broker.start()
        broker.tool("TopicCommand", "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "1")
        broker.stop()
        assert replicas() == [(-1, [], [1])] * 2, "the last one in sync is an eligible leader (ELR)"
        broker.start()
        said = broker.tool("TopicCommand", "--describe", "--topic", "orders")
        assert replicas() == [(1, [1], [])] * 2
        assert said.count("Leader: 1") == 2
        broker.tool("ClusterTool", "unregister", "--id", "1")
        broker.kill()
        records = [*kafkalog.history(broker.log_dir, "__cluster_metadata")]
        assert "PartitionChange" in {record.type for record in records}
        (taken_out,) = [record.offset for record in records if record.type == "UnregisterBroker"]
        for end, ids in ((taken_out, [1]), (taken_out + 1, [])):
            found = kafkalog.metadata(broker.log_dir, end_offset=end)
            assert [row["id"] for row in found.brokers if row["role"] == "broker"] == ids
