"""Columns of records take rows as NumPy arrays do, and agree with lists of Python."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns, as_views, row_numbers

VALUES = st.one_of(st.none(), st.binary(max_size=20), st.just(b"\0\0"), st.binary(min_size=13, max_size=40))
HEADERS = st.lists(st.tuples(st.binary(max_size=4), VALUES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), VALUES, HEADERS), max_size=12)


def headers_of(lists):
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    pairs = [pair for headers in lists for pair in headers]
    return HeadersColumn(
        offsets, BinaryColumn.of([key for key, _ in pairs]), BinaryColumn.of([value for _, value in pairs])
    )


def columns_of(records):
    offset = np.array([record[0] for record in records], np.int64)
    value, headers = BinaryColumn.of([record[1] for record in records]), headers_of([record[2] for record in records])
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


@given(records_and_rows())
def test_rows_are_those_of_a_list(drawn):
    records, rows, make = drawn
    columns = columns_of(records)
    wanted = python_rows(records, rows)
    given_rows = rows if isinstance(rows, slice) else make(rows) if rows else np.array([], np.int64)
    assert listed(columns[given_rows]) == wanted
    assert listed(columns.take(given_rows)) == wanted
    assert (
        listed(pickle.loads(pickle.dumps(columns)[:]).take(given_rows) if records else columns) == wanted or not records
    )
    for name, place in (("value", 1), ("views", 1), ("headers", 2)):
        assert columns[name][given_rows].to_pylist() == [record[place] for record in wanted]
        assert [columns[name][row] for row in range(len(records))] == [record[place] for record in records]
        array = np.asarray(columns[name])
        assert array.dtype == object
        assert array.tolist() == [record[place] for record in records]
    joined = [{key: part[key] for key in part if key != "views"} for part in (columns, columns[given_rows])]
    joined = RecordColumns.concatenate([RecordColumns(len(part["offset"]), part) for part in joined])
    assert joined["offset"].tolist() == [record[0] for record in records + wanted]
    assert joined["headers"].to_pylist() == [record[2] for record in records + wanted]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ([3], IndexError, "row 3 of 3"),
        ([-4], IndexError, "row -4 of 3"),
        ([True, False], IndexError, "a mask of 2 rows for 3 rows"),
        ([0.5], TypeError, "whole numbers, a mask or a slice, not float64"),
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
    records = kafkalog.read_numpy(log_dir, topics="p-multi", partitions=0)
    assert np.asarray(records.key).tolist() == records.key.to_pylist()
    assert records[-3:].key.to_pylist() == records.key.to_pylist()[-3:]
    assert records[records.offset % 2 == 0].offset.tolist() == [n for n in records.offset.tolist() if n % 2 == 0]
