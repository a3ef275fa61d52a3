"""The tables of releases are those in each release's own jars.

    PYTHONPATH=tests:tests/support python tests/protocol/test_releases.py > kafkalog/protocol/releases.json

fetches the jars and makes the tables.
"""

import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
from conformance.jars import class_path, java
from conformance.kafka import run_java

RELEASES = {"3.9": "3.9.1", "4.0": "4.0.1", "4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.3.1", "4.4": "4.4.0"}
TOPICS = {
    "group-coordinator": "__consumer_offsets",
    "transaction-coordinator": "__transaction_state",
    "share-coordinator": "__share_group_state",
    "metadata": "__cluster_metadata",
    "storage": "__remote_log_metadata",
}


def table(version):
    """Versions of each type of record, levels of `metadata.version`, and ranges of the other features."""
    jars = class_path(java(), version)
    records = {topic: {} for topic in TOPICS.values()}
    for jar in map(Path, jars.split(os.pathsep)):
        module = re.match(r"kafka-(.+?)-[0-9]", jar.name)
        if module is not None and module[1] in TOPICS:
            records[TOPICS[module[1]]] = _records(jar)
    levels, features = {}, {}
    for line in run_java(Path(__file__).with_name("Levels.java"), jars=jars).splitlines():
        name, *words = line.split()
        if len(words) == 1:
            least = int(words[0])
        elif len(words) == 3:
            levels[words[0]] = [words[1], words[2] == "true"]
        else:
            features[name] = [int(word) for word in words]
    # levels below 1 are of brokers with ZooKeeper
    levels = {level: one for level, one in levels.items() if int(level) > 0}
    features["metadata.version"] = [min(map(int, levels)), max(int(level) for level, one in levels.items() if one[1])]
    return {
        "version": version,
        "records": records,
        "levels": levels,
        "features": dict(sorted(features.items())),
        "least_segment_bytes": least,
    }


def _records(jar):
    """Versions by the number of each type; before 4.3, the versions of a key are the numbers of its types."""
    with zipfile.ZipFile(jar) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".json")]
    sources = {one["name"]: one for one in (json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M)) for text in texts)}
    found = {}
    for name, source in sources.items():
        if source.get("apiKey") is not None and source["type"] in ("metadata", "coordinator-value"):
            found[source["apiKey"]] = source["validVersions"]
        elif source["type"] == "data" and name.endswith("Key") and source.get("apiKey") is None:
            first, _, last = source["validVersions"].partition("-")
            value = sources[f"{name.removesuffix('Key')}Value"]["validVersions"]
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), value)
    return {str(number): found[number] for number in sorted(found)}


def text():
    """The file."""
    lines = [f"{json.dumps(release)}: {json.dumps(table(version))}" for release, version in RELEASES.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(text())


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.broker
def test_the_tables_are_those_of_the_jars():
    import kafkalog

    assert (Path(kafkalog.__file__).parent / "protocol" / "releases.json").read_text() == text()
