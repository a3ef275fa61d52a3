"""Arrow in any of its shapes becomes the record columns that it says, or is refused with the column and the row."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from arrow_records import refusal, rows, stamps, values
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import Reason
from kafkalog.interchange.arrow_input import record_slices
from kafkalog.records.columns import RecordColumns


@pytest.mark.parametrize("zone", ["UTC", "+02:00", "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_any_unit_and_zone_are_milliseconds(unit, factor, zone):
    array = pa.array([0, None, 1_700_000_000 * factor], pa.timestamp(unit, zone))
    assert stamps(array) == [0, -1, 1_700_000_000_000]
    assert stamps(array.slice(1)) == [-1, 1_700_000_000_000]


def test_integers_are_milliseconds_and_null_is_none():
    for kind in (pa.int64(), pa.uint64(), pa.int32()):
        assert stamps(pa.array([5, None, 0], kind)) == [5, -1, 0]
    assert stamps(pa.array([-1, 7])) == [-1, 7]
    assert stamps(pa.nulls(2)) == [-1, -1]
    assert [row[0] for row in rows(record_slices({"value": [b"x"]}))] == [-1]


def test_a_timestamp_without_a_zone_needs_to_be_told_one():
    naive = pa.array([dt.datetime(2024, 7, 1, 12)], pa.timestamp("us"))
    error = refusal({"value": pa.nulls(1), "timestamp": naive})
    assert error.reason is Reason.COLUMN_TYPE
    assert "time zone" in str(error)
    noon = 1_719_835_200_000
    assert stamps(naive, naive_timezone="UTC") == [noon]
    assert stamps(naive, naive_timezone="Europe/Berlin") == [noon - 2 * 3_600_000]
    options = {"naive_timezone": "Nowhere/Atall"}
    assert "Nowhere" in str(refusal({"value": pa.nulls(1), "timestamp": naive}, **options))


def test_what_is_finer_than_a_millisecond_is_cut_only_when_asked():
    fine = pa.array([1_000_000, 1_000_001, 1_999_999], pa.timestamp("ns", "UTC"))
    error = refusal({"value": pa.nulls(3), "timestamp": fine})
    assert error.row == 1
    assert "finer than a millisecond" in str(error)
    assert stamps(fine, truncate_timestamps=True) == [1, 1, 1]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0, 2**62], pa.timestamp("s", "UTC")),
        pa.array([0, -(2**63)], pa.timestamp("s", "UTC")),
        pa.array([0, 2**63], pa.uint64()),
    ],
)
def test_a_timestamp_that_no_record_can_have_is_refused(array):
    error = refusal({"value": pa.nulls(2), "timestamp": array})
    assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_moment_becomes_none_by_being_cut(unit):
    factor = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    for early in {-1, -factor // 1000, 1 - factor // 1000, -factor // 2000, -factor, -2 * factor // 1000}:
        for zone in ("UTC", None):
            array = pa.array([0, early], pa.timestamp(unit, zone))
            how = {} if zone else {"naive_timezone": "UTC"}
            whole, rest = divmod(early * 1000, factor)
            if not rest:  # -1 ms is what a scan gives for a record without one, in any engine's unit
                assert stamps(array, **how) == stamps(array, truncate_timestamps=True, **how) == [0, whole]
                continue
            error = refusal({"value": pa.nulls(2), "timestamp": array}, **how)
            assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)
            if whole == -1:
                error = refusal({"value": pa.nulls(2), "timestamp": array}, truncate_timestamps=True, **how)
                assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)
                assert "which means no timestamp" in str(error)
            else:
                assert stamps(array, truncate_timestamps=True, **how) == [0, whole]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": pa.array([1])}, ["key", "int64", "binary"]),
        ({"value": pa.array([1.5])}, ["value", "double"]),
        ({"timestamp": pa.array(["2024-01-01"])}, ["timestamp", "string"]),
        ({"timestamp": pa.array([dt.date(2024, 1, 1)])}, ["timestamp", "date32"]),
        ({"offset": pa.array(["1"])}, ["offset", "string"]),
        ({"headers": pa.array(["a=b"])}, ["headers", "string"]),
        ({"headers": pa.array([[1]])}, ["headers", "int64"]),
        ({"headers": pa.array([[{"key": "a"}]])}, ["headers", "struct"]),
        ({"headers": pa.array([[{"key": "a", "value": b"", "more": 1}]])}, ["headers", "more"]),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(columns, words):
    error = refusal({"value": [b"x"], **columns})
    assert error.reason is Reason.COLUMN_TYPE
    assert all(word in str(error) for word in words)


def test_columns_that_are_not_known_are_refused_unless_they_are_ignored():
    data = {"value": [b"x"], "created": [1], "colour": ["red"]}
    error = refusal(data)
    assert error.reason is Reason.COLUMN_UNKNOWN
    assert "'created', 'colour'" in str(error)
    assert "ignore_columns" in str(error)
    assert "'colour'" in str(refusal(data, ignore_columns=["created"]))
    assert values(data, ignore_columns=["created", "colour"]) == [b"x"]
    assert values(data, ignore_columns=True) == [b"x"]
    assert rows(record_slices(data, columns={"timestamp": "created"}, ignore_columns="colour"))[0][0] == 1


def test_columns_are_named_by_what_they_are():
    data = {"id": ["a"], "body": [b"x"], "value": [b"other"], "at": [5]}
    names = {"key": "id", "value": "body", "timestamp": "at"}
    assert rows(record_slices(data, columns=names)) == [(5, b"a", b"x", [])]
    with pytest.raises(kafkalog.errors.UnknownNameError, match="'gone'"):
        refusal(data, columns={"key": "gone"}, ignore_columns=True)
    with pytest.raises(ValueError, match="columns"):
        list(record_slices(data, columns={"what": "id"}))


def test_a_table_without_values_or_with_a_column_twice_is_refused():
    assert refusal({"key": [b"x"]}).reason is Reason.COLUMN_MISSING
    twice = pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    assert refusal(twice).reason is Reason.COLUMN_TWICE


def test_what_a_scan_gives_can_be_written_again_and_markers_cannot():
    table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
    assert len(rows(record_slices(table))) == table.num_rows > 0
    assert [row[2] for row in rows(record_slices(table))] == table.column("value").to_pylist()
    marked = {"value": [b"x", b"y"], "is_control": [False, True]}
    assert refusal(marked).row == 1


def test_offsets_are_kept_and_may_be_neither_null_nor_negative():
    (part,) = record_slices({"value": [b"a", b"b"], "offset": pa.array([7, 9], pa.uint32())})
    assert part.offset.tolist() == [7, 9]
    assert refusal({"value": [b"a", b"b"], "offset": [7, None]}).row == 1
    assert refusal({"value": [b"a", b"b"], "offset": [7, -1]}).row == 1
    (part,) = record_slices({"value": [b"a"]})
    assert "offset" not in part


def test_rows_in_messages_count_from_the_beginning_of_the_data():
    table = pa.concat_tables([pa.table({"value": [b"x"] * 5, "offset": [1] * 5})] * 3)
    table = table.set_column(1, "offset", pa.chunked_array([[1] * 7, [1] * 4 + [-9] + [1] * 3]))
    assert refusal(table).row == 11


def _polars(table):
    return pytest.importorskip("polars").from_arrow(table)


def _duckdb(table):
    return pytest.importorskip("duckdb").from_arrow(table)


def _pandas(table):
    pytest.importorskip("pandas")
    return table.to_pandas()


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table,
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: table.to_reader(),
        lambda table: {name: table.column(name) for name in table.column_names},
        lambda table: {name: table.column(name).to_pylist() for name in table.column_names},
        lambda table: pa.dataset.dataset(table),
        _pandas,
        _polars,
        _duckdb,
    ],
    ids=["table", "batch", "reader", "dict", "lists", "dataset", "pandas", "polars", "duckdb"],
)
def test_everything_that_speaks_arrow_is_taken(make):
    import pyarrow.dataset  # noqa: F401

    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "timestamp": pa.array([1, 2, 3], pa.timestamp("ms", "UTC")),
            "key": pa.array([b"k", None, b""]),
            "value": pa.array([None, b"", b"v" * 30]),
            "headers": pa.array([[], [{"key": "a", "value": b"1"}], [{"key": "b", "value": None}]], pa.list_(pair)),
        }
    )
    assert rows(record_slices(make(table))) == [
        (1, b"k", None, []),
        (2, None, b"", [(b"a", b"1")]),
        (3, b"", b"v" * 30, [(b"b", None)]),
    ]


def test_an_index_with_a_name_is_a_column_and_one_without_is_none():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [b"a", b"b"], "value": [b"x", b"y"]})
    assert values(frame[1:]) == [b"y"]
    assert [row[1] for row in rows(record_slices(frame.set_index("key")))] == [b"a", b"b"]


def test_what_does_not_speak_arrow_is_a_type_error():
    for data in (None, 5, "orders.parquet", [b"x"], object()):
        with pytest.raises(TypeError):
            list(record_slices(data))
    assert refusal({"value": [b"x", "y", 3]}).reason is Reason.COLUMN_TYPE
    assert refusal({"value": [b"x"], "key": [b"x", b"y"]}).reason is Reason.COLUMN_TYPE


def test_slices_are_bounded_and_whole(monkeypatch):
    sizes = [0, 10, 10, 1000, 5, 5, 5, 80]
    table = pa.table({"value": [b"v" * size for size in sizes], "key": [b""] * 8})
    parts = list(record_slices(table, max_bytes=100))
    assert [np.diff(part.value.offsets).tolist() for part in parts] == [[0, 10, 10], [1000], [5, 5, 5, 80]]
    again = [part for columns in parts for part in record_slices(columns, max_bytes=20)]
    assert [part.n_records for part in again] == [3, 1, 3, 1]
    monkeypatch.setattr("kafkalog.interchange.arrow_input.SLICE_ROWS", 3)
    assert [part.n_records for part in record_slices(table)] == [3, 3, 2]
    assert list(record_slices(table[:0])) == []
    assert list(record_slices(RecordColumns.empty(["value"]))) == []


BLOBS = st.none() | st.binary(max_size=20)
HEADER = st.tuples(st.text(max_size=4).map(str.encode), BLOBS)
ROWS = st.lists(
    st.tuples(
        st.integers(-1, 2**62), BLOBS, BLOBS, st.lists(HEADER, max_size=3)
    ),
    max_size=30,
)  # fmt: skip


@given(ROWS, st.integers(1, 200), st.data())
def test_records_come_out_as_they_went_in(records, max_bytes, data):
    start = data.draw(st.integers(0, len(records)))
    binary = data.draw(st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
    make = data.draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))
    pair = pa.struct(
        [("key", data.draw(st.sampled_from([pa.string(), pa.binary(), pa.string_view()]))), ("value", binary)]
    )
    table = pa.table(
        {
            "timestamp": pa.array([row[0] for row in records], pa.timestamp("ms", "UTC")),
            "key": pa.array([row[1] for row in records], binary),
            "value": pa.array([row[2] for row in records], binary),
            "headers": pa.array([[{"key": k, "value": v} for k, v in row[3]] for row in records], make(pair)),
        }
    )  # fmt: skip
    assert rows(record_slices(table.slice(start), max_bytes=max_bytes)) == records[start:]


def test_a_value_that_is_there_but_taken_or_left_out_is_said_to_be():
    data = {"value": [b"x"]}
    assert "is used as the key" in str(refusal(data, columns={"key": "value"}))
    assert "is left out" in str(refusal(data, ignore_columns=["value"]))
