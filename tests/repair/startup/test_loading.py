"""How a broker loads one partition."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import builder
import pytest
from files import flip
from startups import asked, logs

import kafkalog
from kafkalog.errors import FileChangedError
from kafkalog.repair.startup.forecast import LoadFailure
from kafkalog.repair.startup.segment_reading import LoadedSegment


@pytest.mark.parametrize("tail", [bytes(100), b"\x00" * 8 + b"\xff" * 50])
def test_a_bad_tail_kills_after_a_clean_shutdown_and_is_cut_after_another(partition: Path, tail: bytes) -> None:
    last = logs(partition)[-1]
    size = last.stat().st_size
    last.write_bytes(last.read_bytes() + tail)
    row = asked(partition, clean=True)
    assert (row.verdict, row.exceptions[0].name) == ("does not start", "CorruptRecordException")
    cut = asked(partition)
    assert (cut.segments[-1].action, cut.segments[-1].n_bytes) == ("cut", size)
    assert cut.log_end_offset == 305


def test_a_torn_batch_is_no_loss(partition: Path) -> None:
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    row = asked(partition)
    assert (row.segments[-1].action, row.n_bytes_lost, row.verdict) == ("cut", 0, "recovers")
    assert asked(partition, clean=True).log_end_offset == row.log_end_offset


def test_an_index_that_leads_behind_the_end_moves_the_log_end(partition: Path) -> None:
    last = logs(partition)[-1]
    last.with_suffix(".index").write_bytes((5).to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
    row = asked(partition, clean=True)
    assert (row.log_end_offset, row.verdict) == (272, "loses")


def test_an_index_that_no_broker_can_map_ends_its_start_and_is_not_read(partition: Path) -> None:
    index = logs(partition)[-1].with_suffix(".index")
    end = asked(partition, clean=True).log_end_offset
    data = index.read_bytes()
    index.write_bytes(data + data[-8:])  # what is searched is not read whole: the last two entries are the same
    assert asked(partition, clean=True).log_end_offset == end
    os.truncate(index, 2**36)
    (row,) = kafkalog.preflight(partition, clean=True).partitions
    assert (row.verdict, row.exceptions[0].name) == ("does not start", "IllegalArgumentException")


def test_a_size_below_the_smallest_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(bytes(40))
    with pytest.raises(LoadFailure, match="record size 0"):
        LoadedSegment(kafkalog.Segment(path), "4.3").next_offset()


def _with_offset(path: Path, row: int, offset: int) -> None:
    """Another base offset for a batch; no checksum covers it."""
    at = int(kafkalog.Segment(path).batches.position[row])
    data = bytearray(path.read_bytes())
    data[at : at + 8] = offset.to_bytes(8, "big", signed=True)
    path.write_bytes(data)


def test_a_broker_dies_of_an_offset_below_the_segment_and_splits_at_one_too_high(partition: Path) -> None:
    last = logs(partition)[-1]
    whole = last.read_bytes()
    for offset in (-5000, 3):
        _with_offset(last, 1, offset)
        assert [one.name for one in asked(partition).exceptions] == ["IllegalArgumentException"]
        (done,) = kafkalog.recover(partition, dry_run=True).partitions
        assert done.error is not None
        last.write_bytes(whole)
    _with_offset(last, -1, 2**40)
    row = asked(partition)
    assert (row.segments[-1].action, row.log_end_offset) == ("split", 2**40 + 4)


def test_what_a_segment_is_split_into_is_recovered_as_well(partition: Path) -> None:
    last = logs(partition)[-1]
    data, positions = bytearray(last.read_bytes()), kafkalog.Segment(last).batches.position.tolist()
    for at, offset in zip(positions[-2:], (2**40, 2**41), strict=True):
        data[at : at + 8] = offset.to_bytes(8, "big")
    data[-5] ^= 1
    last.write_bytes(data)
    assert asked(partition).log_end_offset == 2**41  # of an empty segment


def test_what_a_segment_is_split_into_need_not_be_the_end_of_the_log(partition: Path) -> None:
    end = asked(partition).log_end_offset
    first, *_ = logs(partition)
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    start = int(kafkalog.Segment(first).batches.position[1])
    _with_offset(first, -1, 2**31)  # fits an index that begins where the second batch does
    first.write_bytes(first.read_bytes()[start:])
    row = asked(partition)
    assert (row.segments[0].action, row.log_end_offset) == ("split", end)


def test_a_segment_without_an_index_that_is_split_is_not_replaced_by_itself(partition: Path) -> None:
    first, *_ = logs(partition)
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    _with_offset(first, -1, 2**40)
    first.with_suffix(".index").unlink()
    assert [one.action for one in asked(partition).segments] == ["split", "recovered", "recovered"]


def test_what_a_segment_is_split_into_takes_the_place_of_another(partition: Path) -> None:
    end = asked(partition).log_end_offset
    first, second, _ = logs(partition)
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    first.write_bytes(second.read_bytes())
    _with_offset(first, -1, 2**31 + 1)
    row = asked(partition)
    assert [one.action for one in row.segments] == ["split", "deleted", "recovered"]
    assert row.log_end_offset == end


def test_a_log_begins_where_its_first_segment_is_split(partition: Path) -> None:
    first, *_ = logs(partition)
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    batches = kafkalog.Segment(first).batches
    _with_offset(first, -1, 2**40)
    first.write_bytes(first.read_bytes()[int(batches.position[1]) :])
    row = asked(partition)
    assert row.segments[0].action == "split"
    assert 0 < row.log_start_offset == int(batches.base_offset[1])


def test_what_a_segment_is_split_into_goes_with_all_behind_damage(partition: Path) -> None:
    first, second, _ = logs(partition)
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    batches = kafkalog.Segment(first).batches
    first.write_bytes(first.read_bytes()[: int(batches.next_position[0])])
    _with_offset(first, 0, 2**40)
    flip(second, second.stat().st_size - 5)
    row = asked(partition)
    assert [one.action for one in row.segments] == ["split", "cut", "deleted"]
    assert (row.log_start_offset, row.log_end_offset) == (int(second.stem), row.log_end_offset)
    assert row.log_end_offset < 2**20


def test_what_comes_first_by_name_stops_the_start(partition: Path) -> None:
    _, second, _ = logs(partition)
    (partition / ("9" * 20 + ".timeindex")).write_bytes(b"")
    assert [one.name for one in asked(partition).exceptions] == ["NumberFormatException"]
    second.with_suffix(".index").unlink()
    _with_offset(second, 0, -5000)
    names = [one.name for one in asked(partition).exceptions]
    assert names == ["IllegalArgumentException", "NumberFormatException"]


def test_producers_are_replayed_only_as_far_as_needed(partition: Path) -> None:
    first, middle, _ = logs(partition)
    for path in partition.glob("*.snapshot"):
        path.unlink()
    middle.with_suffix(".index").unlink()
    whole = first.read_bytes()
    first.write_bytes(whole + bytes(40))
    assert [one.name for one in asked(partition).exceptions] == ["CorruptRecordException"]
    first.write_bytes(whole)
    assert asked(partition).verdict == "recovers"


def test_a_transaction_index_of_a_later_version_stops_the_start(partition: Path) -> None:
    logs(partition)[1].with_suffix(".txnindex").write_bytes(b"\1\0" + bytes(32))
    assert [one.name for one in asked(partition).exceptions] == ["KafkaException"]
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert "version 256" in (done.error or "")


@pytest.mark.parametrize("is_copy", [False, True])
def test_2_8_deletes_the_transaction_index_of_a_swap_unread(partition: Path, is_copy: bool) -> None:
    log = logs(partition)[1]
    log.with_suffix(".txnindex").write_bytes(b"\1\0" + bytes(32))
    if is_copy:
        shutil.copy(log, f"{log}.swap")
    else:
        for path in partition.glob(f"{log.stem}.*"):
            path.rename(f"{path}.swap")
    names = {broker: [one.name for one in asked(partition, broker=broker).exceptions] for broker in ("4.3", "2.8")}
    assert names == {"4.3": [] if is_copy else ["KafkaException"], "2.8": []}  # 4.3 deletes what the .swap replaces


def test_of_that_version_a_broker_reads_the_first_byte_alone(partition: Path) -> None:
    entry = b"\0\1" + (10**6).to_bytes(8, "big") * 4
    logs(partition)[1].with_suffix(".txnindex").write_bytes(entry)
    assert asked(partition).verdict == "recovers"


def test_a_broker_dies_of_aborted_transactions_that_do_not_end_in_order(partition: Path) -> None:
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    _with_offset(logs(partition)[1], 15, 100_000)
    (row,) = kafkalog.preflight(partition, clean=False, index_interval_bytes=10**6).partitions
    assert [one.name for one in row.exceptions] == ["IllegalArgumentException"]
    (done,) = kafkalog.recover(partition, dry_run=True, index_interval_bytes=10**6).partitions
    assert "in order" in (done.error or "")


def test_an_empty_log_does_not_begin_where_a_segment_cannot_be_recovered(partition: Path) -> None:
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\np-txn-now 0 5000\n")
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    assert [one.action for one in asked(partition).segments] == ["deleted"] * 3
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert (done.error, done.log_end_offset) == (None, 5000)
    logs(partition)[-1].with_suffix(".index").unlink()
    logs(partition)[-1].rename(partition / f"{4000:020d}.log")
    assert [one.name for one in asked(partition).exceptions] == ["IllegalArgumentException"]
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert done.error is not None


def test_nor_where_a_broker_dies_before_it_finds_the_end(partition: Path) -> None:
    """It begins with the segment that has no index, and for that replays the one before."""
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\np-txn-now 0 20\n")
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    first, second, _ = logs(partition)
    first.write_bytes(bytes(100))
    first.with_suffix(".index").write_bytes(b"")
    second.with_suffix(".index").unlink()
    for path in partition.glob("*.snapshot"):
        path.unlink()
    assert [one.name for one in asked(partition).exceptions] == ["CorruptRecordException"]
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert "record size 0" in (done.error or "")


@pytest.mark.parametrize("more", ["", ".cleaned"])
def test_an_old_broker_recovers_what_a_swap_is_going_to_replace(partition: Path, more: str) -> None:
    """It has deleted the index of that name, even for a `.swap` that is deleted then."""
    last = logs(partition)[-1]
    (last.parent / f"{last.name}.swap").write_bytes(last.read_bytes())
    if more:
        (last.parent / (last.name + more)).write_bytes(b"")
    assert asked(partition, broker="2.8").exceptions == []
    _with_offset(last, 1, 3)
    assert [one.name for one in asked(partition, broker="2.8").exceptions] == ["IllegalArgumentException"]
    assert [one.name for one in asked(partition, clean=True).exceptions] == []


def test_an_old_broker_dies_of_a_segment_whose_end_it_looks_for_beside_a_swap(partition: Path) -> None:
    *_, middle, last = logs(partition)
    last.rename(partition / f"{last.name}.swap")
    _with_offset(middle, 0, 0)
    assert asked(partition, broker="2.8", clean=True).exceptions == []
    middle.write_bytes(middle.read_bytes() + bytes(40))
    assert [one.name for one in asked(partition, broker="2.8", clean=True).exceptions] == ["CorruptRecordException"]


def test_leader_epochs_beyond_the_end_are_dropped(partition: Path) -> None:
    end = asked(partition, clean=True).log_end_offset
    for start, n in ((end, 0), (end + 7, 1)):
        (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n9 {start}\n")
        remarks = [one for one in asked(partition, clean=True).remarks if "leader epochs" in one]
        assert remarks == [f"leader epochs begin beyond the log end offset {end}: the broker drops them"] * n


def test_the_largest_offset_ends_a_log_below_its_start(partition: Path) -> None:
    last = logs(partition)[-1]
    at = int(kafkalog.Segment(last).batches.position[-1])
    _with_offset(last, len(kafkalog.Segment(last).batches) - 1, 2**63 - 1)
    assert last.read_bytes()[at : at + 8] == (2**63 - 1).to_bytes(8, "big")
    row = asked(partition, clean=True)
    assert {one.action for one in row.segments} == {"deleted"}


def test_a_log_that_a_running_broker_cleans_meanwhile_has_changed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(builder.batch_v2([builder.record_v2(0, value=b"v")]) * 2)
    loaded = LoadedSegment(kafkalog.Segment(path), "4.3")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(FileChangedError, match="had"):
        list(loaded.batches(0, loaded.size_in_bytes))
