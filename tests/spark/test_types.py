"""Spark is given what it can hold, and nothing else than what is there."""

from __future__ import annotations

import golden_sets
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.interchange.table_types import Lost
from kafkalog.spark import types

pytestmark = pytest.mark.spark

TIMES = [None, -1, 0, 1_700_000_000_123, 2**63 // 1000 + 1, -(2**63) // 1000, 2**63 - 1]


def records(**columns: list[object]) -> pa.RecordBatch:
    schema = kafkalog.scan(golden_sets.LOG_DIR, columns=list(columns)).schema
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def to_spark(batch: pa.RecordBatch, *columns: str) -> pa.RecordBatch:
    return types.to_spark(batch, types.arrow_schema(columns))


def test_milliseconds_become_microseconds_and_null_where_those_do_not_fit() -> None:
    batch = records(timestamp=TIMES)
    lost = Lost()
    made = types.to_spark(batch, types.arrow_schema(["timestamp"]), lost).column("timestamp")
    assert made.type == pa.timestamp("us", tz="UTC")
    assert made.cast(pa.int64()).to_pylist() == [None, -1000, 0, 1_700_000_000_123_000, None, None, None]
    assert [(one.path, one.n, one.rows.tolist()) for one in lost.found] == [(("timestamp",), 3, [4, 5, 6])]


def test_no_headers_are_null_and_an_empty_value_is_not() -> None:
    headers = [[], [{"key": "a", "value": None}, {"key": "a", "value": b""}], []]
    batch = records(headers=headers)
    expected = [None, headers[1], None]
    for start in range(3):
        assert to_spark(batch.slice(start), "headers").column("headers").to_pylist() == expected[start:]
    assert to_spark(batch.slice(0, 1), "headers").column("headers").to_pylist() == [None]


def test_a_name_in_another_case_is_cast_the_same() -> None:
    schema = pa.schema([pa.field("HEADERS", types.arrow_schema(["headers"]).field(0).type)])
    made = types.to_spark(records(headers=[[], []]), schema)
    assert made.to_pydict() == {"HEADERS": [None, None]}


def test_arrow_and_spark_schemas_name_the_same_types() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    made = types.arrow_schema(types.ALL_COLUMNS)
    assert made == to_arrow_schema(types.spark_schema(types.ALL_COLUMNS), timezone="UTC")


def test_large_record_batches_are_split_by_bytes_and_rows() -> None:
    sizes = [part.num_rows for part in types.split(records(offset=list(range(120_000))))]
    assert sizes == [50_000, 50_000, 20_000]
    assert [part.num_rows for part in types.split(records(value=[b"x" * 2**24] * 3))] == [1, 1, 1]
    assert list(types.split(records(offset=[]))) == []


@pytest.mark.parametrize(("names", "message"), [(["key", "x"], "no column 'x'"), (["key", "KEY"], "twice")])
def test_unknown_columns_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        types.check_columns(names)


def test_columns_are_found_whatever_their_case() -> None:
    assert types.check_columns(["TIMESTAMPTYPE", "Key"]) == ("timestampType", "key")
