"""Types, DDL schemas and options that Spark takes."""

import golden_sets
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.interchange.table_types import LossCounts
from kafkalog.spark import types
from kafkalog.spark.decoded import parse_ddl
from kafkalog.spark.options import Options

pytestmark = pytest.mark.spark

TIMES = [None, -1, 0, 1_700_000_000_123, 2**63 // 1000 + 1, -(2**63) // 1000, 2**63 - 1]


def records(**columns):
    schema = kafkalog.scan(golden_sets.LOG_DIR, columns=list(columns)).schema
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def to_spark(batch, *columns):
    return types.to_spark(batch, types.arrow_schema(columns))


def test_milliseconds_become_microseconds_and_null_where_those_do_not_fit():
    batch = records(timestamp=TIMES)
    lost = LossCounts()
    made = types.to_spark(batch, types.arrow_schema(["timestamp"]), lost).column("timestamp")
    assert made.type == pa.timestamp("us", tz="UTC")
    assert made.cast(pa.int64()).to_pylist() == [None, -1000, 0, 1_700_000_000_123_000, None, None, None]
    assert [(one.path, one.n, one.rows.tolist()) for one in lost.found] == [(("timestamp",), 3, [4, 5, 6])]


def test_no_headers_are_null_and_an_empty_value_is_not():
    headers = [[], [{"key": "a", "value": None}, {"key": "a", "value": b""}], []]
    batch = records(headers=headers)
    expected = [None, headers[1], None]
    for start in range(3):
        assert to_spark(batch.slice(start), "headers").column("headers").to_pylist() == expected[start:]
    assert to_spark(batch.slice(0, 1), "headers").column("headers").to_pylist() == [None]


def test_a_name_in_another_case_is_cast_the_same():
    schema = pa.schema([pa.field("HEADERS", types.arrow_schema(["headers"]).field(0).type)])
    made = types.to_spark(records(headers=[[], []]), schema)
    assert made.to_pydict() == {"HEADERS": [None, None]}


def test_arrow_and_spark_schemas_name_the_same_types():
    from pyspark.sql.pandas.types import to_arrow_schema

    made = types.arrow_schema(types.ALL_COLUMNS)
    assert made == to_arrow_schema(types.spark_schema(types.ALL_COLUMNS), timezone="UTC")


def test_large_record_batches_are_split_by_bytes_and_rows():
    sizes = [part.num_rows for part in types.split(records(offset=list(range(120_000))))]
    assert sizes == [50_000, 50_000, 20_000]
    assert [part.num_rows for part in types.split(records(value=[b"x" * 2**24] * 3))] == [1, 1, 1]
    assert list(types.split(records(offset=[]))) == []


@pytest.mark.parametrize(("names", "message"), [(["key", "x"], "no column 'x'"), (["key", "KEY"], "twice")])
def test_unknown_columns_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        types.check_columns(names)


def test_columns_are_found_whatever_their_case():
    assert types.check_columns(["TIMESTAMPTYPE", "Key"]) == ("timestampType", "key")


def test_fields_and_single_types_are_parsed():
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
        ("a bigint; b int", "at ';'"),
        ("", "at 'its end'"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_an_example(given, word):
    with pytest.raises(ValueError, match=f"{word}"):
        parse_ddl(given)


def test_values_are_read_by_names_in_any_case():
    options = Options({"TaskBytes": "32m", "fail": "TRUE", "n": "7", "names": " a,,b "})
    assert options.n_bytes("TASKBYTES", 1) == 2**25
    assert (options.flag("fail", default=False), options.number("n"), options.names("names")) == (True, 7, ["a", "b"])
    assert (options.flag("other", default=True), options.number("other"), options.names("other")) == (True, None, None)


def test_an_invalid_value_is_named_with_its_option():
    options = Options({"a": "x"})
    for read in (
        lambda: options.flag("A", default=True),
        lambda: options.number("A"),
        lambda: options.n_bytes("A", 1),
    ):
        with pytest.raises(ValueError, match=r"^A\b"):
            read()


def test_names_that_are_refused_or_unknown_raise():
    for name, word in (
        ("acks", "uses no broker"),
        ("kafka.x", "uses no broker"),
        ("onew", "did you mean new"),
        ("x", "there are new"),
    ):
        with pytest.raises(ValueError, match=word):
            Options({name: "1"}).check_names(["new"])
