"""Commands that `kafkalog metadata --as commands` prints make the same metadata on an empty cluster."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conformance.kafka import Broker, run_java
from effort import spared
from golden_sets import unpacked

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

APPLIED = Path(__file__).with_name("Applied.java")
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RECORDER = """#!/usr/bin/env python3
import json, os, sys
given = "" if os.path.basename(sys.argv[0]) != "kafka-configs.sh" or "/dev/stdin" not in sys.argv else sys.stdin.read()
with open(os.environ["CALLS"], "a", encoding="utf-8") as file:
    call = {"tool": os.path.basename(sys.argv[0]), "args": sys.argv[1:], "input": given}
    file.write(json.dumps(call) + chr(10))
"""
HOSTILE = (
    "it's",
    'double "quotes"',
    "$(touch /tmp/no) `id` $HOME",
    "a\nnewline; rm -rf /",
    "back\\slash\\n",
    "-rf",
    "--help",
    "[brackets], and = signs",
    "ünïcödé 日本 🎉",
    "CN=writer,OU=a,O=b",
    "#!comment",
    "tab\there",
    "trailing ",
)
TOPICS = ("-rf", "--topic", "UPPER", "upper", "a.b-c_d", "...", "x" * 249, "_", "0")


def hostile_metadata():
    """What the admin client is asked to make."""
    for name in TOPICS:
        yield {"make": "topic", "name": name, "partitions": 2, "configs": {"retention.ms": "-1"}}
    replicas = "0:1,1:1"
    settings = {"cleanup.policy": "compact,delete", "leader.replication.throttled.replicas": replicas}
    yield {"make": "topic", "name": "orders", "partitions": 3, "configs": settings}
    yield {"make": "configs", "type": "BROKER", "name": "", "configs": {"log.cleaner.threads": "2"}}
    yield {"make": "configs", "type": "BROKER", "name": "", "configs": {"custom.of-a_plugin": " first, [a=b] \\n "}}
    yield {"make": "configs", "type": "BROKER", "name": "", "configs": {"custom: of=a #plugin!": "refused"}}
    yield {"make": "configs", "type": "BROKER", "name": "1", "configs": {"log.cleaner.threads": "1"}}
    for name in HOSTILE:
        yield {"make": "configs", "type": "GROUP", "name": name, "configs": {"consumer.session.timeout.ms": "50000"}}
        yield {"make": "quota", "entity": {"user": name}, "key": "producer_byte_rate", "value": 1024}
        yield {"make": "quota", "entity": {"user": name, "client-id": None}, "key": "request_percentage", "value": 12.5}
        yield {"make": "quota", "entity": {"client-id": name}, "key": "consumer_byte_rate", "value": 1e9}
        for resource, operation in (("GROUP", "READ"), ("TRANSACTIONAL_ID", "ALL"), ("TOPIC", "DESCRIBE_CONFIGS")):
            yield acl(resource, name, f"User:{name}", operation)
        yield acl("TOPIC", name, f"User:{name}", "WRITE", pattern="PREFIXED", permission="DENY", host="10.0.0.1")
        yield acl("USER", f"User:{name}", "User:admin", "CREATE_TOKENS")
    filters = {"metrics": "org.apache.kafka.producer.", "interval.ms": "30000", "match": "client_id=a.*"}
    yield {"make": "configs", "type": "CLIENT_METRICS", "name": "of clients", "configs": filters}
    yield {"make": "quota", "entity": {"user": None}, "key": "controller_mutation_rate", "value": 3}
    yield {"make": "quota", "entity": {"ip": "10.0.0.1"}, "key": "connection_creation_rate", "value": 7}
    yield {"make": "quota", "entity": {"ip": None}, "key": "connection_creation_rate", "value": 9}
    yield acl("CLUSTER", "kafka-cluster", "User:*", "IDEMPOTENT_WRITE")
    yield acl("TOPIC", "*", "User:*", "DESCRIBE")


def acl(resource, name, principal, operation, pattern="LITERAL", permission="ALLOW", host="*"):
    found = {"make": "acl", "resource": resource, "name": name, "pattern": pattern, "principal": principal}
    return found | {"operation": operation, "permission": permission, "host": host}


def asked(broker, how, rows=()):
    return run_java(APPLIED, broker.address, how, given=map(json.dumps, rows))


def applied(script, tmp_path):
    """What an empty cluster has, once a script has run; the shell parses it, and its calls go to Kafka's tools."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("kafka-topics.sh", "kafka-configs.sh", "kafka-acls.sh"):
        (tools / name).write_text(RECORDER)
        (tools / name).chmod(0o755)
    (tmp_path / "apply.sh").write_text(script)
    (tmp_path / "target").mkdir()
    with Broker(tmp_path / "target", **SECURED) as broker:
        broker.start()
        calls = tmp_path / "calls.jsonl"
        where = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "BOOTSTRAP": broker.address, "CALLS": str(calls)}
        done = subprocess.run(
            ["bash", "-eu", tmp_path / "apply.sh"],
            env={**os.environ, **where},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        run_java(APPLIED, broker.address, "run", given=calls.read_text(encoding="utf-8").splitlines())
        found = json.loads(asked(broker, "show"))
        broker.stop()
    return found, calls


def made(directory, lines):
    """What an empty broker has after an administrator made something, and its metadata log."""
    directory.mkdir()
    with Broker(directory, **SECURED) as broker:
        broker.start()
        asked(broker, "make", lines)
        found = json.loads(asked(broker, "show"))
        broker.stop()
    return found, kafkalog.metadata(broker.log_dir)


def test_commands_make_hostile_names_again_on_an_empty_cluster(tmp_path):
    wanted, metadata = made(tmp_path / "source", hostile_metadata())
    assert len(wanted["topics"]) == len(TOPICS) + 1
    assert len(wanted["acls"]) == 5 * len(HOSTILE) + 2
    script = metadata.to_commands()
    assert script.isascii() or script.replace("\n", "").isprintable()
    found, _ = applied(script, tmp_path)
    # kafka-acls.sh removes blanks at the ends, which the script says
    refused = [one for one in wanted["acls"] if "trailing " in one]
    assert len(refused) == 5
    assert "custom: of=a #plugin! of all brokers: kafka-configs.sh refuses this name" in script
    assert script.count("kafka-acls.sh removes blanks") == 5
    wanted["acls"] = [one for one in wanted["acls"] if one not in refused]
    del wanted["configs"]["BROKER  custom: of=a #plugin!"]
    for part, value in wanted.items():
        assert found[part] == value, part


PAIRS = ({"user": "u", "client-id": "c"}, {"user": "u", "client-id": None}, {"user": None, "client-id": "c"})
ENTITIES = (*PAIRS, {"user": None, "client-id": None}, {"user": None}, {"client-id": None}, {"ip": "::1"})
HOSTS = ("*", "10.1.2.3", "::1", "2001:db8::7")


def users_and_settings():
    """Topics with settings, settings of one broker and of all, quotas of pairs and defaults, ACLs, SCRAM users."""
    settings = {"cleanup.policy": "compact", "compression.type": "zstd", "min.insync.replicas": "2"}
    for name, partitions in (("orders", 12), ("Orders", 1), ("a.b", 2), ("_schemas", 1), ("0-1_2.", 3), ("__mine", 1)):
        yield {"make": "topic", "name": name, "partitions": partitions, "configs": {}}
        yield {"make": "configs", "type": "TOPIC", "name": name, "configs": settings}
    overrides = {"max.connections.per.ip.overrides": "127.0.0.1:100,10.0.0.1:5", "log.retention.ms": "-1"}
    yield {"make": "configs", "type": "BROKER", "name": "", "configs": overrides}
    rate = {"leader.replication.throttled.rate": "1000000", "log.cleaner.io.max.bytes.per.second": "1.5E7"}
    yield {"make": "configs", "type": "BROKER", "name": "1", "configs": rate}
    for number, entity in enumerate(ENTITIES):
        keys = ("connection_creation_rate",) if "ip" in entity else ("producer_byte_rate", "request_percentage")
        for key in keys:
            yield {"make": "quota", "entity": entity, "key": key, "value": 10 + number + (key[0] == "r") / 3}
    for number, host in enumerate(HOSTS):
        for resource, operation in (("TOPIC", "ALTER_CONFIGS"), ("GROUP", "DELETE"), ("TRANSACTIONAL_ID", "WRITE")):
            for pattern in ("LITERAL", "PREFIXED"):
                for permission in ("ALLOW", "DENY"):
                    how = {"pattern": pattern, "permission": permission, "host": host}
                    yield acl(resource, f"of-{number}.", f"User:u{number}", operation, **how)
        yield acl("TOPIC", "*", f"User:u{number}", "ALL", host=host)
        yield acl("CLUSTER", "kafka-cluster", f"User:u{number}", "ALTER", host=host)
        yield acl("DELEGATION_TOKEN", f"token-{number}", f"User:u{number}", "DESCRIBE", host=host)
        yield {"make": "scram", "user": f"u{number}", "mechanism": "SCRAM_SHA_512"}
    yield {"make": "scram", "user": "it's", "mechanism": "SCRAM_SHA_256"}


def test_commands_make_users_and_settings_again_on_an_empty_cluster(tmp_path):
    wanted, metadata = made(tmp_path / "source", users_and_settings())
    assert len(wanted["acls"]) == 15 * len(HOSTS)
    script = metadata.to_commands()
    found, _ = applied(script, tmp_path)
    for part, value in wanted.items():
        assert found[part] == value, part
    assert script.count("the password of SCRAM user") == len(HOSTS) + 1
    # the manifests have what they can, and name the rest
    manifests = metadata.to_strimzi()
    assert manifests.count("kind: KafkaTopic") == len(wanted["topics"])
    assert manifests.count("scram-sha-512") == len(HOSTS)


def test_commands_make_the_topics_of_a_golden_log_dir_again(tmp_path):
    metadata = kafkalog.metadata(unpacked("k44"))
    found, _ = applied(metadata.to_commands(), tmp_path)
    assert found["topics"] == {row["topic"]: row["partitions"] for row in metadata.topics}
    wanted = {
        f"{row['resource_type'].upper().replace('-', '_')} {row['resource_name']} {row['name']}": row["value"]
        for row in metadata.configs
    }
    assert found["configs"] == wanted


def ordinary_metadata():
    """What a cluster has: the admin client writes a batch of the metadata log for each."""
    for number in range(12):
        name = f"orders-{number}"
        yield {"make": "topic", "name": name, "partitions": 1 + number % 3, "configs": {"retention.ms": "86400000"}}
        yield {
            "make": "configs",
            "type": "TOPIC",
            "name": name,
            "configs": {"max.message.bytes": f"{100_000 + number}"},
        }
        yield acl("TOPIC", name, f"User:app-{number}", "READ")
        yield {
            "make": "quota",
            "entity": {"user": f"app-{number}"},
            "key": "producer_byte_rate",
            "value": 1024 + number,
        }


def flipped(directory, log, batches):
    middle = batches.position[len(batches) // 2]
    data = bytearray(log.read_bytes())
    data[middle + 70] ^= 4
    log.write_bytes(data)


def with_a_wrong_size(directory, log, batches):
    data = bytearray(log.read_bytes())
    data[batches.position[len(batches) // 2] + 8] = 0x3F
    log.write_bytes(data)


def torn(directory, log, batches):
    os.truncate(log, int(batches.position[-1]) + 40)


def without_batches(directory, log, batches):
    first, end = batches.position[len(batches) // 3], batches.position[len(batches) // 3 + 4]
    data = log.read_bytes()
    log.write_bytes(data[:first] + data[end:])


def zeroed(directory, log, batches):
    start = int(batches.position[len(batches) // 2]) // 512 * 512
    data = log.read_bytes()
    log.write_bytes(data[:start] + bytes(1024) + data[start + 1024 :])


def without_a_log(directory, log, batches):
    for path in directory.glob("*.log"):
        path.unlink()


def without_a_snapshot(directory, log, batches):
    for path in directory.glob("*.checkpoint"):
        path.write_bytes(path.read_bytes()[:-20])


DAMAGES = (flipped, with_a_wrong_size, torn, without_batches, zeroed, without_a_log, without_a_snapshot)


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    """The log dir of a cluster, with a snapshot, and what its admin client says of it."""
    folder = tmp_path_factory.mktemp("ordinary")
    with Broker(folder, **SECURED, **{"metadata.log.max.record.bytes.between.snapshots": 3000}) as broker:
        broker.start()
        asked(broker, "make", ordinary_metadata())
        wanted = json.loads(asked(broker, "show"))
        broker.stop()
    assert [*(broker.log_dir / "__cluster_metadata-0").glob("*.checkpoint")]
    return broker.log_dir, wanted


@pytest.mark.parametrize("damage", spared(DAMAGES, 3))
def test_commands_of_a_damaged_metadata_log_make_what_is_left_of_it(damage, ordinary, tmp_path):
    source, wanted = ordinary
    shutil.copytree(source, tmp_path / "source")
    directory = tmp_path / "source" / "__cluster_metadata-0"
    log = sorted(directory.glob("*.log"))[-1]
    if damage not in (without_a_log, without_a_snapshot):
        # a snapshot would stand for the damaged records
        for path in directory.glob("*.checkpoint"):
            path.unlink()
    damage(directory, log, kafkalog.Segment(log).batches)
    metadata = kafkalog.metadata(tmp_path / "source")
    script = metadata.to_commands()
    found, _ = applied(script, tmp_path)
    # all that is known is made, and nothing else
    assert found["topics"] == {row["topic"]: row["partitions"] for row in metadata.topics if row["partitions"]}
    assert (len(found["acls"]), len(found["quotas"])) == (len(metadata.acls), len(metadata.quotas))
    missing = 0
    for part, value in wanted.items():
        if isinstance(value, list):
            assert {*found[part]} <= {*value}, part
            missing += len({*value} - {*found[part]})
            continue
        for name, text in found[part].items():
            # an older value where the record of a newer one is lost
            assert value[name] == text or "INCOMPLETE" in script or damage in (torn, without_a_log), name
        missing += len(value.keys() - found[part].keys())
    if damage is without_a_snapshot:
        assert (missing, metadata.is_complete) == (0, True)
    elif damage not in (torn, without_a_log):
        # what lies behind the damage is there as well
        assert 0 < missing < 15
        assert "# INCOMPLETE" in script
    assert any("orders-11" in line for line in script.splitlines()) or damage is without_a_log
