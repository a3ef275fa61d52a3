"""A cluster's metadata as commands for bash, and as manifests for Strimzi."""

import base64
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from golden_sets import unpacked

import kafkalog
from kafkalog.cli import main
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.properties import encode_properties, read_settings
from kafkalog.system_topics.kafka_commands import word
from kafkalog.system_topics.metadata import Metadata

HOSTILE = (
    "it's",
    "$(id)",
    "a\nb",
    "ünï 🎉",
    "-x",
    "CN=a,O=b",
    "true",
    "null",
    "1e3",
    "a: b #c",
    "\x7f\u2028",
    "[a]",
    "'\x1b'",
)
SCHEMAS = json.loads((Path(__file__).parents[1] / "support" / "strimzi_crds.json").read_text())


def cluster(topics=("orders",), users=("alice",), **settings):
    """The metadata of a cluster with some topics and users, as if a log had said it."""
    image = ClusterMetadata()
    image.end_offset = 9
    for number, name in enumerate(topics):
        topic_id = base64.urlsafe_b64encode((number + 1).to_bytes(16)).decode().rstrip("=")
        image._topic({"topicId": topic_id, "name": name})
        assigned = {"replicas": [1, 2], "isr": [1], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
        lists = dict.fromkeys(
            ("removingReplicas", "addingReplicas", "directories", "eligibleLeaderReplicas", "lastKnownElr")
        )
        image._partition({"topicId": topic_id, "partitionId": 0, "leaderRecoveryState": 0, **assigned, **lists})
        image.settings[2, name] = settings
    for number, user in enumerate(users):
        image.acls[f"{number}"] = acl(f"User:{user}", user)
        image.quotas[(("user", user),)] = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
        image.scram[user, 2] = 4096
    return Metadata(Path("kafka"), image, lambda name: True)


def acl(principal, name, resource_type=2, operation=3):
    entry = {"resourceType": resource_type, "resourceName": name, "patternType": 3, "principal": principal}
    return {**entry, "host": "*", "operation": operation, "permissionType": 3}


def documents(text):
    yaml = pytest.importorskip("yaml")
    return [one for one in yaml.safe_load_all(text) if one is not None]


def valid(text):
    jsonschema = pytest.importorskip("jsonschema")
    found = documents(text)
    for one in found:
        jsonschema.Draft202012Validator(SCHEMAS[one["kind"]]).validate(one)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", one["metadata"]["name"])
        assert len(one["metadata"]["name"]) <= 253
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(names) == len({*names})
    return found


@pytest.mark.parametrize("text", [*HOSTILE, "", "x" * 300, "a\\b'c\td"])
def test_a_shell_reads_a_quoted_word_as_it_is(text):
    quoted = word(text)
    assert quoted.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True)
    assert done.stdout.decode() == text


def test_manifests_of_a_golden_log_dir_are_valid_and_have_every_topic():
    metadata = kafkalog.metadata(unpacked("k44"))
    found = {one["spec"].get("topicName", one["metadata"]["name"]): one["spec"] for one in valid(metadata.to_strimzi())}
    wanted = [row for row in metadata.topics if not row["topic"].startswith("__")]
    assert {name: (spec["partitions"], spec["replicas"], spec.get("config", {})) for name, spec in found.items()} == {
        row["topic"]: (row["partitions"], row["replication_factor"], row["configs"]) for row in wanted
    }


def test_hostile_names_give_valid_manifests_or_are_listed():
    topics = ("UPPER", "upper", "a.b", "a_b", "_", "...", "-", "x" * 249, "Upper", "true", "1")
    text = cluster(topics, HOSTILE).to_strimzi(cluster="c", replication_factor=3)
    assert text.replace("\n", "").isprintable()
    found = valid(text)
    of_topics = [one for one in found if one["kind"] == "KafkaTopic"]
    assert [one["spec"].get("topicName", one["metadata"]["name"]) for one in of_topics] == sorted(topics)
    assert {one["spec"]["replicas"] for one in found if one["kind"] == "KafkaTopic"} == {3}
    users = {one["metadata"]["name"] for one in found if one["kind"] == "KafkaUser"}
    assert users == {"true", "null", "1e3"}
    for name in {*HOSTILE} - users:
        assert f"user {name} with 1 ACLs" in text or not name.isprintable()


def test_a_user_of_strimzi_has_acls_quotas_and_a_kind_of_credentials():
    metadata = cluster(users=("alice", "CN=bob"))
    del metadata._image.scram["CN=bob", 2]
    bob, alice = (one for one in valid(metadata.to_strimzi()) if one["kind"] == "KafkaUser")
    rule = {"type": "allow", "resource": {"type": "topic", "name": "alice", "patternType": "literal"}}
    assert alice["spec"]["authorization"]["acls"] == [rule | {"host": "*", "operations": ["Read"]}]
    assert alice["spec"]["authentication"] == {"type": "scram-sha-512"}
    assert alice["spec"]["quotas"] == {"producerByteRate": 1024}
    assert (bob["metadata"]["name"], bob["spec"]["authentication"]) == ("bob", {"type": "tls"})
    assert "quota request_percentage=12.5 of user alice" in metadata.to_strimzi()
    with pytest.raises(ValueError, match="Kafka resource"):
        metadata.to_strimzi(cluster="Not A Name")


def test_commands_list_what_tools_cannot_do():
    metadata = cluster(**{"message.format.version": "2.8", "no.such": "x", "retention.ms": "5", "cleanup.policy": ""})
    metadata._image._topic({"topicId": "B" * 21 + "A", "name": "lost"})
    metadata._image.acls["1"] = acl("no-type", "a")
    metadata._image.acls["2"] = acl("User:a", "a", resource_type=4)
    metadata._image.acls["3"] = acl("User:a", "a", resource_type=3, operation=4)
    metadata._image.settings[4, ""] = {"ssl.key.password": "secret"}
    text = metadata.to_commands(replication_factor=3)
    (made,) = [line for line in text.splitlines() if line.startswith("kafka-topics.sh")]
    assert shlex.split(made)[-4:] == ["--replication-factor", "3", "--config", "retention.ms=5"]
    assert "<<'END'\ncleanup.policy=\nEND" in text
    for said in (
        *("Kafka 4.0 removed", "no such setting", "no such principal", "no other cluster", "refuses this operation"),
        *("topic lost: its partitions are missing", "may be a secret", "password of SCRAM user alice"),
    ):
        assert said in text
    assert "secret\n" not in text.replace("may be a secret\n", "")


def test_the_command_prints_what_is_applied(capsys):
    path = str(unpacked("k44"))
    assert main(["metadata", path, "--as", "commands", "--replication-factor", "3"]) == 0
    out = capsys.readouterr().out
    assert out == kafkalog.metadata(path).to_commands(replication_factor=3)
    assert subprocess.run(["bash", "-n"], input=out, text=True, check=False).returncode == 0
    assert main(["metadata", path, "--as", "strimzi", "--cluster", "c"]) == 0
    assert capsys.readouterr().out == kafkalog.metadata(path).to_strimzi(cluster="c")
    assert main(["metadata", path, "--as", "json"]) == 0
    as_json = capsys.readouterr().out
    assert main(["metadata", path, "--json"]) == 0
    assert capsys.readouterr().out == as_json
    for wrong in (["--cluster", "c"], ["--replication-factor", "2"], ["--as", "commands", "--show", "acls"]):
        assert main(["metadata", path, *wrong]) == 2


def test_values_of_properties_keep_their_blanks(tmp_path):
    values = {"a": " first", "b": "last ", "c": "ü\n\\", "d": ""}
    (tmp_path / "p").write_text(encode_properties(values))
    assert read_settings(tmp_path / "p") == values


@pytest.mark.parametrize("form", ["commands", "strimzi"])
@pytest.mark.parametrize("wrong", [["--replication-factor", "0"], ["--replication-factor", "-3"], ["--json"]])
def test_what_cannot_be_applied_is_a_wrong_use(form, wrong, capsys):
    assert main(["metadata", str(unpacked("k44")), "--as", form, *wrong]) == 2
