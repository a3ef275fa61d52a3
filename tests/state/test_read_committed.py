"""`read_committed` equals what a consumer of that level reads, however long, damaged or compacted the log is."""

import shutil
import struct
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import builder
import golden_sets
import pytest
import reference
import strategies
from effort import THOROUGH, thinned
from hypothesis import given
from hypothesis import strategies as st
from ways import seams

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import Limits, Reason
from kafkalog.log.segment_reader import ReadOptions
from kafkalog.records.decode import Selection, decode

COMMITTED = {"isolation_level": "read_committed"}
TOPICS_WITH_ABORTED = [("k44", "p-txn"), ("k28", "p-v2-txn"), ("k44_extra", "p-txn-now")]


@contextmanager
def partition_of(segments):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t-0"
        path.mkdir()
        for base_offset, data in segments:
            (path / kf.segment_file_name(base_offset)).write_bytes(data)
        yield kafkalog.Partition(path)


def data(offset, producer_id, n=1, *, size=200, **options):
    records = [builder.record_v2(i, 0, b"k", b"%d " % (offset + i) * (size // 4)) for i in range(n)]
    options = {"producer_epoch": 0, "base_sequence": 0, "transactional": producer_id >= 0, **options}
    return builder.batch_v2(records, base_offset=offset, producer_id=producer_id, **options)


def commit(offset, producer_id):
    return builder.control_batch(builder.COMMIT, base_offset=offset, producer_id=producer_id)


def abort(offset, producer_id):
    return builder.control_batch(builder.ABORT, base_offset=offset, producer_id=producer_id)


def offsets(partition, **options):
    return kafkalog.read_numpy(partition, columns=["offset"], **COMMITTED, **options).offset.tolist()


def skipped(partition, mode="skip", **options):
    """Offsets and findings of a reading that goes on, or stops, at damage."""
    options = {**COMMITTED, **options}
    scan = kafkalog.scan(partition, columns=["offset"], on_corruption=mode, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        return scan.to_numpy().offset.tolist(), scan.findings


# --------------------------------------------------------------------------------------------------------- golden


def spoil(path, how):
    """Take away or falsify what a broker notes beside the log."""
    n = 0
    for file in sorted(path.iterdir()):
        if file.suffix in (kf.TRANSACTION_INDEX_SUFFIX, kf.PRODUCER_SNAPSHOT_SUFFIX):
            n += 1
            if how == "deleted":
                file.unlink()
            elif how == "emptied":
                file.write_bytes(b"")
            else:
                noise = bytearray(file.read_bytes() * 2)
                noise[10:40] = b"\x01" * 30
                file.write_bytes(noise)
    assert n


@pytest.mark.parametrize("threads", thinned([2, 1], 2))
@pytest.mark.parametrize("how", ["deleted", "emptied", "falsified"])
@pytest.mark.parametrize(("name", "topic"), TOPICS_WITH_ABORTED)
def test_transaction_indexes_and_snapshots_change_nothing(tmp_path, name, topic, how, threads):
    path = tmp_path / f"{topic}-0"
    shutil.copytree(golden_sets.unpacked(name) / f"{topic}-0", path)
    spoil(path, how)
    partition = kafkalog.Partition(path)
    truth = golden_sets.truth(name, topic, "read_committed")
    assert len(truth) < len(golden_sets.truth(name, topic))
    assert offsets(partition, threads=threads) == [record["offset"] for record in truth]
    original = kafkalog.Partition(golden_sets.unpacked(name) / f"{topic}-0")
    assert partition.last_stable_offset == original.last_stable_offset < original.log_end_offset
    assert partition.aborted_transactions().tolist() == original.aborted_transactions().tolist()


@pytest.mark.parametrize("name", golden_sets.SETS)
def test_aborted_transactions_are_those_of_the_brokers_own_indexes(name):
    n_entries = 0
    for path in golden_sets.partitions(name).values():
        partition = kafkalog.Partition(path)
        indexes = [segment.transaction_index for segment in partition.segments]
        entries = [entry[1:] for index in indexes if index is not None for entry in index.entries.tolist()]
        columns = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
        found = [tuple(row) for row in partition.aborted_transactions()[columns].tolist()]
        if "compact" in path.name:
            # the index of a cleaned segment also has the markers that the cleaner kept when their records were gone
            assert set(found) <= set(entries)
        else:
            assert found == entries
        n_entries += len(entries)
    assert n_entries > 5


# ------------------------------------------------------------------------------------------------ against the twin


def decoded(partition, selection, window_bytes):
    found = []
    for piece in partition.reader.committed_windows(selection, ReadOptions(window_bytes=window_bytes)):
        first = 0
        while first < len(piece.window.batches):
            part = decode(piece.window, ("offset", "value"), first=first, selection=selection)
            assert part.error is None
            first += part.n_batches
            if part.columns is not None:
                found += zip(part.columns.offset.tolist(), part.columns.value.to_pylist(), strict=True)
        piece.source.release(piece.window.data, piece.window.start)
    return found


@given(
    log=strategies.transaction_logs(),
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=3),
    window_bytes=st.sampled_from([64, 200, 1000, 2**20]),
    ahead=st.sampled_from([64, 300, 2**20]),
    threads=st.sampled_from([1, 2]),
)
def test_any_history_reads_as_a_broker_and_a_consumer_would_have_it(log, ranges, window_bytes, ahead, threads):
    batches = [batch for _, content in log.segments for batch in reference.iter_batches(content)]
    producers = reference.Producers()
    for batch in batches:
        producers.append(batch)
    first = log.segments[0][0]
    with partition_of(log.segments) as partition, pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkalog.log.segment_reader._WINDOW_AHEAD", ahead)
        expected_end = producers.last_stable_offset if batches else log.segments[-1][0]
        assert partition.last_stable_offset == expected_end
        for start, length in [(-1, 0), *ranges]:
            bounds = (None, None) if start < 0 else (first + start, first + start + length)
            wanted = reference.read_committed(batches, bounds[0] or 0, bounds[1])
            expected = [(record.offset, record.value) for record in wanted]
            assert decoded(partition, Selection(*bounds), window_bytes) == expected
            table = kafkalog.read_numpy(
                partition, threads=threads, start_offset=bounds[0], end_offset=bounds[1], **COMMITTED
            )
            assert list(zip(table.offset.tolist(), table.value.to_pylist(), strict=True)) == expected
            found = partition.aborted_transactions(*bounds)[
                ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
            ]
            collected = producers.collect_aborted(bounds[0] or 0, 2**63 if bounds[1] is None else bounds[1])
            assert found.tolist() == [tuple(txn) for txn in collected]


def certain(batches):
    """Values that are outside transactions, or in committed ones."""
    kept = []
    unsettled = {}
    for batch in batches:
        kind = reference.marker_type(batch)
        if batch.magic == 2 and batch.producer_id >= 0 and kind is not None:
            done = unsettled.pop(batch.producer_id, [])
            kept += done if kind == reference.COMMIT else []
        elif batch.magic == 2 and batch.producer_id >= 0 and batch.is_transactional and not batch.is_control:
            unsettled.setdefault(batch.producer_id, []).extend(batch.records)
        elif not batch.is_control:
            kept += batch.records
    return {record.value for record in kept}


@given(
    log=strategies.transaction_logs(),
    draw=st.data(),
    mode=st.sampled_from(["skip", "skip", "stop", "raise"]),
    threads=st.sampled_from([1, 2]),
)
def test_damage_never_makes_a_record_committed_and_never_loses_one_silently(log, draw, mode, threads):
    batches = [batch for _, content in log.segments for batch in reference.iter_batches(content)]
    number = draw.draw(st.integers(0, len(log.segments) - 1))
    base_offset, content = log.segments[number]
    damaged = bytearray(content)
    if content:
        for _ in range(draw.draw(st.integers(1, 2))):
            at = draw.draw(st.integers(0, len(content) - 1))
            damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    segments = list(log.segments)
    segments[number] = (base_offset, bytes(damaged))
    expected = {record.value for record in reference.read_committed(batches)}
    values = []
    with partition_of(segments) as partition:
        scan = kafkalog.scan(partition, columns=["value"], threads=threads, on_corruption=mode, **COMMITTED)
        raised = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
            try:
                for batch in scan.to_batches():
                    values += batch.column(0).to_pylist()
            except kafkalog.KafkalogError:
                assert mode == "raise"
                raised = True
        assert set(values) <= certain(batches)
        # a flip in an offset is not covered by the checksum, and may hide a batch from Kafka's reader as from ours
        if not expected <= set(values) and not raised and not scan.n_damage:
            assert scan.findings
            # that a transaction is open is no excuse where its marker may have been lost, other than with a torn tail
            _, findings = skipped(kafkalog.Partition(partition.path), isolation_level="read_uncommitted")
            assert not any(finding.damage for finding in findings)


# ------------------------------------------------------------------------------------------------------------- by hand


def test_an_open_transaction_holds_back_everything_behind_its_first_batch():
    content = data(0, -1) + data(1, 5) + data(2, -1) + data(3, 6) + commit(4, 6)
    with partition_of([(0, content)]) as partition:
        assert offsets(partition) == [0]
        assert partition.last_stable_offset == 1
        assert partition.log_end_offset == 5
        assert offsets(partition, start_offset=2) == []
        read, findings = skipped(partition)
        assert read == [0]
        assert [(found.reason, found.base_offset, found.damage) for found in findings] == [
            ("open_transaction", 1, False)
        ]


def test_a_log_start_offset_inside_a_transaction_changes_nothing_for_what_is_left():
    content = data(0, 5) + data(1, 6) + data(2, 5) + data(3, 6) + abort(4, 5) + commit(5, 6) + data(6, 7) + data(7, -1)
    with partition_of([(0, content)]) as whole:
        partition = kafkalog.Partition(whole.path, log_start_offset=2)
        assert offsets(partition) == [3]
        assert offsets(partition, include_deleted=True) == [1, 3]
        assert partition.last_stable_offset == 6
        # an open transaction of which nothing is left to read still holds back the rest
        later = kafkalog.Partition(whole.path, log_start_offset=7)
        assert offsets(later) == []
        assert later.last_stable_offset == 7


@pytest.mark.parametrize("ahead", thinned([64, 2**20], 2))
def test_thousands_of_transactions_inside_a_long_one(monkeypatch, ahead):
    monkeypatch.setattr("kafkalog.log.segment_reader._WINDOW_AHEAD", ahead)
    n = 3000 if THOROUGH else 600
    parts = [data(0, 99)]
    for number in range(n):
        producer_id, offset = number % 7, 1 + 2 * number
        parts += [data(offset, producer_id, size=8), (abort if number % 3 else commit)(offset + 1, producer_id)]
    content = b"".join([*parts, abort(2 * n + 1, 99), data(2 * n + 2, -1)])
    with partition_of([(0, content)]) as partition:
        assert offsets(partition) == [*range(1, 2 * n + 1, 6), 2 * n + 2]
        assert partition.aborted_transactions().size == 1 + n - n // 3
        assert set(partition.aborted_transactions()["last_stable_offset"][:-1].tolist()) == {0}


def test_more_open_transactions_than_the_limit_are_refused():
    content = b"".join(data(offset, offset, size=8) for offset in range(50))
    with partition_of([(0, content)]) as partition:
        limited = kafkalog.Partition(partition.path, limits=Limits(max_open_transactions=49))
        with pytest.raises(kafkalog.LimitExceededError, match="max_open_transactions is 49") as caught:
            offsets(limited)
        assert caught.value.path == str(partition.segments[0].path)
        assert offsets(kafkalog.Partition(partition.path, limits=Limits(max_open_transactions=50))) == []


# -------------------------------------------------------------------------------------------------------------- damage


def flipped(batch, at=70):
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def test_a_marker_that_a_wrong_offset_hides_may_be_that_of_a_transaction():
    marker = bytearray(commit(1, 5))
    marker[0] ^= 1
    with partition_of([(0, data(0, 5)), (1, bytes(marker)), (2, data(2, -1))]) as partition:
        read, findings = skipped(partition)
        assert read == [2]
        assert {(found.reason, found.base_offset, found.damage) for found in findings} == {
            ("offset_outside_segment", 1, True),
            ("transaction_outcome", 0, True),
        }


def test_a_transaction_whose_marker_is_damaged_is_of_unknown_outcome():
    content = data(0, 5) + data(1, -1) + flipped(abort(2, 5)) + data(3, 5) + commit(4, 5) + data(5, 6) + commit(6, 6)
    with partition_of([(0, content)]) as partition:
        # the next marker of the same producer is not taken for that of the first transaction
        read, findings = skipped(partition)
        assert read == [1, 3, 5]
        assert [(found.reason, found.base_offset, found.damage) for found in findings] == [
            ("crc_mismatch", 2, True),
            ("transaction_outcome", 0, True),
        ]
        assert "producer 5's transaction from offset 0" in findings[1].detail
        # a marker is no record, and by its header this was one
        assert (findings[0].n_records, findings[1].n_records) == (0, None)
        assert skipped(partition, "stop")[0] == []
        assert [found.reason for found in skipped(partition, "stop")[1]] == ["crc_mismatch", "transaction_outcome"]
        with pytest.raises(kafkalog.CorruptionError, match="outcome of producer 5's") as caught:
            offsets(partition)
        assert (caught.value.reason, caught.value.base_offset) == ("crc_mismatch", 2)
        # where the last stable offset is depends on it, too
        with pytest.raises(kafkalog.CorruptionError, match="outcome of producer 5's"):
            offsets(partition, start_offset=3)
        assert skipped(partition, start_offset=3) == ([3, 5], [])
        with pytest.raises(kafkalog.CorruptionError, match="outcome of producer 5's"):
            _ = partition.last_stable_offset
        with pytest.raises(kafkalog.CorruptionError, match="outcome of producer 5's"):
            partition.aborted_transactions()
        # who does not want checksums checked gets what the bytes say
        assert offsets(partition, check_crcs=False) == [1, 3, 5]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_segment_that_cannot_be_opened_may_have_held_a_marker(threads):
    segments = [(0, data(0, 5) + data(1, -1)), (2, commit(2, 5) + data(3, -1)), (4, data(4, -1) + data(5, 5))]
    with partition_of([*segments, (6, commit(6, 5))]) as partition:
        lost = partition.segments[1].path
        lost.unlink()
        lost.mkdir()
        partition = kafkalog.Partition(partition.path)
        assert [segment.error is not None for segment in partition.segments] == [False, True, False, False]
        with pytest.raises(kafkalog.ReadError):
            offsets(partition, threads=threads)
        read, findings = skipped(partition, threads=threads)
        assert read == [1, 4, 5]
        assert sorted(found.reason for found in findings) == ["not_a_file", "transaction_outcome"]
        assert skipped(partition, isolation_level="read_uncommitted")[0] == [0, 1, 4, 5]
        assert skipped(partition, "stop")[0] == []
        assert skipped(partition, "stop", isolation_level="read_uncommitted")[0] == [0, 1]


JUNK = b"\xee" * 500
OPEN = data(0, -1) + data(1, 5) + data(2, -1)
ODD = builder.control_batch(9, base_offset=2, producer_id=5)
LOST_MARKER = {"size_negative", "transaction_outcome"}
DAMAGE = {
    # a consumer stops there, too: it compares the checksums of markers like all others
    "nothing is open": (
        [data(0, 5) + commit(1, 5) + flipped(abort(2, 5)) + data(3, -1) + data(4, 6) + commit(5, 6)],
        ([0, 3, 4], {"crc_mismatch"}),
        ([0], {"crc_mismatch"}),
    ),
    # a broker's recovery would cut the log here, and the transaction would be open
    "a batch larger than any marker": (
        [data(0, 5) + flipped(data(1, 5), 120) + data(2, -1) + commit(3, 5)],
        ([0, 2], {"crc_mismatch"}),
        ([], {"crc_mismatch", "transaction_outcome"}),
    ),
    "a made-up producer id": (
        [data(0, 5) + flipped(data(1, 5), 50) + commit(2, 5) + data(3, -1)],
        ([0, 3], {"crc_mismatch"}),
        ([], {"crc_mismatch", "transaction_outcome"}),
    ),
    "bytes inside": (
        [data(0, 5) + JUNK + data(3, 5) + abort(4, 5) + data(5, -1), data(6, -1)],
        ([5, 6], LOST_MARKER),
        ([], LOST_MARKER),
    ),
    "bytes at the end": ([OPEN + JUNK], ([0, 2], LOST_MARKER), ([0], LOST_MARKER)),
    "a segment of bytes at the end": ([OPEN, JUNK], ([0, 2], LOST_MARKER), ([0], LOST_MARKER)),
    "bytes without a gap in the offsets": (
        [data(0, 5) + JUNK, data(1, 5) + commit(2, 5)],
        ([0, 1], {"size_negative"}),
        ([0], {"size_negative"}),
    ),
    "a marker that is neither": (
        [data(0, 5) + data(1, 6) + ODD + commit(3, 6) + data(4, -1)],
        ([1, 4], {"transaction_outcome"}),
        ([], {"control_record", "transaction_outcome"}),
    ),
}


@pytest.mark.parametrize(("segments", "skip", "stop"), DAMAGE.values(), ids=DAMAGE)
def test_damage_leaves_open_what_it_may_have_held(segments, skip, stop):
    firsts = [0, *(3 if one == JUNK else int.from_bytes(one[:8], "big") for one in segments[1:])]
    with partition_of([*zip(firsts, segments, strict=True)]) as partition:
        for mode, (expected, reasons) in (("skip", skip), ("stop", stop)):
            read, findings = skipped(kafkalog.Partition(partition.path), mode)
            assert (read, {found.reason for found in findings}) == (expected, reasons), mode
        with pytest.raises(kafkalog.CorruptionError):
            offsets(partition)


def test_a_torn_tail_is_no_damage_and_its_transaction_is_open():
    with partition_of([(0, OPEN + commit(3, 5)[:60])]) as partition:
        assert offsets(partition) == [0]
        assert [found.reason for found in skipped(partition)[1]] == ["open_transaction"]


def test_damage_before_the_range_concerns_it_only_through_what_was_open_there():
    content = data(0, 5) + flipped(abort(1, 5)) + data(2, -1) + data(3, -1)
    with partition_of([(0, content)]) as partition:
        assert skipped(partition, start_offset=2) == ([2, 3], [])
        assert skipped(partition, "stop", start_offset=2) == ([2, 3], [])
        assert skipped(partition)[0] == [2, 3]
        assert skipped(partition, "stop")[0] == []


# --------------------------------------------------------------------------------- abort markers that are missing


def index_of(*entries):
    """A transaction index: producer, first offset, and offset of the marker."""
    return b"".join(struct.pack(">hqqqq", 0, *entry, entry[2] + 1) for entry in entries)


def notes_of(path, **options):
    scan = kafkalog.scan(path, columns=["offset"], **COMMITTED, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = [row for part in scan.to_batches() for row in part["offset"].to_pylist()]
    return read, [one for one in scan.findings if one.reason is Reason.TRANSACTION_OUTCOME]


LOST = {
    "in a segment": (
        {0: [data(0, -1, 2), data(2, 9, 3), data(6, -1, 2), data(8, 9, 2, producer_epoch=1), commit(10, 9)]},
        {0: index_of((9, 2, 5))},
        [0, 1, 6, 7, 8, 9],
    ),
    "without another epoch": (
        {0: [data(2, 9, 3), data(8, 9, 2), commit(10, 9)]},
        {0: index_of((9, 2, 5))},
        [8, 9],
    ),
    "at the end of a segment": (
        {0: [data(0, -1), data(2, 9, 3)], 6: [data(6, -1, 2)], 8: [data(8, 9, 2, producer_epoch=1), commit(10, 9)]},
        {0: index_of((9, 2, 5))},
        [0, 6, 7, 8, 9],
    ),
    "of a transaction from the segment before": (
        {0: [data(2, 9, 3)], 5: [data(6, 9, 1, producer_epoch=1), commit(7, 9)]},
        {5: index_of((9, 2, 5))},
        [6],
    ),
    "of a transaction whose first batch is gone": (
        {0: [data(3, 9, 2), data(8, 9, 1), commit(9, 9)]},
        {0: index_of((9, 1, 5))},
        [8],
    ),
    "two, one after the other": (
        {0: [data(2, 9, 3), data(6, 9, 1), data(8, 9, 1, producer_epoch=2), commit(9, 9)]},
        {0: index_of((9, 2, 5), (9, 6, 7))},
        [8],
    ),
    "two of two producers": (
        {0: [data(1, 8), data(2, 9), data(6, -1), data(7, 8), data(8, 9), commit(9, 8), commit(10, 9)]},
        {0: index_of((8, 1, 4), (9, 2, 5))},
        [6, 7, 8],
    ),
    "and the producer never came back": (
        {0: [data(0, -1, 2), data(2, 9, 3), data(6, -1, 2)]},
        {0: index_of((9, 2, 5))},
        [0, 1, 6, 7],
    ),
    "and the next one aborted as well": (
        {0: [data(2, 9, 3), data(8, 9, 2), abort(10, 9), data(11, -1)]},
        {0: index_of((9, 2, 5), (9, 8, 10))},
        [11],
    ),
}


@pytest.mark.parametrize(("segments", "indexes", "expected"), LOST.values(), ids=LOST)
def test_records_whose_abort_the_index_alone_has_are_left_out_with_a_note(tmp_path, segments, indexes, expected):
    path = tmp_path / "t-0"
    path.mkdir()
    for base, parts in segments.items():
        (path / kf.segment_file_name(base)).write_bytes(b"".join(parts))
    for base, content in indexes.items():
        (path / f"{base:020d}.txnindex").write_bytes(content)
    read, notes = notes_of(path)
    assert read == expected
    assert notes
    assert not any(note.damage for note in notes)
    assert notes_of(path, threads=2)[0] == expected
    assert notes_of(path, start_offset=expected[-1])[0] == expected[-1:]
    found = kafkalog.verify(path)
    assert Reason.INDEX_TRANSACTION in {one.reason for one in found.findings if one.damage}
    planned = [
        offset
        for task in kafkalog.scan(path, columns=["offset"], **COMMITTED).plan(target_bytes=1)
        for part in task.to_batches()
        for offset in part["offset"].to_pylist()
    ]
    assert planned == expected


@pytest.mark.parametrize("bases", [[0], [0, 6], [0, 7]], ids=["one segment", "at the roll", "later"])
def test_an_epoch_that_changes_within_a_transaction_is_named(tmp_path, bases):
    batches = [data(0, -1), data(2, 9, 3), data(6, -1), data(7, 9, 2, producer_epoch=1), commit(9, 9)]
    at = [0, 2, 6, 7, 9]
    path = tmp_path / "t-0"
    path.mkdir()
    for base, stop in zip(bases, [*bases[1:], 99], strict=True):
        content = b"".join(one for offset, one in zip(at, batches, strict=True) if base <= offset < stop)
        (path / kf.segment_file_name(base)).write_bytes(content)
    read, notes = notes_of(path)
    assert read == [0, 2, 3, 4, 6, 7, 8], "as consumers get them"
    assert [(note.base_offset, note.damage) for note in notes] == [(7, False)]
    damage = [one for one in kafkalog.verify(path).findings if one.damage]
    assert [(one.reason, one.base_offset) for one in damage] == [(Reason.TRANSACTION_OUTCOME, 7)]


HEALTHY = {
    "a marker between": [data(0, 9), abort(1, 9), data(2, 9, producer_epoch=1), commit(3, 9)],
    "a batch that the cleaner emptied": [
        data(0, 9, records_count=0, payload=b"", last_offset_delta=0),
        data(2, 9, producer_epoch=1),
        commit(3, 9),
    ],
    "another producer": [data(0, 9), data(1, 8, producer_epoch=1), commit(2, 9), commit(3, 8)],
    "outside of transactions": [data(0, 9, transactional=False), data(1, 9, transactional=False, producer_epoch=1)],
}


@pytest.mark.parametrize("batches", HEALTHY.values(), ids=HEALTHY)
def test_healthy_transactions_give_no_finding(tmp_path, batches):
    path = tmp_path / "t-0"
    path.mkdir()
    (path / kf.segment_file_name(0)).write_bytes(b"".join(batches))
    # its records are compacted away, and its marker after them
    (path / f"{0:020d}.txnindex").write_bytes(index_of(*[(9, 0, 1)] * (batches[1] == abort(1, 9))))
    assert not notes_of(path)[1]
    assert not [one for one in kafkalog.verify(path).findings if one.damage]


def test_entries_of_transactions_that_were_compacted_away_are_not_held_against_others(tmp_path):
    path = tmp_path / "t-0"
    path.mkdir()
    (path / kf.segment_file_name(0)).write_bytes(data(0, -1) + data(7, 9) + commit(8, 9))
    (path / f"{0:020d}.txnindex").write_bytes(index_of((9, 2, 5), (8, 3, 6)))
    assert notes_of(path) == ([0, 7], [])
    assert not [one for one in kafkalog.verify(path).findings if one.damage]


def test_damage_where_nothing_is_open_leaves_no_outcome_open():
    content = data(0, 5) + commit(1, 5) + flipped(abort(2, 5)) + data(3, -1) + data(4, 6) + commit(5, 6)
    with partition_of([(0, content)]) as partition:
        for mode, read in (("stop", [0]), ("skip", [0, 3, 4])):
            offsets_read, findings = skipped(partition, mode)
            assert offsets_read == read
            assert [(found.reason, found.base_offset) for found in findings] == [("crc_mismatch", 2)]
        # a consumer stops there, too: it compares the checksums of markers like all others
        with pytest.raises(kafkalog.CorruptionError, match="crc_mismatch") as caught:
            offsets(partition)
        assert caught.value.base_offset == 2


def test_a_damaged_batch_larger_than_any_marker_leaves_no_doubt():
    content = data(0, 5) + flipped(data(1, 5), 120) + data(2, -1) + commit(3, 5)
    with partition_of([(0, content)]) as partition:
        read, findings = skipped(partition)
        assert read == [0, 2]
        assert [found.reason for found in findings] == ["crc_mismatch"]
        # a broker's recovery would cut the log here, and the transaction would be open
        read, findings = skipped(partition, "stop")
        assert read == []
        assert [found.reason for found in findings] == ["crc_mismatch", "transaction_outcome"]
        with pytest.raises(kafkalog.CorruptionError, match="crc_mismatch: "):
            offsets(partition)


def test_a_made_up_producer_id_of_a_damaged_batch_holds_nothing_back():
    batch = bytearray(data(1, 5))
    batch[50] ^= 0xFF  # the last byte of the producer id
    content = data(0, 5) + bytes(batch) + commit(2, 5) + data(3, -1)
    with partition_of([(0, content)]) as partition:
        read, findings = skipped(partition)
        assert read == [0, 3]
        assert [found.reason for found in findings] == ["crc_mismatch"]


def test_bytes_that_are_passed_over_may_have_held_a_marker():
    lost = commit(1, 5) + data(2, -1)
    content = data(0, 5) + b"\xee" * len(lost) + data(3, 5) + abort(4, 5) + data(5, -1)
    with partition_of([(0, content), (6, data(6, -1))]) as partition:
        (partition.path / "00000000000000000000.index").write_bytes(
            (3).to_bytes(4, "big") + (len(data(0, 5)) + len(lost)).to_bytes(4, "big")
        )
        read, findings = skipped(kafkalog.Partition(partition.path))
        assert read == [5, 6]
        assert sorted(found.reason for found in findings) == ["size_negative", "transaction_outcome"]
        read, findings = skipped(kafkalog.Partition(partition.path), "stop")
        assert read == []
        assert {found.reason for found in findings} == {"size_negative", "transaction_outcome"}


@pytest.mark.parametrize("n_segments", [1, 2])
def test_bytes_that_are_passed_over_at_the_end_of_the_log_may_have_held_a_marker(n_segments):
    content, lost = data(0, -1) + data(1, 5) + data(2, -1), b"\xee" * 500
    segments = [(0, content + lost)] if n_segments == 1 else [(0, content), (3, lost)]
    with partition_of(segments) as partition:
        with pytest.raises(kafkalog.CorruptionError, match=r"size field is negative.*producer 5"):
            offsets(partition)
        read, findings = skipped(partition)
        assert read == [0, 2]
        assert sorted(found.reason for found in findings) == ["size_negative", "transaction_outcome"]
        read, findings = skipped(partition, "stop")
        assert read == [0]
        assert {found.reason for found in findings} == {"size_negative", "transaction_outcome"}
        with pytest.raises(kafkalog.CorruptionError):
            partition.aborted_transactions()
    # a torn tail is no damage: a broker cuts it off, and the transaction is open
    with partition_of([(0, content + commit(3, 5)[:60])]) as partition:
        assert offsets(partition) == [0]
        assert [found.reason for found in skipped(partition)[1]] == ["open_transaction"]


def test_bytes_that_are_passed_over_without_a_gap_in_the_offsets_held_none():
    content = data(0, 5)
    with partition_of([(0, content + b"\xee" * 300), (1, data(1, 5) + commit(2, 5))]) as partition:
        read, findings = skipped(partition)
        assert read == [0, 1]
        assert [found.reason for found in findings] == ["size_negative"]


def test_a_marker_that_says_neither_is_of_unknown_outcome():
    odd = builder.control_batch(9, base_offset=2, producer_id=5)
    content = data(0, 5) + data(1, 6) + odd + commit(3, 6) + data(4, -1)
    with partition_of([(0, content)]) as partition:
        read, findings = skipped(partition)
        assert read == [1, 4]
        assert [found.reason for found in findings] == ["transaction_outcome"]
        assert "neither a commit nor an abort" in findings[0].detail
        with pytest.raises(kafkalog.CorruptionError, match="neither a commit nor an abort"):
            offsets(partition)
        assert skipped(partition, "stop")[0] == []


@pytest.mark.parametrize("size", [None, 300, 700, 2000])
def test_transactions_in_a_segment_that_lies_below_its_name_end_where_their_markers_are(size):
    log = b"".join(
        [
            data(6, 7, 3),
            data(9, -1),
            commit(10, 7),
            data(11, 8, 2),
            data(13, -1, 5),
            abort(18, 8),
            data(19, 7),
            commit(20, 7),
        ]
    )
    with partition_of([(0, data(0, -1, 6)), (1000, log)]) as partition, seams(size), warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        assert offsets(partition, on_corruption="skip", threads=1) == [*range(10), *range(13, 18), 19]
