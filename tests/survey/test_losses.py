"""Lost records: reported by `verify` where files prove the loss, as a note where only offsets show it."""

import gzip
import json
import os
import random
import shutil
from pathlib import Path

import builder
import golden_sets
import pytest
import writing
from effort import thinned
from files import broker_on, flip
from loss_reports import check_nothing_is_lost
from plans import offsets

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Finding, Reason
from kafkalog.scanning.planning import plan
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.survey.evidence import LogDirState, SegmentContents
from kafkalog.survey.losses import losses_of, remains

KEY = kafkalog.TopicPartition("orders", 0)
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def write_partition(directory, n=260):
    """A partition of several segments; their base offsets, and the log end offset."""
    config = kafkalog.LogConfig(segment_bytes=14 + 2**12, index_interval_bytes=512)
    with kafkalog.PartitionWriter(directory, config=config, max_records_per_batch=10, batch_size=1024) as writer:
        writer.append(writing.columns_of(writing.draw(n)))
        end = writer.next_offset
    return [*sorted(int(path.stem) for path in directory.glob("*.log")), end]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A log dir with one partition, shut down cleanly; not to be written to."""
    root = tmp_path_factory.mktemp("whole") / "logs"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    end = write_partition(root / "orders-0")[-1]
    for name in CHECKPOINTS:
        (root / name).write_bytes(encode_offset_checkpoint({KEY: end}))
    (root / ".kafka_cleanshutdown").touch()
    assert [*kafkalog.verify(root).findings] == []
    return root


@pytest.fixture
def root(whole, tmp_path):
    """A copy of one's own."""
    return Path(shutil.copytree(whole, tmp_path / "logs"))


@pytest.fixture
def partition(root):
    return root / "orders-0"


def bases(partition):
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def remove(partition, base, *suffixes):
    for suffix in suffixes or (".log", ".index", ".timeindex", ".snapshot"):
        (partition / f"{base:020d}{suffix}").unlink(missing_ok=True)


def damage(path):
    return [
        (finding.reason.value, finding.base_offset, finding.last_offset)
        for finding in kafkalog.verify(path).findings
        if finding.damage
    ]


def notes(path):
    return [
        (finding.reason.value, finding.base_offset, finding.last_offset)
        for finding in kafkalog.verify(path).findings
        if not finding.damage
    ]


# ------------------------------------------------------------------------------------------------ what files prove


@pytest.mark.parametrize("kept", [(".index",), (".timeindex",), (".index", ".timeindex", ".snapshot")], ids=str)
def test_an_index_in_a_gap_proves_that_a_segment_is_gone(partition, kept):
    _, second, third, *_ = bases(partition)
    remove(partition, second, *({".log", ".index", ".timeindex", ".snapshot"} - {*kept}))
    assert damage(partition) == [("segment_missing", second, third - 1)]
    assert notes(partition) == []
    assert main(["verify", str(partition)]) == 1


def test_a_snapshot_in_a_gap_proves_it_unless_the_log_is_compacted(root, partition):
    _, second, third, *_ = bases(partition)
    remove(partition, second, ".log", ".index", ".timeindex")
    assert damage(partition) == [("segment_missing", second, third - 1)]
    # the cleaner of older brokers left snapshots of segments that it had merged
    (root / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({KEY: third}))
    assert damage(partition) == []


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_behind_the_end_proves_that_the_last_segment_is_gone(root, partition, name, capsys):
    last = bases(partition)[-1]
    end = int(sorted(partition.glob("*.snapshot"))[-1].stem)
    for path in [*partition.glob("*.snapshot"), *(root / other for other in CHECKPOINTS if other != name)]:
        path.unlink()
    remove(partition, last)
    assert damage(root) == [("log_end_missing", last, end - 1)]
    assert main(["verify", str(root)]) == 1
    assert name in capsys.readouterr().out


def test_the_index_of_a_last_segment_that_is_gone_proves_the_records_up_to_its_last_entry(root, partition):
    last = bases(partition)[-1]
    reached = int(kafkalog.OffsetIndex.open(partition / f"{last:020d}.index", last).offset[-1])
    for path in [*partition.glob("*.snapshot"), *(root / name for name in CHECKPOINTS)]:
        path.unlink()
    remove(partition, last, ".log", ".timeindex")
    assert damage(root) == [("log_end_missing", last, reached)]
    assert reached > last


def test_a_log_cut_at_a_batch_is_found_by_the_checkpoints(root, partition):
    log = partition / f"{bases(partition)[-1]:020d}.log"
    batches = kafkalog.Segment(log).batches
    with log.open("r+b") as file:
        file.truncate(int(batches.position[-1]))
    found = damage(root)
    assert ("log_end_missing", int(batches.base_offset[-1]), int(batches.last_offset[-1])) in found


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_random_bytes_proves_no_loss(root, partition, suffix):
    index = partition / f"{bases(partition)[-1]:020d}{suffix}"
    for seed in range(20):
        rng = random.Random(seed)
        # eight entries: fewer may rise by chance
        index.write_bytes(bytes(rng.randrange(1, 128) for _ in range(8 * 24)))
        assert "log_end_missing" not in {reason for reason, *_ in damage(root)}, seed


def test_a_directory_that_lost_every_log_is_damage_and_hides_no_other(root, partition, capsys):
    write_partition(root / "payments-0", 20)
    end = int(sorted(partition.glob("*.snapshot"))[-1].stem)
    for path in partition.glob("*.log"):
        path.unlink()
    assert damage(root) == [("segment_missing", 0, end - 1)]
    result = kafkalog.verify(root)
    assert [str(one.topic_partition) for one in result.partitions] == ["orders-0", "payments-0"]
    assert main(["verify", str(root)]) == 1
    shown = capsys.readouterr().out
    assert "orders-0  no segments  1 finding of damage" in shown
    assert "payments-0" in shown


@pytest.mark.parametrize("left", ["leader-epoch-checkpoint", "recovery point", "index", "partition.metadata"])
def test_any_file_that_a_broker_makes_after_a_segment_proves_that_there_was_one(root, left):
    directory = root / "lost-0"
    directory.mkdir()
    if left == "recovery point":
        key = kafkalog.TopicPartition("lost", 0)
        (root / CHECKPOINTS[0]).write_bytes(encode_offset_checkpoint({key: 7}))
    elif left == "index":
        (directory / f"{5:020d}.timeindex").write_bytes(bytes([0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3]))
    elif left == "leader-epoch-checkpoint":
        (directory / left).write_text("0\n1\n3 4\n")
    else:
        (directory / left).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert [reason for reason, *_ in damage(directory)] == ["segment_missing"]


def test_a_directory_without_anything_is_none_yet(root):
    (root / "new-0").mkdir()
    assert damage(root) == []
    assert notes(root) == [("segment_missing", None, None)]


# ---------------------------------------------------------------------------------- what brokers leave is fine


def test_what_a_broker_has_not_deleted_yet_is_no_loss(root, partition):
    first, second, third, *_ = bases(partition)
    # retention renames the log first, and a crash may come behind that
    (partition / f"{first:020d}.log").rename(partition / f"{first:020d}.log.deleted")
    assert damage(root) == []
    remove(partition, second, ".log")
    (root / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint({KEY: third}))
    assert damage(root) == []


def test_an_index_of_a_segment_that_was_merged_into_another_is_no_loss(partition):
    first, second, *_ = bases(partition)
    one, two = (partition / f"{base:020d}.log" for base in (first, second))
    one.write_bytes(one.read_bytes() + two.read_bytes())
    two.unlink()
    remove(partition, first, ".index", ".timeindex")
    assert damage(partition) == []
    assert ("unknown_file", None, None) in notes(partition)


def test_snapshots_inside_a_segment_and_old_checkpoints_are_no_loss(root, partition):
    base = bases(partition)[-1]
    shutil.copy(sorted(partition.glob("*.snapshot"))[0], partition / f"{base + 1:020d}.snapshot")
    for name in CHECKPOINTS:
        (root / name).write_bytes(encode_offset_checkpoint({KEY: 5}))
    assert [*kafkalog.verify(root).findings] == []


def test_a_directory_that_is_being_deleted_has_lost_nothing(root, partition):
    apart = partition.rename(root / f"orders-0.{'0' * 32}-delete")
    for path in [*apart.glob("*.log")][1:]:
        path.unlink()
    assert damage(root) == []


# --------------------------------------------------------------------------------------------- what only offsets show


def said_by_scan(path):
    scan = kafkalog.scan(path, columns=["offset"])
    scan.to_table()
    return [(one.reason.value, one.base_offset, one.last_offset, one.damage) for one in scan.findings]


@pytest.mark.filterwarnings("ignore::kafkalog.errors.CorruptionWarning")
@pytest.mark.parametrize("is_compacted", [False, True])
def test_every_command_judges_a_gap_between_segments_alike(root, partition, tmp_path, capsys, is_compacted):
    _, second, third, *_ = bases(partition)
    remove(partition, second)
    if is_compacted:
        (root / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({KEY: third}))
    expected = [] if is_compacted else [("offset_gap", second, third - 1)]
    assert damage(partition) == expected
    assert notes(partition) == []
    assert said_by_scan(partition) == [(*one, True) for one in expected]
    for report in (
        kafkalog.convert(partition, tmp_path / "converted", on_corruption="skip"),
        kafkalog.salvage(partition, dry_run=True),
    ):
        assert [(one.reason.value, one.base_offset, one.last_offset) for one in report.findings.rows] == expected
    for command in (["ls"], ["cat", "--json"], ["export", "-o", str(tmp_path / "out.parquet")], ["verify"]):
        assert main([command[0], str(partition), *command[1:]]) == (0 if is_compacted else 1), command
        told = capsys.readouterr()
        assert (f"offsets {second}..{third}" in told.err + told.out) == (not is_compacted), command


@pytest.mark.filterwarnings("ignore::kafkalog.errors.CorruptionWarning")
@pytest.mark.parametrize("is_compacted", thinned([False, True], 2))
@pytest.mark.parametrize("left", [".index", ".timeindex", ".snapshot", ".log.gz", ""])
def test_every_command_has_the_same_finding_about_a_gap_whatever_file_is_left_there(
    root, partition, tmp_path, capsys, left, is_compacted
):
    """A scan took a segment that an index proves to be lost from a compacted topic for compaction."""
    _, second, third, *_ = bases(partition)
    if left == ".log.gz":
        (partition / f"{second:020d}{left}").touch()
    remove(partition, second, *({".log", ".index", ".timeindex", ".snapshot"} - {left}))
    if is_compacted:
        (root / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({KEY: third}))
    expected = [one for one in kafkalog.verify(partition).findings if one.damage]
    assert len(expected) == (not is_compacted or "index" in left)
    scan = kafkalog.scan(partition, columns=["offset"])
    scan.to_table()
    assert scan.findings == expected
    converted = kafkalog.convert(partition, tmp_path / "converted", on_corruption="skip", dry_run=True)
    for report in converted, kafkalog.salvage(partition, dry_run=True):
        assert [one for one in report.findings.rows if one.base_offset == second] == expected
    parts = []
    offsets(plan(partition, task_bytes=2**12), report=parts.append)
    assert parts == expected
    assert main(["ls", str(partition)]) == len(expected)
    told = capsys.readouterr()
    assert all(one.detail in told.out + told.err for one in expected)
    with broker_on(root):
        assert said_by_scan(partition) == [(*one, False) for one in notes(partition)]


def test_a_missing_last_segment_is_a_note_of_every_reader_where_checkpoints_prove_it(root, partition, tmp_path, capsys):
    last, end = bases(partition)[-1], kafkalog.Partition(partition).log_end_offset
    remove(partition, last)
    for path in (root, partition):
        assert said_by_scan(path) == [("log_end_missing", last, end - 1, False)]
    report = kafkalog.convert(partition, tmp_path / "converted")
    assert [one.reason.value for one in report.findings.rows] == ["log_end_missing"]
    for command in (["cat", "--json"], ["export", "-o", str(tmp_path / "out.parquet")]):
        assert main([command[0], str(partition), *command[1:]]) == 0
        assert f"the log ends at offset {last}" in capsys.readouterr().err, command
    # who does not read up to the end says nothing of it, and neither does who reads beside a broker
    scan = kafkalog.scan(partition, columns=["offset"], end_offset=last)
    scan.to_table()
    assert scan.findings == []
    found = []
    offsets(plan(partition, task_bytes=2**12), report=found.append)
    assert [one.reason.value for one in found] == ["log_end_missing"]
    with broker_on(root):
        scan = kafkalog.scan(partition, columns=["offset"])
        scan.to_table()
        assert scan.findings == []


def test_a_scan_that_begins_or_ends_beside_a_gap_says_nothing_of_it(partition):
    _, second, third, *_ = bases(partition)
    remove(partition, second)
    for options in ({"start_offset": third}, {"end_offset": second}):
        scan = kafkalog.scan(partition, columns=["offset"], **options)
        scan.to_table()
        assert scan.findings == [], options


@pytest.mark.parametrize("name", golden_sets.SETS)
def test_compaction_is_told_from_a_lost_segment(name, tmp_path):
    gaps = {}
    for one in kafkalog.verify(golden_sets.unpacked(name)).partitions:
        for gap in one.gaps:
            gaps.setdefault(Path(one.path), []).append(gap)
            assert gap.is_compacted
    assert len(gaps) > 1
    path = next(iter(gaps))
    # alone, without the log dir's checkpoints, the gaps inside segments tell
    copy = shutil.copytree(path, tmp_path / path.name)
    assert damage(copy) == []
    (verified,) = kafkalog.verify(copy).partitions
    assert [(gap.start, gap.end) for gap in verified.gaps] == [(gap.start, gap.end) for gap in gaps[path]]


def test_the_command_says_which_gaps_are_compaction(capsys):
    directory = golden_sets.LOG_DIR / "p-compact-0"
    assert main(["verify", str(directory)]) == 0
    assert "p-compact-0  1 gap between segments, 243 offsets: the log cleaner has been here" in capsys.readouterr().out
    assert main(["verify", "--json", str(directory)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (row,) = (row for row in rows if row["kind"] == "partition")
    assert row["gaps"] == [{"start": 0, "end": 243, "is_compacted": True}]


# -------------------------------------------------------------------------------------- before the first segment

EPOCHS = "leader-epoch-checkpoint"
START = "log-start-offset-checkpoint"


def lose_first(root, partition, left):
    """Delete the first segment; of what tells of it only one file is left. Returns where the log begins now."""
    first, second, *_ = bases(partition)
    remove(partition, first)
    if left == START:
        (root / START).write_bytes(encode_offset_checkpoint({KEY: first + 3}))
    elif left == ".snapshot":
        (partition / f"{first + 7:020d}.snapshot").write_bytes(next(partition.glob("*.snapshot")).read_bytes())
    if left != EPOCHS:
        (partition / EPOCHS).write_text(f"0\n1\n0 {second}\n")
    return second


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("left", "begin"), [(START, 3), (EPOCHS, 0), (".snapshot", 7)])
def test_a_file_proves_that_the_first_segment_is_gone_unless_retention_may_have_come_before_a_crash(
    root, partition, left, begin, is_clean, capsys
):
    start = lose_first(root, partition, left)
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    assert damage(root) == ([("segment_missing", begin, start - 1)] if is_clean else [])
    assert notes(root) == ([] if is_clean else [("offset_gap", begin, start - 1)])
    assert main(["verify", str(root)]) == is_clean
    assert (left if is_clean else "retention") in capsys.readouterr().out


def test_an_index_that_is_left_proves_it_even_so(root, partition):
    first, second, *_ = bases(partition)
    remove(partition, first, ".log", ".snapshot")
    (partition / EPOCHS).write_text(f"0\n1\n0 {second}\n")
    (root / ".kafka_cleanshutdown").unlink()
    assert damage(root) == [("segment_missing", first, second - 1)]


def test_what_lies_in_remote_storage_is_not_missing(root, partition):
    start = lose_first(root, partition, START)
    write_partition(root / "__remote_log_metadata-0", 20)
    assert damage(root) == []
    assert notes(root) == [("offset_gap", 3, start - 1)]


def test_a_log_dir_that_cannot_be_listed_proves_no_loss(root, partition, monkeypatch):
    start = lose_first(root, partition, START)
    assert damage(root) == [("segment_missing", 3, start - 1)]
    listed = os.scandir

    def refuse(path):
        if Path(path) == root:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert damage(partition) == []
    assert notes(partition) == [("offset_gap", 3, start - 1)]


def test_a_log_that_begins_where_its_files_say_has_lost_nothing_that_could_be_known(root, partition):
    lose_first(root, partition, "nothing")
    assert [*kafkalog.verify(root).findings] == []


def test_readers_say_that_the_log_started_earlier(root, partition):
    start = lose_first(root, partition, START)
    for path in (root, partition):
        scan = kafkalog.scan(path, columns=["offset"])
        scan.to_table()
        batches = kafkalog.batches(path)
        batches.to_table()
        for found in (scan.findings, batches.findings, plan(path).findings):
            assert [(one.reason.value, one.base_offset, one.last_offset, one.damage) for one in found] == [
                ("offset_gap", 3, start - 1, False)
            ]


def test_an_offset_index_that_reaches_behind_the_end_of_its_log_proves_that_the_end_is_gone(partition):
    first, following = bases(partition)[1:3]
    (partition / f"{first:020d}.log").write_bytes(b"")
    assert ("log_end_missing", first, following - 1) in damage(partition)
    finding = next(one for one in kafkalog.verify(partition).findings if one.reason.value == "log_end_missing")
    assert (finding.n_records, finding.certainty) == (following - first, "at_most")


def test_a_lost_end_behind_damage_whose_records_are_counted_is_reported(root, partition):
    (root / ".kafka_cleanshutdown").unlink()
    log = partition / f"{bases(partition)[-1]:020d}.log"
    batches = kafkalog.Segment(log).batches
    damaged, end = int(batches.position[-2]), int(batches.position[-1])
    data = bytearray(log.read_bytes())
    data[damaged + 70] ^= 1
    data[end:] = bytes(len(data) - end)
    log.write_bytes(data)
    assert ("log_end_missing", int(batches.base_offset[-1]), int(batches.last_offset[-1])) in damage(partition)


def test_overlapping_segments_do_not_show_that_a_log_was_compacted(partition):
    _, first, second, *_ = bases(partition)
    one, other = partition / f"{first:020d}.log", partition / f"{second:020d}.log"
    (content, others) = one.read_bytes(), other.read_bytes()
    one.write_bytes(others)
    other.write_bytes(content)
    result = kafkalog.verify(partition)
    assert not any(gap.is_compacted for gap in result.partitions[0].gaps)
    assert result.partitions[0].loss.n_unknown == 0


def test_after_retention_no_command_names_a_checkpoint_entry_that_is_not_there(root, partition, capsys):
    start = lose_first(root, partition, "nothing")
    (root / START).write_bytes(encode_offset_checkpoint({kafkalog.TopicPartition("other", 0): 1}))
    assert start > 0
    for command in (["ls", str(root)], ["cat", "--json", str(root)], ["verify", str(root)]):
        assert main(command) == 0
        assert START not in capsys.readouterr().err
    assert kafkalog.open_log_dir(root)["orders", 0].log_start_offset == start


@pytest.mark.parametrize("name", ["p-multi-0", "p-v1-lz4-0", "p-v0v1v2-mixed-0", "p-txn-0"])
@pytest.mark.parametrize("row", [0, 1, -1])
def test_all_from_the_cut_on_is_lost(log_dir, name, row):
    segment = kafkalog.Partition(log_dir / name).segments[0]
    batches = segment.batches
    start = int(batches.position[row])
    contents, lost = remains(segment, start, LogDirState())
    [loss] = losses_of(lost)
    scan = kafkalog.scan(segment.path, columns=["offset"], include_control=True)
    offsets = [one for one in scan.to_table()["offset"].to_pylist() if row == 0 or one > batches.last_offset[row - 1]]
    assert (loss.first_offset, loss.end_offset) == (offsets[0], offsets[-1] + 1)
    assert loss.n_records == len(offsets) or (loss.certainty == "at_most" and loss.n_records > len(offsets))
    assert (contents.last_offset, contents.findings) == (batches.last_offset[-1], [])


def test_damage_after_the_cut_is_lost_too(log_dir_copy):
    log = min((log_dir_copy / "p-multi-0").glob("*.log"))
    segment = kafkalog.Segment(log)
    batches = segment.batches
    data = bytearray(log.read_bytes())
    data[int(batches.position[2]) + 70] ^= 1
    log.write_bytes(data)
    segment = kafkalog.Segment(log)
    _, lost = remains(segment, int(batches.position[1]), LogDirState())
    [loss] = losses_of(lost)
    assert (loss.first_offset, loss.end_offset) == (batches.base_offset[1], batches.last_offset[-1] + 1)
    assert (loss.n_records, loss.certainty) == (batches.records_count[1:].sum(), "exact")
    _, all_after = remains(segment, int(batches.position[3]), LogDirState())
    assert sum(one.n_records or 0 for one in all_after) == batches.records_count[3:].sum()


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("n_bytes", [30, 65, None])
def test_a_torn_copy_after_a_clean_shutdown_loses_nothing_where_checkpoints_say_that_the_log_ended(
    root, partition, n_bytes
):
    log = max(partition.glob("*.log"))
    data = log.read_bytes()
    start, stop = builder.batch_positions(data)[-1]
    copy = bytearray(data[start:stop])
    copy[8] ^= 1  # its size field leads far beyond the file
    log.write_bytes(data + copy[:n_bytes])
    for losses in (kafkalog.verify(root).losses, kafkalog.salvage(root, dry_run=True).losses):
        assert losses == []


def test_losses_that_touch_are_one():
    found = [
        Finding(Reason.CRC_MISMATCH, "", "a.log", base_offset=15, last_offset=16, n_records=2, certainty="exact"),
        Finding(Reason.CRC_MISMATCH, "", "a.log", base_offset=17, last_offset=19, n_records=1, certainty="exact"),
    ]
    assert [(one.first_offset, one.end_offset, one.n_records) for one in losses_of(found)] == [(15, 20, 3)]


def test_a_snapshot_behind_the_end_proves_it_too(partition):
    copy = partition.parent.parent / "copy" / "orders-0"
    shutil.copytree(partition, copy)
    last = bases(copy)[-1]
    end = int(sorted(copy.glob("*.snapshot"))[-1].stem)
    remove(copy, last)
    assert damage(copy) == [("log_end_missing", last, end - 1)]


@pytest.mark.parametrize(("left", "begin"), [(START, 3), (EPOCHS, 0), (".snapshot", 7)])
def test_after_a_clean_shutdown_a_file_proves_that_the_first_segment_is_gone(root, partition, left, begin, capsys):
    start = lose_first(root, partition, left)
    assert damage(root) == [("segment_missing", begin, start - 1)]
    assert main(["verify", str(root)]) == 1
    assert left in capsys.readouterr().out
    assert notes(root) == []


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("left", [EPOCHS, ".snapshot", ".index"])
def test_nothing_is_missing_below_the_log_start(root, partition, left, is_clean):
    """A broker cuts epochs and snapshots there, and may crash before they are on disk (KAFKA-16541)."""
    first, second, *_ = bases(partition)
    if left == ".index":
        remove(partition, first, ".log", ".snapshot")
        start = second
    else:
        start = lose_first(root, partition, left)
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    for at in (start - 1, start, start + 2):
        (root / START).write_bytes(encode_offset_checkpoint({KEY: at}))
        gone = [("segment_missing", at, start - 1)] if at < start and is_clean else []
        assert damage(root) == gone
        assert main(["salvage", str(root), "--dry-run"]) == bool(gone)


@pytest.mark.parametrize(("left", "begin"), [(START, 3), (EPOCHS, 0), (".snapshot", 7)])
def test_after_a_crash_it_may_have_been_retention_and_is_a_note(root, partition, left, begin, capsys):
    start = lose_first(root, partition, left)
    (root / ".kafka_cleanshutdown").unlink()
    assert damage(root) == []
    assert notes(root) == [("offset_gap", begin, start - 1)]
    assert main(["verify", str(root)]) == 0
    assert "retention" in capsys.readouterr().out


def test_what_retention_has_just_deleted_is_not_missing(root, partition):
    first, *_ = bases(partition)
    for suffix in (".log", ".index", ".timeindex"):
        path = partition / f"{first:020d}{suffix}"
        path.rename(path.with_name(f"{path.name}.deleted"))
    assert [*kafkalog.verify(root).findings] == []


def test_a_log_dir_whose_only_partition_lost_every_log_is_still_one(tmp_path):
    (tmp_path / "logs").mkdir()
    write_partition(tmp_path / "logs" / "orders-0")
    for path in (tmp_path / "logs" / "orders-0").glob("*.log"):
        path.unlink()
    assert [reason for reason, *_ in damage(tmp_path / "logs")] == ["segment_missing"]
    scan = kafkalog.scan(tmp_path / "logs")
    assert scan.count_rows() == 0
    assert [(one.reason.value, one.damage) for one in scan.findings] == [("segment_missing", False)]


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("is_last", [False, True])
def test_a_log_that_somebody_compressed_as_a_whole_is_no_loss(root, partition, is_last):
    (root / "meta.properties").unlink()  # without it, nobody asks for topic ids
    log = sorted(partition.glob("*.log"))[-1 if is_last else 1]
    log.write_bytes(gzip.compress(log.read_bytes(), mtime=0))
    check_nothing_is_lost(root)


# ---------------------------------------------------------------------------------------------- what indexes prove


def cut_at_a_batch(log, n=1):
    """Remove the last batches of a log, and return the range of their offsets."""
    batches = kafkalog.Segment(log).batches
    with log.open("r+b") as file:
        file.truncate(int(batches.position[-n]))
    return int(batches.last_offset[-n - 1]) + 1, int(batches.last_offset[-1]) + 1


@pytest.mark.parametrize("left", [".index", ".timeindex"])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_either_index_of_a_cut_segment_proves_that_its_end_is_gone(tmp_path, left, is_compacted, is_last):
    root, partition = tmp_path, tmp_path / "orders-0"
    config = kafkalog.LogConfig(segment_bytes=2**12, index_interval_bytes=512)
    with kafkalog.PartitionWriter(partition, config=config, max_records_per_batch=5) as writer:
        writer.append({"value": [b"v" * 80] * 200, "timestamp": list(range(200))})
    if is_compacted:
        (root / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({KEY: bases(partition)[-1]}))
    for path in partition.glob("*.snapshot"):
        path.unlink()
    log = partition / f"{bases(partition)[-1 if is_last else 1]:020d}.log"
    start, end = cut_at_a_batch(log, 2)
    log.with_suffix({".index": ".timeindex", ".timeindex": ".index"}[left]).unlink()
    proved = (kafkalog.OffsetIndex if left == ".index" else kafkalog.TimeIndex).open(
        log.with_suffix(left), int(log.stem)
    )
    reached = int(proved.offset[-1]) + 1 if is_last else end
    assert start < reached
    for losses in (kafkalog.verify(root).losses, kafkalog.salvage(root, dry_run=True).losses):
        assert [(one.first_offset, one.end_offset, one.certainty) for one in losses] == [(start, reached, "at_most")]
    if is_last:
        return  # readers do not look for the end
    scan = kafkalog.scan(root, columns=["offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match="the end of a .log is missing"):
        scan.count_rows()
    assert losses_of(scan.findings) == losses


def test_a_damaged_entry_of_an_index_proves_nothing(root, partition):
    first, last = bases(partition)[0], bases(partition)[-1]
    for base in (first, last):
        for suffix, at in ((".index", -7), (".timeindex", -3)):
            path = partition / f"{base:020d}{suffix}"
            data = bytearray(path.read_bytes())
            data[at] ^= 0x40  # the offset of the last entry
            path.write_bytes(data)
    assert kafkalog.verify(root).losses == []
    assert kafkalog.salvage(root, dry_run=True).ok


def test_an_epoch_behind_the_end_proves_it_after_a_clean_shutdown(root, partition):
    for path in [*partition.glob("*.snapshot"), *(root / name for name in CHECKPOINTS)]:
        path.unlink()
    end = kafkalog.open(partition).log_end_offset
    (partition / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n3 {end + 5}\n")
    assert damage(root) == [("log_end_missing", end, end + 4)]
    (root / ".kafka_cleanshutdown").unlink()
    assert damage(root) == []


# --------------------------------------------------------------------------------------------------------- markers


def transactions(n):
    """Batches of `n` transactions: three records, and a marker."""
    marker = builder.record_v2(key=b"\0\0\0\1", value=b"\0\0\0\0\0\3")
    batches = []
    for number in range(n):
        producer = {"producer_id": 5, "producer_epoch": 0}
        records = [builder.record_v2(i, 0, b"k", b"v" * 20) for i in range(3)]
        batch = builder.batch_v2(
            records, base_offset=4 * number, transactional=True, base_sequence=3 * number, **producer
        )
        batches.append(batch)
        batches.append(
            builder.batch_v2([marker], base_offset=4 * number + 3, transactional=True, control=True, **producer)
        )
    return batches


@pytest.mark.parametrize("row", thinned(range(12), 3))
@pytest.mark.parametrize("after", [False, True])
def test_a_lost_marker_is_no_lost_record(tmp_path, row, after):
    batches = transactions(6)
    batches = batches if after else batches[: row + 1]
    logs = tmp_path / "logs"
    (logs / "t-0").mkdir(parents=True)
    data = bytearray(b"".join(batches))
    data[sum(map(len, batches[: row + 1])) - 3] ^= 1
    (logs / "t-0" / f"{0:020d}.log").write_bytes(data)
    n_lost = 0 if row % 2 else 3
    for losses in (kafkalog.verify(logs).losses, kafkalog.salvage(logs, dry_run=True).losses):
        assert [(one.n_records, one.n_markers) for one in losses] == [(n_lost, row % 2)]
    n_cut = 3 * (len(batches) // 2 + len(batches) % 2) - 3 * ((row + 1) // 2)
    for start in (kafkalog.recover(logs, dry_run=True, all_segments=True), kafkalog.preflight(logs, clean=False)):
        assert sum(one.n_records for one in start.losses) == n_cut


def test_a_gap_after_a_damaged_end_is_that_damage_alone(root, partition):
    first = min(partition.glob("*.log"))
    flip(first, first.stat().st_size - 3)
    found = [*kafkalog.verify(root).findings]
    assert [one.reason for one in found if one.path != str(first)] == []
    assert notes(root) == []


@pytest.mark.parametrize(
    ("first", "last", "n_records", "hides"),
    [
        (5, 9, 3, False),
        (5, 10, 3, True),
        (5, None, 3, False),
        (12, None, 3, True),
        (None, None, 3, True),
        (5, 10, 0, False),
    ],
)
def test_only_damage_that_reaches_past_the_last_batch_hides_the_end(first, last, n_records, hides):
    finding = Finding(
        Reason.CRC_MISMATCH, "damaged", path="log", base_offset=first, last_offset=last, n_records=n_records
    )
    contents = SegmentContents("log", 0, 9, 100, findings=[finding], has_gaps=None)
    assert contents.hides_end == hides


def test_a_marker_that_had_the_only_offset_was_no_record():
    damaged = Finding(Reason.CRC_MISMATCH, "damaged", "t-0/0.log", 5, base_offset=10, n_markers=1)
    for last, n_records in ((10, 0), (11, 2)):
        end = Finding(Reason.LOG_END_MISSING, "gone", "t-0", base_offset=10, last_offset=last, n_records=last - 9)
        assert [(one.n_records, one.end_offset) for one in losses_of([damaged, end])] == [(n_records, last + 1)]


def test_the_index_of_a_segment_that_was_merged_proves_nothing_up_to_the_last_offset(tmp_path):
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b"v"] * 10})
    for base, is_lost in ((5, False), (9, False), (10, True)):
        index = tmp_path / "t-0" / f"{base:020d}.index"
        index.write_bytes((1).to_bytes(4) + (100).to_bytes(4))
        assert bool(damage(tmp_path / "t-0")) is is_lost, base
        index.unlink()
