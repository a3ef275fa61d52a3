"""The mount point of a volume stands for the log dirs in it, in the layouts of images, operators and charts."""

import json
import shutil

import pytest
from golden_sets import LOG_DIR
from refusals import fails_with

import kafkalog
from kafkalog.cli import main
from kafkalog.log.log_dir import log_dirs_at

LAYOUTS = {
    "strimzi": ["data-0/kafka-log1", "data-1/kafka-log1"],
    "one volume of strimzi": ["kafka-log1"],
    "bitnami": ["data"],
    "all of bitnami": ["kafka/data"],
    "several volumes": ["pvc-a/data-0/kafka-log1", "pvc-b/data-0/kafka-log2"],
    "confluent's charts": ["data-0/logs"],
    "yolean": ["topics"],
    "apache and confluent": ["."],
}


def volume(root, folders):
    """Some partitions in each log dir of a layout, with what else a volume holds."""
    names = sorted(path.name for path in LOG_DIR.iterdir() if path.is_dir())
    for number, folder in enumerate(folders):
        for name in names[number :: len(folders)][:3]:
            shutil.copytree(LOG_DIR / name, root / folder / name)
        (root / folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    (root / "lost+found").mkdir()
    (root / "config").mkdir()
    (root / "config" / "server.properties").write_text("log.dirs=/x\n")
    return [root / folder for folder in folders]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mount_point_is_read_as_the_log_dirs_in_it(layout, tmp_path, capsys):
    roots = volume(tmp_path, LAYOUTS[layout])
    assert sorted(log_dirs_at(tmp_path)) == sorted(root.resolve() for root in roots)
    wanted = kafkalog.open(roots)
    found = kafkalog.open(tmp_path)
    assert [*found] == [*wanted]
    assert sorted(found.paths) == sorted(wanted.paths)
    assert main(["ls", str(tmp_path), "--json"]) == 0
    keys = [(one["topic"], one["partition"]) for one in map(json.loads, capsys.readouterr().out.splitlines())]
    assert keys == [*wanted]
    booted = kafkalog.boot(tmp_path, dry_run=True)
    assert booted.as_dict()["topics"]
    assert len(booted.leaders) == len(wanted)
    plans = [kafkalog.preflight(one).partitions for one in (tmp_path, roots)]
    assert sorted(str(row.path) for row in plans[0]) == sorted(str(row.path) for row in plans[1])
    assert len(kafkalog.report(tmp_path).tables["partitions"].rows) == len(wanted)


def test_a_directory_without_log_dirs_is_refused(tmp_path):
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    for call in (kafkalog.open, kafkalog.preflight):
        with fails_with("not_kafka"):
            call(tmp_path)


@pytest.mark.parametrize("layout", ["strimzi", "all of bitnami", "confluent's charts"])
def test_a_volume_whose_name_is_like_that_of_a_partition_is_no_partition(layout, tmp_path):
    mount = tmp_path / "data-my-kafka-0"
    roots = volume(mount, LAYOUTS[layout])
    (mount / "server.properties").write_text("log.dirs=/x\n")
    assert sorted(log_dirs_at(mount)) == sorted(root.resolve() for root in roots)
    assert [*kafkalog.open(mount)] == [*kafkalog.open(roots)]
    assert kafkalog.verify(mount).ok == kafkalog.verify(roots).ok
    assert kafkalog.boot(mount, dry_run=True).leaders


def test_a_mount_point_and_a_log_dir_in_it_are_one(tmp_path):
    kafkalog.sample(tmp_path / "mount" / "kafka")
    both = kafkalog.open([tmp_path / "mount", tmp_path / "mount" / "kafka"])
    assert not both.findings
    assert len(both) == len(kafkalog.open(tmp_path / "mount"))


def places(path):
    """Scan a path, and recover it without writing: the number of records, and the partitions that it is."""
    return len(kafkalog.read_table(path, columns=["offset"])), [
        row.path for row in kafkalog.recover(path, dry_run=True).partitions
    ]


@pytest.mark.parametrize("inner", ["backup-2", "old-20240101"])
def test_a_partition_with_a_copy_of_another_in_it_stays_one(inner, tmp_path):
    own, other = tmp_path / "disk" / "p-multi-0", LOG_DIR / "p-txn-0"
    shutil.copytree(LOG_DIR / "p-multi-0", own)
    wanted = places(own)
    shutil.copytree(other, own / inner)
    assert kafkalog.open(own).path == own
    assert places(own) == places(own.parent) == wanted
    # any name will do next to the files that only partitions have
    renamed = shutil.copytree(own, tmp_path / "saved")
    (renamed / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert kafkalog.open(renamed).path == renamed
    assert places(renamed) == (wanted[0], [str(renamed)])


@pytest.mark.parametrize("name", ["disk", "data-0"])
def test_a_log_dir_with_a_segment_next_to_its_partitions_stays_one(name, tmp_path):
    root = tmp_path / name
    shutil.copytree(LOG_DIR / "p-multi-0", root / "p-multi-0")
    if name == "data-0":
        (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    wanted = places(root)
    shutil.copy(root / "p-multi-0" / f"{0:020}.log", root)
    assert [*kafkalog.open(root)] == [("p-multi", 0)]
    assert places(root) == wanted
