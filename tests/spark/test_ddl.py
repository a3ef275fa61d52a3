"""Types as DDL writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkalog.spark.decoded import parse_ddl

pytestmark = pytest.mark.spark


def test_fields_and_single_types_are_parsed() -> None:
    kind = pa.struct({"a b": pa.int64(), "c": pa.struct({"d": pa.list_(pa.float32())}), "e": pa.bool_()})
    assert parse_ddl("`a b` BIGINT, c: struct<d: array<float>>, e boolean ") == kind
    assert parse_ddl("struct<x:int>") == pa.struct({"x": pa.int32()})
    assert parse_ddl("array<string>") == pa.list_(pa.string())
    assert parse_ddl("double") == pa.float64()


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("a", "at 'a'"),
        ("a bigint,", "at 'its end'"),
        ("a date", "at 'date'"),
        ("a struct<b bigint", "at 'its end'"),
        ("a bigint; b int", "at '; b int'"),
        ("", "at 'its end'"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_an_example(given: str, word: str) -> None:
    with pytest.raises(ValueError, match=f"{word}.*a bigint, b struct<c:string>"):
        parse_ddl(given)
