"""What a broker would do on its next start; `conformance/test_preflight.py` asks real brokers."""

import json
from pathlib import Path

import builder
import pytest
from files import content
from metadata_logs import TOPIC, write_meta_properties, write_metadata
from startups import asked, logs
from writing import TOPIC_ID

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Reason

FAR = 2**31 + 100


def test_a_healthy_partition_just_starts_or_is_recovered_behind_the_recovery_point(partition):
    assert asked(partition, clean=True).verdict == "starts"
    row = asked(partition)
    assert row.verdict == "recovers"
    assert [one.action for one in row.segments] == ["kept", "kept", "recovered"]
    assert row.n_bytes_read == logs(partition)[-1].stat().st_size


def test_names_and_ids_that_stop_or_displace(partition):
    (partition / "broker.log").write_text("text")
    assert "broker.log" in (asked(partition).error or "")
    (partition / "broker.log").unlink()
    (partition / "leader-epoch-checkpoint").write_text("0\n9\n")
    assert "leader-epoch-checkpoint" in (asked(partition).error or "")
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert done.problem is None  # it writes another
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (partition.parent / "backup").mkdir()
    (partition / "partition.metadata").unlink()
    [row] = kafkalog.preflight(partition.parent).partitions
    assert row.stray is None  # a broker with ZooKeeper loads it
    assert any("Kafka 4.x renames it" in remark for remark in row.remarks)
    ids = "cluster.id=kafkalogSampleBroker01A\nnode.id=1\ndirectory.id=X0qcQdqYVPjkhw06oncc2A\n"
    (partition.parent / "meta.properties").write_text(f"version=1\n{ids}")
    result = kafkalog.preflight(partition.parent)
    assert [one.path for one in result.problems] == [str(partition.parent / "backup")]
    assert "no topic id" in (result.partitions[0].stray or "")
    assert result.verdict == "does not start"
    assert result.as_dict()["partitions"][0]["verdict"] == "loses"


@pytest.mark.parametrize("tail", [bytes(100), b"\x00" * 8 + b"\xff" * 50])
def test_a_bad_tail_fails_after_a_clean_shutdown_and_is_cut_after_another(partition, tail):
    last = logs(partition)[-1]
    size = last.stat().st_size
    last.write_bytes(last.read_bytes() + tail)
    row = asked(partition, clean=True)
    assert row.verdict == "does not start"
    assert row.problem is not None
    assert (row.problem.reason, row.problem.path, row.problem.position) == (Reason.SIZE_TOO_SMALL, str(last), size)
    cut = asked(partition)
    assert (cut.segments[-1].action, cut.segments[-1].n_bytes) == ("cut", size)
    assert cut.log_end_offset == 305


def test_a_torn_batch_is_no_loss(partition):
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    assert [one.reason for one in asked(partition).lost] == [Reason.LOG_END_MISSING]  # a snapshot proves it
    (partition / f"{305:020d}.snapshot").unlink()
    row = asked(partition)
    assert (row.segments[-1].action, row.n_bytes_lost, row.verdict) == ("cut", 0, "recovers")
    assert asked(partition, clean=True).log_end_offset == row.log_end_offset


def _with_offset(path, row, offset):
    """Another base offset for a batch; no checksum covers it."""
    at = int(kafkalog.Segment(path).batches.position[row])
    data = bytearray(path.read_bytes())
    data[at : at + 8] = offset.to_bytes(8, "big", signed=True)
    path.write_bytes(data)


@pytest.mark.parametrize(("row", "offset"), [(1, -5000), (1, 3), (-1, 2**40)])
def test_an_offset_outside_of_its_segment_is_named(partition, row, offset):
    last = logs(partition)[-1]
    _with_offset(last, row, offset)
    for one in (asked(partition), *kafkalog.recover(partition, dry_run=True).partitions):
        assert (one.verdict, one.losses) == ("does not start", [])
        assert one.problem is not None
        assert (one.problem.reason, one.problem.path) == (Reason.OFFSET_OUTSIDE_SEGMENT, str(last))


def test_a_transaction_index_of_a_later_version_stops_the_start(partition):
    index = logs(partition)[1].with_suffix(".txnindex")
    index.write_bytes(b"\1\0" + bytes(32))
    assert "version 256" in (asked(partition).error or "")
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert "version 256" in (done.error or "")
    index.write_bytes(b"\0\1" + (10**6).to_bytes(8, "big") * 4)  # a broker reads the first byte of it alone
    assert asked(partition).verdict == "recovers"


def test_an_empty_log_begins_where_all_lies_below_the_checkpointed_start(partition):
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\np-txn-now 0 5000\n")
    for clean in (True, False):
        row = asked(partition, clean=clean)
        assert (row.verdict, row.log_start_offset, row.log_end_offset) == ("loses", 5000, 5000)
        assert {one.action for one in row.segments} == {"deleted"}
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    assert [one.action for one in asked(partition).segments] == ["deleted"] * 3
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert (done.error, done.log_end_offset) == (None, 5000)


def test_the_command_says_it_and_ends_with_1_where_something_is_lost(partition, capsys):
    assert main(["preflight", str(partition), "--clean"]) == 0
    assert capsys.readouterr().out == ""
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes() + bytes(50))
    assert main(["preflight", str(partition), "--clean"]) == 1
    assert "does not start" in capsys.readouterr().out
    assert main(["preflight", str(partition), "--unclean", "--json"]) == 0
    assert '"action": "cut"' in capsys.readouterr().out
    with pytest.raises(ValueError, match="threads"):
        kafkalog.preflight(partition, threads=0)


def test_each_stray_is_one_finding_of_the_report_beside_other_damage(log_dir_copy, tmp_path):
    report = tmp_path / "report.json"
    strays = [log_dir_copy / name for name in ("p-v0v1v2-mixed-0", "p-v1-lz4-0")]
    assert main(["preflight", str(log_dir_copy), "-q", "--report", str(report)]) == 1
    assert [one["path"] for one in json.loads(report.read_text())["findings"]] == [*map(str, strays)]
    (log_dir_copy / "recovery-point-offset-checkpoint").write_text("nonsense")
    assert main(["preflight", str(log_dir_copy), "-q", "--report", str(report)]) == 1
    paths = [one["path"] for one in json.loads(report.read_text())["findings"]]
    assert len(paths) > 2
    assert {*map(str, strays)} < {*paths}


@pytest.mark.parametrize(("number", "reason"), [(0, "segment_missing"), (1, "segment_missing"), (2, "log_end_missing")])
def test_files_that_prove_a_missing_segment_count_as_its_loss(partition, number, reason):
    log = logs(partition)[number]
    first, end = int(log.stem), [137, 272, 305][number]
    log.unlink()
    plans = [asked(partition), asked(partition, clean=True), *kafkalog.recover(partition, dry_run=True).partitions]
    for row in plans:
        assert row.verdict == "loses"
        assert [one.reason.value for one in row.losses] == [reason]
        assert (row.loss.first_offset, row.loss.last_offset, row.loss.n_records) == (first, end - 1, end - first)
    assert any("without its .log" in why for why in plans[0].removed.values())


def test_all_that_is_cut_off_counts_and_garbage_is_no_offset(partition):
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    _, middle, last = logs(partition)
    data = bytearray(middle.read_bytes())
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    for row in (asked(partition), *kafkalog.recover(partition, dry_run=True).partitions):
        # markers of transactions are no records
        assert (row.loss.first_offset, row.loss.last_offset) == (row.log_end_offset, 304)
        assert 33 < row.loss.n_records <= 305 - row.log_end_offset
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    last.write_bytes(last.read_bytes() + b"\x9d" * 300)
    report = kafkalog.recover(partition, dry_run=True)
    [finding] = report.findings.rows
    assert (finding.base_offset, report.partitions[0].log_end_offset) == (None, 305)
    assert (report.partitions[0].loss.first_offset, report.partitions[0].loss.n_unknown) == (305, 1)


def test_a_directory_without_kafka_files_is_an_error(tmp_path):
    with pytest.raises(kafkalog.NotKafkaError) as caught:
        kafkalog.preflight(tmp_path)
    assert caught.value.path == str(tmp_path)


def overflowing(directory, bases, *, damaged=False):
    directory.mkdir(parents=True)
    record = builder.record_v2(0, 0, b"k", b"v")
    data = b"".join(builder.batch_v2([record], base_offset=base) for base in bases)
    (directory / f"{0:020d}.log").write_bytes(data[:-1] + bytes([data[-1] ^ damaged]))


@pytest.mark.parametrize(
    ("bases", "start", "end", "n_split"),
    [
        ([0, 5, FAR, FAR + 7, 2 * FAR], 0, 2 * FAR + 1, 1),
        ([FAR, FAR + 9], FAR, FAR + 10, 1),
        ([0, 2**31 - 1], 0, 2**31, 0),
        ([0, 2**31], 0, 2**31 + 1, 1),
    ],
)
def test_offsets_that_reach_too_far_split_a_segment(tmp_path, run, bases, start, end, n_split):
    """As with a real 4.3.1."""
    overflowing(tmp_path / "t-0", bases)
    [row] = kafkalog.preflight(tmp_path / "t-0", clean=False).partitions
    assert (row.verdict, row.log_start_offset, row.log_end_offset, row.losses) == ("recovers", start, end, [])
    assert row.count("split") == n_split
    assert row.n_bytes == row.n_bytes_read
    code, out, _ = run("preflight", tmp_path / "t-0", "--unclean")
    assert code == 0
    assert ("split" in out) == bool(n_split)


@pytest.mark.parametrize("how", ["copy", "in place", "partition", "dry run"])
def test_recover_leaves_a_segment_that_has_to_be_split_to_the_broker(tmp_path, run, how):
    """Nothing of it is lost or left out, and no marker and no recovery point keep the broker from the split."""
    root, backup, target = tmp_path / "data", tmp_path / "old", tmp_path / "data"
    overflowing(root / "far-0", [0, 5, FAR, FAR + 7])
    overflowing(root / "near-0", [0, 5, 7])
    write_meta_properties(root)
    write_metadata(root, {"far": TOPIC_ID, "near": TOPIC_ID}, {})
    before = content(root / "far-0")
    if how == "in place":
        report = kafkalog.recover(root, in_place=True, backup=backup)
    elif how == "dry run":
        report = kafkalog.recover(root, dry_run=True)
    else:
        target = tmp_path / "new"
        report = kafkalog.recover(root / "far-0" if how == "partition" else root, output=target)
    rows = {Path(row.path).name: row for row in report.partitions}
    assert (rows["far-0"].error, rows["far-0"].count("split"), rows["far-0"].log_end_offset) == (None, 1, FAR + 8)
    assert (report.ok, report.is_clean, report.losses) == (True, False, [])
    after = content(target / "far-0")
    topic_id = after.pop("partition.metadata", None)
    assert after == before
    assert (topic_id is None) == (how == "dry run")
    assert not (target / ".kafka_cleanshutdown").exists()
    if how in ("copy", "in place"):
        points = (target / "recovery-point-offset-checkpoint").read_text()
        assert ("near 0 8" in points, "far" in points) == (True, False)
        [planned] = kafkalog.preflight(target, topics="far").partitions
        assert (planned.verdict, planned.count("split"), planned.log_end_offset) == ("recovers", 1, FAR + 8)
    code, _, err = run("recover", root, "--dry-run")
    assert code == 0
    assert "far-0 stays as it is" in err


def test_a_damaged_segment_that_has_to_be_split_is_a_problem(tmp_path):
    overflowing(tmp_path / "t-0", [0, FAR, FAR + 1], damaged=True)
    [row] = kafkalog.preflight(tmp_path / "t-0", clean=False).partitions
    assert row.verdict == "does not start"
    [row] = kafkalog.recover(tmp_path / "t-0", dry_run=True).partitions
    assert row.error is not None


def test_whatever_sets_the_exit_code_is_printed(tmp_path, run):
    """Also for a partition with which the broker starts: its segments are gone."""
    for name in ("gone", "fine"):
        with kafkalog.PartitionWriter(tmp_path / f"{name}-0", topic_id=TOPIC_ID) as writer:
            writer.append({"value": [b"v"] * 9})
    for path in (tmp_path / "gone-0").iterdir():
        if path.name not in ("partition.metadata", "leader-epoch-checkpoint"):
            path.unlink()
    for args in ([], ["-t", "gone"], ["--unclean"]):
        code, out, err = run("preflight", tmp_path, *args)
        assert code == 1
        assert "gone-0" in out + err
        assert "all segments are gone" in out + err


def test_a_tiered_topic_needs_tiered_storage(tmp_path, run):
    """Without it, a broker forgets what is in remote storage."""
    partition = tmp_path / "orders-0"
    with kafkalog.PartitionWriter(partition, topic_id=TOPIC_ID, start_offset=234) as writer:
        writer.append({"value": [b"v"] * 9, "timestamp": [10**15] * 9})
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    config = tmp_path.parent / f"{tmp_path.name}.properties"
    write_meta_properties(tmp_path)
    write_metadata(tmp_path, {"orders": TOPIC_ID}, {(TOPIC, "orders"): {"remote.storage.enable": "true"}})
    for text, start, verdict in (("", 234, "loses"), ("remote.log.storage.system.enable=true", 0, "starts")):
        config.write_text(f"log.retention.ms=-1\n{text}\n")
        [row] = kafkalog.preflight(tmp_path, topics="orders", clean=True, config=config).partitions
        assert (row.log_start_offset, row.log_end_offset, row.verdict) == (start, 243, verdict)
        assert row.loss.n_records == start
        code, out, _ = run("preflight", tmp_path, "--clean", "--config", config)
        assert code == (1 if start else 0)
        assert ("remote.log.storage.system.enable" in out) == bool(start)
    [row] = kafkalog.preflight(tmp_path, topics="orders", clean=True).partitions
    assert (row.log_start_offset, row.verdict) == (0, "starts")


def brokers(mount, n=3):
    """Volumes of several brokers, each with a partition that its metadata has on it."""
    for number in range(1, n + 1):
        disk = mount / f"data-{number}" / "kafka-log"
        write_meta_properties(disk, node_id=number, disk=number % 2)
        kafkalog.write_table({"value": [b"1", b"2"]}, disk, topic=f"of-{number}", topic_id=TOPIC_ID)
        write_metadata(disk, {f"of-{number}": TOPIC_ID}, {}, node_id=number)
        yield disk


def test_log_dirs_of_several_brokers_are_judged_one_broker_after_the_other(tmp_path, run):
    disks = [*brokers(tmp_path / "volumes")]
    for names in ([tmp_path / "volumes"], disks):
        start = kafkalog.preflight(names)
        assert start.problems == []
        assert start.verdict == "recovers"
        assert {Path(one.path).parent.parent for one in start.partitions if "of-" in one.path} == {
            disk.parent for disk in disks
        }
        assert kafkalog.report(names).summary["verdict"] == "recovers"
    # a topic of one of them is known
    (one,) = kafkalog.preflight(disks, topics="of-2").partitions
    assert Path(one.path) == disks[1] / "of-2-0"
    assert run("preflight", *map(str, disks), "-t", "of-4")[0] == 2
    # the loss of one is no fault of the others
    for path in (disks[1] / "of-2-0").iterdir():
        path.unlink()
    (disks[1] / "of-2-0").rmdir()
    (disks[1] / "recovery-point-offset-checkpoint").write_text("0\n1\nof-2 0 2\n")
    start = kafkalog.preflight(disks)
    assert [Path(one.path).name for one in start.partitions if one.losses] == ["of-2-0"]
    (step,) = start.next
    assert step.command[:5] == ("kafkalog", "boot", *map(str, disks))
    # a configuration is of one broker
    config = tmp_path / "server.properties"
    config.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={disks[0]}\n")
    assert kafkalog.preflight(disks[:1], config=config).problems == []
    assert "node id" in "".join(one.detail for one in kafkalog.preflight(disks[:2], config=config).problems)


def test_a_partition_that_no_broker_has_is_lost_once_and_one_that_another_has_is_copied(tmp_path):
    disks = []
    for number in (1, 2, 3):
        disk = tmp_path / f"broker {number}"
        write_meta_properties(disk, node_id=number, disk=number % 2)
        kafkalog.write_table({"value": [b"1", b"2"]}, disk, topic="orders", topic_id=TOPIC_ID)
        write_metadata(disk, {"orders": TOPIC_ID}, {}, replicas=[1, 2, 3])
        (disk / "replication-offset-checkpoint").write_text("0\n1\norders 0 2\n")
        disks.append(disk)
    for n_gone, disk in enumerate(disks, 1):
        for path in (disk / "orders-0").iterdir():
            path.unlink()
        (disk / "orders-0").rmdir()
        start = kafkalog.preflight(disks)
        n_lost = [row.loss.n_records for row in start.partitions if row.losses]
        assert n_lost == ([] if n_gone < 3 else [2])
        assert start.ok == (n_gone < 3)
        # one broker alone does not know what the others have
        assert kafkalog.preflight(disk).losses == []
    assert kafkalog.report(disks).summary["n_records_lost"] == 2


def test_a_directory_that_was_set_apart_next_to_topics_that_are_served_is_no_reason_for_a_step(tmp_path):
    for name in ("old", "t"):
        kafkalog.write_table({"value": [b"x", b"y"]}, tmp_path, topic=name)
    (tmp_path / "old-0").rename(tmp_path / f"old-0.{'0123456789abcdef' * 2}-stray")
    assert kafkalog.preflight(tmp_path).next == []
    # with damage, nothing that may have records is left out
    log = next((tmp_path / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    (step,) = kafkalog.preflight(tmp_path, clean=False).next
    assert "--include-unknown" in step.command


@pytest.mark.parametrize("fault", ["node.id=7", "log.dirs={disk},"])
def test_a_fault_of_the_configuration_alone_is_corrected_there(tmp_path, fault, capsys):
    disk, config = tmp_path / "disk", tmp_path / "server.properties"
    kafkalog.write_table({"value": [b"x", b"y"]}, disk, topic="t")
    (disk / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    lines = {"node.id": "node.id=1", "log.dirs": f"log.dirs={disk}"}
    lines[fault.partition("=")[0]] = fault.format(disk=disk)
    config.write_text("\n".join(lines.values()))
    result = kafkalog.preflight(disk, config=config)
    assert (result.verdict, result.next) == ("does not start", [])
    main(["preflight", str(disk), "--config", str(config)])
    assert "next:" not in "".join(capsys.readouterr())
    # the step is for the files
    log = next((disk / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    assert kafkalog.preflight(disk, config=config, clean=False).next


def test_the_directory_of_a_deleted_topic_goes_after_the_start(partition):
    partition.rename(partition.with_name(f"{partition.name}.{'a' * 32}-delete"))
    for clean in (True, False):
        [row] = kafkalog.preflight(partition.parent, clean=clean).partitions
        assert (row.verdict, row.losses) == ("recovers", [])
        assert row.remarks == ["its topic was deleted: the broker deletes the directory soon after the start"]


def test_a_segment_on_which_the_broker_does_not_start_loses_nothing(tmp_path, capsys):
    """Offsets go back, so that no index can be built (KAFKA-3955)."""
    big = b"v" * 2000
    data = b"".join(
        builder.batch_v2([builder.record_v2(0, 0, b"k", big)], base_offset=offset)
        for offset in (*range(20), *range(8, 30))
    )
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    result = kafkalog.preflight(tmp_path / "t-0", clean=False)
    assert (result.verdict, result.partitions[0].losses) == ("does not start", [])
    for command in (["preflight"], ["recover", "-o", str(tmp_path / "out")]):
        assert main([command[0], str(tmp_path / "t-0"), *command[1:]]) == 1
        assert "lost:" not in capsys.readouterr().err


def test_logs_of_v0_and_v1_lose_no_producers_and_no_epochs(log_dir_copy):
    """Their batches have neither, so a start without a snapshot or a checkpoint forgets nothing."""
    for name, forgets in (("p-v1-lz4-0", []), ("p-v0v1v2-mixed-0", ["epochs"]), ("p-txn-0", ["producers", "epochs"])):
        partition = log_dir_copy / name
        for path in (*partition.glob("*.snapshot"), *partition.glob("leader-epoch-checkpoint")):
            path.unlink()
        [plan] = kafkalog.preflight(partition, clean=True).partitions
        said = [what for what in ("producers", "epochs") if any(what in remark for remark in plan.remarks)]
        assert said == forgets, (name, plan.remarks)
        assert (plan.verdict == "starts") == (not forgets)
