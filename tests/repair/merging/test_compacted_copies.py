"""Copies of a compacted topic that were cleaned at other times, one of which lost a segment without any other trace."""

import random
from typing import NamedTuple

import builder
import pytest
from effort import fuzz_inputs

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS
from kafkalog.repair.rescue.plan import LogPlan
from kafkalog.repair.rescue.replica import read_replica

SEGMENT = 8


class Entry(NamedTuple):
    """A batch of one record, or a marker, whose key is None."""

    offset: int
    key: bytes | None
    value: bytes | None
    kind: str = "plain"
    """Or "aborted", or "committed"."""

    @property
    def data(self):
        if self.key is None:
            kind = int(self.kind == "committed")
            return builder.control_batch(kind, base_offset=self.offset, producer_id=7, leader_epoch=1)
        how = {} if self.kind == "plain" else {"transactional": True, "producer_id": 7, "producer_epoch": 0}
        records = [builder.record_v2(0, 0, self.key, self.value)]
        return builder.batch_v2(records, base_offset=self.offset, leader_epoch=1, **how)


def written(rng, n):
    """A log in which keys come again, are deleted, and are written in transactions that are aborted."""
    log = []
    while len(log) < n:
        key = b"k%d" % rng.randrange(n // 3)
        value = None if rng.random() < 0.3 else b"v%d" % len(log)
        kind = rng.choice(["plain", "plain", "plain", "committed", "aborted"])
        log.append(Entry(len(log), key, value, kind))
        if kind != "plain":
            log.append(Entry(len(log), None, None, kind))
    return log


def state(log):
    """The last value of each key, as a consumer of committed records has it at the end."""
    last = {one.key: one.value for one in log if one.key is not None and one.kind != "aborted"}
    return {key: value for key, value in last.items() if value is not None}


def cleaned(log, first, second):
    """What the cleaner leaves of a log in two passes, below these offsets; the second one removes tombstones."""
    for end, tombstones_to in ((first, 0), (second, first)):
        records = [one for one in log if one.offset < end and one.key is not None and one.kind != "aborted"]
        last = {one.key: one.offset for one in records}
        log = [
            one
            for one in log
            if one.offset >= end
            or one.key is None
            or (last.get(one.key) == one.offset and (one.value is not None or one.offset >= tombstones_to))
        ]
    return log


def copy_of(folder, rng, log, n, *, is_lossy, ends=None):
    """The first offsets of a log, cleaned below `ends` or random ones; the entries that are left, and the partition."""
    ends = ends or sorted(SEGMENT * rng.randrange(max((n - 1) // SEGMENT, 1)) for _ in range(2))
    left = cleaned(log[:n], *ends)
    bases = [*range(0, n, SEGMENT)]
    # the cleaner joins segments
    bases = [base for base in bases if not 0 < base < ends[1] or rng.random() < 0.7]
    gone = rng.choice(bases[1:-1]) if is_lossy and len(bases) > 2 else None
    partition = folder / "t-0"
    partition.mkdir(parents=True)
    found = []
    for base, end in zip(bases, [*bases[1:], n], strict=True):
        inside = [one for one in left if base <= one.offset < end]
        if base != gone:
            (partition / kf.segment_file_name(base)).write_bytes(b"".join(one.data for one in inside))
            found += inside
    (partition / kf.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n1 0\n")
    return found, kafkalog.Partition(partition)


def merged(log, partitions):
    """The plan of some copies, and the entries that it has."""
    for one in partitions:
        one.is_topic_compacted = True
    replicas = [
        read_replica(one, number, lambda finding: None, lambda n: None, DEFAULT_LIMITS)
        for number, one in enumerate(partitions)
    ]
    plan = LogPlan(replicas)
    return plan, [log[offset] for offset in plan.rows["first_offset"].tolist()]


@pytest.mark.parametrize("seed", range(max(fuzz_inputs() // 100, 10)))
def test_no_value_is_lost_that_another_copy_has_and_none_returns_that_was_deleted(tmp_path, seed):
    rng = random.Random(seed)
    log = written(rng, rng.randrange(30, 90))
    is_lagging = rng.random() < 0.5
    n_other = rng.randrange(len(log) // 2, len(log)) if is_lagging else len(log)
    found, copies = [], []
    for number, (n, is_lossy) in enumerate(((len(log), True), (n_other, False), (n_other, False))):
        left, partition = copy_of(tmp_path / f"{number}", rng, log, n, is_lossy=is_lossy)
        found.append(left)
        copies.append(partition)
    order = rng.sample(range(3), 3)
    plan, entries = merged(log, [copies[number] for number in order])
    assert [one.offset for one in entries] == sorted({one.offset for one in entries})
    known, served = state(log), state(entries)
    leader = next(found[number] for number in order if str(copies[number].path) == plan.summary.leader)
    for key in {*served} - {*known}:
        assert key in state(leader), "a deleted key returns"
    if not is_lagging:
        left = {key for key in known if served.get(key) != known[key]}
        assert not left
        named = [range(piece.first_offset, piece.last_offset + 1) for piece in plan.doubts if piece.why == "compacted"]
        offsets = {one.key: one.offset for one in log if one.key in left and one.kind != "aborted"}
        assert all(any(offset in span for span in named) for offset in offsets.values())
    # the transactions of batches that were taken end; a lagging copy may lack the marker, too
    markers = {one.offset for one in entries if one.key is None}
    is_left = is_lagging or any(piece.why == "compacted" for piece in plan.doubts)
    assert is_left or all(one.offset + 1 in markers for one in entries if one.key and one.kind != "plain")


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_deleted_key_does_not_return_from_a_copy_that_lacks_its_deletion(tmp_path, seed, is_damaged):
    """A copy that ends before it, or one in which it is damaged; the log cleaner has removed it from the leader."""
    rng = random.Random(seed)
    log = written(rng, 80)
    n = len(log) - SEGMENT if is_damaged else len(log) // 2
    end = SEGMENT * ((n if is_damaged else len(log) - 1) // SEGMENT)
    left, leader = copy_of(tmp_path / "0", rng, log, len(log), is_lossy=True, ends=[end, end])
    _, other = copy_of(tmp_path / "1", rng, log, n, is_lossy=False, ends=[0, 0])
    if is_damaged:
        last = {one.key: one for one in log[:n] if one.kind != "aborted"}
        deletion = rng.choice(
            [one for one in last.values() if one.key and one.value is None and one.key not in state(log)]
        )
        for path in other.path.glob("*.log"):
            data = path.read_bytes()
            path.write_bytes(data.replace(deletion.data, deletion.data[:-1] + bytes([deletion.data[-1] ^ 1])))
    plan, entries = merged(log, [leader, other])
    assert plan.summary.leader == str(leader.path)
    assert {*state(entries)} <= {*state(log), *state(left)}


def test_copies_that_were_cleaned_at_other_times_are_not_mixed(tmp_path):
    rng = random.Random(1)
    log = written(rng, 80)
    copies = [copy_of(tmp_path / f"{number}", rng, log, len(log), is_lossy=False) for number in range(3)]
    plan, entries = merged(log, [partition for _, partition in copies])
    assert entries in [left for left, _ in copies]
    assert {piece.why for piece in plan.doubts} <= {"compacted"}
