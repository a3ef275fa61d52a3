"""Leader epochs that recovery leaves, and batches and epochs at which a broker stops."""

import itertools
import random

import builder
import numpy as np
import pytest
from files import content, flip
from recoveries import RECOVERY_POINTS, logs, row, small_log_dir

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import ReadError, Reason
from kafkalog.log.segment import Segment
from kafkalog.repair.recovering.partition import ReplayCheck
from kafkalog.repair.recovering.recover import recover


def batch(offset, epoch, n=1, *, is_damaged=False):
    data = builder.batch_v2(
        [builder.record_v2(i, 0, b"k", b"v" * 50) for i in range(n)], base_offset=offset, leader_epoch=epoch
    )
    return data[:-1] + bytes([data[-1] ^ is_damaged])


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory.parent / RECOVERY_POINTS).write_text("0\n1\nt 0 0\n")
    return directory


def write(directory, base, *batches, has_index=True):
    (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    if has_index:
        (directory / f"{base:020d}.index").touch()
        (directory / f"{base:020d}.timeindex").touch()


def test_epochs_of_a_deleted_segment_without_an_index_count_since_it_is_recovered_first(partition):
    write(partition, 0, batch(0, 0), batch(1, 1), batch(2, 1, is_damaged=True))
    write(partition, 10, batch(10, 1), has_index=False)
    found = row(recover(partition.parent, output=partition.parents[1] / "out"), "t-0")
    assert [one.action for one in found.segments] == ["cut", "deleted"]
    # epoch 1 was first seen at offset 10, which is cut off: those before it are not assigned again
    assert not (partition.parents[1] / "out" / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).exists()
    (partition / f"{10:020d}.index").touch()
    recover(partition.parent, output=partition.parents[1] / "other")
    text = (partition.parents[1] / "other" / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).read_text()
    assert text == "0\n2\n0 0\n1 1\n"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_segment_without_an_index_stops_a_broker_even_if_damage_before_it_would_delete_it(partition, is_damaged):
    """A broker recovers such segments before it begins with those that may not be on disk."""
    write(partition, 0, batch(0, 0), batch(1, 0, is_damaged=is_damaged))
    write(partition, 10, batch(3, 0), has_index=False)
    for found in (recover(partition.parent, dry_run=True), kafkalog.preflight(partition.parent, clean=False)):
        problem = row(found, "t-0").problem
        assert problem is not None
        assert (problem.reason, problem.path) == (Reason.OFFSET_OUTSIDE_SEGMENT, str(partition / f"{10:020d}.log"))
    (partition / f"{10:020d}.index").touch()
    assert (row(recover(partition.parent, dry_run=True), "t-0").problem is None) == is_damaged


def test_an_epoch_at_a_negative_offset_is_said(partition):
    write(partition, 0, batch(0, 0), batch(1, 0), batch(-1, 7, 5))
    found = row(recover(partition.parent, dry_run=True), "t-0")
    assert "leader epoch 7 begins at offset -1" in (found.error or "")
    [planned] = kafkalog.preflight(partition.parent, clean=False).partitions
    assert planned.problem == found.problem


def test_a_segment_that_cannot_be_read_costs_its_partition_alone(partition, monkeypatch):
    """Whatever the recovery point: with the largest one no segment is recovered, but the log end is looked for."""
    other = partition.parent / "u-0"
    other.mkdir()
    for directory in (partition, other):
        write(directory, 0, batch(0, 0))
    real = Segment.open

    def failing(segment):
        if segment.path.parent == partition:
            raise ReadError(Reason.FILE_UNREADABLE, "I/O error", path=segment.path)
        return real(segment)

    monkeypatch.setattr(Segment, "open", failing)
    for point in (0, 2**63 - 1):
        (partition.parent / RECOVERY_POINTS).write_text(f"0\n1\nt 0 {point}\n")
        report = recover(partition.parent, dry_run=True)
        assert "I/O error" in (row(report, "t-0").error or "")
        assert row(report, "u-0").error is None


def producer_batch(at, producer_id, kind):
    if kind == "marker":
        return builder.control_batch(1, base_offset=at, producer_id=producer_id, producer_epoch=0)
    return builder.batch_v2(
        [builder.record_v2(0, 0, b"k", b"v")],
        base_offset=at,
        transactional=kind == "in",
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=at,
    )


def broker_fails_at(kinds):
    """The first batch at which a broker's replay fails, one by one: a twin of `ReplayCheck`."""
    is_open = set()
    for at, (producer, kind) in enumerate(kinds):
        if kind == "out" and producer in is_open:
            return at
        if kind != "out":
            (is_open.add if kind == "in" else is_open.discard)(producer)
    return None


def check_of(tmp_path, kinds, cuts=()):
    check = ReplayCheck()
    bounds = [0, *cuts, len(kinds)]
    for start, stop in itertools.pairwise(bounds):
        path = tmp_path / f"{start:020d}.log"
        path.write_bytes(b"".join(producer_batch(at, *kinds[at]) for at in range(start, stop)))
        batches = kafkalog.Segment(path).batches
        check.add(path, batches, np.zeros(len(batches), np.int32))
    return check.problem


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([(7, "in"), (7, "in")], None),
        ([(7, "out"), (8, "in")], None),
        ([(7, "out"), (7, "in")], None),
        ([(7, "in"), (7, "marker"), (7, "out")], None),
        ([(7, "in"), (7, "out")], Reason.TRANSACTION_OUTCOME),
    ],
)
def test_a_producer_with_an_open_transaction_writes_nothing_outside_of_it(tmp_path, kinds, expected):
    problem = check_of(tmp_path, kinds)
    assert (None if problem is None else problem.reason) == expected


@pytest.mark.parametrize("seed", range(30))
def test_batches_of_producers_in_any_order_and_in_several_segments(tmp_path, seed):
    draw = random.Random(seed)
    kinds = [
        (draw.choice([5, 6, 7]), draw.choices(["in", "out", "marker"], [4, 1, 4])[0])
        for _ in range(draw.randint(1, 12))
    ]
    cuts = sorted(draw.sample(range(1, len(kinds)), draw.randint(0, min(3, len(kinds) - 1)))) if kinds[1:] else []
    problem = check_of(tmp_path, kinds, cuts)
    assert (None if problem is None else problem.base_offset) == broker_fails_at(kinds)


def test_a_mixed_producer_before_a_segment_without_it_fails_no_report(partition):
    """Offsets of a producer in and outside of transactions, then a segment of another one."""
    log = producer_batch(0, 5, "out") + producer_batch(1, 5, "in")
    (partition / f"{0:020d}.log").write_bytes(log)
    (partition / f"{2:020d}.log").write_bytes(producer_batch(2, 6, "out"))
    assert kafkalog.preflight(partition, clean=False).verdict == "recovers"
    assert recover(partition.parent, dry_run=True).ok
    assert kafkalog.report(partition).ok


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path):
    log_dir = small_log_dir(tmp_path)
    flip(logs(log_dir / "p-txn-0")[2], 100)
    before = content(tmp_path)
    dry = recover(log_dir, dry_run=True)
    assert content(tmp_path) == before
    assert not dry.is_written
    written = recover(log_dir, output=tmp_path / "out")
    assert [one.as_dict() for one in dry.partitions] == [one.as_dict() for one in written.partitions]
    assert repr(dry) == f"RecoveryReport(3 partitions, {dry.n_bytes_lost:,} bytes lost)"


@pytest.mark.parametrize("missing", [(), (0,), (-1,), (0, -1)])
def test_a_recovered_segment_gets_the_snapshot_of_its_producers(tmp_path, missing):
    """So a clean start without snapshots loses the producers only if it recovers no segment."""
    with kafkalog.PartitionWriter(tmp_path / "t-0", producer=(9, 0), batch_size=200) as writer:
        for _ in range(3):
            writer.append({"value": [b"v" * 50] * 5})
            writer.roll()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    for number in missing:
        logs(tmp_path / "t-0")[number].with_suffix(".index").unlink()
    [plan] = kafkalog.preflight(tmp_path / "t-0", clean=True).partitions
    assert any("state of producers" in remark for remark in plan.remarks) == (not missing)


def test_a_clean_start_finds_no_epochs_in_an_empty_checkpoint(tmp_path):
    with kafkalog.PartitionWriter(tmp_path / "t-0", batch_size=200, leader_epoch=3) as writer:
        writer.append({"value": [b"v" * 50] * 5})

    def remarks():
        [plan] = kafkalog.preflight(tmp_path / "t-0", clean=True).partitions
        return [one.partition(":")[0] for one in plan.remarks if "epoch" in one]

    assert remarks() == []
    for data in ("", "0\n0\n"):
        (tmp_path / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).write_text(data)
        assert remarks() == ["no epoch in the leader epoch checkpoint"]
    (tmp_path / "t-0" / kf.LEADER_EPOCH_CHECKPOINT).unlink()
    assert remarks() == ["no leader epoch checkpoint"]


def test_an_empty_log_has_no_producers_to_lose(tmp_path):
    """As the cleaner and retention leave one; KAFKA-9065 has such a partition of `__consumer_offsets`."""
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    for base in (0, 500):
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{base:020d}{suffix}").touch()
    [plan] = kafkalog.preflight(directory, clean=True).partitions
    assert (plan.log_end_offset, plan.verdict) == (500, "starts")
