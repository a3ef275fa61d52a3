"""Every index entry that would mislead a broker is found, and nothing is said about what healthy brokers write."""

import struct

import golden_sets
import numpy as np
import pytest
from effort import thinned
from hypothesis import assume, given
from hypothesis import strategies as st
from index_twin import make_log, write_indexes

import kafkalog
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource


def _floor(keys, target):
    """The slot that `AbstractIndex` finds by halves."""
    if not keys or keys[0] > target:
        return -1
    low, high = 0, len(keys) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] > target:
            high = middle - 1
        elif keys[middle] < target:
            low = middle
        else:
            return middle
    return low


def find_offset(indexes, batches, target):
    """The batch that a broker finds for an offset; a word where it fails."""
    slot = _floor([offset for offset, _ in indexes.offset], target)
    position = indexes.offset[slot][1] if slot >= 0 else 0
    return _scan(batches, position, lambda batch: batch.last_offset >= target)


def find_timestamp(indexes, batches, target, base):
    """The batch that a broker finds for a timestamp in this segment, None where it does not look or finds none."""
    largest = indexes.time[-1][0] if indexes.time else -1
    if largest < target:
        return None
    slot = _floor([timestamp for timestamp, _ in indexes.time], target)
    offset = indexes.time[slot][1] if slot >= 0 else base
    slot = _floor([entry for entry, _ in indexes.offset], offset)
    position = indexes.offset[slot][1] if slot >= 0 else 0
    return _scan(batches, position, lambda batch: batch.max_timestamp >= target)


def _scan(batches, position, is_it):
    end = batches[-1].position + batches[-1].size if batches else 0
    if position not in [*(batch.position for batch in batches), end]:
        return "no batch begins there"
    return next((batch for batch in batches if batch.position >= position and is_it(batch)), None)


def misleads(indexes, batches, base):
    """Whether any lookup of a broker goes wrong."""
    for target in range(base, batches[-1].last_offset + 1):
        right = next(batch for batch in batches if batch.last_offset >= target)
        if find_offset(indexes, batches, target) != right:
            return True
    times = {batch.max_timestamp + more for batch in batches for more in (-1, 0, 1)}
    times |= {timestamp + more for timestamp, _ in indexes.time for more in (-1, 0, 1)}
    largest = max(batch.max_timestamp for batch in batches)
    for target in sorted(time for time in times if time >= 0):
        right_one = next((batch for batch in batches if batch.max_timestamp >= target), None)
        if find_timestamp(indexes, batches, target, base) != right_one:
            return True
        if target > largest and indexes.time and indexes.time[-1][0] >= target:
            return True  # the broker looks here, and not in a later segment
    return False


BASE = 40


def tables(log, rows=2**20):
    found = [window.batches for window in walk(BufferSource(log))]
    return [table[first : first + rows] for table in found for first in range(0, len(table), rows)]


def check(log, offset, time, *, base=BASE, is_last=False, rows=2**20):
    batches = tables(log, rows)
    offset_index = OffsetIndex(np.frombuffer(offset, np.uint8), base)
    time_index = TimeIndex(np.frombuffer(time, np.uint8), base)
    return [
        *offset_index.check(batches, time_index=time_index, is_last=is_last),
        *time_index.check(batches, offset_index=offset_index, is_last=is_last),
    ]


def reasons(findings):
    assert all(finding.damage for finding in findings)
    return {finding.reason.value for finding in findings}


# --------------------------------------------------------------------------------------------------- what brokers wrote

WRITTEN_BY_BROKERS = [*((name, "clean") for name in golden_sets.SETS), ("k44", "unclean"), ("k28", "unclean")]


@pytest.mark.parametrize(
    ("name", "archive", "rows"),
    thinned(((*one, rows) for rows in (7, 1, 2**20) for one in WRITTEN_BY_BROKERS), 3),
)
def test_no_index_that_a_broker_wrote_has_a_finding(name, archive, rows):
    n_entries = n_transactions = 0
    for path in golden_sets.partitions(name, archive).values():
        before = []
        for segment in kafkalog.Partition(path).segments:
            batches = [table[n : n + rows] for table in segment.iter_batches() for n in range(0, len(table), rows)]
            before += batches
            offset_index, time_index = segment.offset_index, segment.time_index
            assert offset_index is not None
            assert time_index is not None
            found = offset_index.check(batches, time_index=time_index, is_last=segment.is_last)
            found += time_index.check(batches, offset_index=offset_index, is_last=segment.is_last)
            if segment.transaction_index is not None:
                found += segment.transaction_index.check(before)
                n_transactions += len(segment.transaction_index)
            assert found == []
            n_entries += len(offset_index) + len(time_index)
    assert n_entries > 100
    assert n_transactions > 10


drafts = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 5]),
        st.integers(1, 3),
        st.sampled_from([0, 10, 60, 200]),
        st.one_of(st.sampled_from([-1, 0, 1]), st.integers(0, 30), st.integers(100, 110)),
    ),
    min_size=1,
    max_size=24,
)
histories = st.fixed_dictionaries(
    {
        "interval": st.sampled_from([0, 80, 200, 500]),
        "calls": st.sampled_from([(), (1, 3), (2,), (5, 1)]),
        "reopened": st.lists(st.integers(1, 20), max_size=3).map(sorted),
    }
)


@given(drafts, histories, st.booleans(), st.integers(1, 9))
def test_what_any_broker_writes_has_no_finding(log_drafts, history, closed, rows):
    log, batches = make_log(log_drafts, BASE)
    indexes = write_indexes(batches, closed=closed, **history)
    found = check(log, indexes.offset_bytes(BASE), indexes.time_bytes(BASE), is_last=not closed, rows=rows)
    assert found == []
    assert not closed or not misleads(indexes, batches, BASE)


def mutate(draw, indexes, batches):
    """One change of one or two entries."""
    kind = draw(st.sampled_from(["offset", "time"]))
    entries = list(getattr(indexes, kind))
    assume(entries)
    row = draw(st.integers(0, len(entries) - 1))
    what = draw(st.sampled_from(["first", "second", "swap", "drop", "repeat", "cut", "zero"]))
    first, second = entries[row]
    offsets = [batch.last_offset for batch in batches] + [batch.base_offset for batch in batches]
    positions = [batch.position for batch in batches]
    small = st.integers(-3, 3)
    if what == "first":
        other = st.sampled_from(offsets if kind == "offset" else [batch.max_timestamp for batch in batches])
        entries[row] = draw(st.one_of(small.map(first.__add__), other)), second
    elif what == "second":
        other = st.sampled_from(positions if kind == "offset" else offsets)
        entries[row] = first, draw(st.one_of(small.map(second.__add__), other))
    elif what == "swap":
        to = draw(st.integers(0, len(entries) - 1))
        entries[row], entries[to] = entries[to], entries[row]
    elif what == "drop":
        del entries[row]
    elif what == "repeat":
        entries.insert(row, entries[row])
    elif what == "cut":
        del entries[row:]
    else:
        entries[row] = (BASE, 0) if kind == "offset" else (0, BASE)
    return indexes._replace(**{kind: entries})


@given(st.data(), drafts, histories, st.integers(1, 9))
def test_every_change_that_would_mislead_a_lookup_is_found(data, log_drafts, history, rows):
    log, batches = make_log(log_drafts, BASE)
    indexes = write_indexes(batches, **history)
    changed = mutate(data.draw, indexes, batches)
    changed = mutate(data.draw, changed, batches) if data.draw(st.booleans()) else changed
    if misleads(changed, batches, BASE):
        assert check(log, changed.offset_bytes(BASE), changed.time_bytes(BASE), rows=rows)


@given(st.binary(max_size=200), st.binary(max_size=200), drafts)
def test_any_bytes_are_judged_without_a_crash(offset, time, log_drafts):
    log, _batches = make_log(log_drafts, BASE)
    check(log, offset, time)
    TransactionIndex(np.frombuffer(time, np.uint8), BASE).check(tables(log))
    check(b"", offset, time)


# ------------------------------------------------------------------------------------------------ the seven bad indexes


@pytest.fixture(scope="module")
def large():
    """A log of a MiB as a producer writes it: batches of changing size, rising timestamps."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(300, 3000, 700).tolist()
    return make_log([(0, 1, size, 1_700_000_000_000 + 10 * row) for row, size in enumerate(sizes)], BASE)


def entries_of(data, size):
    return [data[first : first + size] for first in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wrong middle position", {"index_position"}),
        ("middle position of the next batch", {"index_misleads"}),
        ("swapped entries", {"index_order"}),
        ("every twentieth entry", {"index_sparse"}),
        ("every twentieth entry of both", {"index_sparse"}),
        ("zero padding", {"index_padding"}),
        ("all-zero time index", {"index_padding", "index_sparse"}),
        ("odd size", {"index_size"}),
        ("last entry below the first", {"index_order", "index_misleads", "index_offset"}),
        ("last position behind the end", {"index_position"}),
        ("emptied time index", {"index_sparse"}),
        ("last timestamp too early", {"index_misleads", "index_sparse"}),
        ("last timestamp in the future", {"index_timestamp"}),
        ("of another segment", {"index_offset"}),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_bad_index_is_caught_with_its_reason(large, kind, expected, is_last):
    log, batches = large
    indexes = write_indexes(batches, 4096)
    offset, time = indexes.offset_bytes(BASE), indexes.time_bytes(BASE)
    entries, times = entries_of(offset, 8), entries_of(time, 12)
    middle = len(entries) // 2
    number, position = struct.unpack(">ii", entries[middle])
    rows = [batch.position for batch in batches]
    match kind:
        case "wrong middle position":
            entries[middle] = struct.pack(">ii", number, position + 100)
        case "middle position of the next batch":
            entries[middle] = struct.pack(">ii", number, rows[rows.index(position) + 1])
        case "swapped entries":
            entries[middle], entries[middle + 1] = entries[middle + 1], entries[middle]
        case "every twentieth entry":
            entries = entries[::20]
        case "every twentieth entry of both":
            entries, times = entries[::20], [*times[::20], times[-1]]
        case "zero padding":
            entries.append(bytes(4096))
        case "all-zero time index":
            times = [bytes(10_485_756)]
        case "odd size":
            entries.append(b"\1\2\3")
        case "last entry below the first":
            entries[-1] = struct.pack(">ii", -5, position)
        case "last position behind the end":
            entries[-1] = struct.pack(">ii", struct.unpack(">ii", entries[-1])[0], len(log) + 5)
        case "emptied time index":
            times = []
        case "last timestamp too early":
            times[-1] = struct.pack(">q", batches[-2].max_timestamp) + times[-1][8:]
        case "last timestamp in the future":
            times[-1] = struct.pack(">q", 2_000_000_000_000) + times[-1][8:]
        case "of another segment":
            number, position = struct.unpack(">ii", entries[-1])
            entries[-1] = struct.pack(">ii", number + 10_000, position)
    found = reasons(check(log, b"".join(entries), b"".join(times), is_last=is_last))
    if is_last and "index_padding" in expected:
        assert found == expected - {"index_padding"}  # who knows the log dir knows whether it was preallocated
    else:
        assert found == expected


def test_a_sparse_index_is_accepted_where_the_topic_says_so_and_not_where_it_does_not(large):
    log, batches = large
    indexes = write_indexes(batches, 50_000)
    index = OffsetIndex(np.frombuffer(indexes.offset_bytes(BASE), np.uint8), BASE)
    assert len(index) > 10
    assert index.check(tables(log), interval_bytes=50_000) == []
    assert reasons(index.check(tables(log), interval_bytes=1024)) == {"index_sparse"}


def test_a_timestamp_of_0_at_the_base_offset_is_an_entry_of_zeros_and_no_padding():
    log, batches = make_log([(0, 1, 10, 0), (0, 1, 10, -1)], BASE)
    indexes = write_indexes(batches, 4096)
    assert indexes.time == [(0, BASE)]
    assert check(log, b"", indexes.time_bytes(BASE)) == []
    assert reasons(check(log, b"", indexes.time_bytes(BASE) + bytes(24))) == {"index_padding"}
    other, _ = make_log([(0, 1, 10, 5)], BASE)
    assert reasons(check(other, b"", indexes.time_bytes(BASE))) == {"index_padding", "index_timestamp"}


# -------------------------------------------------------------------------------------------------- transaction indexes


def transactional():
    partition = kafkalog.Partition(golden_sets.LOG_DIR / "p-txn-0")
    before = []
    for segment in partition.segments:
        before += segment.iter_batches()
        if segment.transaction_index is not None and len(segment.transaction_index) > 3:
            return before, segment
    raise AssertionError("no transaction index")


@pytest.mark.parametrize("rows", thinned([1, 2**20], 2))
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("producer_id", 1),
        ("producer_id", -1000),
        ("first_offset", 1),
        ("first_offset", -1),
        ("first_offset", 10**6),
        ("last_offset", 1),
        ("last_offset", -1),
        ("last_offset", 10**6),
        ("last_offset", -(10**6)),
        ("last_stable_offset", 2),
        ("last_stable_offset", -(10**6)),
        ("version", 256),
    ],
)
def test_every_wrong_field_of_a_transaction_index_is_found(field, change, rows):
    batches, segment = transactional()
    batches = [table[n : n + rows] for table in batches for n in range(0, len(table), rows)]
    index = segment.transaction_index
    assert index is not None
    for row in range(len(index)):
        entries = index.entries.copy()
        entries[field][row] += change
        changed = TransactionIndex(np.frombuffer(entries.tobytes(), np.uint8), segment.base_offset)
        assert reasons(changed.check(batches)) & {"index_transaction", "index_order"}, row


def test_a_missing_aborted_transaction_is_found():
    batches, segment = transactional()
    index = segment.transaction_index
    assert index is not None
    for row in range(len(index)):
        entries = np.delete(index.entries, row)
        changed = TransactionIndex(np.frombuffer(entries.tobytes(), np.uint8), segment.base_offset)
        (finding,) = changed.check(batches)
        assert finding.reason == "index_transaction"
        assert f"producer {index.entries['producer_id'][row]}, offsets " in finding.detail
