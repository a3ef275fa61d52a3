"""Lookups in an index find what a linear scan of its entries finds, for any queries in any order."""

import os
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from guard import Guard
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog._kernels.indexes import look_up
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.storage.source import FileSource

pytestmark = pytest.mark.kernels

BASE = 1000


def offset_index(offsets):
    entries = np.zeros(offsets.size, kf.OFFSET_INDEX_DTYPE)
    entries["relative_offset"] = offsets
    entries["position"] = 1 + np.arange(offsets.size) * 100
    return OffsetIndex(np.frombuffer(entries.tobytes(), np.uint8), BASE)


@given(
    st.lists(st.integers(0, 60), max_size=50),
    st.lists(st.integers(-5, 70), max_size=60),
    st.sampled_from([lambda queries: queries, sorted, lambda queries: sorted(queries, reverse=True)]),
    st.sampled_from([1, 500]),
)
def test_a_lookup_finds_what_a_linear_scan_finds(offsets, queries, order, spread):
    keys = spread * np.array(sorted(offsets), np.int64)
    index = offset_index(keys)
    asked = np.array(order(queries), np.int64) * spread + BASE
    scanned = [max((n for n, key in enumerate(keys) if key + BASE <= one), default=-1) for one in asked]
    assert index.floor(asked).tolist() == scanned
    assert index.lookup(asked).tolist() == [0 if n < 0 else 1 + 100 * n for n in scanned]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 15, 16, 17, 1000, 16_367])
@pytest.mark.parametrize("m", [0, 1, 15, 16, 17, 3000])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_kernel_agrees_with_numpy_and_stays_in_its_arrays(n, m, is_sorted):
    key_room, value_room, query_room = (Guard(8 * max(n + 1, m)) for _ in range(3))
    rng = np.random.default_rng(n + m)
    keys = np.sort(rng.integers(-(2**62), 2**62, n))
    values = rng.integers(0, 2**62, n + 1)
    mixed = rng.choice(np.concatenate([keys, keys + 1, [np.iinfo(np.int64).min, np.iinfo(np.int64).max]]), m)
    runs = np.concatenate([np.sort(mixed[: m // 2]), mixed[m // 2 :]])
    for queries in (mixed, np.sort(mixed), np.sort(mixed)[::-1].copy(), runs):
        found = np.full(m, -1, np.int64)
        look_up(
            key_room.ending(keys.tobytes()).view(np.int64),
            value_room.ending(values.tobytes()).view(np.int64),
            is_sorted,
            query_room.ending(queries.tobytes()).view(np.int64),
            found,
        )
        assert found.tolist() == values[np.searchsorted(keys, queries, side="right")].tolist()


def test_answers_of_a_damaged_index_do_not_depend_on_what_else_is_asked():
    rng = np.random.default_rng(1)
    index = offset_index(rng.integers(0, 1000, 200))
    queries = rng.integers(BASE, BASE + 1000, 100)
    alone = [int(index.lookup([one])[0]) for one in queries]
    assert index.lookup(queries).tolist() == alone
    order = np.argsort(queries)
    assert index.lookup(queries[order]).tolist() == [alone[n] for n in order]


def test_queries_keep_their_shape_and_may_be_no_arrays():
    index = offset_index(np.array([4, 9, 14]))
    assert index.lookup([[1004, 1010], [0, 5000]]).tolist() == [[1, 101], [0, 201]]
    assert int(index.lookup(1009)) == 101
    assert index.lookup(np.arange(1000, 1020)[::5]).tolist() == [0, 1, 101, 201]
    assert index.lookup([]).tolist() == []
    entries = np.array([(50, 4), (60, 9)], kf.TIME_INDEX_DTYPE)
    times = TimeIndex(np.frombuffer(entries.tobytes(), np.uint8), BASE)
    assert times.lookup([49, 50, 59, 60]).tolist() == [1000, 1004, 1004, 1009]
    assert times.lookup(np.array([59_999, 60_000], "M8[us]")).tolist() == [1004, 1009]
    with pytest.raises(ValueError, match="timestamp is NaT"):
        times.lookup(np.datetime64("NaT"))
    with pytest.raises(ValueError):
        look_up(np.zeros(2, np.int64), np.zeros(2, np.int64), True, np.zeros(1, np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize("n", [0, 1, 341, 342, 1024, 1500])
@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_what_a_broker_allots_ahead_is_not_read(tmp_path, monkeypatch, kind, n):
    path = tmp_path / f"{0:020}{kind.suffix}"
    entries = np.ones(n, kind.dtype)
    path.write_bytes(entries.tobytes())
    os.truncate(path, 10 * 2**20)
    read = []
    window = FileSource.window
    monkeypatch.setattr(
        FileSource, "window", lambda self, start, stop: read.append(stop - start) or window(self, start, stop)
    )
    index = kind.open(path, 0)
    assert index.entries.tobytes() == entries.tobytes()
    assert index.padding_bytes == 10 * 2**20 - 10 * 2**20 % kind.dtype.itemsize - entries.nbytes
    assert sum(read) <= entries.nbytes + 2**16


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@given(data=st.data())
def test_an_index_of_any_array_of_its_entries_is_the_same(kind, data):
    numbers = data.draw(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=20))
    numbers = [*zip(*(sorted({pair[at] for pair in numbers}) for at in (0, 1)), strict=False)]
    first, second = (np.array([pair[at] for pair in numbers], np.int64) for at in (0, 1))
    if kind is OffsetIndex:
        columns = {"offset": first + BASE, "position": second}
    else:
        columns = {"timestamp": first, "offset": second + BASE}
    index = kind.from_columns(BASE, **columns)
    assert len(index) == len(numbers)
    assert {name: column.tolist() for name, column in index.columns().items()} == {
        name: column.tolist() for name, column in columns.items()
    }
    native = index.entries.astype(index.dtype.newbyteorder("="))
    for entries in (index.entries, native, native[::1], index.tobytes(), bytearray(index.tobytes())):
        assert kind(entries, BASE).tobytes() == index.tobytes()


def test_what_is_no_index_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"not str; OffsetIndex\.open reads a file"):
        OffsetIndex("00000000000000001000.index", BASE)
    with pytest.raises(TypeError, match=r"not PosixPath; OffsetIndex\.open reads a file"):
        OffsetIndex(tmp_path / "00000000000000001000.index")
    with pytest.raises(TypeError, match="OffsetIndex needs base_offset, that of its segment"):
        OffsetIndex(b"")
    with pytest.raises(TypeError, match="not int64"):
        OffsetIndex(np.zeros(4, np.int64), BASE)
    with pytest.raises(TypeError, match="are offset, position, not offset"):
        OffsetIndex.from_columns(BASE, offset=[1001])
    with pytest.raises(ValueError, match="the columns have the sizes 1, 2"):
        OffsetIndex.from_columns(BASE, offset=[1001], position=[1, 2])
    with pytest.raises(ValueError, match="offset does not fit the 4 bytes of its field"):
        OffsetIndex.from_columns(BASE, offset=[2**31 + BASE], position=[1])
    with pytest.raises(ValueError, match="timestamp does not fit the 8 bytes of its field"):
        TimeIndex.from_columns(BASE, offset=[1001], timestamp=[2**63])
    with pytest.raises(ValueError, match="the name has no base offset"):
        OffsetIndex.open(tmp_path / "some.index")


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        (OffsetIndex, {"offset": [999], "position": [1]}, "offset 999 is below base_offset, 1000"),
        (OffsetIndex, {"offset": [1005, 1004], "position": [1, 2]}, "offset 1004 comes after 1005"),
        (OffsetIndex, {"offset": [1005, 1005], "position": [1, 2]}, "offset 1005 comes after 1005"),
        (OffsetIndex, {"offset": [1005, 1006], "position": [-1, 2]}, "position -1 is below 0"),
        (OffsetIndex, {"offset": [1005, 1006], "position": [2, 2]}, "position 2 comes after 2"),
        (TimeIndex, {"timestamp": [5], "offset": [999]}, "offset 999 is below base_offset, 1000"),
        (TimeIndex, {"timestamp": [5, 6], "offset": [1005, 1004]}, "offset 1004 comes after 1005"),
        (TimeIndex, {"timestamp": [6, 5], "offset": [1005, 1006]}, "timestamp 5 comes after 6"),
    ],
)
def test_an_index_is_made_of_numbers_that_rise(kind, columns, message):
    with pytest.raises(ValueError, match=message):
        kind.from_columns(BASE, **columns)


def test_indexes_are_equal_if_their_contents_are():
    index = OffsetIndex.from_columns(BASE, offset=[1010, 1020], position=[1, 2])
    assert index == OffsetIndex.from_columns(BASE, offset=[1010, 1020], position=[1, 2])
    assert index == OffsetIndex(index.tobytes() + bytes(80), BASE)
    assert index != OffsetIndex(index.tobytes(), BASE + 1)
    assert index != OffsetIndex.from_columns(BASE, offset=[1010, 1020], position=[1, 3])
    assert index != TimeIndex(index.tobytes(), BASE)
    assert index != index.tobytes()
    with pytest.raises(TypeError, match="unhashable"):
        hash(index)


WIDE = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(2**63 - 3, 2**63 + 3),
    st.integers(-(2**63) - 3, 3 - 2**63),
    st.integers(980, 1100),
)


@given(st.lists(st.integers(1, 90), max_size=20, unique=True), st.lists(WIDE, max_size=20))
def test_numbers_beyond_int64_are_above_or_below_all_entries(keys, queries):
    keys = sorted(keys)
    index = offset_index(np.array(keys, np.int64))
    times = TimeIndex.from_columns(BASE, timestamp=[key + BASE for key in keys], offset=[key + BASE for key in keys])
    scanned = [max((n for n, key in enumerate(keys) if key + BASE <= one), default=-1) for one in queries]
    for asked in (queries, np.array(queries, object)):
        assert index.floor(asked).tolist() == scanned
        assert index.lookup(asked).tolist() == [0 if n < 0 else 1 + 100 * n for n in scanned]
        assert times.lookup(asked).tolist() == [BASE if n < 0 else BASE + keys[n] for n in scanned]
    unsigned = [one for one in queries if 0 <= one < 2**64]
    assert index.floor(np.array(unsigned, np.uint64)).tolist() == [
        n for n, one in zip(scanned, queries, strict=True) if one in unsigned
    ]


def test_a_segment_has_no_record_beyond_int64():
    segment = kafkalog.open("tests/golden/log_dir/p-txn-0").segments[0]
    for beyond in ([2**63], [2**64], np.array([2**63 + 100], np.uint64), [-1, 2**63]):
        assert segment.find_offsets(beyond)["position"].tolist()[-1] == -1
        assert segment.find_timestamps(beyond)["offset"].tolist()[-1] == -1


def test_a_time_index_takes_times_of_python_numpy_and_pandas():
    zone = timezone(timedelta(hours=2))
    first, second = (datetime(2026, 11, 28, hour, tzinfo=zone) for hour in (1, 2))
    stamps = np.array(["2026-11-27T23:00", "2026-11-28T00:00"], "datetime64[s]")
    index = TimeIndex.from_columns(BASE, timestamp=stamps, offset=[1001, 1002])
    assert index.timestamp.tolist() == [int(one.timestamp()) * 1000 for one in (first, second)]
    later = pd.Timestamp(second) - pd.Timedelta(1, "ns")
    for asked in ([first, second], [pd.Timestamp(first), pd.Timestamp(second)], pd.DatetimeIndex([first, second])):
        assert index.lookup(asked).tolist() == [1001, 1002]
    assert index.lookup([pd.Timestamp(second), later, first]).tolist() == [1002, 1001, 1001]
    assert index.lookup(first).tolist() == 1001
    with pytest.raises(ValueError, match="naive datetime; add a time zone"):
        index.lookup(datetime(2026, 11, 28))
    with pytest.raises(ValueError, match="NaT"):
        index.lookup([first, pd.NaT])


def test_what_is_no_number_is_refused_by_what_is_expected():
    segment = kafkalog.open("tests/golden/log_dir/p-txn-0").segments[0]
    index = segment.offset_index
    for wrong in ([1.5], [True], ["1"], [2**64, 1.5], np.array(["2026-11-28"], "datetime64[D]")):
        with pytest.raises(TypeError, match=r"^offsets are whole numbers, not "):
            index.lookup(wrong)
        with pytest.raises(TypeError, match=r"^offsets are whole numbers, not "):
            segment.find_offsets(wrong)
    with pytest.raises(TypeError, match=r"^times are milliseconds, datetime64 or aware datetimes, not float64"):
        segment.find_timestamps([1.5])


def test_an_index_is_written_and_opened(tmp_path):
    path = tmp_path / "00000000000000001000.index"
    index = OffsetIndex.from_columns(BASE, offset=[1010, 1020], position=[4096, 8192])
    index.tofile(path)
    assert path.stat().st_size == 16
    assert OffsetIndex.open(path).columns()["offset"].tolist() == [1010, 1020]
    with pytest.raises(FileExistsError):
        index.tofile(path)


def test_a_transaction_index_is_written_and_opened(tmp_path):
    path = tmp_path / "00000000000000001000.txnindex"
    columns = {"producer_id": [7, 8], "first_offset": [1000, 1003], "last_offset": [1002, 1009]}
    index = TransactionIndex.from_columns(BASE, **columns, last_stable_offset=[1003, 1010])
    index.tofile(path)
    assert path.stat().st_size == 68
    back = TransactionIndex.open(path)
    assert back.tobytes() == index.tobytes()
    assert (back.base_offset, back.columns()["version"].tolist()) == (BASE, [0, 0])
    for name, column in back.columns().items():
        assert column.dtype.isnative
        assert column.flags.c_contiguous
        assert back.to_numpy()[name].tolist() == column.tolist()
    assert TransactionIndex.from_columns(BASE, **back.columns()).tobytes() == index.tobytes()
    assert back.to_numpy().dtype.isnative


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, TransactionIndex])
def test_files_of_another_kind_are_refused_by_their_name(kind, tmp_path):
    for suffix, opens in {
        ".log": r"kafkalog\.open",
        ".index": "OffsetIndex",
        ".timeindex": "TimeIndex",
        ".txnindex": "TransactionIndex",
        ".snapshot": "ProducerSnapshot",
        ".old": None,
    }.items():
        path = tmp_path / f"{3:020}{suffix}"
        path.write_bytes(bytes(range(204)))
        if suffix in (kind.suffix, ".old"):
            assert len(kind.open(path, 3)) == 204 // kind.dtype.itemsize
        else:
            with pytest.raises(
                ValueError, match=rf"{suffix}: {kind.__name__} is in {kind.suffix} files; use .*{opens}"
            ):
                kind.open(path, 3)


def test_all_kinds_are_read_in_the_same_ways(log_dir):
    segments = [kafkalog.open_segment(path) for path in sorted(log_dir.glob("p-*/*.log"))]
    indexes = [one for segment in segments for one in (segment.offset_index, segment.time_index)]
    indexes += [kafkalog.TransactionIndex.open(path) for path in log_dir.glob("p-*/*.txnindex")]
    indexes += [kafkalog.ProducerSnapshot.open(path) for path in log_dir.glob("p-*/*.snapshot")]
    assert {type(one).__name__ for one in indexes if one is not None and len(one)} == {
        *("OffsetIndex", "TimeIndex", "TransactionIndex", "ProducerSnapshot")
    }
    for one in filter(None, indexes):
        array = np.asarray(one)
        assert array.dtype.isnative
        assert array.tolist() == one.to_numpy().tolist() == one.entries.tolist() == one[:].tolist()
        assert len(one) == array.size
        assert one.nbytes == array.nbytes
        for name, column in one.columns().items():
            assert column.dtype.isnative
            assert one[name].tolist() == getattr(one, name).tolist() == column.tolist(), name
            assert name in dir(one)
        if len(one):
            assert one[-1] == array[-1]
            assert one[-1].dtype.isnative
        with pytest.raises(KeyError, match=f"no column 'nope' here; there are {next(iter(one.columns()))}"):
            one["nope"]
        with pytest.raises(ValueError, match="big-endian array of the file"):
            np.asarray(one, copy=False)
        with pytest.raises(AttributeError, match="'nope'"):
            one.nope  # noqa: B018


def test_an_index_is_built_and_checked_with_a_segment_or_its_batches(log_dir):
    for path in sorted(log_dir.glob("p-zstd-java-0/*.log")):
        segment = kafkalog.open_segment(path)
        for kind, index in ((OffsetIndex, segment.offset_index), (TimeIndex, segment.time_index)):
            built = kind.build(segment, index_interval_bytes=1024)
            same = kind.build(segment.batches, segment.base_offset, index_interval_bytes=1024)
            assert built.tobytes() == same.tobytes()
            expected = index.check(segment.iter_batches())
            assert index.check(segment) == index.check(segment.batches) == index.check([segment.batches]) == expected
            assert built[1:].size
            wrong = kind(built.entries[::-1].copy(), segment.base_offset)
            assert wrong.check(segment) == wrong.check(segment.iter_batches()) != []
    segment = kafkalog.open_partition(log_dir / "p-txn-0").segments[-1]
    found = segment.transaction_index.check(segment.iter_batches()) if segment.transaction_index else []
    assert (segment.transaction_index.check(segment) if segment.transaction_index else []) == found
    index = kafkalog.OffsetIndex.build(segment)
    for call, meant in (
        (lambda: OffsetIndex.build(segment.batches), "base offset of the segment is needed"),
        (lambda: OffsetIndex.build(str(path)), r"not str: kafkalog.open_segment\(path\)"),
        (lambda: OffsetIndex.build(segment, interval=5), "use index_interval_bytes="),
        (lambda: TimeIndex.build(), "build needs batches="),
        (lambda: index.check(path), "kafkalog.open_segment"),
        (lambda: index.check(segment, isolation=1), "check has no option 'isolation'"),
    ):
        with pytest.raises(TypeError, match=meant):
            call()
