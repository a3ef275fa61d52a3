"""Boot and the metadata log: deleted topics, old metadata logs, tiered topics, log starts that one copy knows."""

import shutil
from types import SimpleNamespace

import pytest
from builder import batch_positions
from golden_sets import LOG_DIR
from merges import replica
from metadata_logs import DIRECTORY_IDS, TOPIC, topic_id, write_meta_properties, write_metadata
from salvages import output_of

import kafkalog
from kafkalog.booting.known_topics import KnownTopics
from kafkalog.cli.app import main
from kafkalog.errors import UnsafePathError
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.writing.partition_writer import PartitionWriter

SETTINGS = {(TOPIC, "orders"): {"retention.ms": "5000"}}


def log_dir(root, topics=("orders", "payments"), epoch=0):
    """A log dir with records of topics, whose ids are `topic_id` in turn."""
    root.mkdir(exist_ok=True)
    for number, topic in enumerate(topics):
        with PartitionWriter(root / f"{topic}-0", topic_id=topic_id(number), leader_epoch=epoch) as writer:
            writer.append({"value": [b"1", b"2"]})
    return root


def append_metadata(root, *records):
    """Append records to the metadata log of a log dir."""
    (log,) = (root / "__cluster_metadata-0").glob("*.log")
    folder = root.parent / f"{root.name}-m" / "m-0"
    shutil.copytree(log.parent, folder)
    with PartitionWriter(folder, batch_size=1) as writer:
        for record in records:
            writer.append({"value": [record], "timestamp": [1]})
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    log.write_bytes(data)


def served(report):
    return {one.topic for one in report.partitions}


def test_a_topic_that_was_deleted_while_its_broker_was_down_is_named_and_not_brought_back(tmp_path):
    root = log_dir(tmp_path / "log")
    write_metadata(root, ["orders", "payments"], SETTINGS)
    append_metadata(root, encode_metadata_record("RemoveTopic", 0, topicId=topic_id(1)))
    report = kafkalog.boot(root, tmp_path / "out")
    assert served(report) == {"orders"}
    (finding,) = [one for one in report.findings.rows if one.path == str(root / "payments-0")]
    assert "deletes its topic" in finding.detail
    assert report.ok
    assert report.metadata_doubt == ""
    assert not (tmp_path / "out" / "data" / "payments-0").exists()
    assert main(["boot", str(root), "-o", str(tmp_path / "all"), "-q", "--include-unknown"]) == 0
    assert (tmp_path / "all" / "data" / "payments-0").exists()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_topic_of_today_is_served_and_not_a_deleted_one_of_its_name(tmp_path, order):
    disks = [log_dir(tmp_path / "new", ["gone", "orders"]), log_dir(tmp_path / "old", ["orders"], epoch=5)]
    shutil.rmtree(disks[0] / "gone-0")
    write_metadata(disks[0], ["gone", "orders"], {})
    append_metadata(disks[0], encode_metadata_record("RemoveTopic", 0, topicId=topic_id(0)))
    sources = [disks[number] for number in order]
    report = kafkalog.boot(sources, tmp_path / "out", include_unknown=True)
    assert [one.source for one in report.leaders] == [str(disks[0] / "orders-0")]
    assert {one.name: one.topic_id for one in report.topics}["orders"] == topic_id(1)
    (finding,) = [one for one in report.findings.rows if one.path == str(disks[1] / "orders-0")]
    assert (finding.reason, finding.damage) == ("left_out", False)
    assert report.ok
    with pytest.raises(UnsafePathError, match="belongs to another topic of that name"):
        kafkalog.boot(sources, dry_run=True, include_unknown=True, strict=True)
    shutil.rmtree(disks[0] / "orders-0")
    # its records are served to none
    alone = kafkalog.boot(sources, dry_run=True, include_unknown=True)
    assert not [one for one in alone.leaders if one.topic == "orders"]


def test_partitions_of_one_topic_that_have_several_ids_are_refused(tmp_path):
    root = log_dir(tmp_path / "log")
    write_metadata(root, ["orders"], {})
    (root / "payments-0").rename(root / "orders-1")
    with pytest.raises(UnsafePathError, match="belongs to another topic of that name"):
        kafkalog.boot(root, dry_run=True)


def test_topics_that_an_old_metadata_log_lacks_are_served_and_named(tmp_path, capsys):
    root = log_dir(tmp_path / "log", ["orders", "payments", "users"])
    write_metadata(root, ["orders"], SETTINGS)
    assert main(["boot", str(root), "-o", str(tmp_path / "out"), "-q"]) == 1
    text = capsys.readouterr().out
    for topic in ("payments", "users"):
        assert f"the settings of {topic} are not known" in text
        assert (tmp_path / "out" / "data" / f"{topic}-0").exists()
    assert "the settings of orders are not known" not in text
    assert "lacks the last changes" in text
    assert f"From the metadata log of {root}: settings of topics" not in text
    options = ["--set", "payments:retention.ms=1", "--set", "users:retention.ms=1"]
    assert main(["boot", str(root), "-o", str(tmp_path / "set"), "-q", *options]) == 1
    text = capsys.readouterr().out
    assert "are not known" not in text
    assert "so the exit code is 1: the metadata log lacks the last changes" in text


def test_a_metadata_log_with_earlier_leader_epochs_than_the_disks_is_old(tmp_path):
    root = log_dir(tmp_path / "log", epoch=3)
    write_metadata(root, ["orders", "payments"], SETTINGS)
    report = kafkalog.boot(root, tmp_path / "out", dry_run=True)
    assert "leader epoch 3" in report.metadata_doubt
    assert [one.detail.split(":")[0] for one in report.findings.rows if one.damage] == [
        "the settings of payments are not known"
    ]


def test_a_metadata_log_with_a_hole_is_incomplete(tmp_path):
    root = log_dir(tmp_path / "log")
    write_metadata(root, ["orders", "payments"], SETTINGS)
    (log,) = (root / "__cluster_metadata-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    metadata = read_cluster_metadata(root)
    assert metadata is not None
    assert metadata.gaps
    report = kafkalog.boot(root, tmp_path / "out", dry_run=True)
    assert report.metadata_doubt
    assert not report.ok


@pytest.mark.parametrize("flag", ["true", "TRUE"])
@pytest.mark.parametrize(("start", "ok"), [(0, False), (6, True)])
def test_the_remote_part_of_a_tiered_topic_is_a_loss(tmp_path, start, ok, flag):
    root = tmp_path / "log"
    replica(root, [(0, n) for n in range(12)], bases=(0, 6))
    (root / "t-0" / f"{0:020}.log").unlink()
    if start:
        (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    write_metadata(root, ["t"], {(TOPIC, "t"): {"remote.storage.enable": flag}})
    report = kafkalog.boot(root, tmp_path / "out")
    assert report.ok is ok
    losses = [(one.base_offset, one.last_offset) for one in report.findings.rows if one.damage]
    assert losses == ([] if ok else [(0, 5)])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_log_start_that_one_replica_knows_rules(tmp_path, order):
    disks = []
    for number in range(3):
        replica(tmp_path / f"disk-{number}", [(1, n) for n in range(12)], bases=(0, 6))
        disks.append(tmp_path / f"disk-{number}")
    (disks[1] / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    report = kafkalog.boot([disks[number] for number in order], tmp_path / "out")
    assert report.ok
    assert [one.log_start_offset for one in report.partitions] == [4]
    assert any("t-0 starts at offset 4" in one.detail for one in report.findings.rows)
    assert kafkalog.read_table(tmp_path / "out" / "data", columns=["offset"]).column("offset")[0].as_py() == 4
    # a damaged leader, whose log is joined, has it too
    for disk in disks[::2]:
        path = disk / "t-0" / f"{6:020}.log"
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(data)
    report = kafkalog.boot([disks[number] for number in order], tmp_path / "joined", nodes=3)
    assert report.ok
    assert {one.log_start_offset for one in report.partitions} == {4}
    assert len(output_of(tmp_path / "joined" / "node-1" / "data" / "t-0")) == 12


@pytest.mark.parametrize(("old", "new"), [("3.9", "3.9"), ("4.0", "4.0"), ("4.3", "4.3"), ("4.4", "4.3")])
def test_the_new_cluster_is_for_the_release_of_the_old_one_or_an_earlier_one(tmp_path, old, new):
    # 4.0 and later do not start with a smaller one
    settings = {"p-multi": {"segment.bytes": "1000"}} if old == "3.9" else {}
    kafkalog.boot(LOG_DIR, tmp_path / "old", topics="p-multi", release=old, settings=settings)
    data = tmp_path / "old" / "data"
    assert kafkalog.boot(data, dry_run=True).release == new
    if not settings:
        assert kafkalog.boot(data, release="4.4", dry_run=True).release == "4.4"


def test_acls_without_an_authorizer_are_named_with_the_line_that_puts_them_in_force(tmp_path, capsys):
    root = log_dir(tmp_path / "log")
    write_metadata(root, ["orders", "payments"], SETTINGS)
    acl = {"id": topic_id(7), "resourceType": 2, "resourceName": "orders", "patternType": 3, "host": "*"}
    acl |= {"principal": "User:alice", "operation": 3, "permissionType": 3}
    for name in ("without", "with"):
        if name == "with":
            append_metadata(root, encode_metadata_record("AccessControlEntry", 0, **acl))
        assert main(["boot", str(root), "-o", str(tmp_path / name)]) == 0
        text = capsys.readouterr().out
        line = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        assert (line in text) == (name == "with")
        assert ("anybody who reaches the broker may read and write everything" in text) == (name == "with")
        # the broker needs more for it, such as super.users
        assert "authorizer" not in (tmp_path / name / "server.properties").read_text()
    cluster = read_cluster_metadata(tmp_path / "with" / "data")
    assert cluster is not None
    assert len(cluster.acls) == 1


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_missing_partition_metadata_costs_no_record(tmp_path, has_metadata):
    root = log_dir(tmp_path / "log")
    if has_metadata:
        write_metadata(root, ["orders", "payments"], SETTINGS)
    (root / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    (root / "orders-0" / "partition.metadata").unlink()
    # a KRaft broker would set the directory aside
    (row,) = [one for one in kafkalog.preflight(root).partitions if one.path.endswith("orders-0")]
    assert (row.verdict, row.loss.n_records) == ("loses", 2)
    # without the metadata log, settings are unknown, and a copy of it may have the id
    for command, code in (("boot", not has_metadata), ("salvage", 0), ("recover", not has_metadata)):
        assert main([command, str(root), "-o", str(tmp_path / command), "-q"]) == code
    report = kafkalog.boot(root, tmp_path / "again")
    assert (report.ok, served(report)) == (True, {"orders", "payments"})
    known = {one.name: one.topic_id for one in report.topics}
    assert (known["orders"] == topic_id(0)) == has_metadata
    start = kafkalog.preflight(tmp_path / "boot" / "data")
    assert (start.verdict, start.losses) == ("starts", [])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_settings_that_one_damaged_metadata_log_lacks_come_from_the_other(tmp_path, order):
    disks = [log_dir(tmp_path / f"disk-{number}") for number in range(2)]
    settings = {(TOPIC, "orders"): {"segment.bytes": "5000000"}, (TOPIC, "payments"): {"segment.bytes": "7000000"}}
    for number, disk in enumerate(disks):
        (log,) = write_metadata(disk, ["orders", "payments"], settings).glob("*.log")
        data = bytearray(log.read_bytes())
        bounds = batch_positions(data)
        # the topic of one, a setting of the other
        data[bounds[(0, -2)[number]][1] - 1] ^= 1
        log.write_bytes(data)
    report = kafkalog.boot([disks[number] for number in order], tmp_path / "out")
    sizes = [one.settings["segment.bytes"] for one in report.topics if not one.is_internal]
    assert sizes == ["5000000", "7000000"]
    assert report.metadata_doubt == ""
    [note] = [one.detail for one in report.findings.rows if "which are missing here, come from" in one.detail]
    assert note.startswith("records at offsets ")
    assert report.ok
    found = kafkalog.metadata(disks)
    assert found.is_complete
    assert found.end_offset == 6


@pytest.mark.parametrize("disk", [0, 1])
def test_a_partition_that_no_source_has_is_on_the_disk_that_the_metadata_log_names(tmp_path, disk):
    root = log_dir(tmp_path / "log", topics=["orders"])
    write_meta_properties(root, disk=disk)
    write_metadata(root, ["orders", "payments"], {})
    report = kafkalog.boot(root, tmp_path / "out", dry_run=True)
    (finding,) = [one for one in report.findings.rows if one.damage]
    assert finding.detail.startswith("no source has payments-0")
    assert (f"directory id {DIRECTORY_IDS[0]} of node 1, which is not named: name it, too" in finding.detail) is (
        disk == 1
    )


def test_a_topic_that_a_snapshot_does_not_have_may_have_been_deleted_before_it():
    """Without a snapshot, the log has all changes: such a topic is later than the log."""
    copy = SimpleNamespace(topic_id="id", key=kafkalog.TopicPartition("gone", 0))
    for start, standing in ((0, "newer"), (5, "unknown")):
        assert KnownTopics(ClusterMetadata(start_offset=start), "here").standing(copy) == standing
    bare = SimpleNamespace(topic_id=None, key=copy.key)
    assert KnownTopics(ClusterMetadata(), "here").standing(bare) == "unknown"
