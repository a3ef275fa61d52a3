"""Buffers of Arrow arrays as NumPy arrays, and pandas objects of them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.interchange.arrow_buffers import data_frame, decoded_base64, milliseconds, no_rows, validity


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


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20), st.integers(0, 5), st.integers(0, 20))
def test_base64_of_a_whole_column_is_decoded_at_once(values: list[bytes | None], start: int, length: int) -> None:
    texts = pa.array([None if one is None else base64.b64encode(one) for one in values], pa.binary())
    found = decoded_base64(texts.slice(start, length))
    expected = values[start : start + length]
    assert found is None or found.to_pylist() == expected
    assert found is not None or not any(expected)


@given(st.lists(st.text("Az+/=\n-", max_size=8), min_size=1, max_size=3))
def test_what_is_decoded_at_once_is_what_python_decodes(texts: list[str]) -> None:
    found = decoded_base64(pa.array([text.encode() for text in texts], pa.binary()))
    if found is not None:
        assert found.to_pylist() == [binascii.a2b_base64(text, strict_mode=True) for text in texts]
