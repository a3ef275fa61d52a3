"""Columns of records take rows as NumPy arrays do, and agree with lists of Python."""

import contextlib
import gc
import io
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn, as_views, row_numbers
from kafkalog.records.columns import RecordColumns, sized_slices

VALUES = st.one_of(st.none(), st.binary(max_size=20), st.just(b"\0\0"), st.binary(min_size=13, max_size=40))
NAMES = st.text(st.characters(codec="utf-8"), max_size=3).map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), VALUES, HEADERS), max_size=12)


def columns_of(records):
    offset = np.array([record[0] for record in records], np.int64)
    value, headers = (
        BinaryColumn.of([record[1] for record in records]),
        HeadersColumn.of([record[2] for record in records]),
    )
    # no scan returns both, but records may have any columns
    return RecordColumns(len(records), {"offset": offset, "value": value, "views": as_views(value), "headers": headers})


def listed(columns):
    lists = [columns["offset"].tolist(), *(columns[name].to_pylist() for name in ("value", "views", "headers"))]
    assert lists[1] == lists[2]
    return [(offset, value, headers) for offset, value, _, headers in zip(*lists, strict=True)]


@st.composite
def records_and_rows(draw):
    records = draw(RECORDS)
    n = len(records)
    slices = st.builds(slice, *[st.one_of(st.none(), st.integers(-15, 15))] * 2, st.sampled_from([None, 1, 2, -1, -3]))
    kinds = [slices, st.lists(st.booleans(), min_size=n, max_size=n)]
    if n:
        kinds.append(st.lists(st.integers(-n, n - 1), max_size=20))
    return records, draw(st.one_of(kinds)), draw(st.sampled_from([list, np.array, tuple]))


def python_rows(records, rows):
    if isinstance(rows, slice):
        return records[rows]
    if rows and isinstance(rows[0], bool):
        return [record for record, is_taken in zip(records, rows, strict=True) if is_taken]
    return [records[row] for row in rows]


@settings(max_examples=trials(20, 500), deadline=None)
@given(records_and_rows())
def test_rows_are_those_of_a_list(drawn):
    records, rows, make = drawn
    columns = columns_of(records)
    wanted = python_rows(records, rows)
    given_rows = rows if isinstance(rows, slice) else make(rows) if rows else np.array([], np.int64)
    assert listed(columns[given_rows]) == wanted
    assert listed(columns.take(given_rows)) == wanted
    assert listed(pickle.loads(pickle.dumps(columns)).take(given_rows)) == wanted
    for name, place in (("value", 1), ("views", 1), ("headers", 2)):
        assert columns[name][given_rows].to_pylist() == [record[place] for record in wanted]
        assert [columns[name][row] for row in range(len(records))] == [record[place] for record in records]
        array = np.asarray(columns[name])
        assert array.dtype == object
        assert array.tolist() == [record[place] for record in records]
        half = columns[name][len(records) // 2 :]
        assert pickle.loads(pickle.dumps(half)).to_pylist() == [
            record[place] for record in records[len(records) // 2 :]
        ]
        parts = [columns[name], half, columns[name][given_rows]]
        assert type(half).concatenate(parts).to_pylist() == [value for part in parts for value in part.to_pylist()]
    joined = RecordColumns.concatenate([columns, columns[given_rows]])
    assert listed(joined) == records + wanted
    taken = columns[given_rows]
    assert of_arrow(taken.to_arrow().to_pylist()) == wanted
    assert of_arrow(pa.table(joined).to_pylist()) == of_arrow(pa.record_batch(joined).to_pylist()) == records + wanted
    for some in (taken, joined):
        file = io.BytesIO()
        np.savez(file, **some.to_arrays())
        with np.load(io.BytesIO(file.getvalue()), allow_pickle=False) as saved:
            assert listed(RecordColumns.from_arrays(saved)) == listed(some)
            shuffled = dict(sorted(saved.items(), reverse=True))
        assert listed(RecordColumns.from_arrays(shuffled)) == listed(some)
        assert some.nbytes == sum(column.nbytes for column in some.values()) > 0
    frame = taken.to_pandas()
    assert frame["offset"].tolist() == [record[0] for record in wanted]
    assert frame["value"].tolist() == frame["views"].tolist() == [record[1] for record in wanted]
    assert len(taken) == len(wanted) == len(frame)
    assert [*taken] == [*taken.keys()] == [name for name, _ in taken.items()] == ["offset", "value", "views", "headers"]
    for key in {b"", *(key for record in records[:3] for key, _ in record[2])}:
        with contextlib.suppress(UnicodeDecodeError):
            values = [dict(headers).get(key) for _, _, headers in records + wanted]
            assert joined["headers"].get(key.decode()).to_pylist() == values
    for name, place in (("value", 1), ("views", 1)):
        values = [record[place] for record in records + wanted]
        column = joined[name]
        codes, keys = column.factorize()
        assert [None if code < 0 else keys[code] for code in codes.tolist()] == values
        assert sorted(keys.to_pylist()) == sorted({*values} - {None})
        by_value = sorted(range(len(values)), key=lambda row: (values[row] is None, values[row] or b""))
        assert np.argsort(column).tolist() == by_value
        others = [*reversed(values)]
        for other in (joined["value"][::-1], joined["views"][::-1], others, tuple(others), np.array(others, object)):
            assert (column == other).tolist() == [one == two for one, two in zip(values, others, strict=True)]
            assert (column != other).tolist() == [one != two for one, two in zip(values, others, strict=True)]
        assert (column == None).tolist() == column.is_null().tolist()  # noqa: E711
        assert column.lengths.tolist() == [len(value or b"") for value in values]
        assert column.is_null().tolist() == [value is None for value in values]
        for value in {b"", b"a", *(value for value in values[:2] if value is not None)}:
            assert (column == value).tolist() == [item == value for item in values]
            assert (column != value).tolist() == [item != value for item in values]
        assert pa.array(column).to_pylist() == pa.chunked_array(column).to_pylist() == values
        assert column.to_arrow(pa.binary_view()).to_pylist() == column.to_pandas().tolist() == values
    assert joined["value"].to_arrow(pa.large_binary()).to_pylist() == joined["value"].to_pylist()
    assert pa.array(joined["headers"]).to_pylist() == pa.table(joined)["headers"].to_pylist()


@settings(max_examples=trials(100, 500), deadline=None)
@given(RECORDS, st.integers(0, 12), st.integers(1, 5), st.integers(0, 3))
def test_slices_are_as_large_as_their_bounds_allow(records, max_bytes, max_records, skipped):
    """Of keys, values and headers together, also where the columns are parts of larger ones."""
    columns, records = columns_of(records)[skipped:], records[skipped:]
    sizes = [
        len(value or b"") + sum(len(name) + len(given or b"") for name, given in headers)
        for _, value, headers in records
    ]
    found = [listed(part) for part in sized_slices(columns, max_bytes, max_records)]
    assert [row for part in found for row in part] == listed(columns)
    at = 0
    for part in found:
        end = at + len(part)
        assert part
        assert len(part) == 1 or (len(part) <= max_records and sum(sizes[at:end]) <= max_bytes)
        assert end == len(records) or len(part) == max_records or sum(sizes[at : end + 1]) > max_bytes
        at = end


def test_headers_count_for_the_size_of_record_batches(tmp_path, monkeypatch):
    headers = [[("trace", bytes(600))]] * 8
    kafkalog.write_table({"value": [b"v"] * 8, "headers": headers}, tmp_path / "log", topic="t")
    monkeypatch.setattr("kafkalog.scanning.scan.MAX_BATCH_BYTES", 1500)
    scan = kafkalog.scan(tmp_path / "log", filters=[("value", "==", b"v")])
    assert [len(batch) for batch in scan.to_batches()] == [2] * 4


def of_arrow(rows):
    """The records of rows of Arrow; names of headers are text there."""
    assert all(row["value"] == row["views"] for row in rows)
    return [
        (row["offset"], row["value"], [(pair["key"].encode(), pair["value"]) for pair in row["headers"]])
        for row in rows
    ]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ([3], IndexError, "row 3 of 3"),
        ([-4], IndexError, "row -4 of 3"),
        ([True, False], IndexError, "a mask of 2 rows for 3 rows"),
        ([0.5], TypeError, "whole numbers, a mask or a slice, not float64"),
        (BinaryColumn.of([]).is_null, TypeError, r"not a method: call it, is_null\(\)"),
        ([[0]], IndexError, "one dimension, not 2"),
        (["value"], TypeError, "whole numbers, a mask or a slice"),
    ],
)
def test_rows_that_there_are_not_are_refused(rows, error, text):
    columns = columns_of([(0, b"a", []), (1, None, [(b"k", b"v")]), (2, b"c", [])])
    for column in (columns, columns["value"], columns["views"], columns["headers"]):
        with pytest.raises(error, match=text):
            column.take(rows)
    assert row_numbers([], 3).dtype == np.int64


def test_values_of_one_size_are_numbers_without_a_copy():
    numbers = np.array([5, -1, 2**40], ">i8")
    column = BinaryColumn.of([numbers[row : row + 1].tobytes() for row in range(3)])
    assert column.as_dtype(">i8").tolist() == numbers.tolist()
    assert np.shares_memory(column.as_dtype(">i8"), column.data)
    assert column[1:].as_dtype([("high", ">i4"), ("low", ">u4")]).tolist() == [(-1, 2**32 - 1), (256, 0)]
    with pytest.raises(ValueError, match="row 1 is null, and >i8 has 8: select rows first"):
        BinaryColumn.of([bytes(8), None]).as_dtype(">i8")
    with pytest.raises(ValueError, match="row 0 has 3 bytes, and int16 has 2"):
        BinaryColumn.of([b"abc"]).as_dtype(np.int16)


def test_zeros_at_the_end_of_values_stay(log_dir):
    assert np.asarray(BinaryColumn.of([b"a\0\0", b"\0", None])).tolist() == [b"a\0\0", b"\0", None]
    assert np.array(BinaryColumn.of([b"ab", b"c"]), "S2").tolist() == [b"ab", b"c"]
    for dtype in ("S4", "U4"):
        with pytest.raises(ValueError, match=f"row 1 is null, and .*{dtype} has no nulls: .*select rows first"):
            np.array(BinaryColumn.of([b"a", None]), dtype)
    records = kafkalog.read_numpy(log_dir, topics="p-multi", partitions=0)
    assert np.asarray(records.key).tolist() == records.key.to_pylist()
    assert records[-3:].key.to_pylist() == records.key.to_pylist()[-3:]
    assert records[records.offset % 2 == 0].offset.tolist() == [n for n in records.offset.tolist() if n % 2 == 0]


def test_one_large_value_does_not_make_all_values_large():
    column = BinaryColumn.of([b"small"] * 200_000 + [bytes(2**20)])  # 186 GiB as NumPy's bytes of one size
    for values in (column, as_views(column)):
        array = np.asarray(values)
        assert (array.dtype, array.nbytes, len(array[-1])) == (object, 8 * len(column), 2**20)


@pytest.mark.parametrize("binary_type", [None, pa.binary_view()])
def test_arrays_outlive_the_files_and_the_records(log_dir, tmp_path, binary_type):
    copy = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    expected = kafkalog.read_numpy(log_dir / "p-multi-0").value.to_pylist()
    records = kafkalog.read_numpy(copy, binary_type=binary_type)
    slices, array = records.value[10:20], records.offset[10:20]
    data = slices.data if binary_type is None else slices.buffers[0]
    at = data.tobytes()
    shutil.rmtree(copy)
    del records
    gc.collect()
    for _ in range(3):  # what was freed is used again
        kafkalog.read_numpy(log_dir, binary_type=binary_type)
    assert slices.to_pylist() == expected[10:20]
    assert array.tolist() == list(range(10, 20))
    assert data.tobytes() == at


def test_records_become_the_table_of_the_same_scan(log_dir):
    for binary_type in (None, pa.large_binary(), pa.binary_view()):
        options = {"columns": ALL_COLUMNS, "binary_type": binary_type}
        table, records = kafkalog.read_table(log_dir, **options), kafkalog.read_numpy(log_dir, **options)
        for made in (records.to_arrow(binary_type), pa.table(records) if binary_type != pa.large_binary() else table):
            assert made.schema == table.schema
            assert all(made[name].to_pylist() == table[name].to_pylist() for name in table.column_names)
    frame = kafkalog.read_pandas(log_dir, columns=ALL_COLUMNS)
    records = kafkalog.read_numpy(log_dir, columns=ALL_COLUMNS)
    made = records.to_pandas()
    assert made.dtypes.astype(str).to_dict() == frame.dtypes.astype(str).to_dict()
    for name in frame.columns.drop(["headers", "timestamp"]):
        assert made[name].tolist() == frame[name].tolist(), name
    assert records.key.to_pandas().tolist() == frame["key"].tolist()


def test_values_are_compared_with_bytes():
    column = BinaryColumn.of([b"a", None, b"ab", b""])
    for values in (column, as_views(column)):
        with pytest.raises(TypeError, match="the values are bytes: compare with b'a'"):
            values == "a"  # noqa: B015
        assert (values == column).all()
        assert not (values != as_views(column)).any()
        assert len({values, values}) == 1
        with pytest.raises(ValueError, match="4 values are compared with 3"):
            values == column[1:]  # noqa: B015
    # a null may point at bytes
    hidden = BinaryColumn(np.array([0, 1, 2]), np.frombuffer(b"aa", np.uint8), np.array([True, False]))
    assert (hidden == b"a").tolist() == [True, False]
    assert hidden.lengths.tolist() == [1, 0]


def test_bytes_beyond_two_gib_are_compared(monkeypatch):
    monkeypatch.setattr(kafkalog.records.byte_columns, "_MOST_INT32", 5)
    values = [b"abc", None, b"", b"abc", b"abcdefgh", b"x"] * 3
    for value in (b"abc", b"", b"abcdefgh"):
        assert (BinaryColumn.of(values)[1:] == value).tolist() == [item == value for item in values[1:]]


def test_one_record_is_asked_for_by_a_slice():
    columns = columns_of([(0, b"a", []), (1, None, [])])
    with pytest.raises(TypeError, match=r"records\[-1:\] is one record"):
        columns[-1]
    with pytest.raises(TypeError, match=r"records\[0:1\] is one record"):
        columns[0]


def test_type_checkers_know_the_columns():
    known = {name: text.removesuffix("_]") for name, text in RecordColumns.__annotations__.items()}
    assert {*known} == {*kafkalog.records.columns.ALL_COLUMNS, "topic", "partition"}
    for name, dtype in kafkalog.records.columns.FIXED_COLUMNS.items():
        assert known[name].removesuffix("]") == f"npt.NDArray[np.{np.dtype(dtype).name}"


def test_some_columns_are_records_too():
    columns = columns_of([(0, b"a", []), (1, None, [(b"k", b"v")])])
    assert [*columns[["value", "offset"]]] == ["value", "offset"]
    assert columns[["value"]][1:].value.to_pylist() == [None]
    with pytest.raises(KeyError):
        columns[["key"]]


def test_offsets_come_before_data():
    offsets, data = np.array([0, 2, 3]), np.frombuffer(b"abc", np.uint8)
    assert BinaryColumn(offsets, data).to_pylist() == [b"ab", b"c"]
    with pytest.raises(TypeError, match=r"offsets \(int64\) and data \(uint8\), not of uint8 and int64"):
        BinaryColumn(data, offsets)


def test_records_that_are_permuted_and_sampled_are_all_records(log_dir):
    records = kafkalog.read_numpy(log_dir, topics="p-multi", columns=["offset", "key"])
    order = np.random.default_rng(0).permutation(len(records))
    assert sorted(records[order].offset.tolist()) == sorted(records.offset.tolist())
    assert records[records.key == None].key.null_count == records.key.null_count > 0  # noqa: E711
    assert not records[:0]
    assert records[np.argsort(records.key)].key.to_pylist()[: -records.key.null_count] == sorted(
        key for key in records.key.to_pylist() if key is not None
    )


def test_words_of_other_libraries_lead_to_methods_of_columns():
    columns = columns_of([(0, b"a", [])])
    for name, meant in {
        "str_len": "lengths",
        "astype": r'as_dtype.*or to_numpy\("U"\) for text',
        "concat": "concatenate",
        "unique": "factorize",
    }.items():
        with pytest.raises(AttributeError, match=meant):
            getattr(columns["value"], name)
    for name, meant in {
        "datetime": r"use datetimes\(\)",
        "concat": "use concatenate",
        "shape": "use n_records",
        "dataframe": r"to_pandas\(\)",
    }.items():
        with pytest.raises(AttributeError, match=f"no column '{name}' here; .*{meant}"):
            getattr(columns, name)


def test_a_column_that_is_not_there_names_those_that_are():
    records = columns_of([(0, b"a", [("k", b"v")])])
    for name, meant in {
        "key": "columns=.*'key'",
        "headers.k": r"records.headers\['k'\]",
        "prize": "offset, value",
    }.items():
        with pytest.raises(KeyError, match=f"no column '{name}' here; .*{meant}"):
            records[name]
    assert records.get("key") is None
    assert records["headers"].to_pylist() == [[(b"k", b"v")]]
    with pytest.raises(TypeError, match="values are bytes: write b'x'"):
        BinaryColumn.of([b"a", "x"])


def test_words_of_other_libraries_that_mean_the_same_are_attributes():
    records = columns_of([(0, bytes(8), []), (1, None, [])])
    value = records["value"]
    for name in ("isnull", "isna"):
        assert getattr(value, name)().tolist() == [False, True]
    for name in ("notnull", "notna"):
        assert getattr(value, name)().tolist() == [True, False]
    assert records.to_structured().tolist() == records.to_records().tolist() == [(0,), (1,)]
    assert value.tolist() == value.to_list() == value.to_numpy().tolist() == [bytes(8), None]
    assert records["headers"].tolist() == [[], []]
    assert value[:1].view(">i8").tolist() == [0]
    assert records.num_rows == records.height == 2
    assert records.df().equals(records.to_pandas())
    with pytest.raises(AttributeError, match="to_arrow"):
        value.pl()


def test_a_time_of_minus_one_is_none():
    records = RecordColumns(2, {"timestamp": np.array([-1, 5])})
    assert np.isnat(records.datetimes()).tolist() == [True, False]
    assert records.timestamp.tolist() == [-1, 5]
    assert [row["timestamp"] is None for row in records.to_arrow().to_pylist()] == [True, False]
    records = RecordColumns(2, {"timestamp": np.array([-1, 5]), "timestamp_type": np.array([0, 0], np.int8)})
    assert records.to_arrow()["timestamp"].null_count == 0
    assert not np.isnat(records.datetimes()).any()


def test_derived_columns_and_no_records_become_tables():
    number = np.ma.MaskedArray(np.array([1.5, 0]), [False, True])
    records = RecordColumns(2, {"price": number, "key": BinaryColumn.of([b"a", None])})
    assert records.to_arrow().to_pylist() == [{"price": 1.5, "key": b"a"}, {"price": None, "key": None}]
    assert records[:0].to_arrow().schema == records.to_arrow().schema
    assert RecordColumns.empty(["offset", "headers"]).to_arrow().num_rows == 0


def test_records_are_no_array(log_dir):
    import pandas as pd

    records = kafkalog.read_numpy(log_dir, topics="p-multi")
    with pytest.raises(TypeError, match=r"several columns, not one array: .* to_pandas\(\) a DataFrame"):
        pd.DataFrame(records)


def test_a_table_of_records_is_written_with_its_headers(tmp_path):
    records = RecordColumns(
        3,
        {
            "timestamp": np.array([7, -1, 9]),
            "value": BinaryColumn.of([b"a", None, b"\0"]),
            "headers": HeadersColumn.of([[(b"\xff", None), (b"\xff", b"2")], [], [(b"n", b"")]]),
        },
    )
    kafkalog.write_table(records, tmp_path / "log", topic="t", partitions=1)
    back = kafkalog.read_numpy(tmp_path / "log")
    for name in records:
        assert np.array_equal(np.asarray(back[name]), np.asarray(records[name])), name


def test_records_stream_as_columns(log_dir):
    scan = kafkalog.scan(log_dir, columns=ALL_COLUMNS, batch_size=50)
    parts = list(scan.iter_numpy())
    whole = scan.to_numpy()
    assert max(part.n_records for part in parts) <= 50
    joined = RecordColumns.concatenate(parts)
    assert joined.to_arrow().equals(whole.to_arrow().combine_chunks())
    with pytest.raises(ValueError, match="decoded columns"):
        next(kafkalog.scan(log_dir, topics="p-multi", decode={"key": "utf8"}).iter_numpy())


def test_batches_are_a_structured_array(log_dir):
    (segment, *_) = kafkalog.open(log_dir / "p-multi-0").segments
    table = segment.batches
    array = table.to_numpy()
    assert array.dtype.names == tuple(table.to_arrow().column_names)
    assert array.tolist() == [tuple(row.values()) for row in table.to_arrow().to_pylist()]


def test_records_become_one_array_of_their_numbers_and_come_back_from_a_file(log_dir, tmp_path):
    columns = ["topic", "partition", "offset", "timestamp", "key", "is_control"]
    records = kafkalog.read_numpy(log_dir, topics="p-multi", columns=columns)
    array = records.to_numpy()
    assert array.dtype.names == ("topic", "partition", "offset", "timestamp", "is_control")
    for name in array.dtype.names:
        assert array[name].tolist() == records[name].tolist(), name
    np.save(tmp_path / "records.npy", array)
    mapped = np.load(tmp_path / "records.npy", mmap_mode="r")
    assert mapped[mapped["offset"] > 5].size == np.count_nonzero(records.offset > 5)
    two = records[["offset", "timestamp"]]
    assert np.asarray(two)[:2].tolist() == np.array(two)[:2].tolist() == two.to_numpy()[:2].tolist()
    masked = RecordColumns(2, {"price": np.ma.MaskedArray([1.5, 0], [False, True]), "offset": [1, 2]})
    assert masked.to_numpy().tolist() == [(1.5, 1), (None, 2)]
    back = RecordColumns.from_arrays(masked.to_arrays())
    assert back["price"].tolist() == [1.5, None]
    assert back.offset.tolist() == [1, 2]
    assert RecordColumns.from_arrays({}).n_records == 0


def test_no_text_is_made_of_nulls():
    column = BinaryColumn.of([b"a", None, "é".encode(), b"b\0"])
    text = np.dtypes.StringDType(na_object=None)
    for views in (column, as_views(column)):
        for dtype in ("S", "S8", "U", str, bytes, np.dtypes.StringDType()):
            with pytest.raises(ValueError, match=r"row 1 is null, .*pass null="):
                views.to_numpy(dtype)
        assert views.to_numpy(text).tolist() == np.asarray(views, text).tolist() == ["a", None, "é", "b\0"]
        assert views.to_numpy("U", null="-").tolist() == ["a", "-", "é", "b"]
        assert views.to_numpy(str, null=b"-").tolist() == ["a", "-", "é", "b"]
        assert views.to_numpy("S", null=b"").tolist() == [b"a", b"", "é".encode(), b"b"]
        assert views.to_numpy(null=b"-").tolist() == [b"a", b"-", "é".encode(), b"b\0"]
        assert views.to_numpy().tolist() == views.to_numpy(object).tolist() == column.to_pylist()
        assert views.is_valid().tolist() == [True, False, True, True]
        assert views[2:].validity is None or views[2:].validity.all()
        assert (~views[2:].is_valid()).tolist() == [False, False]
    with pytest.raises(ValueError, match="row 1 is not UTF-8"):
        BinaryColumn.of([b"a", b"\xff"]).to_numpy("U")


def test_arrays_of_values_of_one_size_are_their_bytes():
    numbers = np.array([1, -2, 3])
    pairs = np.array([(1, 2.5), (2, 3.5)], [("id", ">i8"), ("price", ">f8")])
    assert BinaryColumn.of(numbers.astype(">i8")).as_dtype(">i8").tolist() == [1, -2, 3]
    assert BinaryColumn.of(numbers.astype(">i4")[::2]).to_pylist() == [b"\0\0\0\1", b"\0\0\0\3"]
    assert BinaryColumn.of(pairs).as_dtype(pairs.dtype).tolist() == pairs.tolist()
    assert BinaryColumn.of(np.array([[1, 2], [3, 4]], np.uint8)).to_pylist() == [b"\1\2", b"\3\4"]
    assert BinaryColumn.of(np.array([b"a", b"bc"])).to_pylist() == [b"a", b"bc"]
    assert BinaryColumn.of(np.array([b"a\0", None], object)).to_pylist() == [b"a\0", None]
    assert len(BinaryColumn.of(numbers[:0].astype(">i8"))) == 0
    for array, meant in ((numbers, r"astype\('>i8'\) makes"), (numbers > 0, "bytes, not bool"), (numbers * 1j, "128")):
        with pytest.raises(TypeError, match=meant):
            BinaryColumn.of(array)
    with pytest.raises(TypeError, match="values are bytes: write b'a'"):
        BinaryColumn.of(np.array(["a"], object))


def test_a_header_that_no_record_has_is_an_error_with_those_that_are_there():
    headers = HeadersColumn.of([[("a", b"1"), ("b", None)], []])
    with pytest.raises(KeyError, match=r"no record has a header 'c'; there are a, b; .*get"):
        headers["c"]
    with pytest.raises(KeyError, match="there are none"):
        headers[1:]["a"]
    assert headers.get("c").to_pylist() == [None, None]
    assert headers["b"].to_pylist() == [None, None]
    assert headers[b"b"].to_pylist() == headers.get(b"b").to_pylist() == [None, None]
    with pytest.raises(KeyError, match="no record has a header b'c'"):
        headers[b"c"]
    assert headers[:0]["c"].to_pylist() == []
    assert headers.names() == ["a", "b"]


def test_the_methods_of_a_mapping_lead_to_the_columns():
    records = columns_of([(0, b"a", []), (1, b"b", [])])
    assert list(records.keys()) == list(dict(records)) == ["offset", "value", "views", "headers"]
    assert next(iter(records.values())) is records["offset"]
    assert "records.key" in repr(records.keys)
    values = records.values
    for call in (
        lambda: values == b"a",
        lambda: values[0],
        lambda: len(values),
        lambda: list(values),
        lambda: np.asarray(values),
        lambda: b"a" in values,
    ):
        with pytest.raises(TypeError, match=r"did you mean records\.value, the column"):
            call()
    with pytest.raises(AttributeError, match=r"did you mean records\.key\.is_null\?"):
        records.keys.is_null()
    for index, meant in (
        (False, r"did you mean records\[records.key == "),
        (np.True_, r"did you mean records\[records.key == "),
        (0, r"records\[0:1\] is one record, records.offset\[0\] is a value"),
        (-1, r"records\[-1:\] is one"),
        (("offset", "value"), r"records\[\['offset', 'value'\]\]"),
        ((records.offset > 0, "value"), r"records\['value'\]\[rows\]"),
        ((slice(1), slice(1)), r"one axis: .*records\[rows\]"),
    ):
        with pytest.raises(TypeError, match=meant):
            records[index]
    with pytest.raises(KeyError, match="no column 'valu' here; there are offset, value"):
        records[["offset", "valu"]]


def test_memory_is_counted_once():
    column = BinaryColumn.of([b"abc", None, b"d" * 20])
    assert column.nbytes == 4 * 8 + 23 + 3
    assert column[:2].nbytes == 3 * 8 + 3 + 2
    assert as_views(column).nbytes == 3 * 16 + 23 + 3
    headers = HeadersColumn.of([[("a", b"1")]])
    assert headers.nbytes == 2 * 8 + 2 * (2 * 8 + 1)
    topic = np.broadcast_to(np.array("orders"), 3)
    assert RecordColumns(3, {"topic": topic, "value": column}).nbytes == topic.itemsize + column.nbytes
    table = kafkalog.BatchTable.empty(5)
    assert table.nbytes == sum(getattr(table, name).nbytes for name in kafkalog.records.batch_table.COLUMNS)
