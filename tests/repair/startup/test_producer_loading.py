"""The producers of a partition while a broker loads it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from startups import asked, logs

import kafkalog
from kafkalog import format as kf
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.repair.startup.producer_loading import ProducerLoading
from kafkalog.repair.startup.segment_reading import LoadedSegment
from kafkalog.state.producers import ProducerState, encode_snapshot, read_snapshot

BASES = [0, 100, 200, 300, 400]


def loaded(*bases: int) -> list[LoadedSegment]:
    return [LoadedSegment(kafkalog.Segment(Path(kf.segment_file_name(base)), must_open=False), "4.3") for base in bases]


class Offsets:
    """Which snapshots are there, whatever they hold."""

    def __init__(self, *offsets: int, bad: tuple[int, ...] = (), log_start: int = 0) -> None:
        none = ProducerState().entries()
        self._start = log_start
        content = {offset: None if offset in bad else none for offset in offsets}
        self._loading = ProducerLoading(content, "4.3", None, replay="skip")

    def recover(self, base: int, end: int, bases: list[int]) -> set[int]:
        manager = self._loading.begin_recovery(loaded(*bases), base, self._start)
        (one,) = loaded(base)
        self._loading.recover(manager, one, RecoveredSegment(one.segment, map_end_offset=end))
        return {*self._loading.snapshots}

    def load(self, end: int, bases: list[int]) -> set[int]:
        self._loading.load(loaded(*bases), max(self._start, bases[0]), end, is_clean=False)
        return {*self._loading.snapshots}


def test_the_last_segment_is_recovered_and_the_others_keep_theirs() -> None:
    files = Offsets(100, 200, 300, 400, 477)
    assert files.recover(400, 450, BASES) == {100, 200, 300, 400, 450}
    assert files.load(450, BASES) == {100, 200, 300, 400, 450}


def test_one_that_cannot_be_read_is_deleted_and_made_anew_where_it_is_passed() -> None:
    files = Offsets(100, 200, 300, 400, bad=(100, 300, 400))
    # that at 100 is older than one that can be read, so nobody looks at it
    assert files.recover(400, 450, BASES) == {100, 200, 300, 400, 450}


def test_an_old_segment_without_an_index_costs_those_behind_it() -> None:
    files = Offsets(*BASES[1:])
    assert files.recover(100, 200, BASES[:1]) == {100, 200}
    assert files.recover(400, 450, BASES) == {100, 200, 300, 400, 450}
    files = Offsets(*BASES[1:])
    files.recover(0, 100, [])
    assert files.recover(400, 450, BASES) == {100, 300, 400, 450}


def test_snapshots_that_are_at_no_segment_go_but_for_the_last() -> None:
    assert Offsets(100, 150, 200, 430, 440).load(440, [0, 100, 200]) == {100, 200, 440}
    # those at or below the log start go, too
    assert Offsets(100, 150).load(220, [100, 200]) == {200, 220}


def _without_snapshots(partition: Path) -> list[bytearray]:
    """All segments are replayed when the partition is loaded; returns their contents."""
    for path in partition.glob("*.snapshot"):
        path.unlink()
    return [bytearray(path.read_bytes()) for path in logs(partition)]


def test_batch_by_batch_the_state_is_that_of_the_other_replay(partition: Path) -> None:
    names = sorted(path for path in partition.glob("*.snapshot"))
    wanted = {kf.parse_base_offset(path.name): read_snapshot(path).entries for path in names}
    _without_snapshots(partition)
    segments = [LoadedSegment(kafkalog.Segment(path), "4.3") for path in logs(partition)]
    end = max(offset for offset in wanted if offset is not None)
    loading = ProducerLoading({}, "4.3", None, replay="exact")
    loading.load(segments, 0, end, is_clean=False)
    assert loading.snapshots[end] is not None
    for offset in loading.snapshots.keys() & wanted.keys():
        np.testing.assert_array_equal(loading.snapshots[offset], wanted[offset])


@pytest.mark.parametrize(
    ("is_control", "at", "value", "name"),
    [
        (True, 22, b"\x35", "IllegalArgumentException"),  # an unknown codec
        (True, 57, b"\xff\xff\xff\xff", "InvalidRecordException"),  # records
        (True, 61, b"\x02", "InvalidRecordException"),  # the size of the record
        (True, 69, b"\x09", "IllegalArgumentException"),  # the type of the marker
        (False, 22, b"\x00", "InvalidTxnStateException"),  # no part of a transaction, in the middle of one
    ],
)
def test_a_broker_dies_of_what_it_replays(partition: Path, is_control: bool, at: int, value: bytes, name: str) -> None:
    (data, *_), first = _without_snapshots(partition), logs(partition)[0]
    batches = kafkalog.Segment(first).batches
    rows = np.flatnonzero(batches.is_control == is_control)
    # of two batches of a transaction the second one
    ids = batches.producer_id
    row = next(int(one) for one in rows if is_control or (one and ids[one - 1] == ids[one] and one - 1 in rows))
    start = int(batches.position[row])
    data[start + at : start + at + len(value)] = value
    first.write_bytes(data)
    forecast = asked(partition)
    assert [one.name for one in forecast.exceptions] == [name]
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert done.error is not None


def test_an_open_transaction_beyond_the_end_stops_an_old_broker(partition: Path) -> None:
    newest = sorted(partition.glob("*.snapshot"))[-1]
    entries = read_snapshot(newest).entries.copy()
    entries["current_txn_first_offset"] = 10**9
    newest.write_bytes(encode_snapshot(entries))
    (row,) = kafkalog.preflight(partition, clean=True, now=0, broker="2.8").partitions
    assert [one.name for one in row.exceptions] == ["OffsetOutOfRangeException"]
    (row,) = kafkalog.preflight(partition, clean=True, now=0).partitions
    assert row.exceptions == []


def _with_producer(partition: Path, **fields: int) -> None:
    """One more producer in each snapshot."""
    for path in partition.glob("*.snapshot"):
        entry = np.zeros(1, kf.PRODUCER_SNAPSHOT_DTYPE)
        for name, value in {"producer_id": 10**9, "current_txn_first_offset": -1, **fields}.items():
            entry[name] = value
        path.write_bytes(encode_snapshot(np.concatenate([read_snapshot(path).entries, entry])))


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_dies_of_what_it_reads_on_the_way_to_the_first_open_transaction(partition: Path, clean: bool) -> None:
    first = logs(partition)[0]
    batches, data = kafkalog.Segment(first).batches, bytearray(first.read_bytes())
    row = len(batches) // 2
    start = int(batches.position[row])
    _with_producer(partition, current_txn_first_offset=int(batches.base_offset[row]))
    first.with_suffix(".index").write_bytes(b"")
    assert asked(partition, clean=clean).exceptions == []
    data[start + 8 : start + 12] = bytes(4)
    first.write_bytes(data)
    assert [one.name for one in asked(partition, clean=clean).exceptions] == ["CorruptRecordException"]
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert "record size 0" in (done.error or "")


def test_a_producer_whose_last_offset_is_negative_has_no_batch(partition: Path, tmp_path: Path) -> None:
    _with_producer(partition, last_sequence=3, last_offset=-7, offset_delta=2)
    kafkalog.recover(partition.parent, output=tmp_path / "out")
    newest = sorted((tmp_path / "out" / partition.name).glob("*.snapshot"))[-1]
    entries = read_snapshot(newest).entries
    (entry,) = entries[entries["producer_id"] == 10**9]
    assert [entry[name] for name in ("last_sequence", "last_offset", "offset_delta")] == [-1, -1, 0]


def test_where_segments_overlap_files_are_those_that_a_broker_leaves(partition: Path, tmp_path: Path) -> None:
    """The second segment holds the end of the first one once more."""
    first = logs(partition)[0]
    batches = kafkalog.Segment(first).batches
    start = int(batches.position[len(batches) // 2])
    base = int(batches.base_offset[len(batches) // 2])
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    copy = first.with_name(kf.segment_file_name(base))
    copy.write_bytes(first.read_bytes()[start:])
    report = kafkalog.recover(partition.parent, output=tmp_path / "out")
    assert report.partitions[0].error is None
    data = (tmp_path / "out" / partition.name / copy.with_suffix(".txnindex").name).read_bytes()
    size = struct.calcsize(">hqqqq")
    ends = [struct.unpack(">hqqqq", data[at : at + size])[3] for at in range(0, len(data), size)]
    assert ends == sorted(set(ends))
