"""Arrow in any of its shapes becomes the record columns that it says, or is refused with the column and the row."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange import arrow_input
from kafkalog.interchange.arrow_input import record_slices
from kafkalog.records.columns import RecordColumns

Row = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
PAIR_TYPES = [(pa.string(), pa.binary()), (pa.binary(), pa.binary_view()), (pa.string_view(), pa.string())]
TEXTS = [b"a", None, b"", "ü".encode(), b"x" * 40, None, b"last"]


def rows(slices: Any) -> list[Row]:
    """Timestamp, key, value and headers of all records."""
    return [
        row
        for part in slices
        for row in zip(
            part.timestamp.tolist(),
            part.key.to_pylist(),
            part.value.to_pylist(),
            part.headers.to_pylist(),
            strict=True,
        )
    ]


def values(data: Any, **options: Any) -> list[bytes | None]:
    return [row[2] for row in rows(record_slices(data, **options))]


def stamps(array: Any, **options: Any) -> list[int]:
    return [row[0] for row in rows(record_slices({"value": pa.nulls(len(array)), "timestamp": array}, **options))]


def refusal(data: Any, **options: Any) -> UnwritableError:
    with pytest.raises(UnwritableError) as caught:
        list(record_slices(data, **options))
    return caught.value


def _text(kind: pa.DataType) -> pa.Array:
    return pa.array([None if text is None else text.decode() for text in TEXTS], kind)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(TEXTS, pa.binary()),
        pa.array(TEXTS, pa.large_binary()),
        pa.array(TEXTS, pa.binary_view()),
        _text(pa.string()),
        _text(pa.large_string()),
        _text(pa.string_view()),
        _text(pa.string()).dictionary_encode(),
        pa.array(TEXTS, pa.binary()).dictionary_encode(),
        pa.compute.run_end_encode(_text(pa.string())),
        pa.ExtensionArray.from_storage(pa.json_(), _text(pa.string())),
    ],
    ids=lambda array: str(array.type)[:40],
)
def test_keys_and_values_of_any_type_of_bytes_are_taken(array: pa.Array) -> None:
    assert values({"value": array}) == TEXTS
    assert [row[1] for row in rows(record_slices({"value": array, "key": array}))] == TEXTS
    for start, stop in itertools.combinations(range(len(TEXTS) + 1), 2):
        assert values({"value": array.slice(start, stop - start)}) == TEXTS[start:stop]


def test_bytes_of_a_fixed_size_and_nulls_alone_are_taken() -> None:
    fixed = pa.array([b"ab", None, b"cd"], pa.binary(2))
    assert values({"value": fixed}) == [b"ab", None, b"cd"]
    assert values({"value": fixed.slice(2)}) == [b"cd"]
    assert values({"value": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)).slice(1)}) == [b"cd", b"ef"]
    assert values({"value": pa.array([b"", None], pa.binary(0))}) == [b"", None]
    assert values({"value": pa.nulls(3)}) == [None] * 3


def test_bytes_below_a_null_are_no_part_of_a_record() -> None:
    data = pa.py_buffer(b"abc")
    array = pa.Array.from_buffers(
        pa.binary(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), data]
    )
    (part,) = record_slices({"value": array})
    assert part.value.to_pylist() == [b"a", None, b"c"]
    assert part.value.offsets.tolist() == [0, 1, 1, 2]


def test_bytes_are_shared_where_they_can_be() -> None:
    array = pa.array([b"abc", b"defg"])
    (part,) = record_slices({"value": array})
    assert part.value.data.__array_interface__["data"][0] == array.buffers()[2].address


@pytest.mark.parametrize(
    "kind",
    [
        *(make(pa.struct([("key", key), ("value", value)])) for make in (pa.list_, pa.large_list, pa.list_view)
          for key, value in PAIR_TYPES),
        pa.large_list_view(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.binary(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_headers_of_any_shape_are_taken(kind: pa.DataType) -> None:
    pairs = [[("a", "1"), ("a", None)], None, [], [("", ""), ("é", "2"), ("b", "3")], [("z", None)]]
    expected = [[(k.encode(), None if v is None else v.encode()) for k, v in each or []] for each in pairs]
    field = kind.value_type.field("value") if not pa.types.is_map(kind) else kind.item_field
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    given_pairs: list[Any] = [
        None if each is None else [(k, v if is_text or v is None else v.encode()) for k, v in each] for each in pairs
    ]
    if not pa.types.is_map(kind):
        given_pairs = [each and [{"key": k, "value": v} for k, v in each] for each in given_pairs]
    array = pa.array(given_pairs, kind)
    for start, stop in itertools.combinations(range(len(pairs) + 1), 2):
        got = rows(record_slices({"value": pa.nulls(stop - start), "headers": array.slice(start, stop - start)}))
        assert [row[3] for row in got] == expected[start:stop]


def test_lists_of_one_size_and_lists_of_nothing_are_headers_too() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    fixed = pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}]], pa.list_(pair, 1))
    got = rows(record_slices({"value": pa.nulls(3), "headers": fixed}))
    assert [row[3] for row in got] == [[(b"a", b"1")], [], [(b"b", None)]]
    for nothing in (pa.nulls(2), pa.array([[], []]), pa.array([[], None], pa.list_(pair))):
        assert [row[3] for row in rows(record_slices({"value": pa.nulls(2), "headers": nothing}))] == [[], []]


def test_headers_in_python_are_pairs_or_dicts() -> None:
    for headers in ([[("a", b"1"), ("a", None)], []], [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []]):
        got = rows(record_slices({"value": [b"x", b"y"], "headers": headers}))
        assert [row[3] for row in got] == [[(b"a", b"1"), (b"a", None)], []]


@pytest.mark.parametrize("zone", ["UTC", "+02:00", "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_any_unit_and_zone_are_milliseconds(unit: str, factor: int, zone: str) -> None:
    array = pa.array([0, None, 1_700_000_000 * factor], pa.timestamp(unit, zone))
    assert stamps(array) == [0, -1, 1_700_000_000_000]
    assert stamps(array.slice(1)) == [-1, 1_700_000_000_000]


def test_integers_are_milliseconds_and_null_is_none() -> None:
    for kind in (pa.int64(), pa.uint64(), pa.int32()):
        assert stamps(pa.array([5, None, 0], kind)) == [5, -1, 0]
    assert stamps(pa.array([-1, 7])) == [-1, 7]
    assert stamps(pa.nulls(2)) == [-1, -1]
    assert [row[0] for row in rows(record_slices({"value": [b"x"]}))] == [-1]


def test_a_timestamp_without_a_zone_needs_to_be_told_one() -> None:
    naive = pa.array([dt.datetime(2024, 7, 1, 12)], pa.timestamp("us"))
    error = refusal({"value": pa.nulls(1), "timestamp": naive})
    assert error.reason is Reason.COLUMN_TYPE
    assert "time zone" in str(error)
    noon = 1_719_835_200_000
    assert stamps(naive, naive_timezone="UTC") == [noon]
    assert stamps(naive, naive_timezone="Europe/Berlin") == [noon - 2 * 3_600_000]
    options = {"naive_timezone": "Nowhere/Atall"}
    assert "Nowhere" in str(refusal({"value": pa.nulls(1), "timestamp": naive}, **options))


def test_what_is_finer_than_a_millisecond_is_cut_only_when_asked() -> None:
    fine = pa.array([1_000_000, 1_000_001, 1_999_999], pa.timestamp("ns", "UTC"))
    error = refusal({"value": pa.nulls(3), "timestamp": fine})
    assert error.row == 1
    assert "finer than a millisecond" in str(error)
    assert stamps(fine, truncate_timestamps=True) == [1, 1, 1]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0, -2]),
        pa.array([0, -2], pa.timestamp("ms", "UTC")),
        pa.array([0, 2**62], pa.timestamp("s", "UTC")),
        pa.array([0, -(2**63)], pa.timestamp("s", "UTC")),
        pa.array([0, 2**63], pa.uint64()),
    ],
)
def test_a_timestamp_that_no_record_can_have_is_refused(array: pa.Array) -> None:
    error = refusal({"value": pa.nulls(2), "timestamp": array})
    assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_moment_becomes_none_by_being_cut(unit: str) -> None:
    factor = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    for early in {-1, -factor // 1000, 1 - factor // 1000, -factor // 2000, -factor, -2 * factor // 1000}:
        array = pa.array([0, early], pa.timestamp(unit, "UTC"))
        if early * 1000 == -factor:  # what a scan gives for a record without one, in any engine's unit
            assert stamps(array) == stamps(array, truncate_timestamps=True) == [0, -1]
        elif early < 0:
            for options in ({}, {"truncate_timestamps": True}):
                error = refusal({"value": pa.nulls(2), "timestamp": array}, **options)
                assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)
                assert "before 1970" in str(error)
        naive = pa.array([0, early], pa.timestamp(unit))
        if early < 0:
            error = refusal({"value": pa.nulls(2), "timestamp": naive}, naive_timezone="UTC", truncate_timestamps=True)
            assert "before 1970" in str(error)


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
def test_a_column_of_another_type_is_refused_by_name(columns: dict[str, Any], words: list[str]) -> None:
    error = refusal({"value": [b"x"], **columns})
    assert error.reason is Reason.COLUMN_TYPE
    assert all(word in str(error) for word in words)


def test_columns_that_are_not_known_are_refused_unless_they_are_ignored() -> None:
    data = {"value": [b"x"], "created": [1], "colour": ["red"]}
    error = refusal(data)
    assert error.reason is Reason.COLUMN_UNKNOWN
    assert "'created', 'colour'" in str(error)
    assert "ignore_columns" in str(error)
    assert "'colour'" in str(refusal(data, ignore_columns=["created"]))
    assert values(data, ignore_columns=["created", "colour"]) == [b"x"]
    assert values(data, ignore_columns=True) == [b"x"]
    assert rows(record_slices(data, columns={"timestamp": "created"}, ignore_columns="colour"))[0][0] == 1


def test_columns_are_named_by_what_they_are() -> None:
    data = {"id": ["a"], "body": [b"x"], "value": [b"other"], "at": [5]}
    names = {"key": "id", "value": "body", "timestamp": "at"}
    assert rows(record_slices(data, columns=names)) == [(5, b"a", b"x", [])]
    assert "'gone'" in str(refusal(data, columns={"key": "gone"}, ignore_columns=True))
    with pytest.raises(ValueError, match="none of offset"):
        list(record_slices(data, columns={"what": "id"}))


def test_a_table_without_values_or_with_a_column_twice_is_refused() -> None:
    assert refusal({"key": [b"x"]}).reason is Reason.COLUMN_MISSING
    twice = pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    assert refusal(twice).reason is Reason.COLUMN_TWICE


def test_what_a_scan_gives_can_be_written_again_and_markers_cannot() -> None:
    table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
    assert len(rows(record_slices(table))) == table.num_rows > 0
    assert [row[2] for row in rows(record_slices(table))] == table.column("value").to_pylist()
    marked = {"value": [b"x", b"y"], "is_control": [False, True]}
    assert refusal(marked).row == 1


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        (pa.array([[], [("a", b""), (b"\xff\xfe", b"")]], pa.map_(pa.binary(), pa.binary())), "header 1 .* not UTF-8"),
        (pa.array([[], [{"key": None, "value": b""}]]), "header 0 has no key"),
        (pa.array([[], [None]], pa.list_(PAIR)), "header 0 is null"),
        (pa.array([[], [None]]), "header 0 is null"),
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_refused_with_its_place(headers: pa.Array, what: str) -> None:
    error = refusal({"value": [b"x", b"y"], "headers": headers})
    assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)
    with pytest.raises(UnwritableError, match=what):
        list(record_slices({"value": [b"x", b"y"], "headers": headers}))


def test_text_that_is_not_utf_8_is_refused() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    assert refusal({"value": bad}).reason is Reason.COLUMN_VALUE
    pairs = pa.StructArray.from_arrays([bad, pa.array([b""])], names=["key", "value"])
    assert refusal({"value": [b""], "headers": pa.ListArray.from_arrays([0, 1], pairs)}).reason is Reason.COLUMN_VALUE


def test_an_array_whose_offsets_lead_out_of_its_bytes_is_refused() -> None:
    for offsets in ([0, 100, 3], [0, 3, 2, 3], [0, -1, 3]):
        places = pa.py_buffer(np.array(offsets, np.int32))
        array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, places, pa.py_buffer(b"abc")])
        assert refusal(pa.RecordBatch.from_arrays([array], names=["value"])).reason is Reason.COLUMN_VALUE


def test_offsets_are_kept_and_may_be_neither_null_nor_negative() -> None:
    (part,) = record_slices({"value": [b"a", b"b"], "offset": pa.array([7, 9], pa.uint32())})
    assert part.offset.tolist() == [7, 9]
    assert refusal({"value": [b"a", b"b"], "offset": [7, None]}).row == 1
    assert refusal({"value": [b"a", b"b"], "offset": [7, -1]}).row == 1
    (part,) = record_slices({"value": [b"a"]})
    assert "offset" not in part


def test_rows_in_messages_count_from_the_beginning_of_the_data() -> None:
    table = pa.concat_tables([pa.table({"value": [b"x"] * 5, "timestamp": [1] * 5})] * 3)
    table = table.set_column(1, "timestamp", pa.chunked_array([[1] * 7, [1] * 4 + [-9] + [1] * 3]))
    assert refusal(table).row == 11


def _polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def _duckdb(table: pa.Table) -> Any:
    return pytest.importorskip("duckdb").from_arrow(table)


def _pandas(table: pa.Table) -> Any:
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
def test_everything_that_speaks_arrow_is_taken(make: Callable[[pa.Table], Any]) -> None:
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


def test_an_index_with_a_name_is_a_column_and_one_without_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [b"a", b"b"], "value": [b"x", b"y"]})
    assert values(frame[1:]) == [b"y"]
    assert [row[1] for row in rows(record_slices(frame.set_index("key")))] == [b"a", b"b"]


def test_what_does_not_speak_arrow_is_a_type_error() -> None:
    for data in (None, 5, "orders.parquet", [b"x"], object()):
        with pytest.raises(TypeError, match="speaks Arrow"):
            list(record_slices(data))
    assert refusal({"value": [b"x", "y", 3]}).reason is Reason.COLUMN_TYPE
    assert refusal({"value": [b"x"], "key": [b"x", b"y"]}).reason is Reason.COLUMN_TYPE


def test_slices_are_bounded_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_records_come_out_as_they_went_in(records: list[Row], max_bytes: int, data: st.DataObject) -> None:
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


# ------------------------------------------------------------------------------------------------ dictionaries and runs


def _encoded(kind: str, texts: pa.Array, places: list[int | None]) -> pa.Array:
    """One of some values for each row, as a dictionary or as runs."""
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), texts)
    values = pa.array([None if place is None else texts[place].as_py() for place in places], texts.type)
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(2, 2 * len(places) + 2, 2), pa.int32()), values)


@pytest.mark.parametrize("kind", ["dictionary", "runs"])
@pytest.mark.parametrize("text", [pa.string(), pa.string_view(), pa.binary_view(), pa.large_binary()])
def test_dictionaries_and_runs_of_any_bytes_are_taken_by_their_decoded_size(
    kind: str, text: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_input, "DECODED_BYTES", 300)
    texts = pa.array(
        [b"x" * 100, None, b"y" * 250]
        if text in (pa.binary_view(), pa.large_binary())
        else ["x" * 100, None, "y" * 250],
        text,
    )
    array = _encoded(kind, texts, [0, 2, 1, None, 0, 2])
    for first in (0, 1):
        batch = pa.record_batch({"value": array}).slice(first)
        parts = list(arrow_input.slices(batch))
        decoded = [len(value or "") for value in batch.column(0).to_pylist()]
        assert len(parts) >= sum(decoded) // 300
        assert all(part.num_rows == 1 or part.num_rows < len(batch) for part in parts)
        expected = [{0: None, 100: b"x" * 100, 250: b"y" * 250}[size] for size in decoded]
        assert values(pa.Table.from_batches([batch])) == expected


def test_a_categorical_of_polars_is_taken_as_a_key() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": ["a", None, "a", "b"], "value": ["v"] * 4})
    frame = frame.with_columns(polars.col("key").cast(polars.Categorical))
    assert [row[1] for row in rows(record_slices(frame))] == [b"a", None, b"a", b"b"]


def test_a_value_that_is_there_but_taken_or_left_out_is_said_to_be() -> None:
    data = {"value": [b"x"]}
    assert "is to be the key" in str(refusal(data, columns={"key": "value"}))
    assert "is left out" in str(refusal(data, ignore_columns=["value"]))
