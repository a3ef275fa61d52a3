"""Buffers of Arrow arrays as NumPy arrays, and pandas objects of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.interchange.arrow_buffers import data_frame, milliseconds, no_rows, validity


@given(st.lists(st.none() | st.integers(0, 2**40), max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_nulls_are_known_in_any_slice(values: list[int | None], start: int, length: int) -> None:
    array = pa.array(values, pa.timestamp("ms")).slice(start, length)
    expected = values[start : start + length]
    valid = validity(array)
    assert (valid is None) == (None not in expected)
    assert valid is None or valid.tolist() == [value is not None for value in expected]
    assert milliseconds(array).tolist() == [-1 if value is None else value for value in expected]


def test_an_array_of_type_null_has_no_value() -> None:
    assert validity(pa.nulls(3)).tolist() == [False] * 3  # type: ignore[union-attr]
    assert validity(pa.nulls(0)) is None


def test_no_rows_have_every_column() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.binary(), "c": pa.list_(pa.string())})
    batch = no_rows(schema)
    assert (batch.num_rows, batch.schema) == (0, schema)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_frame_holds_what_the_table_holds(kind: Any) -> None:
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
