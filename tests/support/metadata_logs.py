"""Metadata logs with topics and settings, and log dirs of a KRaft broker, for tests of what depends on settings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.booting.metadata_log import control, control_batch
from kafkalog.format import ControlRecordType
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.state.checkpoints import parse_topic_id

BROKER, TOPIC = 4, 2
TIME = 1_700_000_000_000
DIRECTORY_IDS = ("X0qcQdqYVPjkhw06oncc2A", "8I-swVgaY2w0NaFCXTYqkA")


def topic_id(number: int) -> str:
    """A topic id by number."""
    return parse_topic_id(bytes(15) + bytes([number + 1]))


def write_metadata(
    root: Path,
    topics: list[str] | dict[str, str],
    settings: dict[tuple[int, str], dict[str, str]],
    node_id: int = 1,
    epoch: int = 0,
    replicas: list[int] | None = None,
    directories: list[str] | None = None,
):
    """Write a metadata log: topics of one partition with their ids (`topic_id` in turn), and settings by resource.

    `epoch` is the leader epoch of each partition; `replicas` are on these nodes, or `node_id`, each in one of
    `directories`, by default the first one.
    """
    records = []
    named = topics if isinstance(topics, dict) else {topic: topic_id(number) for number, topic in enumerate(topics)}
    for topic, known_id in named.items():
        records.append(encode_metadata_record("Topic", 0, name=topic, topicId=known_id))
        ids = {"partitionId": 0, "topicId": known_id, "leader": node_id, "leaderEpoch": epoch, "partitionEpoch": 0}
        on = replicas or [node_id]
        places = {"replicas": on, "isr": on, "directories": directories or [DIRECTORY_IDS[0]] * len(on)}
        records.append(encode_metadata_record("Partition", 1, **ids, **places))
    for (kind, resource), values in settings.items():
        for name, value in values.items():
            fields = {"resourceType": kind, "resourceName": resource, "name": name, "value": value}
            records.append(encode_metadata_record("Config", 0, **fields))
    directory = root / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    # only controllers write into that directory
    with tempfile.TemporaryDirectory() as folder:
        with PartitionWriter(Path(folder) / "m-0", batch_size=1) as writer:
            for record in records:
                writer.append({"value": [record], "timestamp": [TIME]})
        [log] = (Path(folder) / "m-0").glob("*.log")
        shutil.copy(log, directory)
    return directory


def write_meta_properties(root: Path, *, node_id: int = 1, disk: int = 0):
    """Write the `meta.properties` of a disk of a KRaft broker."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text(
        f"version=1\ncluster.id=kafkalogSampleBroker01A\nnode.id={node_id}\ndirectory.id={DIRECTORY_IDS[disk]}\n"
    )


def write_server_properties(path: Path, disks: list[Path], *, node_id: int = 1, **settings: object):
    """Write a `server.properties`; underscores in the names of settings are dots."""
    known = {"process.roles": "broker,controller", "node.id": node_id, "log.dirs": ",".join(map(str, disks))}
    known |= {name.replace("_", "."): value for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in known.items()))
    return path


def survivor(root, tail=b""):
    """The log dir of node 2 of a quorum of three, whose leader has written a batch after the snapshot."""
    kafkalog.write_table({"value": [b"x"]}, root / "log", topic="orders")
    kafkalog.boot(root / "log", root / "out", nodes=3)
    data = root / "out" / "node-2" / "data"
    directory = data / "__cluster_metadata-0"
    (snapshot,) = directory.glob("*.checkpoint")
    offset = int(snapshot.name[:20])
    record = control(ControlRecordType.LEADER_CHANGE, "LeaderChangeMessage", version=0, leaderId=1)
    batch = control_batch(offset, [record], 5000, 4)
    (directory / f"{offset:020d}.log").write_bytes(batch + tail)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n2\n1 0\n4 {offset}\n")
    return data
