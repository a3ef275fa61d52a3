"""What a release of Kafka does not know in the disks of another."""

import shutil

import coordinator_records
import pytest
from builder import batch_v2, record_v2
from effort import thinned
from golden_sets import LOG_DIR, unpacked
from metadata_logs import write_metadata

import kafkalog
from kafkalog.cli import main
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_keyed_record, encode_metadata_record
from kafkalog.protocol.framing import decode_record, type_and_version
from kafkalog.protocol.releases import feature_range, is_since, level_name, next_level, releases
from kafkalog.repair.recovering.targets import TARGETS
from kafkalog.system_topics.reading import AsOf, read_records
from kafkalog.writing.partition_writer import PartitionWriter


@pytest.mark.parametrize("release", thinned([*TARGETS][::-1], 4))
def test_the_disks_of_4_4_load_in_4_4_alone(release):
    found = kafkalog.preflight(unpacked("k44"), release=release)
    texts = [one.detail for one in found.problems if one.effect == "does not start"]
    assert (found.verdict == "does not start") == (release != "4.4")
    if release == "4.4":
        assert not found.problems
        return
    assert any("metadata.version is finalized at level 33 (4.4-IV2)" in text for text in texts)
    assert all("kafka-features.sh downgrade" in text and f"boot --release {release}" in text for text in texts)
    records = [text for text in texts if "__cluster_metadata-0: offset" in text]
    assert bool(records) == (release < "4.3")


@pytest.mark.parametrize("release", TARGETS)
def test_a_directory_that_boot_makes_for_a_release_loads_in_it(release, tmp_path):
    kafkalog.boot(LOG_DIR, tmp_path / "out", topics="p-multi", release=release)
    assert kafkalog.preflight(tmp_path / "out" / "data", release=release).verdict == "starts"
    newest = kafkalog.preflight(tmp_path / "out" / "data", release="4.4")
    assert newest.verdict == "starts"


def test_a_log_dir_with_zookeeper_has_a_way_out(tmp_path):
    shutil.copytree(LOG_DIR / "p-multi-0", tmp_path / "p-multi-0")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    (problem,) = [one for one in kafkalog.preflight(tmp_path, release="4.0").problems if "ZooKeeper" in one.detail]
    assert "migrate with 3.9 first, or kafkalog boot --release 4.0" in problem.detail
    assert not [one for one in kafkalog.preflight(tmp_path, release="3.9").problems if "ZooKeeper" in one.detail]
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\nbroker.id=1\nzookeeper.connect=a:1\n")
    found = kafkalog.preflight(tmp_path, release="4.3", config=tmp_path / "server.properties")
    assert any("process.roles is not set" in one.detail for one in found.problems)


def test_records_of_coordinators_are_named_with_their_offsets(tmp_path, capsys):
    group = {"group": "g", "topic": "orders", "partition": 0}
    commit = {"offset": 1, "leaderEpoch": 0, "metadata": "", "commitTimestamp": 0, "topicId": "AAAAAAAAAAAAAAAAAAAAAA"}
    key, value = encode_keyed_record("OffsetCommit", 4, group, commit)
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key, key, b"\0\x63abc"], "value": [value, b"\0\x09" + value[2:], b"\0\0"]})
    found = kafkalog.preflight(tmp_path, release="4.3")
    texts = {one.effect: one.detail for one in found.problems}
    assert (
        "__consumer_offsets-0: offset 1: Kafka 4.3 knows versions 0-4 of record type 1, and this is 9"
        in (texts["no coordinator"])
    )
    assert "offset 2: Kafka 4.3 knows no record type 99" in texts["loses metadata"]
    assert found.verdict == "loses" or found.verdict == "does not start"
    assert main(["preflight", str(tmp_path), "--release", "4.3"]) == 1
    assert "record type 99" in capsys.readouterr().err
    assert main(["preflight", str(tmp_path), "--release", "5.0"]) == 2


def test_types_and_versions_are_those_of_the_decoder():
    root = unpacked("k44")
    log_dir = kafkalog.open(root)
    numbers = {(one.topic, one.name.removesuffix("Key").removesuffix("Record")): one.key for one in messages().values()}
    n = 0
    for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"):
        for record in read_records(log_dir, topic, AsOf(), lambda finding: None):
            if not record.is_control:
                decoded = decode_record(topic, record.key, record.value)
                number, version = type_and_version(topic, record.key, record.value)
                assert (number, version) == (numbers[topic, decoded.type], decoded.version)
                n += 1
    assert n > 500


def test_tables_of_releases():
    assert [*releases()] == [*TARGETS]
    assert (level_name(21), level_name(33), level_name(999)) == ("3.9-IV0", "4.4-IV2", "")
    assert next_level("metadata.version", 21) == (25, "4.0")
    assert [is_since(release, "4.2") for release in ("3.9", "4.2", "4.10")] == [False, True, True]
    assert next_level("metadata.version", 33) is None
    assert feature_range("3.9", "share.version") == (0, 0)
    for release, target in TARGETS.items():
        for name, level in target.levels.items():
            first, last = feature_range(release, name)
            assert first <= level <= last


def test_features_have_their_next_level_and_the_nodes_that_lack_it(tmp_path):
    rows = {row["name"]: row for row in kafkalog.metadata(unpacked("k44")).features}
    assert rows["metadata.version"]["version"] == "4.4-IV2"
    assert rows["metadata.version"]["next_level"] is None
    kafkalog.boot(LOG_DIR, tmp_path / "out", topics="p-multi", release="3.9")
    (row, *_) = [one for one in kafkalog.metadata(tmp_path / "out" / "data").features if one["level"] == 21]
    assert (row["version"], row["next_level"], row["next_release"]) == ("3.9-IV0", 25, "4.0")


def test_the_next_step_is_for_the_same_release():
    [step] = kafkalog.preflight(unpacked("k44"), release="3.9").next
    assert step.command[-4:-2] == ("--release", "3.9")


def test_partitions_without_meta_properties_may_be_of_any_broker(tmp_path):
    shutil.copytree(LOG_DIR / "p-multi-0", tmp_path / "p-multi-0")
    assert not kafkalog.preflight(tmp_path, release="4.0").problems


COMMIT = encode_keyed_record(
    "OffsetCommit",
    3,
    {"group": "g", "topic": "orders", "partition": 0},
    {"offset": 1, "leaderEpoch": 0, "metadata": "", "commitTimestamp": 0},
)
TRANSACTION = b"\0\0\0\x03abc"
CONTRADICTION = [
    coordinator_records.record("GroupMetadata", "g", members=[]),
    coordinator_records.record("ConsumerGroupMetadata", "g"),
]
LOADS = {
    "a torn commit": ("__consumer_offsets", [(COMMIT[0], COMMIT[1][:5])], dict.fromkeys(TARGETS, "no coordinator")),
    "a torn transaction": ("__transaction_state", [(TRANSACTION, b"\0\0ab")], dict.fromkeys(TARGETS, "no coordinator")),
    "a newer transaction": (
        "__transaction_state",
        [(TRANSACTION, b"\0\x09ab")],
        {one: "no coordinator" if one < "4.3" else "loses metadata" for one in TARGETS},
    ),
    "a group of two protocols": (
        "__consumer_offsets",
        CONTRADICTION,
        {one: None if one < "4.0" else "no coordinator" for one in TARGETS},
    ),
    "a tombstone": ("__transaction_state", [(TRANSACTION, None)], dict.fromkeys(TARGETS)),
}
"""Records, and what they do to their partition in each release: seen in the logs of brokers."""


@pytest.mark.parametrize("release", thinned(TARGETS, 3))
@pytest.mark.parametrize("name", LOADS)
def test_a_partition_that_a_coordinator_does_not_load_is_a_problem(name, release, tmp_path):
    topic, records, effects = LOADS[name]
    with PartitionWriter(tmp_path / f"{topic}-0") as writer:
        writer.append({"key": [key for key, _ in records], "value": [value for _, value in records]})
    problems = kafkalog.preflight(tmp_path, release=release).problems
    effect = effects[release]
    assert [one.effect for one in problems] == [effect] * (effect is not None)
    assert all(f"{topic}-0: offset " in one.detail for one in problems)


@pytest.mark.parametrize("release", TARGETS)
def test_a_broker_for_kraft_starts_on_a_log_dir_of_zookeeper_and_loses_it(release, tmp_path):
    shutil.copytree(LOG_DIR / "p-multi-0", tmp_path / "data" / "p-multi-0")
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    config = tmp_path / "server.properties"
    voters = "controller.quorum.voters=1@a:1\ncontroller.listener.names=C"
    config.write_text(f"log.dirs={tmp_path / 'data'}\nprocess.roles=broker,controller\nnode.id=1\n{voters}\n")
    assert kafkalog.preflight(tmp_path / "data", release=release, config=config).verdict == "loses"


TOPIC = encode_metadata_record("Topic", 0, name="extra", topicId="AAAAAAAAAAAAAAAAAAAAZQ")
METADATA = {
    "whole": (TOPIC, True),
    "a newer version with the same fields": (TOPIC[:2] + b"\x09" + TOPIC[3:], True),
    "a newer version with another field": (TOPIC[:2] + b"\x09" + TOPIC[3:] + b"\x01", False),
    "torn": (TOPIC[:6], False),
    "too long": (TOPIC + b"\x01", False),
    "of another frame": (b"\x02" + TOPIC[1:], False),
    "of no type": (b"\x01\xc8\x01\x00", False),
    "about no topic": (encode_metadata_record("RemoveTopic", 0, topicId="AAAAAAAAAAAAAAAAAAAAZQ"), False),
    "about no broker": (encode_metadata_record("FenceBroker", 0, id=55, epoch=3), False),
}
"""Records of the metadata log, and whether brokers start after them: seen with 3.9.1 and 4.3.1."""


@pytest.mark.parametrize("release", thinned(TARGETS, 3))
@pytest.mark.parametrize("name", METADATA)
def test_a_record_of_the_metadata_log_that_a_controller_cannot_read_stops_the_start(name, release, tmp_path):
    value, starts = METADATA[name]
    write_metadata(tmp_path / "data", ["orders"], {})
    directory = tmp_path / "data" / "__cluster_metadata-0"
    end = kafkalog.open(directory).log_end_offset
    with sorted(directory.glob("*.log"))[-1].open("ab") as file:
        file.write(batch_v2([record_v2(value=value)], base_offset=end))
    if name in ("torn", "too long", "about no topic", "about no broker"):  # no release starts with it
        without = kafkalog.preflight(tmp_path / "data").problems
        assert sum(one.effect == "does not start" and f"offset {end}:" in one.detail for one in without) == 1
    problems = kafkalog.preflight(tmp_path / "data", release=release).problems
    stops = [one for one in problems if one.effect == "does not start" and f"offset {end}:" in one.detail]
    assert [len(stops)] == [0 if starts else 1], problems


@pytest.mark.parametrize("is_used", [False, True])
def test_a_hole_in_the_metadata_log_stops_the_start_if_a_later_record_needs_what_is_gone(is_used, tmp_path):
    write_metadata(tmp_path / "data", ["orders"], {})
    directory = tmp_path / "data" / "__cluster_metadata-0"
    end = kafkalog.open(directory).log_end_offset
    topic = encode_metadata_record("Topic", 0, name="later", topicId="AAAAAAAAAAAAAAAAAAAAZQ")
    removal = encode_metadata_record("RemoveTopic", 0, topicId="AAAAAAAAAAAAAAAAAAAAZQ")
    with sorted(directory.glob("*.log"))[-1].open("ab") as file:
        # two records are gone
        file.write(batch_v2([record_v2(value=removal if is_used else topic)], base_offset=end + 2))
    effects = {one.effect for one in kafkalog.preflight(tmp_path / "data").problems if "offset" in one.detail}
    assert "does not start" in effects or not is_used
    assert is_used or effects == {"loses metadata"}
