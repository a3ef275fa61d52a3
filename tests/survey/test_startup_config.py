"""What `server.properties` adds to a start: other log dirs, the metadata log's place, the quorum, remote storage."""

import shutil

import builder
import pytest
from metadata_logs import write_metadata
from writing import TOPIC_ID

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.survey.startup_config import BrokerConfig

META = "meta.properties"
IDS = {"first": "X0qcQdqYVPjkhw06oncc2A", "second": "8I-swVgaY2w0NaFCXTYqkA"}
KRAFT = {"process.roles": "broker,controller", "node.id": 1, "controller.quorum.voters": "1@localhost:9093"}
QUORUM = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    '"data_version":0}'
)


def write(directory, **columns):
    with PartitionWriter(directory, topic_id=TOPIC_ID) as writer:
        writer.append(columns)


@pytest.fixture
def disks(tmp_path):
    """Two log dirs of a broker; the metadata log is on the first one."""
    for name, topic in (("first", "clicks"), ("second", "plain")):
        root = tmp_path / name
        root.mkdir()
        write(root / f"{topic}-0", value=[b"v"] * 10, timestamp=[10**12] * 10)
        (root / META).write_text(
            f"version=1\ncluster.id=kafkalogSampleBroker01A\nnode.id=1\ndirectory.id={IDS[name]}\n"
        )
        (root / ".kafka_cleanshutdown").touch()
    metadata = tmp_path / "first" / "__cluster_metadata-0"
    metadata.mkdir()
    # a change of the leader: nothing is known of the cluster
    (metadata / f"{0:020d}.log").write_bytes(
        builder.control_batch(2, key=b"\0\0\0\2", value=bytes(8), producer_id=-1, producer_epoch=-1)
    )
    (metadata / "quorum-state").write_text(QUORUM)
    return tmp_path


def configured(folder, **properties):
    """A `server.properties` of both disks; underscores of names are dots."""
    known = {**KRAFT, "log.dirs": f"{folder / 'first'}, {folder / 'second'}"}
    known |= {name.replace("_", "."): value for name, value in properties.items()}
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in known.items() if value is not None))
    return path


def removed(root):
    shutil.rmtree(root)


def emptied(root):
    shutil.rmtree(root)
    root.mkdir()


def edited(old, new):
    def change(root):
        (root / META).write_text((root / META).read_text().replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        (lambda root: None, True),
        (removed, False),
        (emptied, False),
        (edited(IDS["second"], IDS["first"]), False),
        (edited("Broker01", "Broker02"), False),
        (edited("node.id=1", "node.id=2"), False),
        (lambda root: shutil.copytree(root.parent / "first" / "clicks-0", root / "clicks-0"), False),
        (
            lambda root: shutil.copytree(root.parent / "first" / "__cluster_metadata-0", root / "__cluster_metadata-0"),
            False,
        ),
    ],
)
def test_all_log_dirs_of_the_configuration_are_judged(disks, run, change, starts):
    change(disks / "second")
    plan = kafkalog.preflight(disks / "first", config=configured(disks), now=10**12)
    assert (plan.verdict != "does not start") == starts
    assert all("second" in one.path for one in plan.problems)
    code, _, err = run("preflight", disks / "first", "--config", configured(disks))
    assert (code == 0) == starts
    assert ("does not start" in err) != starts
    report = kafkalog.report(disks / "first", config=configured(disks), now=10**12)
    assert report.summary["verdict"] == plan.verdict
    if starts:
        assert {row.path for row in plan.partitions} >= {str(disks / "second" / "plain-0")}


def test_a_log_dir_that_is_named_and_empty_is_judged(disks):
    emptied(disks / "second")
    plan = kafkalog.preflight([disks / "first", disks / "second"])
    assert [one.path for one in plan.problems] == [str(disks / "second" / META)]
    assert len(plan.partitions) == 2


def test_copies_elsewhere_are_not_those_of_the_configuration(disks):
    config = configured(disks)
    (disks / "mounted").mkdir()
    shutil.move(disks / "first", disks / "mounted" / "first")
    removed(disks / "second")
    plan = kafkalog.preflight(disks / "mounted" / "first", config=config)
    assert plan.problems == []
    [note] = [one for one in plan.findings.rows if one.path == str(config)]
    assert "not looked at" in note.detail
    assert not note.damage


def test_a_partition_alone_has_the_problems_of_the_other_log_dirs(disks):
    removed(disks / "second")
    plan = kafkalog.preflight(disks / "first" / "clicks-0", config=configured(disks))
    assert plan.verdict == "does not start"
    assert [row.path for row in plan.partitions] == [str(disks / "first" / "clicks-0")]


@pytest.mark.parametrize("change", [shutil.rmtree, lambda metadata: next(metadata.glob("*.log")).write_bytes(b"")])
@pytest.mark.parametrize(
    ("properties", "verdict"),
    [
        ({}, "loses"),
        ({"controller.quorum.voters": None, "controller_quorum_bootstrap_servers": "localhost:9093"}, "does not start"),
        ({"controller_quorum_voters": "1@a:1,2@b:1,3@c:1"}, "starts"),
        ({"process_roles": "broker"}, "starts"),
    ],
)
def test_a_metadata_log_that_is_gone(disks, properties, verdict, change):
    change(disks / "first" / "__cluster_metadata-0")
    config = configured(disks, **properties)
    found = kafkalog.preflight(disks / "first", config=config, now=10**12).verdict
    assert (found if found != "recovers" else "starts") == verdict


def test_the_metadata_log_is_where_metadata_log_dir_says(disks):
    def problems(**properties):
        plan = kafkalog.preflight(disks / "first", config=configured(disks, **properties))
        return [one.path for one in plan.problems if one.effect == "does not start"]

    assert problems(metadata_log_dir=disks / "first") == []
    assert problems(metadata_log_dir=disks / "second") == [str(disks / "first" / "__cluster_metadata-0")]
    assert str(disks / "third" / META) in problems(metadata_log_dir=disks / "third")


def test_a_controller_reads_no_checkpoints_of_offsets(disks):
    (disks / "first" / "recovery-point-offset-checkpoint").write_bytes(bytes(9))
    for roles, expected in (("controller", 0), ("broker,controller", 1)):
        plan = kafkalog.preflight(disks / "first", config=configured(disks, process_roles=roles))
        assert len(plan.problems) == expected


def test_a_damaged_checkpoint_of_a_second_disk_costs_that_disk_alone(disks):
    (disks / "second" / "recovery-point-offset-checkpoint").write_bytes(bytes(9))
    for paths in ([disks / "second"], [disks / "first", disks / "second"]):
        assert [one.effect for one in kafkalog.preflight(paths).problems] == ["log dir offline"]


def test_retention_does_not_reach_the_metadata_log(disks, run):
    config = configured(disks, log_retention_ms=1)
    shutil.rmtree(disks / "first" / "__cluster_metadata-0")
    write_metadata(disks / "first", {"clicks": TOPIC_ID, "plain": TOPIC_ID}, {})
    (disks / "first" / "__cluster_metadata-0" / "quorum-state").write_text(QUORUM)
    plan = kafkalog.preflight(disks / "first", config=config, now=2 * 10**12)
    expires = {row.path.rpartition("/")[2]: [one.expires for one in row.segments] for row in plan.partitions}
    assert expires == {"__cluster_metadata-0": [None], "clicks-0": ["retention.ms"], "plain-0": ["retention.ms"]}
    report = kafkalog.report(disks / "first", config=config, now=2 * 10**12)
    assert [row["partition"] for row in report.tables["outlook"].objects()] == ["clicks-0"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ((), None, frozenset())),
        ({"log.dir": "/a", "process.roles": "broker"}, (("/a",), "/a", {"broker"})),
        ({"log.dirs": "/a, /b", "log.dir": "/c"}, (("/a", "/b"), None, frozenset())),
        (
            {"log.dirs": "/a,/b", "process.roles": "controller", "metadata.log.dir": "/m"},
            (("/a", "/b"), "/m", {"controller"}),
        ),
        ({"process.roles": "controller", "metadata.log.dir": "/m"}, ((), "/m", {"controller"})),
    ],
)
def test_log_dirs_of_a_configuration(settings, expected):
    config = BrokerConfig.of("server.properties", settings)
    where = config.metadata_log_dir
    assert (tuple(map(str, config.log_dirs)), where and str(where), config.roles) == expected
