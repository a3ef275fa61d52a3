"""Volumes as images, operators and charts lay them out, written by real brokers: looked at and booted where mounted.

The broker of a case writes to the log dir of a layout. What `boot` makes of the mount point starts as the image starts
it: its storage tool formats first, as far as that is not done, with the cluster id and the configuration of the image.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from conformance.jars import class_path, java
from conformance.kafka import Broker, Client, free_ports, jvm
from effort import spared

import kafkalog
from kafkalog.cli import main
from kafkalog.log.log_dir import log_dirs_at
from kafkalog.state.properties import read_settings

pytestmark = [pytest.mark.broker, pytest.mark.slow]

N_TOPICS = 3


class Layout(NamedTuple):
    """Where on the mount point a broker's log dirs are."""

    image: str
    log_dirs: tuple[str, ...]
    owner: int = 1001
    extra: tuple[str, ...] = ("lost+found",)
    """Other directories on the volumes."""
    release: str = "4.3"


LAYOUTS = {
    "bitnami": Layout("bitnami", ("kafka/data",), extra=("lost+found", "kafka/config"), release="4.0"),
    "confluent": Layout("confluent", (".",), owner=1000, extra=()),
    "a chart of confluent": Layout("confluent", ("data-0/logs",), owner=1000, release="3.9"),
    "apache, in its own directory": Layout("apache", ("kraft-combined-logs",), owner=1000, release="4.4"),
    "from bitnami to strimzi": Layout("strimzi", ("data",)),
    "two disks of strimzi": Layout("strimzi", ("data-0/kafka-log1", "data-1/kafka-log1")),
}
VERSIONS = {"3.9": "3.9.1", "4.0": "4.0.1", "4.3": "4.3.1", "4.4": "4.4.0"}


class VolumeBroker(Broker):
    """A broker that writes to the log dirs of a layout."""

    def __init__(self, folder, mount, layout):
        self._mount, self._layout = mount, layout
        self._controller_port = free_ports(1)[0]
        super().__init__(folder)

    def _role(self):
        properties = super()._role()
        listener = str(properties["listeners"]).split(",")[0]
        voters = {"controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}"}
        return {**properties, **voters, "listeners": f"{listener},CONTROLLER://127.0.0.1:{self._controller_port}"}

    def _write_properties(self):
        # with a single disk, the volume may itself be the log dir
        self.properties["log.dirs"] = ",".join(str(self._mount / one) for one in self._layout.log_dirs)
        super()._write_properties()


class ImageBroker(Broker):
    """A node of a boot in the container of its image: the log dir is where the image has it."""

    def __init__(self, folder, report, container, version):
        (node,) = report.nodes
        self._node, self._report, self._container = node, report, container
        super().__init__(folder, jars=class_path(java(), version))
        self.address = node.listener

    def _prepare(self):
        # the path in a container, below a directory of the test
        there = self._container / self._node.log_dirs.lstrip("/")
        there.parent.mkdir(parents=True)
        here = Path(self._node.directory)
        shutil.move(here / os.path.basename(self._node.log_dirs), there)
        text = (here / "server.properties").read_text()
        assert f"log.dirs={self._node.log_dirs}\n" in text
        file = self.folder / "server.properties"
        file.write_text(text.replace(self._node.log_dirs, str(there)))
        self.log_dir = there
        words = [f"--cluster-id={self._report.cluster_id}", f"--config={file}"]
        if self._report.image == "strimzi":
            # kafka_run.sh: -r with the version of the Kafka resource, and -g
            (there / "__cluster_metadata-0" / "quorum-state").unlink(missing_ok=True)
            words += ["--release-version", self._report.release, "--ignore-formatted"]
        tool = jvm("kafka.tools.StorageTool", "format", *words, jars=self._jars)
        done = subprocess.run(tool, capture_output=True, text=True, check=False)
        told = done.stdout + done.stderr
        # the entry points of apache/kafka and cp-kafka continue only after these words
        assert done.returncode == 0 or "already formatted" in told, told

    def _write_properties(self):
        pass


def write(mount, layout, tmp_path, client):
    """Let a real cluster write to the volumes; returns what a consumer got, and the groups."""
    folder = tmp_path / "writer"
    folder.mkdir()
    for name in layout.log_dirs:
        (mount / name).mkdir(parents=True, exist_ok=True)
    broker = VolumeBroker(folder, mount, layout)
    with broker, broker.serving(client):
        names = [f"orders-of-{number}" for number in range(N_TOPICS)]
        # a setting that only the metadata log has
        configs = {"max.message.bytes": "123456", "retention.ms": "-1"}
        client.ask("create", topics=[{"name": name, "partitions": 3, "configs": configs} for name in names])
        for seed, name in enumerate(names):
            how = {"topic": name, "kind": "plain", "partitions": 3, "seed": seed, "first": 0}
            client.ask("produce", **how, records=90, per_batch=7, codecs=["none", "lz4"], idempotent=True)
        client.ask("commit", group="readers", topic=names[0])
        truth = client.consume(tmp_path / "before.jsonl")
        groups = client.ask("groups")["groups"]
    for name in layout.extra:
        (mount / name).mkdir(parents=True, exist_ok=True)
    for path in (mount, *mount.rglob("*")):
        os.chown(path, 4711, 0)
    return truth, groups


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to the users of images")
@pytest.mark.parametrize("name", spared(LAYOUTS, 2))
def test_a_volume_of_a_real_broker_is_booted_for_an_image(name, tmp_path, capsys):
    layout = LAYOUTS[name]
    mount, out, container = (tmp_path / part for part in ("volumes", "new", "container"))
    mount.mkdir()
    with Client(tmp_path) as client:
        truth, groups = write(mount, layout, tmp_path, client)
        assert {*log_dirs_at(mount)} == {(mount / one).resolve() for one in layout.log_dirs}
        assert main(["report", str(mount), "-o", str(tmp_path / "report.md")]) == 0, capsys.readouterr().err
        counted = kafkalog.report(mount).tables["partitions"].rows
        assert len([row for row in counted if "orders-of" in str(row)]) == 3 * N_TOPICS
        assert main(["preflight", str(mount), "--release", layout.release]) in (0, 1)
        capsys.readouterr()
        node = f"5@127.0.0.1:{':'.join(map(str, free_ports(2)))}"
        how = {"release": layout.release, "image": layout.image, "cluster_id": "keep", "nodes": [node]}
        report = kafkalog.boot(mount, out / "kafka", **how)
        assert report.verdict == "Nothing is lost, unknown or guessed", report.text()
        assert report.cluster_id == "kafkalogConformance01w"
        for path in (out / "kafka", *(out / "kafka").rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (layout.owner, 0), path
        container.mkdir()
        broker = ImageBroker(container, report, container, VERSIONS[layout.release])
        with broker, broker.serving(client):
            served = client.consume(tmp_path / "after.jsonl").records
            assert {topic: served[topic] for topic in truth.records} == truth.records
            assert client.ask("groups")["groups"] == groups
            if layout.release != "3.9":
                assert client.ask("send", topic="orders-of-0", records=3)["offsets"]
        assert read_settings(broker.log_dir / "meta.properties")["cluster.id"] == "kafkalogConformance01w"
        assert not [path for path in broker.log_dir.iterdir() if path.name.endswith("-stray")]
        metadata = kafkalog.metadata(broker.log_dir)
        assert {row["value"] for row in metadata.configs if row["name"] == "max.message.bytes"} == {"123456"}
