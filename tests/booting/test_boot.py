"""A log dir becomes a directory on which a broker starts; what would lose something is refused, with the next step."""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from coordinator_records import record
from effort import THOROUGH, trials
from faults import is_killed_at
from golden_sets import shared_log_dir, unpacked
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import (
    CorruptionError,
    KafkalogError,
    OutputExistsError,
    Reason,
    UnsafePathError,
)
from kafkalog.format import PRODUCER_SNAPSHOT_DTYPE
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint, read_topic_id
from kafkalog.state.cluster_image import BROKER, TOPIC
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.producers import encode_snapshot
from kafkalog.state.properties import read_settings
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.system_topics.commits_file import commits_of, encode_commits
from kafkalog.writing.partition_writer import PartitionWriter

KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
KNOWN = ["--set", "orders:cleanup.policy=delete"]
"""Settings of topics without a metadata log: unknown ones are a reason for exit code 1."""


def metadata(out, node=""):
    """The cluster that a broker finds there."""
    found = read_cluster_metadata(out / node / "data", with_credentials=True)
    assert found is not None
    assert found.findings == []
    return found


def plan(report, topic):
    return next(one for one in report.topics if one.name == topic)


def sums(root):
    return {str(path.relative_to(root)): digest(path) for path in sorted(root.rglob("*")) if path.is_file()}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(root, topic="orders", n=30, partitions=1):
    """A log dir with records of a topic."""
    table = {"key": [b"%d" % i for i in range(n)], "value": [b"v%d" % i for i in range(n)]}
    kafkalog.write_table({**table, "timestamp": [1000 + i for i in range(n)]}, root, topic=topic, partitions=partitions)
    return root


def test_a_broker_starts_on_it_and_finds_all_records(tmp_path):
    before = sums(shared_log_dir())
    out = tmp_path / "out"
    report = kafkalog.boot(shared_log_dir(), out)
    assert report.ok
    assert report.is_written
    found = kafkalog.preflight(out / "data", config=out / "server.properties")
    assert (found.verdict, found.is_clean, found.n_bytes_read) == ("starts", True, 0)
    assert sums(shared_log_dir()) == before
    after = sums(out / "data")
    logs = {name: digest for name, digest in before.items() if name.endswith(".log")}
    assert logs
    assert {name: after[name] for name in logs} == logs
    for level in ("read_uncommitted", "read_committed"):
        read = [kafkalog.read_table(path, isolation_level=level) for path in (shared_log_dir(), out / "data")]
        assert read[0].equals(read[1])
    starts = read_offset_checkpoint(shared_log_dir() / "log-start-offset-checkpoint")
    assert starts
    assert read_offset_checkpoint(out / "data" / "log-start-offset-checkpoint") == starts


def test_topics_keep_their_ids_and_nothing_is_deleted(tmp_path):
    kafkalog.boot(shared_log_dir(), tmp_path / "out")
    cluster = metadata(tmp_path / "out")
    for name in kafkalog.open(shared_log_dir()).topics:
        directory = tmp_path / "out" / "data" / f"{name}-0"
        assert cluster.topic_ids[name] == read_topic_id(directory)
        assert read_topic_id(shared_log_dir() / f"{name}-0") in (None, cluster.topic_ids[name])
        assert KEPT.items() <= cluster.settings[TOPIC, name].items()
    assert cluster.settings[TOPIC, "p-compact"]["cleanup.policy"] == "compact"
    assert cluster.settings[TOPIC, "__consumer_offsets"]["cleanup.policy"] == "compact"
    assert "eligible.leader.replicas.version" not in cluster.features
    assert cluster.features["metadata.version"] == 30
    properties = (tmp_path / "out" / "server.properties").read_text()
    assert "offsets.retention.minutes=2147483647" in properties


def test_partitions_have_no_leader_but_the_latest_epoch(tmp_path):
    report = kafkalog.boot(shared_log_dir(), tmp_path / "out")
    cluster = metadata(tmp_path / "out")
    rows = {(row.topic, row.partition): row for row in report.partitions}
    for key, row in rows.items():
        one = cluster.partition(kafkalog.TopicPartition(*key))
        assert one is not None
        assert (one.leader, one.replicas, one.isr, one.leader_epoch) == (-1, [1], [1], row.leader_epoch)
        assert one.directories == [report.nodes[0].directory_id]
        epochs = kafkalog.open(row.source).leader_epochs["epoch"]
        assert row.leader_epoch == max([0, *epochs.tolist()])


def test_settings_groups_and_ids_of_the_old_cluster_go_along(tmp_path):
    source = unpacked("k44")
    old = read_cluster_metadata(source)
    assert old is not None
    report = kafkalog.boot(source, tmp_path / "out")
    new = metadata(tmp_path / "out")
    assert report.metadata == str(source)
    assert report.ok
    assert new.topic_ids == old.topic_ids
    assert new.next_producer_id >= old.next_producer_id
    ids = [row.producer_id for one in kafkalog.producers(source) for row in one.producers]
    assert max(ids) < new.next_producer_id
    for topic in old.topic_ids:
        assert [*new.partitions(topic)] == [*old.partitions(topic)]
        wanted = old.settings.get((TOPIC, topic), {})
        if not topic.startswith("__"):
            wanted = {**wanted, **KEPT}
        assert new.settings.get((TOPIC, topic), {}) == wanted
    others = {key: value for key, value in old.settings.items() if key[0] != TOPIC}
    assert {key: value for key, value in new.settings.items() if key[0] != TOPIC} == others
    groups = [kafkalog.groups(path).to_arrow().to_pylist() for path in (source, tmp_path / "out" / "data")]
    assert groups[0]
    assert groups[0] == groups[1]
    assert report.n_commits == sum(row["type"] != "share" for row in groups[0])
    hanging = {(one.topic, one.partition, one.start_offset) for one in report.open_transactions}
    assert ("p-txn", 0, 426) in hanging


def test_the_files_of_zookeeper_times_get_ids(tmp_path):
    report = kafkalog.boot(unpacked("k28"), tmp_path / "out")
    assert report.ok
    assert report.metadata is None
    cluster = metadata(tmp_path / "out")
    assert len({*cluster.topic_ids.values()}) == len(cluster.topic_ids)
    assert kafkalog.preflight(tmp_path / "out" / "data").verdict == "starts"
    assert len(cluster.partitions("__transaction_state")) == 2


@pytest.mark.parametrize(("release", "level"), [("3.9", 21), ("4.0", 25), ("4.2", 25), ("4.4", 30)])
def test_each_release_gets_levels_that_it_knows(tmp_path, release, level):
    kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", release=release)
    features = metadata(tmp_path / "out").features
    assert features["metadata.version"] == level
    assert ("group.version" in features) == (release != "3.9")


def test_retention_is_carried_over_where_that_is_wanted(tmp_path):
    report = kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", settings={"*": {"retention": "as-was"}})
    assert metadata(tmp_path / "out").settings.get((TOPIC, "orders")) is None
    assert [finding for finding in report.findings.rows if "retention deletes" in finding.detail]
    report = kafkalog.boot(tmp_path / "log", tmp_path / "some", settings={"ord*": {"retention.ms": 5000}})
    assert metadata(tmp_path / "some").settings[TOPIC, "orders"] == {
        "retention.ms": "5000",
        "retention.bytes": "-1",  # off until somebody decides
    }


def test_the_report_ends_with_the_next_commands(tmp_path):
    out = tmp_path / "out"
    report = kafkalog.boot(make(tmp_path / "log"), out, nodes=["10.0.0.7:19092"], settings={"orders": {"a.b": "1"}})
    written = json.loads((out / "report.json").read_text())
    assert written == report.as_dict()
    text = (out / "report.txt").read_text()
    commands = written["next_commands"]
    assert [line.strip() for line in text.splitlines()[-len(commands) :]] == commands
    assert commands[0] == f"kafka-server-start.sh {out / 'server.properties'}"
    assert "--bootstrap-server 10.0.0.7:19092" in commands[-1]
    assert commands[-1].endswith("--topic orders --delete-config retention.ms,retention.bytes")
    assert "listeners=PLAINTEXT://10.0.0.7:19092,CONTROLLER://10.0.0.7:19093" in (out / "server.properties").read_text()


def test_missing_partitions_go_on_where_they_are_known_to_have_been(tmp_path):
    source = make(tmp_path / "log", partitions=3)
    for name in ("orders-1", "orders-2"):
        shutil.rmtree(source / name)
    (source / "replication-offset-checkpoint").write_text("0\n2\norders 0 30\norders 2 70\n")
    with pytest.raises(UnsafePathError) as refused:
        kafkalog.boot(source, tmp_path / "out", strict=True)
    assert refused.value.reason is Reason.SEGMENT_MISSING
    report = kafkalog.boot(source, tmp_path / "out")
    assert not report.ok
    assert plan(report, "orders").missing == {1: 0, 2: 70}
    directory = tmp_path / "out" / "data" / "orders-2"
    assert kafkalog.open(directory).log_end_offset == 70
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 70\n"
    assert kafkalog.preflight(tmp_path / "out" / "data").verdict == "starts"


def test_missing_partitions_of_a_topic_are_one_line_and_exit_1_has_a_message(tmp_path, capsys):
    source = make(tmp_path / "log", partitions=6)
    for number in (1, 2, 3, 5):
        shutil.rmtree(source / f"orders-{number}")
    (source / "replication-offset-checkpoint").write_text("0\n2\norders 0 5\norders 5 70\n")
    assert main(["boot", str(source), "-o", str(tmp_path / "out")]) == 1
    text, errors = capsys.readouterr()
    (line,) = [line for line in text.splitlines() if "no source has" in line]
    assert "no source has 4 of the 6 partitions of orders (1 to 3, 5)" in line
    assert "(partition 5 at 70)" in line
    assert "the exit code is 1: 1 line under Lost" in errors
    report = kafkalog.boot(source, tmp_path / "again")
    assert plan(report, "orders").missing == {1: 0, 2: 0, 3: 0, 5: 70}


def test_a_partition_without_its_log_files_goes_on_where_other_files_know_it_ended(tmp_path):
    source = make(tmp_path / "log", partitions=2)
    topic_id = f"{'A' * 21}Q"
    (source / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    next((source / "orders-0").glob("*.log")).unlink()
    report = kafkalog.boot(source, tmp_path / "out")
    assert not report.ok
    # a producer's snapshot has this offset
    assert plan(report, "orders").missing == {0: 15}
    assert kafkalog.open(tmp_path / "out" / "data" / "orders-0").log_end_offset == 15
    assert metadata(tmp_path / "out").topic_ids["orders"] == topic_id
    assert kafkalog.preflight(tmp_path / "out" / "data").verdict == "starts"


def test_topics_of_a_log_dir_of_which_only_a_partition_is_named_are_not_missing(tmp_path):
    report = kafkalog.boot(unpacked("k44") / "p-multi-0", tmp_path / "out")
    assert plan(report, "p-multi").missing == {1: 0, 2: 0}
    assert {one.name for one in report.topics if not one.is_internal} == {"p-multi"}
    report = kafkalog.boot(unpacked("k44") / "p-multi-0", tmp_path / "all", metadata=unpacked("k44"), dry_run=True)
    assert len(report.topics) > 30


def test_a_file_has_what_no_metadata_log_has(tmp_path, capsys):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("p-multi-0", "p-compact-0", "p-default-0", "__consumer_offsets-1", "__transaction_state-0"):
        shutil.copytree(unpacked("k44") / name, source / name)
        (source / name / "partition.metadata").unlink()
    main(["metadata", str(unpacked("k44")), "--show", "topics,brokers", "--json", "-q"])
    (tmp_path / "topics.jsonl").write_text(capsys.readouterr().out)
    old = read_cluster_metadata(unpacked("k44"))
    assert old is not None
    report = kafkalog.boot(source, tmp_path / "out", metadata=tmp_path / "topics.jsonl")
    new = metadata(tmp_path / "out")
    for name in ("p-multi", "p-compact", "p-default", "__consumer_offsets", "__transaction_state"):
        assert new.topic_ids[name] == old.topic_ids[name]
        assert [*new.partitions(name)] == [*old.partitions(name)]
        wanted = old.settings.get((TOPIC, name), {})
        assert new.settings.get((TOPIC, name), {}) == (wanted if name.startswith("__") else {**wanted, **KEPT})
    assert any("p-big" in finding.detail for finding in report.findings.rows)
    assert plan(report, "p-compact").origins["cleanup.policy"] == "settings file"


def test_a_file_of_settings_by_topic(tmp_path):
    source, file = make(tmp_path / "log"), tmp_path / "settings.json"
    file.write_text('{"ord*": {"retention.ms": 5000,\n"preallocate": true}, "gone": {}}')
    arguments = ["boot", str(source), "-o", str(tmp_path / "out"), "-q", "--metadata", str(file)]
    assert main([*arguments, "--set", "orders:a.b=1"]) == 0
    settings = metadata(tmp_path / "out").settings[TOPIC, "orders"]
    assert settings == {**KEPT, "preallocate": "true", "a.b": "1"}
    assert "retention.ms=5000" in (tmp_path / "out" / "report.txt").read_text()
    for text in (
        '{"orders": 5}',
        '{"orders": {"a": []}}',
        "[1]",
        "nonsense",
        '{"topic": "a", "configs": {}, "topic_id": "x"}',
    ):
        file.write_text(text)
        with fails_with("column_value"):
            kafkalog.boot(source, tmp_path / "more", metadata=file)


def test_a_wrong_number_makes_no_billions_of_partitions(tmp_path):
    source = make(tmp_path / "log")
    commits = tmp_path / "commits.jsonl"
    commits.write_text('{"group": "billing", "topic": "orders", "partition": 2000000000, "offset": 99}\n')
    with fails_with("too_many_directories"):
        kafkalog.boot(source, tmp_path / "out", groups=commits)
    commits.write_text('{"group": "billing", "topic": "orders", "partition": 59, "offset": 99}\n')
    with fails_with("too_many_directories"):
        kafkalog.boot(source, groups=commits, dry_run=True, limits=kafkalog.Limits(max_directories=59))
    result = kafkalog.boot(source, groups=commits, dry_run=True, limits=kafkalog.Limits(max_directories=60))
    assert max(topic.n_partitions for topic in result.topics) == 60


def test_links_out_of_the_source_are_named(tmp_path):
    source = make(tmp_path / "log")
    (source / "orders-0").rename(tmp_path / "orders-0")
    (source / "orders-0").symlink_to(tmp_path / "orders-0")
    with fails_with("not_kafka"):
        kafkalog.boot(source, tmp_path / "out")


@pytest.mark.parametrize(("used", "following"), [(1999, 2000), (2000, 3000), (2001, 3000)])
def test_the_next_producer_id_is_that_of_a_block_after_all_known_ones(tmp_path, used, following):
    (tmp_path / "log").mkdir()
    with PartitionWriter(tmp_path / "log" / "orders-0", producer=(used, 0)) as writer:
        writer.append({"value": [b"x"]})
    assert kafkalog.boot(tmp_path / "log", tmp_path / "out", dry_run=True).next_producer_id == following


def test_the_last_producer_id_leaves_none(tmp_path):
    (tmp_path / "log").mkdir()
    with PartitionWriter(tmp_path / "log" / "orders-0", producer=(2**63 - 1, 0)) as writer:
        writer.append({"value": [b"x"]})
    with fails_with("unsafe_path"):
        kafkalog.boot(tmp_path / "log", tmp_path / "out")


def test_what_a_diverging_copy_has_past_the_best_one_is_named(tmp_path):
    sources = []
    for number, (epoch, n) in enumerate([(3, 2), (2, 6)], 1):
        source = tmp_path / f"broker-{number}"
        source.mkdir()
        for at, size in ((1, 5), (epoch, n)):
            with PartitionWriter(source / "orders-0", topic_id=f"{'A' * 21}Q", leader_epoch=at) as writer:
                writer.append({"value": [b"%d" % (at if at == 1 else number)] * size})
        (source / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={number}\n")
        sources.append(source)
    report = kafkalog.boot(sources, tmp_path / "one")
    assert [(row.source, row.log_end_offset) for row in report.partitions] == [(str(sources[0] / "orders-0"), 7)]
    assert [one.path for one in report.findings.rows if "offsets 7..11" in one.detail] == [str(sources[1] / "orders-0")]
    report = kafkalog.boot(sources, tmp_path / "two", nodes=2)
    assert [one.path for one in report.findings.rows if "offsets from 7" in one.detail] == [
        str(sources[1] / "orders-0")
    ]


def test_committed_offsets_tell_of_partitions_that_are_missing(tmp_path):
    commits = tmp_path / "commits.jsonl"
    commits.write_text(
        '{"group": "billing", "topic": "orders", "partition": 4, "offset": 99}\n'
        '{"group": "billing", "topic": "orders", "partition": 0, "offset": 7}\n'
    )
    report = kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", groups=commits)
    assert plan(report, "orders").missing == {1: 0, 2: 0, 3: 0, 4: 99}
    rows = kafkalog.groups(tmp_path / "out" / "data").to_arrow().to_pylist()
    assert [(row["group"], row["partition"], row["offset"], row["lag"]) for row in rows] == [
        ("billing", 0, 7, 23),
        ("billing", 4, 99, 0),
    ]


def test_a_second_source_adds_its_partitions(tmp_path):
    one, other = make(tmp_path / "a"), make(tmp_path / "b", "payments")
    kafkalog.boot([one, other / "payments-0"], tmp_path / "out")
    assert sorted(kafkalog.open(tmp_path / "out" / "data").topics)[-2:] == ["orders", "payments"]


def test_copies_that_are_equal_are_one_and_others_are_refused_if_asked_for(tmp_path):
    one = make(tmp_path / "a")
    shutil.copytree(one, tmp_path / "b")
    report = kafkalog.boot([one, tmp_path / "b"], tmp_path / "same", strict=True)
    assert report.ok
    longer = make(tmp_path / "c", n=40)
    with pytest.raises(UnsafePathError) as refused:
        kafkalog.boot([one, longer], tmp_path / "out", strict=True)
    assert refused.value.reason is Reason.PARTITION_TWICE
    assert "--strict" in refused.value.detail
    report = kafkalog.boot([one, longer], tmp_path / "out")
    assert [row.source for row in report.partitions] == [str(longer / "orders-0")]
    assert not report.ok  # their batches differ, and leader epochs do not say which is right
    assert kafkalog.read_table(tmp_path / "out" / "data").num_rows == 40


def test_damage_is_refused_if_asked_for_and_nothing_appears(tmp_path):
    source = make(tmp_path / "log", partitions=2)
    path = next((source / "orders-1").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as refused:
        kafkalog.boot(source, tmp_path / "out", strict=True)
    assert refused.value.reason is Reason.CRC_MISMATCH
    assert refused.value.path == str(path)
    assert "--strict" in refused.value.detail
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_torn_tail_is_cut_as_a_broker_cuts_it(tmp_path):
    source = make(tmp_path / "log")
    path = next((source / "orders-0").glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    report = kafkalog.boot(source, tmp_path / "out")
    assert report.ok
    assert (tmp_path / "out" / "data" / "orders-0" / path.name).read_bytes() == whole
    assert path.read_bytes() == whole + whole[:40]


def test_a_held_lock_is_refused(tmp_path):
    source = make(tmp_path / "log")
    (source / ".lock").touch()
    with hold_locks([source]), fails_with("unsafe_path"):
        kafkalog.boot(source, tmp_path / "out")


def test_a_directory_that_is_no_partition_is_refused_or_left_out(tmp_path):
    (tmp_path / "nothing").mkdir()
    with fails_with("not_kafka"):
        kafkalog.boot(tmp_path / "nothing", tmp_path / "out")
    source = make(tmp_path / "log")
    (source / "lost+found").mkdir()
    shutil.copytree(source / "orders-0", source / f"orders-0.{'0' * 32}-stray")
    report = kafkalog.boot(source, tmp_path / "out")
    assert report.ok
    left_out = {Path(finding.path or "").name for finding in report.findings.rows}
    assert left_out == {"lost+found", f"orders-0.{'0' * 32}-stray"}
    assert not (tmp_path / "out" / "data" / "lost+found").exists()


def test_partitions_that_a_broker_renamed_as_strays_are_taken_if_asked_for(tmp_path):
    source = make(tmp_path / "log", partitions=2)
    whole = kafkalog.boot(source, tmp_path / "whole")
    for number in (0, 1):
        (source / f"orders-{number}").rename(source / f"orders-{number}.{number:032x}-stray")
    with fails_with("not_kafka"):
        kafkalog.boot(source, tmp_path / "out")
    assert main(["boot", str(source), "-o", str(tmp_path / "out"), "--include-stray", *KNOWN]) == 0
    for number in (0, 1):
        old, new = (tmp_path / name / "data" / f"orders-{number}" for name in ("whole", "out"))
        assert {path.name: digest(path) for path in old.glob("0*")} == {
            path.name: digest(path) for path in new.glob("0*")
        }
    # a broker has made an empty one in its place
    kafkalog.write_table({"value": [b"new"]}, source, topic="orders")
    with pytest.raises(UnsafePathError) as caught:
        kafkalog.boot(source, tmp_path / "both", include_unknown=True, strict=True)
    assert caught.value.reason == Reason.PARTITION_TWICE
    report = kafkalog.boot(source, tmp_path / "both", include_unknown=True)
    ends = {(one.topic, one.partition): one.log_end_offset for one in report.partitions}
    assert ends == {(one.topic, one.partition): one.log_end_offset for one in whole.partitions}


def test_a_named_cluster_id_joins_log_dirs_that_were_formatted_again(tmp_path):
    for name in ("a", "b"):
        kafkalog.write_table({"value": [b"1"]}, tmp_path / name, topic=name)
        cluster = f"{name.upper() * 21}A"
        (tmp_path / name / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    paths = [tmp_path / "a", tmp_path / "b"]
    with fails_with("unsafe_path"):
        kafkalog.boot(paths, tmp_path / "out")
    report = kafkalog.boot(paths, tmp_path / "out", cluster_id="A" * 21 + "A")
    assert {one.topic for one in report.partitions} == {"a", "b"}
    assert [one.path for one in report.findings.rows if one.reason is Reason.UNSAFE_PATH] == [str(tmp_path / "b")]


def test_directories_of_another_topic_of_that_name_are_refused(tmp_path):
    source = make(tmp_path / "log", partitions=2)
    ids = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    for number, topic_id in enumerate(ids):
        (source / f"orders-{number}" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    with pytest.raises(UnsafePathError) as refused:
        kafkalog.boot(source, tmp_path / "out")
    assert "--set orders:topic.id=" in refused.value.detail
    kafkalog.boot(source, tmp_path / "out", settings={"orders": {"topic.id": ids[1]}})
    assert metadata(tmp_path / "out").topic_ids["orders"] == ids[1]
    assert read_topic_id(tmp_path / "out" / "data" / "orders-0") == ids[1]


@pytest.mark.parametrize(
    "setting", [("segment.bytes", "1000"), ("retention.ms", "-5"), ("cleanup.policy", "rubbish"), ("preallocate", "x")]
)
def test_a_setting_with_which_no_broker_starts_is_refused(tmp_path, setting):
    name, value = setting
    with pytest.raises(UnsafePathError) as refused:
        kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", settings={"orders": {name: value}})
    assert f"--set orders:{name}=" in refused.value.detail
    assert not (tmp_path / "out").exists()


def test_small_segments_are_fine_before_4_0(tmp_path):
    settings = {"orders": {"segment.bytes": 1000, "preallocate": True}}
    assert kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", release="3.9", settings=settings).ok
    assert metadata(tmp_path / "out").settings[2, "orders"].items() >= {
        ("segment.bytes", "1000"),
        ("preallocate", "true"),
    }


@pytest.mark.parametrize("module", ["booting.sources", "survey.startup_load"])
def test_checkpoints_are_read_once_and_not_once_for_each_partition(tmp_path, monkeypatch, module):
    source = make(tmp_path / "source", partitions=4)
    read = []

    def counted(path):
        read.append(path.name)
        return read_offset_checkpoint(path)

    monkeypatch.setattr(f"kafkalog.{module}.read_offset_checkpoint", counted)
    assert len(kafkalog.boot(source, tmp_path / "out", dry_run=True).partitions) == 4
    assert "log-start-offset-checkpoint" in read
    assert len(read) == len(set(read))


def test_outputs_are_not_replaced_and_not_among_the_sources(tmp_path):
    source = make(tmp_path / "log")
    (tmp_path / "out" / "old").mkdir(parents=True)
    with pytest.raises(OutputExistsError):
        kafkalog.boot(source, tmp_path / "out")
    with pytest.raises(UnsafePathError):
        kafkalog.boot(source, source / "out")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"release": "2.8"}, "release is one of"),
        ({"settings": {"orders": {"retention": "never"}}}, "retention"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": ["nowhere"]}, "HOST:PORT"),
        ({"nodes": ["3@a:1", "3@b:1"]}, "nodes"),
        ({"settings": {"orders": {"topic.id": "x"}}}, "topic id"),
        ({"topics": "absent"}, "absent"),
    ],
)
def test_options_are_checked(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_any_path_is_the_one_in_the_settings(tmp_path):
    source = make(tmp_path / "log")
    out = tmp_path / "Größe \\ 配 \U0001f600"
    report = kafkalog.boot(source, out)
    settings = read_settings(out / "server.properties")
    assert settings["log.dirs"] == str(out / "data")
    assert (out / "server.properties").read_bytes().isascii()
    assert "'" in report.text().partition("kafka-server-start.sh ")[2][:1]
    with fails_with("unsafe_path"):
        kafkalog.boot(source, tmp_path / "a,b")


def test_blocks_are_shared_only_where_the_file_system_can(tmp_path, monkeypatch):
    source = make(tmp_path / "log")

    def clone(target, request, descriptor):
        assert request == 0x40049409
        os.write(target, os.pread(descriptor, 2**20, 0))

    def cannot(*arguments):
        raise OSError(95, "not supported")

    monkeypatch.setattr("fcntl.ioctl", cannot)
    kafkalog.boot(source, tmp_path / "copied")
    monkeypatch.setattr("fcntl.ioctl", clone)
    kafkalog.boot(source, tmp_path / "shared")
    path = next((source / "orders-0").glob("*.log"))
    for out in ("copied", "shared"):
        assert (tmp_path / out / "data" / "orders-0" / path.name).read_bytes() == path.read_bytes()


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path):
    told = kafkalog.boot(unpacked("k44"), tmp_path / "out", dry_run=True, cluster_id="x")
    assert not any(tmp_path.iterdir())
    made = kafkalog.boot(unpacked("k44"), tmp_path / "out", cluster_id="x")
    one, other = told.as_dict(), made.as_dict()
    for name in ("partitions", "open_transactions", "next_producer_id", "carried", "n_commits", "findings"):
        assert one[name] == other[name]
    assert (told.is_written, made.is_written) == (False, True)


def test_three_nodes_keep_their_copies_and_the_best_one_leads(tmp_path):
    sources = []
    for number, n in ((1, 30), (2, 40), (3, 20)):
        source = make(tmp_path / f"broker-{number}", n=n)
        (source / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={number}\n")
        sources.append(source)
    with fails_with("partition_twice"):
        kafkalog.boot(sources, tmp_path / "out", nodes=2)
    report = kafkalog.boot(sources, tmp_path / "out", nodes=3)
    files = [sums(tmp_path / "out" / f"node-{number}" / "data" / "__cluster_metadata-0") for number in (1, 2, 3)]
    assert files[0] == files[1] == files[2]
    cluster = metadata(tmp_path / "out", "node-2")
    one = cluster.partition(kafkalog.TopicPartition("orders", 0))
    assert one is not None
    assert (one.replicas, one.isr) == ([2, 1, 3], [2])
    ids = {node.node_id: node.directory_id for node in report.nodes}
    assert one.directories == [ids[number] for number in one.replicas]
    assert {(voter["voterId"], voter["voterDirectoryId"]) for voter in cluster.voters} == {*ids.items()}
    for number in (1, 2, 3):
        text = (tmp_path / "out" / f"node-{number}" / "data" / "meta.properties").read_text()
        assert f"node.id={number}\ndirectory.id={ids[number]}\n" in text
        assert kafkalog.preflight(tmp_path / "out" / f"node-{number}" / "data").verdict == "starts"


def test_brokers_defaults_are_carried_and_those_of_one_broker_only_to_it(tmp_path):
    source = unpacked("k44")
    kafkalog.boot(source, tmp_path / "out", nodes="7@localhost:9092")
    new, old = metadata(tmp_path / "out"), read_cluster_metadata(source)
    assert old is not None
    assert new.settings.get((BROKER, ""), {}) == old.settings.get((BROKER, ""), {})
    assert (BROKER, "1") not in new.settings


def test_the_command_prints_the_report(tmp_path, capsys):
    source = make(tmp_path / "log")
    assert main(["boot", str(source), "-o", str(tmp_path / "out"), "-q", "--set", "orders:cleanup.policy=compact"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("  kafka-configs.sh")
    assert metadata(tmp_path / "out").settings[TOPIC, "orders"]["cleanup.policy"] == "compact"
    shutil.rmtree(make(tmp_path / "gaps", partitions=2) / "orders-0")
    arguments = [
        "boot",
        str(tmp_path / "gaps"),
        "--dry-run",
        "-q",
        "--json",
        "--release",
        "4.0",
        "--set",
        "*:retention.ms=60000",
    ]
    assert main(arguments) == 1
    assert json.loads(capsys.readouterr().out)["topics"][-1]["missing"] == [{"partition": 0, "continues_at": 0}]
    assert main(["boot", str(source), "-o", str(tmp_path / "out"), "-q"]) == 6
    assert main(["boot", str(source), "--dry-run", "-q", "--set", "nonsense"]) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_killed_at_any_step_the_output_is_absent_or_complete(tmp_path):
    source = make(tmp_path / "log", partitions=2)
    before, out = sums(source), tmp_path / "out"

    def act():
        kafkalog.boot(source, out)

    act()
    names = [*sums(out)]
    shutil.rmtree(out)
    n = n_kills = 1
    while is_killed_at(n, act):
        n_kills += 1
        if out.exists():
            assert [*sums(out)] == names
            assert kafkalog.preflight(out / "data").verdict == "starts"
            shutil.rmtree(out)
        n += 9 if THOROUGH else 25
    assert n_kills > (12 if THOROUGH else 5)
    assert [*sums(out)] == names
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert sums(source) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
@pytest.mark.parametrize("n", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_output_is_absent_or_complete(tmp_path, n):
    source, out, rng = make(tmp_path / "log", partitions=3), tmp_path / "out", random.Random(n)
    before = sums(source)

    def act(seconds=None):
        """Boot in a fork that is killed after some time."""
        began, child = time.monotonic(), os.fork()
        if not child:
            try:
                kafkalog.boot(source, out)
            finally:
                os._exit(0)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return time.monotonic() - began

    seconds, n_absent = act(), 0
    names = [*sums(out)]
    for _ in range(2):  # another process may have slowed the first one down
        shutil.rmtree(out)
        seconds = min(seconds, act())
    number = 0
    while number < n or n_absent <= n // 4:
        number += 1
        shutil.rmtree(out, ignore_errors=True)
        act(rng.uniform(0, seconds))
        n_absent += not out.exists()
        if out.exists():
            seconds *= 0.9  # the machine may have become faster
            assert [*sums(out)] == names
            assert kafkalog.preflight(out / "data").verdict == "starts"
        assert sums(source) == before
    shutil.rmtree(out, ignore_errors=True)
    act()
    # nothing is left of those that were killed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out"]
    assert [*sums(out)] == names


@pytest.mark.parametrize("seed", range(trials(1, 9)))
def test_sources_with_any_fault_are_refused_or_become_a_log_dir_that_starts(tmp_path, seed):
    rng, source = random.Random(seed), tmp_path / "source"
    source.mkdir()
    for name in ("p-txn-0", "p-delrec-0", "__consumer_offsets-0", "__cluster_metadata-0"):
        if rng.random() < 0.7 or name == "p-txn-0":
            shutil.copytree(unpacked("k44") / name, source / name)
    for path in unpacked("k44").iterdir():
        if path.is_file() and rng.random() < 0.7:
            shutil.copy(path, source)
    for _ in range(rng.randrange(1, 4)):
        fault(rng, rng.choice(sorted(path for path in source.rglob("*") if path.is_file())))
    before, out, problem = sums(source), tmp_path / "out", None
    try:
        kafkalog.boot(source, out)
    except KafkalogError as error:
        problem = error
    if problem is not None:
        assert "please report this" not in str(problem)
        assert not out.exists()
    else:
        found = kafkalog.preflight(out / "data", config=out / "server.properties")
        assert found.problems == []
        assert [row for row in found.partitions if row.problem or row.stray or row.n_bytes_lost] == []
    assert sums(source) == before


def fault(rng, path):
    """Do something to a file that happens to files."""
    data, kind = bytearray(path.read_bytes()), rng.randrange(5)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == 2:
        path.write_bytes(rng.randbytes(rng.randrange(50)))
    elif kind == 3 and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    else:
        path.rename(path.with_name(rng.choice([f"{path.name}.swap", f"{path.name}.deleted", f"x{path.name}"])))


@pytest.mark.parametrize(
    ("own", "change"),
    [
        ({}, ["--delete-config retention.ms,retention.bytes"]),
        ({"retention.ms": "-1"}, ["--delete-config retention.bytes"]),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, []),
        ({"retention.ms": "5000"}, ["--delete-config retention.bytes", "--add-config retention.ms=5000"]),
        ({"retention.ms": "-1", "retention.bytes": "7"}, ["--add-config retention.bytes=7"]),
        ({"retention.ms": "1", "retention.bytes": "7"}, ["--add-config retention.ms=1,retention.bytes=7"]),
    ],
)
def test_the_next_commands_restore_only_what_boot_changed(tmp_path, own, change):
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"orders": own}))
    report = kafkalog.boot(make(tmp_path / "log"), tmp_path / "out", metadata=settings, dry_run=True)
    commands = [one.partition("--topic orders ")[2] for one in report.next_commands() if "kafka-configs" in one]
    assert commands == change


@pytest.mark.parametrize(("own", "n"), [({}, 30), ({"retention.ms": "-1", "retention.bytes": "-1"}, 0)])
def test_the_report_counts_what_goes_when_retention_is_on_again(tmp_path, own, n):
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"orders": own}))
    out = tmp_path / "out"
    report = kafkalog.boot(make(tmp_path / "log"), out, metadata=settings)
    assert plan(report, "orders").n_expiring == n
    assert ("  orders: 30 records" in report.text().splitlines()) == bool(n)
    # what trim removes by this rule is what a broker does
    trimmed = kafkalog.trim(out / "data", retention_ms=604_800_000, output=tmp_path / "trimmed")
    assert trimmed.ok
    assert kafkalog.read_table(tmp_path / "trimmed").num_rows == 0


def commits(root, records):
    with PartitionWriter(root / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in records], "value": [value for _, value in records]})


@pytest.mark.parametrize("nodes", [1, 2])
def test_commits_that_expire_by_themselves_are_written_without_the_time(nodes, tmp_path):
    root = make(tmp_path / "log")
    value = {"offset": 5, "metadata": "", "commitTimestamp": 1000}
    pairs = [
        encode_keyed_record(
            "OffsetCommit", 1, {"group": name, "topic": "orders", "partition": 0}, {**value, "expireTimestamp": time}
        )
        for name, time in (("old", 2000), ("kept", -1), ("deleted", 2000))
    ]
    commits(root, [*pairs, (pairs[2][0], None)])
    before = kafkalog.groups(root)
    assert [(group.name, group.offsets[0].expire_timestamp) for group in before] == [("kept", None), ("old", 2000)]
    for how in ("keep", "as-was"):
        report = kafkalog.boot(root, tmp_path / how, groups=how, nodes=nodes)
        assert report.ok
        (note,) = [one for one in report.findings.rows if "expiry" in one.detail]
        assert note.detail.startswith("1 group ('old') have committed offsets with a time of expiry")
        data = tmp_path / how / ("data" if nodes == 1 else "node-1/data")
        after = kafkalog.groups(data)
        assert [group.offsets[0].expire_timestamp for group in after] == [None, 2000 if how == "as-was" else None]
        assert encode_commits(commits_of(after)) == encode_commits(commits_of(before))
        (row,) = [one for one in report.partitions if one.topic == "__consumer_offsets"]
        assert kafkalog.open(data / "__consumer_offsets-0").log_end_offset == row.log_end_offset
        found = kafkalog.preflight(data, config=data.parent / "server.properties")
        assert (found.verdict, found.is_clean, found.n_bytes_read) == ("starts", True, 0)
        ends = read_offset_checkpoint(data / "replication-offset-checkpoint")
        assert ends[kafkalog.TopicPartition("__consumer_offsets", 0)] == row.log_end_offset
    (tmp_path / "c.jsonl").write_bytes(encode_commits(commits_of(kafkalog.groups(root))))
    report = kafkalog.boot(root, tmp_path / "new", groups=tmp_path / "c.jsonl")
    assert report.ok
    assert [one.offsets[0].expire_timestamp for one in kafkalog.groups(tmp_path / "new" / "data")] == [None, None]


def test_the_first_of_several_times_of_expiry_counts(tmp_path):
    root = make(tmp_path / "log")
    value = {"offset": 5, "metadata": "", "commitTimestamp": 1000}
    keys = [{"group": "billing", "topic": "orders", "partition": number} for number in (0, 1)]
    times = (2000, 10**15)
    commits(
        root,
        [
            encode_keyed_record("OffsetCommit", 1, key, {**value, "expireTimestamp": time})
            for key, time in zip(keys, times, strict=True)
        ],
    )
    report = kafkalog.boot(root, dry_run=True)
    (note,) = [one for one in report.findings.rows if "expiry" in one.detail]
    assert note.detail.startswith("1 group ('billing')")
    assert "1 of them in the past" in note.detail


def test_share_groups_that_a_file_of_offsets_replaces_are_a_loss(tmp_path):
    root = make(tmp_path / "log")
    commits(root, [record("ShareGroupMetadata", "shared"), record("OffsetCommit", "plain")])
    (tmp_path / "c.jsonl").write_text('{"group": "", "topic": "orders", "partition": 0, "offset": 3}\n')
    assert kafkalog.boot(root, tmp_path / "out", dry_run=True).ok
    report = kafkalog.boot(root, tmp_path / "out", groups=tmp_path / "c.jsonl")
    (loss,) = [one for one in report.findings.rows if one.damage]
    assert "1 share group ('shared') start again" in loss.detail
    assert [(one.name, one.offsets[0].offset) for one in kafkalog.groups(tmp_path / "out" / "data")] == [("", 3)]


def test_what_records_of_the_old_cluster_need_is_named(tmp_path):
    report = kafkalog.boot(unpacked("k44"), tmp_path / "out", dry_run=True)
    said = [one.detail for one in report.findings.rows if not one.damage]
    assert [one for one in said if "StandardAuthorizer" in one] or not report.carried["ACLs"]
    assert any("levels of features change" in one for one in said)


def test_producer_ids_of_copies_and_of_coordinators_stay_reserved(tmp_path):
    root, other = make(tmp_path / "log"), make(tmp_path / "other", n=5)
    value = {
        "producerId": 5_000,
        "nextProducerId": 7_001,
        "producerEpoch": 0,
        "transactionTimeoutMs": 1,
        "transactionStatus": 0,
        "transactionPartitions": None,
        "clientTransactionVersion": 2,
        "transactionLastUpdateTimestampMs": 1,
        "transactionStartTimestampMs": 1,
    }
    key, content = encode_keyed_record("TransactionLog", 1, {"transactionalId": "t"}, value)
    with PartitionWriter(root / "__transaction_state-0") as writer:
        writer.append({"key": [key, key], "value": [content, None]})
    assert kafkalog.boot(root, tmp_path / "out", dry_run=True).next_producer_id == 8_000
    with PartitionWriter(other / "orders-0", producer=(9_500, 0)) as writer:
        writer.append({"value": [b"x"]})
    for path in (other / "orders-0").glob("*.snapshot"):
        path.unlink()
    report = kafkalog.boot([root, other], tmp_path / "out", dry_run=True)
    assert report.next_producer_id == 10_000


def test_a_snapshot_that_a_broker_removes_has_no_open_transaction(tmp_path):
    root = tmp_path / "log"
    (root / "orders-0").mkdir(parents=True)
    entries = np.zeros(1, PRODUCER_SNAPSHOT_DTYPE)
    entries["producer_id"], entries["current_txn_first_offset"], entries["last_offset"] = 7, 4, 5
    # at the end of a log whose start is there, too: the records of the transaction are below
    (root / "orders-0" / f"{10:020d}.log").write_bytes(b"")
    (root / "orders-0" / f"{10:020d}.snapshot").write_bytes(encode_snapshot(entries))
    starts = {kafkalog.TopicPartition("orders", 0): 10}
    (root / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint(starts))
    report = kafkalog.boot(root, tmp_path / "out")
    assert (report.partitions[0].log_start_offset, report.partitions[0].log_end_offset) == (10, 10)
    assert report.open_transactions == []
    assert report.next_producer_id > 7
    assert not (tmp_path / "out" / "data" / "orders-0" / f"{10:020d}.snapshot").exists()


@pytest.mark.filterwarnings("ignore::kafkalog.errors.TransactionWarning")
def test_open_transactions_come_by_their_first_offset(tmp_path):
    (tmp_path / "log").mkdir()
    with PartitionWriter(tmp_path / "log" / "orders-0") as writer:
        for producer, is_transactional in ((7, False), (9, True), (7, True)):
            rows = {"value": [b"x"] * 5, "timestamp": [1000] * 5}
            writer.append(rows, producer=(producer, 0), transactional=is_transactional)
    report = kafkalog.boot(tmp_path / "log", tmp_path / "out", dry_run=True)
    assert [(one.producer_id, one.start_offset) for one in report.open_transactions] == [(9, 5), (7, 10)]
    (row,) = report.partitions
    assert (row.n_segments, row.n_bytes) == (1, kafkalog.open(tmp_path / "log" / "orders-0").size_in_bytes)
