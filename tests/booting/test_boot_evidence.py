"""What copies, file names and other files prove where no checksum does: ends, places of batches, and losses."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import builder
import pytest
from effort import thinned
from merges import batch, replica
from metadata_logs import TOPIC, topic_id, write_metadata
from salvages import output_of

import kafkalog
from kafkalog import format as kf
from kafkalog.booting.staging import judged
from kafkalog.cli.app import main
from kafkalog.errors import Finding, Reason

LOG = [(1, offset) for offset in range(12)]


def expected(log=LOG):
    return [batch(offset, entry) for offset, entry in enumerate(log)]


def changed(partition, number, at, value, size):
    """Give a field of a batch of the last segment another value."""
    path = sorted(partition.glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[number]
    data[start + at : start + at + size] = value.to_bytes(size, "big")
    path.write_bytes(data)


def swapped(partition, number):
    """Let two neighbouring batches change places."""
    path = min(partition.glob("*.log"))
    data = path.read_bytes()
    (first, second), (_, end) = builder.batch_positions(data)[number : number + 2]
    path.write_bytes(data[:first] + data[second:end] + data[first:second] + data[end:])


def booted(sources, out):
    """Whether nothing is lost, the batches that are served, and the offsets that are lost."""
    report = kafkalog.boot(sources, out)
    return report.ok, output_of(out / "data" / "t-0"), lost(report)


def lost(report):
    return [(one.base_offset, one.last_offset) for one in report.findings.rows if one.damage and one.n_records != 0]


@pytest.mark.parametrize("offset", thinned([500, 2**33, 2**60], 2))
@pytest.mark.parametrize("bases", [(0,), (0, 6)])
def test_a_wrong_offset_at_the_end_does_not_let_a_lagging_copy_lead(tmp_path, offset, bases):
    replica(tmp_path / "a", LOG)
    changed(replica(tmp_path / "b", LOG[:8], bases=bases), -1, 0, offset, 8)
    disks = [tmp_path / "a", tmp_path / "b"]
    for number, sources in enumerate((disks, disks[::-1])):
        assert booted(sources, tmp_path / f"out-{number}") == (True, expected(), [])
    saved = [tmp_path / "a", tmp_path / "saved"]
    kafkalog.salvage(tmp_path / "b", tmp_path / "saved")
    assert booted(saved, tmp_path / "again") == (True, expected(), [])


def test_a_batch_that_was_sent_twice_has_no_wrong_offset(tmp_path):
    again = [*LOG[:6], (1, 99), (1, 99)]
    replica(tmp_path / "a", again, damaged=(6,))
    replica(tmp_path / "b", again[:7])
    assert booted([tmp_path / "a", tmp_path / "b"], tmp_path / "out") == (True, expected(again), [])


def test_a_wrong_epoch_at_the_end_does_not_let_a_lagging_copy_lead(tmp_path):
    replica(tmp_path / "a", LOG)
    changed(replica(tmp_path / "b", LOG[:8]), -1, 12, 2**20, 4)
    disks = [tmp_path / "a", tmp_path / "b"]
    for number, sources in enumerate((disks, disks[::-1])):
        assert booted(sources, tmp_path / f"out-{number}") == (True, expected(), [])
    kafkalog.salvage(tmp_path / "b", tmp_path / "saved")
    assert booted([tmp_path / "saved", tmp_path / "a"], tmp_path / "again") == (True, expected(), [])
    # nothing is left of the wrong one where that copy leads by right
    changed(replica(tmp_path / "c", LOG), -1, 12, 2**20, 4)
    assert booted([tmp_path / "c", tmp_path / "a"], tmp_path / "equal") == (True, expected(), [])


@pytest.mark.parametrize("command", ["salvage", "recover", "merge"])
@pytest.mark.parametrize("log", thinned([LOG[:8], [*LOG[:7], (2, 7)], [*LOG[:6], (2, 6), (3, 7)]], 3))
def test_a_wrong_epoch_at_the_end_does_not_lead_after_a_command_that_read_it(tmp_path, command, log):
    newest = [*log, *((log[-1][0], offset) for offset in range(8, 12))]
    replica(tmp_path / "a", newest)
    changed(replica(tmp_path / "b", log), -1, 12, 2**31 - 7, 4)
    run = getattr(kafkalog, command)
    for source, name in (("b", "made"), ("made", "again")):
        # a recovered copy of a whole log dir is one of its own, as a broker would leave it
        path = tmp_path / source / ("t-0" if command == "recover" else "")
        run([path] if command == "merge" else path, tmp_path / name)
        epochs = (tmp_path / name / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).read_text()
        # a broker's recovery takes what is there
        assert (str(2**31 - 7) in epochs) is (command == "recover")
        for sources in ([tmp_path / "a", tmp_path / name], [tmp_path / name, tmp_path / "a"]):
            out = tmp_path / f"out-{name}-{sources[0].name}"
            assert booted(sources, out) == (True, expected(newest), [])


def test_an_epoch_that_the_checkpoint_of_its_copy_has_is_right(tmp_path):
    newer = [*LOG[:7], (5, 7)]
    replica(tmp_path / "a", LOG)
    replica(tmp_path / "b", newer)
    assert booted([tmp_path / "a", tmp_path / "b"], tmp_path / "out")[1] == expected(newer)


@pytest.mark.parametrize("name", [kf.RECOVERY_POINT_CHECKPOINT, kf.HIGH_WATERMARK_CHECKPOINT])
def test_a_checkpoint_proves_that_the_offset_of_the_last_batch_is_wrong(tmp_path, name):
    changed(replica(tmp_path / "a", LOG), -1, 0, 500, 8)
    (tmp_path / "a" / name).write_text("0\n1\nt 0 12\n")
    assert booted(tmp_path / "a", tmp_path / "out") == (False, expected()[:-1], [(11, 11)])
    with pytest.warns(kafkalog.CorruptionWarning, match="500"):
        assert kafkalog.scan(tmp_path / "a", on_corruption="skip").to_table().num_rows == 11


@pytest.mark.parametrize("number", thinned([0, 4, 5, 10], 2))
@pytest.mark.parametrize("bases", [(0,), (0, 6)])
def test_swapped_batches_go_back_to_their_places(tmp_path, number, bases):
    if (number, bases) == (10, (0, 6)) or (number, bases) == (5, (0, 6)):
        number = 3
    swapped(replica(tmp_path / "a", LOG, bases=bases), number)
    assert booted(tmp_path / "a", tmp_path / "out") == (True, expected(), [])
    report = kafkalog.salvage(tmp_path / "a", tmp_path / "saved")
    assert output_of(tmp_path / "saved" / "t-0") == expected()
    assert report.losses == []
    assert [one.reason.value for one in report.findings.rows if one.damage] == ["offset_order"]
    assert kafkalog.verify(tmp_path / "saved").ok
    copies = [tmp_path / "a", tmp_path / "saved"]
    for n, sources in enumerate((copies, copies[::-1])):
        assert booted(sources, tmp_path / f"both-{n}") == (True, expected(), [])


def test_a_swapped_batch_goes_back_also_next_to_a_loss(tmp_path):
    partition = replica(tmp_path / "a", LOG, bases=(0, 6))
    swapped(partition, 3)
    path = min(partition.glob("*.log"))
    data = path.read_bytes()
    path.write_bytes(data[: builder.batch_positions(data)[-1][0] + 5])
    ok, batches, gaps = booted(tmp_path / "a", tmp_path / "out")
    assert (ok, batches, gaps) == (False, expected()[:5] + expected()[6:], [(5, 5)])


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("bases", [(0, 4, 8), (0, 4, 5, 8)])
def test_a_middle_segment_that_is_empty_or_gone_is_a_loss(tmp_path, is_removed, bases, capsys):
    partition = replica(tmp_path / "a", LOG, bases=bases)
    paths = sorted(partition.glob("*.log"))[1:-1]
    for path in paths:
        path.unlink() if is_removed else path.write_bytes(b"")
    known = expected()[:4] + expected()[8:]
    ok, batches, gaps = booted(tmp_path / "a", tmp_path / "out")
    assert (ok, batches) == (False, known)
    assert {offset for first, last in gaps for offset in range(first, last + 1)} == {4, 5, 6, 7}
    # a compacted topic has such gaps
    settings = {"t": {"cleanup.policy": "compact"}}
    assert kafkalog.boot(tmp_path / "a", tmp_path / "compacted", settings=settings).ok
    # all commands know the loss once it is reported
    kafkalog.salvage(tmp_path / "a", tmp_path / "saved")
    assert booted(tmp_path / "saved", tmp_path / "again")[:2] == (False, known)


@pytest.mark.parametrize("proof", [kf.LEADER_EPOCH_CHECKPOINT, kf.LOG_START_OFFSET_CHECKPOINT, "snapshot"])
@pytest.mark.parametrize("n_copies", [1, 2])
def test_a_first_segment_that_is_gone_is_a_loss_if_a_file_proves_it(tmp_path, proof, n_copies):
    disks = [tmp_path / f"disk-{number}" for number in range(n_copies)]
    for disk in disks:
        partition = replica(disk, LOG, bases=(0, 4, 8), epochs=proof == kf.LEADER_EPOCH_CHECKPOINT)
        min(partition.glob("*.log")).unlink()
        if proof == kf.LOG_START_OFFSET_CHECKPOINT:
            (disk / proof).write_text("0\n1\nt 0 2\n")
        if proof == "snapshot":
            (partition / kf.segment_file_name(2, kf.PRODUCER_SNAPSHOT_SUFFIX)).write_bytes(b"")
    first = 0 if proof == kf.LEADER_EPOCH_CHECKPOINT else 2
    assert booted(disks, tmp_path / "out") == (False, expected()[4:], [(first, 3)])


def test_a_first_segment_comes_from_another_copy_and_one_that_retention_deleted_is_no_loss(tmp_path):
    for name in ("a", "b"):
        replica(tmp_path / name, LOG, bases=(0, 4, 8))
    min((tmp_path / "a" / "t-0").glob("*.log")).unlink()
    assert booted([tmp_path / "a", tmp_path / "b"], tmp_path / "out") == (True, expected(), [])
    # as a broker leaves it that has deleted the first segment
    (tmp_path / "a" / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n1 4\n")
    assert booted(tmp_path / "a", tmp_path / "alone") == (True, expected()[4:], [])


def test_a_middle_segment_of_a_compacted_topic_comes_from_another_copy_if_a_file_proves_it(tmp_path):
    for name in ("a", "b"):
        partition = replica(tmp_path / name, LOG, bases=(0, 4, 8))
        for base in (0, 4, 8):
            (partition / kf.segment_file_name(base, kf.INDEX_SUFFIX)).write_bytes(
                (base and 3).to_bytes(4, "big") + (69).to_bytes(4, "big")
            )
        (tmp_path / name / kf.CLEANER_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 8\n")
    (tmp_path / "a" / "t-0" / kf.segment_file_name(4)).unlink()
    settings = {"t": {"cleanup.policy": "compact"}}
    disks = [tmp_path / "a", tmp_path / "b"]
    for number, sources in enumerate((disks, disks[::-1])):
        report = kafkalog.boot(sources, tmp_path / f"out-{number}", settings=settings)
        assert (report.ok, output_of(tmp_path / f"out-{number}" / "data" / "t-0")) == (True, expected())


def test_a_directory_that_is_named_twice_counts_once_and_that_is_said(tmp_path, capsys):
    partition = replica(tmp_path / "a", LOG)
    assert main(["merge", str(partition), f"{partition}/", "--dry-run"]) == 0
    assert "named twice" in capsys.readouterr().err
    report = kafkalog.merge([partition, tmp_path / "a" / ".." / "a" / "t-0"], dry_run=True)
    assert [one.reason.value for one in report.findings.rows] == ["partition_twice"]
    assert len(report.partitions[0].replicas) == 1


def test_a_checkpoint_that_cannot_be_read_is_no_loss(tmp_path):
    replica(tmp_path / "a", LOG)
    (tmp_path / "a" / kf.HIGH_WATERMARK_CHECKPOINT).write_bytes(bytes(30))
    report = kafkalog.boot(tmp_path / "a", tmp_path / "out")
    assert report.ok
    assert "checkpoint_syntax" in [one.reason for one in report.findings.rows]


def test_boot_takes_options_of_the_object_store_of_its_tiered_topics(tmp_path, capsys):
    replica(tmp_path / "a", LOG)
    options = ["--tiered", str(tmp_path / "remote"), "--storage-option", "region=eu-west-1"]
    (tmp_path / "remote").mkdir()
    main(["boot", str(tmp_path / "a"), "-o", str(tmp_path / "out"), "-q", *options])
    assert "no option" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def log_without_two_batches(tmp_path_factory):
    """A log dir of 30,000 records, two batches of which are cut out of the middle; the offsets that it lacks."""
    root = tmp_path_factory.mktemp("cut") / "log"
    kafkalog.write_table({"value": [b"%d" % number for number in range(30_000)]}, root, topic="t")
    (root / "t-0" / kf.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id(0)}")
    (path,) = (root / "t-0").glob("*.log")
    data, batches = path.read_bytes(), kafkalog.Segment(path).batches
    row = len(batches) // 2
    start, end = int(batches.position[row]), int(batches.position[row + 2])
    path.write_bytes(data[:start] + data[end:])
    return root, (int(batches.base_offset[row]), int(batches.last_offset[row + 1]))


@pytest.mark.parametrize("with_metadata", [False, True])
def test_boot_does_not_guess_compaction_from_a_loss_that_an_index_proves(
    tmp_path, log_without_two_batches, with_metadata
):
    source, gone = log_without_two_batches
    root = shutil.copytree(source, tmp_path / "log")
    if with_metadata:
        write_metadata(root, {"t": topic_id(0)}, {})
    report = kafkalog.boot(root, tmp_path / "out")
    assert lost(report) == [gone]
    assert [one.detail for one in report.findings.rows if "as after compaction" in one.detail] == []
    assert lost_ranges(kafkalog.verify(root)) == lost_ranges(kafkalog.preflight(root)) == [gone]
    named = [(one.base_offset, one.last_offset) for one in kafkalog.report(root).findings.rows if one.n_records]
    assert named == [gone]


def lost_ranges(result):
    return [(one.first_offset, one.end_offset - 1) for one in result.losses]


@pytest.mark.parametrize(
    ("topics", "damaged", "is_guessed"), [({}, False, True), ("t", False, False), ("t", True, True)]
)
def test_the_policy_of_a_topic_with_gaps_is_lost_only_where_the_metadata_lack_it(tmp_path, topics, damaged, is_guessed):
    root = tmp_path / "log"
    partition = replica(root, LOG)
    (path,) = partition.glob("*.log")
    data = path.read_bytes()
    (first, _), (second, _) = builder.batch_positions(data)[4], builder.batch_positions(data)[6]
    path.write_bytes(data[:first] + data[second:])
    if topics:
        log = next(
            write_metadata(root, {"t": topic_id(0)}, {(TOPIC, "t"): {"retention.ms": "5"}}, epoch=1).glob("*.log")
        )
        if damaged:
            data = bytearray(log.read_bytes())
            data[-3] ^= 1
            log.write_bytes(data)
    report = kafkalog.boot(root, tmp_path / "out", dry_run=True)
    guessed = [one for one in report.findings.rows if "cleanup.policy is lost" in one.detail]
    assert bool(guessed) is is_guessed


@pytest.mark.parametrize("has_both", [False, True])
def test_an_index_next_to_the_one_that_the_cleaner_replaced_proves_a_lost_segment(tmp_path, has_both):
    partition = replica(tmp_path / "log", LOG, bases=(0, 4, 8))
    write_metadata(tmp_path / "log", {"t": topic_id(0)}, {(TOPIC, "t"): {"cleanup.policy": "compact"}}, epoch=1)
    entry = (1000).to_bytes(8, "big") + (1).to_bytes(4, "big")
    (partition / f"{4:020}.timeindex").write_bytes(entry)
    # the deletion of a segment renames its .log first
    (partition / f"{4:020}.log").rename(partition / f"{4:020}.log.deleted")
    if has_both:
        (partition / f"{4:020}.timeindex.deleted").write_bytes(entry)
    assert lost(kafkalog.boot(tmp_path / "log", tmp_path / "out")) == ([(4, 7)] if has_both else [])


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_what_other_files_prove_is_a_loss_of_a_compacted_topic_too(tmp_path, policy):
    disks = [tmp_path / "a", tmp_path / "b"]
    for disk, n in zip(disks, (8, 4), strict=True):
        replica(disk, LOG[:n], bases=(0, 4) if n == 8 else (0,))
        write_metadata(disk, {"t": topic_id(0)}, {(TOPIC, "t"): {"cleanup.policy": policy}}, epoch=1)
    (disks[0] / kf.HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nt 0 12\n")
    for number, sources in enumerate((disks, disks[::-1], disks[:1])):
        assert booted(sources, tmp_path / f"out-{number}") == (False, expected(LOG[:8]), [(8, 11)])


def test_a_damaged_end_of_which_other_files_know_is_one_loss(tmp_path):
    # the header of the last batch says where it ended, and so do a checkpoint and the next leader epoch
    partition = replica(tmp_path / "disk", [(0, offset) for offset in range(12)], bases=(0, 6), damaged=(11,))
    (partition / kf.LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n0 0\n1 12\n")
    (tmp_path / "disk" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    report = kafkalog.boot(tmp_path / "disk", tmp_path / "out")
    assert [(one.base_offset, one.last_offset) for one in report.findings.rows if one.damage] == [(11, 11)]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_gap_is_judged_by_a_given_policy_as_by_the_metadata_log_next_to_it(tmp_path, policy):
    """A given policy made a loss of the gap, whose message said that compaction may have left it."""
    for name in ("known", "given"):
        (replica(tmp_path / name, LOG, bases=(0, 4, 8)) / kf.segment_file_name(4)).unlink()
    settings = {"cleanup.policy": policy}
    write_metadata(tmp_path / "known", {"t": topic_id(0)}, {(TOPIC, "t"): settings}, epoch=1)
    expected = [one.detail for one in kafkalog.verify(tmp_path / "known" / "t-0").findings if one.damage]
    assert len(expected) == (policy == "delete")
    shutil.copytree(tmp_path / "given", tmp_path / "other")
    for n, sources in enumerate(([tmp_path / "given"], [tmp_path / "given", tmp_path / "other"])):
        report = kafkalog.boot(sources, tmp_path / f"out-{n}", settings={"t": settings})
        found = [one for one in report.findings.rows if one.damage]
        assert [(one.base_offset, one.last_offset) for one in found] == [(4, 7)] * len(expected)
        assert n or [one.detail for one in found] == expected


def test_compaction_explains_gaps_from_the_first_segment_on_and_none_before_it(tmp_path):
    """A copy that begins later doubts offsets that the leader has compacted away, and those before both."""
    a, b = (replica(tmp_path / name, LOG, bases=(0, 2, 4, 8), epochs=name == "b") for name in "ab")
    for base in (0, 4):
        (a / kf.segment_file_name(base)).unlink()
    for base in (0, 2, 4):
        (b / kf.segment_file_name(base)).unlink()
    report = kafkalog.boot(
        [tmp_path / "a", tmp_path / "b"], tmp_path / "out", settings={"t": {"cleanup.policy": "compact"}}
    )
    gaps = [one for one in report.findings.rows if one.reason is Reason.OFFSET_GAP]
    assert [(one.base_offset, one.last_offset) for one in gaps] == [(0, 1)]


@pytest.mark.parametrize(("certainty", "is_note"), [("exact", True), (None, False)])
def test_damage_that_certainly_loses_nothing_is_a_note(certainty, is_note):
    copy: Any = SimpleNamespace(path=Path("t-0"), first_base_offset=0)
    finding = Finding(Reason.CRC_MISMATCH, "torn", "t-0/0.log", 5, n_records=0, certainty=certainty)
    assert judged(copy, finding, is_tiered=False).damage is not is_note
