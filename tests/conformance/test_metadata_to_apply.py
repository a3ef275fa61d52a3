"""Commands that `kafkalog metadata --as commands` prints make the same metadata on an empty cluster."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conformance.kafka import Broker, run_java
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


def test_commands_make_hostile_names_again_on_an_empty_cluster(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    with Broker(source, **SECURED) as broker:
        broker.start()
        asked(broker, "make", hostile_metadata())
        wanted = json.loads(asked(broker, "show"))
        broker.stop()
    assert len(wanted["topics"]) == len(TOPICS) + 1
    assert len(wanted["acls"]) == 5 * len(HOSTILE) + 2
    metadata = kafkalog.metadata(broker.log_dir)
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


def test_commands_make_the_topics_of_a_golden_log_dir_again(tmp_path):
    metadata = kafkalog.metadata(unpacked("k44"))
    found, _ = applied(metadata.to_commands(), tmp_path)
    assert found["topics"] == {row["topic"]: row["partitions"] for row in metadata.topics}
    wanted = {
        f"{row['resource_type'].upper().replace('-', '_')} {row['resource_name']} {row['name']}": row["value"]
        for row in metadata.configs
    }
    assert found["configs"] == wanted
