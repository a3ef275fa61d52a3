"""Arrow buffers as NumPy arrays, the schema of records, and streams of record batches."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.interchange.arrow_buffers import data_frame, milliseconds, validity
from kafkalog.interchange.arrow_streams import open_batches


@given(st.lists(st.none() | st.integers(0, 2**40), max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_nulls_are_known_in_any_slice(values, start, length):
    array = pa.array(values, pa.timestamp("ms")).slice(start, length)
    expected = values[start : start + length]
    valid = validity(array)
    assert (valid is None) == (None not in expected)
    assert valid is None or valid.tolist() == [value is not None for value in expected]
    assert milliseconds(array).tolist() == [-1 if value is None else value for value in expected]


def test_an_array_of_type_null_has_no_value():
    assert validity(pa.nulls(3)).tolist() == [False] * 3
    assert validity(pa.nulls(0)) is None


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_frame_holds_what_the_table_holds(kind):
    values = [b"a", None, b"", b"bcd", b"e" * 40]
    headers = [[{"k": 1}], [], [], [{"k": 2}, {"k": 3}], []]
    columns = [pa.array(values, kind), pa.array(headers), pa.array(["x", "x", "y", "x", None])]
    table = pa.table(columns, ["value", "headers", "topic"])
    for part in (table, table.slice(1, 3), pa.concat_tables([table, table.slice(2)]), table.slice(0, 0)):
        frame = data_frame(part)
        assert list(frame.columns) == part.column_names
        assert [None if one is None else bytes(one) for one in frame["value"]] == part["value"].to_pylist()
        assert [list(one) for one in frame["headers"]] == part["headers"].to_pylist()
        topics = [None if one != one else one for one in frame["topic"].astype(object)]
        assert topics == part["topic"].to_pylist()
    assert len(data_frame(table.select(["value"]))) == 5
    assert isinstance(data_frame(table)["headers"][1], np.ndarray)


SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def test_the_schema_is_the_documented_one_in_every_form(log_dir):
    scan = kafkalog.scan(log_dir)
    assert scan.schema.equals(SCHEMA)
    assert scan.to_reader().schema.equals(SCHEMA)
    table = scan.to_table()
    assert table.schema.equals(SCHEMA)
    table.validate(full=True)
    assert scan.count_rows() == table.num_rows
    everything = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    everything.validate(full=True)
    assert everything.column_names == list(ALL_COLUMNS)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (5, "not int"),
        ([1], "not list"),
        (pl.LazyFrame({"a": [1]}), "collect\\(\\) it first"),
        (pd.Series([1]), "DataFrame is expected"),
    ],
)
def test_what_does_not_is_refused(data, hint):
    with pytest.raises(TypeError, match=hint):
        open_batches(data)
