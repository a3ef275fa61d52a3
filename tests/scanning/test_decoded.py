"""Scans that decode values: their types, their ends, and options that cannot be."""

import json
import operator
import random
from copy import copy

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import fuzz_inputs
from orders import BROKEN, ORDERS, written_orders

import kafkalog
from kafkalog.cli.app import main


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    return written_orders(tmp_path_factory.mktemp("log"))


@BROKEN
def test_head_and_tail_read_the_types_of_their_own_records(orders):
    scan = kafkalog.scan(orders, decode={"value": "json"})
    assert scan.head(2).column("value").to_pylist() == ORDERS[:2]
    assert scan.tail(2).column("value").to_pylist() == ORDERS[-2:]


@BROKEN
def test_head_tells_of_its_bytes_and_of_what_it_could_not_decode(orders):
    scan = kafkalog.scan(orders, decode={"value": "json"})
    done = []
    scan.progress = done.append
    assert len(scan.head(100)) == len(ORDERS)
    assert sum(done) == sum(path.stat().st_size for path in orders.glob("*.log"))
    assert {finding.reason for finding in scan.findings} == {kafkalog.Reason.VALUE_UNDECODED}
    assert copy(scan).findings == []  # nothing has been read with it
    del done[:]
    assert len(scan.tail(2)) == 2
    assert sum(done) > 0


@BROKEN
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": {"value": "yaml"}}, "no format 'yaml'"),
        ({"decode": {"body": "json"}}, "decode takes key and value"),
        ({"decode": {"value": "json"}, "columns": ["valu"]}, "did you mean"),
        ({"decode": {"value": "json"}, "filters": "value.id == x"}, "cannot be compared"),
        ({"decode": {"value": "json"}, "filters": "value == 3"}, "cannot be compared"),
        ({"decode": {"value": "avro"}}, "no topic _schemas"),
        ({"decode": {"value": {"format": "avro", "framed": False}}}, "name no schema"),
        ({"decode": {"value": {"format": "json", "schema": "{}"}}}, "json has no schema"),
        ({"schemas": "."}, "schemas is for decode="),
    ],
)
def test_options_that_cannot_be_say_why(orders, options, message):
    with pytest.raises(ValueError, match=message):
        kafkalog.read_table(orders, **options)


def test_numpy_has_no_structs(orders):
    with pytest.raises(ValueError):
        kafkalog.read_numpy(orders, decode={"value": "json"})


@BROKEN
def test_expressions_of_arrow_filter_decoded_columns(orders):
    options = {"decode": {"value": "json", "key": "long"}}

    def offsets(expression, **more):
        scan = kafkalog.scan(orders, **{"columns": ["offset"], **options, **more}, filters=expression)
        return scan.to_table().column("offset").to_pylist()

    assert offsets(pc.field("value", "customer", "name") == "c5") == [5]
    assert offsets((pc.field("value", "id") > 3) & (pc.field("offset") < 7)) == [4, 5, 6]
    assert offsets((pc.field("value", "id") == 3) | (pc.field("key") == 30)) == [3, 30]
    assert offsets(pc.field("value", "id") >= 38, columns=["offset", "value.tags"]) == [38, 39]
    assert offsets(pc.field("key").isin([1, 2]), limit=1) == [1]
    assert offsets(pc.field("value").is_null()) == [7, 9, 11]
    assert offsets(pc.field("value", "id") + pc.field("key") == 20) == [10]
    scan = kafkalog.scan(orders, filters=(pc.field("offset") >= 35) & (pc.field("value", "id") > 0), **options)
    assert scan.explain(analyze=True).statistics.n_records < 40, "other batches are ruled out before they are decoded"
    assert scan.to_dataset().to_table(filter=pc.field("value", "id") == 36).num_rows == 1
    assert offsets(pc.field("value", "nothing") == 1) == []
    assert len(offsets(pc.field("value", "nothing", "inside").is_null())) == 40
    for expression, message in (
        (pc.field("nothing") == 1, "no column 'nothing'"),
        (pc.field("value", "customer") == 1, "cannot be applied"),
    ):
        with pytest.raises(ValueError, match=message):
            offsets(expression)


@BROKEN
def test_extract_goes_with_decode(orders):
    def size(key, value):
        return len(value)

    options = {"decode": {"value": "json"}, "extract": {"size": ("i4", size)}}
    table = kafkalog.read_table(orders, columns=["value.id"], filters=[("size", ">", 68)], **options)
    whole = kafkalog.read_table(orders, columns=["value.id"], **options)
    assert whole.column_names == ["value.id", "size"]
    sizes = whole.column("size").to_pylist()
    assert [row for row in whole.to_pylist() if (row["size"] or 0) > 68] == table.to_pylist() != []
    assert sizes[:7] == [len(json.dumps(order)) for order in ORDERS[:7]]
    either = kafkalog.read_table(orders, filters=[[("size", ">", 68)], [("value.id", "==", 1)]], **options)
    assert either.num_rows == table.num_rows + 1
    with pytest.raises(ValueError):
        kafkalog.read_table(orders, columns=["size"], **options)


def test_queries_of_datasets_equal_those_of_a_table(tmp_path):
    rng = random.Random(40)
    values = [{"n": rng.randrange(20), "s": {"t": rng.choice(["a", "b", None])}} for _ in range(300)]
    log = tmp_path / "log"
    log.mkdir()
    with kafkalog.PartitionWriter(log / "t-0", batch_size=500) as writer:
        writer.append({"value": [json.dumps(one).encode() for one in values], "key": [b"%d" % i for i in range(300)]})
    columns = ["offset", "key", "value.n", "value.s"]
    dataset = kafkalog.dataset(log, decode={"value": "json", "key": "utf8"}, columns=columns)
    table = kafkalog.read_table(log, decode={"value": "json", "key": "utf8"}, columns=columns)
    terms = [
        lambda: ('"value.n"', pc.field("value.n"), rng.choice([">", "<=", "="]), rng.randrange(20)),
        lambda: ('"value.s".t', pc.field("value.s", "t"), "=", rng.choice("ab")),
        lambda: ('"offset"', pc.field("offset"), rng.choice([">", "<="]), rng.randrange(300)),
        lambda: ("key", pc.field("key"), "=", str(rng.randrange(300))),
    ]
    compare = {">": operator.gt, "<=": operator.le, "=": operator.eq}
    for _ in range(max(fuzz_inputs() // 400, 6)):
        wanted = rng.sample(columns, rng.randrange(1, 4))
        texts, expression = [], None
        for term in rng.sample(terms, rng.randrange(1, 4)):
            name, field, sign, value = term()
            texts.append(f"{name} {sign} {value!r}")
            one = compare[sign](field, value)
            expression = one if expression is None else expression & one
        expected = table.filter(expression).select(wanted)
        assert dataset.to_table(columns=wanted, filter=expression).equals(expected)
        assert dataset.count_rows(filter=expression) == len(expected)
        conditions = " and ".join(text.replace('value.s".t', 't"') for text in texts)
        lazy = pl.scan_pyarrow_dataset(dataset).with_columns(pl.col("value.s").struct.field("t"))
        assert lazy.filter(pl.sql_expr(conditions)).select(wanted).collect().height == len(expected)
        sql = f"from dataset where {' and '.join(texts)}"
        names = ", ".join(f'"{name}"' for name in wanted)
        assert sorted(map(str, duckdb.sql(f"select {names} {sql}").fetchall())) == sorted(
            str(tuple(row.values())) for row in expected.to_pylist()
        )
        assert duckdb.sql(f"select count(*) {sql}").fetchall() == [(len(expected),)]


@pytest.mark.parametrize("binary_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_header_is_a_column_the_last_of_its_name(binary_type):
    path = "tests/golden/log_dir/p-headers-0"
    records = kafkalog.read_table(path, columns=["offset", "headers"]).to_pylist()
    names = {header["key"] for record in records for header in record["headers"]}
    assert len(names) > 3
    columns = [f"headers.{name}" for name in sorted(names)]
    table = kafkalog.read_table(path, columns=["offset", *columns], binary_type=binary_type)
    assert table.schema.types[1:] == [binary_type] * len(names)
    for record, row in zip(records, table.to_pylist(), strict=True):
        last = {header["key"]: header["value"] for header in record["headers"]}
        assert row == {"offset": record["offset"], **{f"headers.{name}": last.get(name) for name in names}}


def test_a_header_column_is_filtered_by_engines_and_expressions():
    path = "tests/golden/log_dir/p-headers-0"
    records = kafkalog.read_table(path, columns=["offset", "headers"]).to_pylist()
    wanted = [one["offset"] for one in records if "trace-id" in {header["key"] for header in one["headers"]}]
    log = kafkalog.dataset(path, columns=["offset", "headers.trace-id"])
    has_trace = pc.field("headers.trace-id").is_valid()
    assert log.to_table(columns=["offset"], filter=has_trace).column(0).to_pylist() == wanted
    query = """select "offset" from log where "headers.trace-id" is not null order by 1"""
    assert [one for (one,) in duckdb.sql(query).fetchall()] == wanted
    assert kafkalog.read_table(path, columns=["offset"], filters=has_trace).column(0).to_pylist() == wanted


@pytest.mark.parametrize(
    ("condition", "n"),
    [("like '_'", 98), ("not like '1'", 98), ("matches ^3", 0), ("contains 1", 98), ("in 2,x", 98), ("in x", 0)],
)
def test_patterns_and_lists_hold_if_any_header_of_the_name_matches(condition, n):
    path = "tests/golden/log_dir/p-headers-0"
    assert kafkalog.scan(path, filters=f"headers.dup {condition}").count_rows() == n


@BROKEN
def test_a_dataset_of_decoded_fields_is_filtered_twice(orders):
    columns = ["offset", "value.id", "value.customer.age"]
    log = kafkalog.dataset(orders, decode={"value": "json"}, columns=columns, filters="value.id >= 3")
    few = log.filter(pc.field("value.customer.age") > 8).filter(pc.field("offset") < 20)
    ids = [one["id"] for one in ORDERS if one["id"] not in (7, 9, 11) and 8 < (one["customer"]["age"] or 0) < 20]
    assert few.to_table(columns=["value.id"]).column(0).to_pylist() == ids
    assert few.count_rows() == len(ids)
    assert few.count_rows(filter=pc.field("value.id") != 13) == len(ids) - 1
    assert duckdb.sql('select count(*) from few where "value.id" <> 13').fetchall() == [(len(ids) - 1,)]


@pytest.mark.parametrize(
    "condition",
    [
        *(f"headers.a {rest}" for rest in ("== 1", "== 2", "!= 2", "in 2,3", "not in 2,3", "like '%'", "is null")),
        *("headers.n is null", "headers.n is not null", "headers has a", "headers has not a", "headers.b == 0xff00"),
        *("timestamp >= end-1s", "timestamp > end", "timestamp in 1500", "timestamp < 1970-01-01T00:00:02Z"),
        *("timestamp_type == LogAppendTime", "timestamp_type in 0,1", "key == 0x6b", "offset between 1 and 2"),
    ],
)
def test_conditions_on_records_hold_next_to_those_on_decoded_values(tmp_path, condition):
    """With `or`, they are applied after decoding, and mean the same."""
    headers = [[("a", b"1"), ("a", b"2"), ("n", None)], [], [("b", b"\xff\x00")], [("a", b"3"), ("b", b"")]]
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        rows = {"key": [b"k", None, b"", b"k"], "value": [b'{"a": 0}'] * 4, "timestamp": [500, 1500, 2500, 3000]}
        writer.append({**rows, "headers": headers})
    want = kafkalog.read_table(tmp_path, columns=["offset"], filters=condition)
    options = {"decode": {"value": "json"}, "columns": ["offset"]}
    assert kafkalog.read_table(tmp_path, filters=f"value.a == 1 or {condition}", **options).equals(want)


def test_a_condition_that_does_not_fit_is_wrong_usage(orders, capsys):
    for condition in ("value.id == x", "value == 3", "value.id like 'a%'"):
        assert main(["cat", str(orders), "--value-format", "json", "--filter", condition]) == 2
        assert "value" in capsys.readouterr().err


def test_a_query_reads_no_more_of_the_log_than_a_scan(tmp_path):
    with kafkalog.PartitionWriter(tmp_path / "t-0", batch_size=500) as writer:
        stamps = [1_700_000_000_000 + 60_000 * i for i in range(600)]
        writer.append({"value": [b'{"n": %d}' % i for i in range(600)], "timestamp": stamps})
    dataset = kafkalog.dataset(tmp_path / "t-0", decode={"value": "json"}, columns=["offset", "timestamp", "value.n"])
    moment = pa.scalar(1_700_000_000_000 + 60_000 * 590, pa.timestamp("ms", "UTC"))
    narrowed = dataset._scan.without_ruled_out((pc.field("timestamp") >= moment) & (pc.field("value.n") > 0))
    assert narrowed.explain(analyze=True).statistics.n_records < 60
