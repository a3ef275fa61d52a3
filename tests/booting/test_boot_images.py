"""What boot writes for images of containers: names, paths, owners, cluster ids, and the resources for an operator."""

import json
import os
import shlex
from pathlib import Path

import pytest
from golden_sets import LOG_DIR
from refusals import fails_with
from system_topics.test_metadata_to_apply import valid

import kafkalog
from kafkalog.booting import images
from kafkalog.cli import main
from kafkalog.log.log_dir import log_dirs_at
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.properties import read_settings

CONTAINERS = {
    "strimzi": ("/var/lib/kafka/data-0/kafka-log{}", 1001),
    "apache": ("/var/lib/kafka/data", 1000),
    "bitnami": ("/bitnami/kafka/data", 1001),
    "confluent": ("/var/lib/kafka/data", 1000),
}
HOSTS = ("4@k4:9092:9093", "6@k6:9092:9093")


def booted(tmp_path, image, **options):
    return kafkalog.boot(LOG_DIR, tmp_path / "out", topics="p-multi", image=image, **options)


@pytest.mark.parametrize(
    ("image", "nodes"), [("strimzi", HOSTS), *((image, ("9@127.0.0.1:9092",)) for image in CONTAINERS)]
)
def test_each_image_finds_its_log_dir_under_its_name(image, nodes, tmp_path):
    report = booted(tmp_path, image, nodes=nodes)
    there, owner = CONTAINERS[image]
    voters = ",".join(f"{node.node_id}@{node.controller}" for node in report.nodes)
    for node in report.nodes:
        assert node.log_dirs == there.format(node.node_id)
        properties = read_settings(f"{node.directory}/server.properties")
        assert properties["log.dirs"] == node.log_dirs
        # entry points of images refuse a controller without voters in its configuration
        assert properties["controller.quorum.voters"] == voters
        assert "controller.quorum.bootstrap.servers" not in properties
        # what is to be mounted is found from the mount point
        (log_dir,) = log_dirs_at(Path(node.directory))
        assert log_dir.name == os.path.basename(node.log_dirs)
        assert not (log_dir / "__cluster_metadata-0" / "quorum-state").exists()
        assert kafkalog.preflight(log_dir, release="4.3").verdict == "starts"
        metadata = read_cluster_metadata(log_dir)
        assert (metadata.voters, metadata.is_complete) == ([], True)
    if os.geteuid() == 0:
        for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (owner, 0), path
    assert json.loads((tmp_path / "out" / "report.json").read_text())["image"] == image
    assert (tmp_path / "out" / "strimzi.yaml").exists() == (image == "strimzi")


def test_without_an_image_nothing_is_different(tmp_path):
    report = booted(tmp_path, None)
    (node,) = report.nodes
    properties = read_settings(tmp_path / "out" / "server.properties")
    assert node.log_dirs == properties["log.dirs"] == str((tmp_path / "out" / "data").resolve())
    assert "controller.quorum.voters" not in properties
    assert report.next[0].command[0] == "kafka-server-start.sh"


def test_the_resources_for_strimzi_are_valid_and_have_the_ids_of_the_nodes(tmp_path):
    report = booted(tmp_path, "strimzi", nodes=HOSTS)
    text = (tmp_path / "out" / "strimzi.yaml").read_text()
    pool, kafka = valid(text)
    assert "data-0-my-cluster-kafka-4, data-0-my-cluster-kafka-6" in text
    assert pool["metadata"]["annotations"]["strimzi.io/next-node-ids"] == "[4,6]"
    assert (pool["spec"]["replicas"], pool["spec"]["storage"]["volumes"][0]["id"]) == (2, 0)
    assert pool["metadata"]["labels"]["strimzi.io/cluster"] == kafka["metadata"]["name"]
    assert kafka["metadata"]["annotations"]["strimzi.io/pause-reconciliation"] == "true"
    assert kafka["spec"]["kafka"]["metadataVersion"] == "4.3-IV0"
    config = kafka["spec"]["kafka"]["config"]
    assert config["offsets.retention.minutes"] == 2**31 - 1
    # the operator refuses settings that it makes itself
    owned = ("listener", "log.dir", "node.id", "process.roles", "controller", "advertised", "inter.broker.listener")
    assert not [name for name in config if name.startswith(owned)]
    apply, patch, resume = [step.command for step in report.next[:3]]
    assert apply[:3] == ("kubectl", "apply", "-f")
    assert json.loads(patch[-1]) == {"status": {"clusterId": report.cluster_id}}
    assert resume[-1] == "strimzi.io/pause-reconciliation-"
    assert f"cluster id {report.cluster_id} (status.clusterId of the Kafka resource)" in report.text()


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("image", CONTAINERS)
def test_who_may_not_change_owners_gets_the_command(image, is_root, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 4242)
    # each container has the same command
    report = kafkalog.boot(LOG_DIR, tmp_path / "out", topics="p-multi", image=image, nodes=HOSTS, dry_run=True)
    owner = ("chown", "-R", f"{CONTAINERS[image][1]}:0", str((tmp_path / "out").resolve()))
    assert [step.command == owner for step in report.next[:2]] == [not is_root, False]
    starts = [step.command[0] for step in report.next if step.command[0].endswith(("kafka-server-start.sh", "-start"))]
    assert starts == ([images.IMAGES[image].start] if image != "strimzi" else [])
    programs = {shlex.split(line)[0] for line in report.next_commands() if not line.startswith("#")}
    own = {"kubectl"} if image == "strimzi" else {images.IMAGES[image].start}
    assert own <= programs <= own | {"chown", "kafka-topics.sh", "kafka-configs.sh"}


@pytest.mark.parametrize("image", [None, "strimzi"])
def test_the_old_cluster_id_is_kept_where_it_is_known(image, tmp_path, capsys):
    source = tmp_path / "source"
    kafkalog.sample(source)
    old = read_settings(source / "meta.properties")["cluster.id"]
    options = ["--image", image] if image else []
    main(["boot", str(source), "-o", str(tmp_path / "kept"), "--keep-cluster-id", *options])
    assert f"Cluster {old} " in capsys.readouterr().out
    (log_dir,) = log_dirs_at(tmp_path / "kept")
    assert read_settings(log_dir / "meta.properties")["cluster.id"] == old
    assert main(["boot", str(source), "--dry-run", "--keep-cluster-id", "--cluster-id", "x"]) == 2
    (source / "meta.properties").unlink()
    with fails_with("meta_properties"):
        kafkalog.boot(source, cluster_id="keep", dry_run=True)
    assert kafkalog.boot(source, dry_run=True).cluster_id != old


def test_the_cluster_id_of_a_salvaged_log_dir_is_that_of_its_origin(tmp_path):
    kafkalog.sample(tmp_path / "source")
    kafkalog.salvage(tmp_path / "source", tmp_path / "saved")
    old = read_settings(tmp_path / "source" / "meta.properties")["cluster.id"]
    assert kafkalog.boot(tmp_path / "saved", cluster_id="keep", dry_run=True).cluster_id == old


def test_disks_of_two_clusters_have_no_id_to_keep(tmp_path):
    for name in ("a", "b"):
        kafkalog.sample(tmp_path / name)
        path = tmp_path / name / "meta.properties"
        path.write_text(path.read_text().replace("cluster.id=", f"cluster.id={name}"))
    with fails_with("unsafe_path"):
        kafkalog.boot([tmp_path / "a", tmp_path / "b"], cluster_id="keep", dry_run=True)


def test_another_image_is_refused():
    with pytest.raises(ValueError, match="image must be 'strimzi', 'apache', 'bitnami' or 'confluent', not 'redpanda'"):
        kafkalog.boot(LOG_DIR, dry_run=True, image="redpanda")


@pytest.mark.parametrize("image", CONTAINERS)
def test_several_containers_need_a_host_each_unless_an_operator_makes_it(image):
    options = {"image": image, "topics": "p-multi", "dry_run": True}
    assert len(kafkalog.boot(LOG_DIR, **options, nodes=HOSTS).nodes) == 2
    for nodes in (2, ["4@", "6@"], ["127.0.0.1:9092", "127.0.0.1:9094"]):
        if image == "strimzi":
            assert len(kafkalog.boot(LOG_DIR, **options, nodes=nodes).nodes) == 2
            continue
        with pytest.raises(ValueError, match=r"0@kafka-0\.kafka:9092:9093,1@kafka-1\.kafka:9092:9093"):
            kafkalog.boot(LOG_DIR, **options, nodes=nodes)


@pytest.mark.parametrize(
    "options", [["--for", "4.1", "--for-image", "bitnami"], ["--release", "4.1", "--image", "bitnami"]]
)
def test_options_have_the_names_of_parameters_and_their_old_ones(options, capsys):
    assert main(["boot", str(LOG_DIR), "-t", "p-multi", "--dry-run", "--json", *options]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["image"] == "bitnami"
