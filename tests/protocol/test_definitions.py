"""The definitions of messages are those of Kafka."""

import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
from conformance.jars import OLD_KAFKA_VERSION, class_path, java

import kafkalog
from kafkalog.protocol.definitions import Versions, messages

TOPICS = {
    "group-coordinator": "__consumer_offsets",
    "transaction-coordinator": "__transaction_state",
    "share-coordinator": "__share_group_state",
    "metadata": "__cluster_metadata",
    "storage": "__remote_log_metadata",
    "clients": None,
}
"""Jars with definitions (`kafka-MODULE-VERSION.jar`), and the topic that their messages are in."""
FROM_CLIENTS = (
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
)


PREVIEW = {"metadata": "__cluster_metadata of 2.8"}
"""The same of 2.8: its records of the metadata topic have other fields under the same numbers."""


def definitions(class_path, topics=TOPICS):
    """The text of the file: a condensed definition a line, in the order of their names."""
    found = {}
    for jar in map(Path, class_path.split(os.pathsep)):
        module = re.match(r"kafka-(.+?)-[0-9]", jar.name)
        if module is not None and module[1] in topics:
            topic = topics[module[1]]
            found |= {source["name"]: _condensed(source, topic) for source in _sources(jar)}
    lines = [f"{json.dumps(name)}: {json.dumps(found[name], separators=(',', ':'))}" for name in sorted(found)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _sources(jar):
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            stem = Path(name).stem
            wanted = stem in FROM_CLIENTS if "kafka-clients" in jar.name else stem != "ProducerSnapshot"
            if name.endswith(".json") and wanted:
                # the definitions are JSON with comments
                yield json.loads(re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE))


def _condensed(source, topic):
    structs = {struct["name"]: struct["fields"] for struct in source.get("commonStructs", [])}
    flexible = source.get("flexibleVersions", "none")
    message = {"kind": source["type"], "versions": source["validVersions"], "flexible": flexible}
    if topic is not None:
        message |= {"topic": topic, "key": source["apiKey"]}
    return {**message, "fields": [_field(field, structs) for field in source["fields"]]}


def _field(source, structs):
    name = source["name"]
    field = {"name": name[0].lower() + name[1:], "type": source["type"]}
    field["versions"] = source.get("versions", source.get("taggedVersions"))
    for ours, theirs in (("nullable", "nullableVersions"), ("tagged", "taggedVersions"), ("tag", "tag")):
        if theirs in source:
            field[ours] = source[theirs]
    if source.get("default") is not None:  # null without quotes is no default to Kafka's generator
        field["default"] = source["default"]
    inner = source.get("fields") or structs.get(source["type"].removeprefix("[]"))
    if inner is not None:
        field["type"] = "[]struct" if source["type"].startswith("[]") else "struct"
        field["fields"] = [_field(part, structs) for part in inner]
    return field


if __name__ == "__main__":
    sys.stdout.write(definitions(sys.argv[1], PREVIEW if sys.argv[2:] == ["preview"] else TOPICS))


# --- tests -----------------------------------------------------------------------------------------------------------


DATA = Path(kafkalog.__file__).parent / "protocol"


@pytest.mark.broker
def test_the_data_are_those_in_kafkas_jars():
    program = java()
    assert (DATA / "definitions.json").read_text() == definitions(class_path(program))
    preview = definitions(class_path(program, OLD_KAFKA_VERSION), PREVIEW)
    assert (DATA / "preview.json").read_text() == preview


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-4", [0, 4], [-1, 5]), ("2+", [2, 900], [1]), ("none", [], [0, -1]), (None, [], [0])],
)
def test_ranges_of_versions(text, inside, outside):
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_types_of_records_are_unique_in_a_topic():
    keyed = [(message.topic, message.kind, message.key) for message in messages().values() if message.topic]
    assert len(keyed) == len(set(keyed)) > 70
