"""Queries in SQL over topics, as they are over tables of the same records."""

import csv
import io
import json
import random

import pyarrow.parquet as pq
import pytest
from effort import fuzz_inputs

import kafkalog
from kafkalog.cli.app import main
from kafkalog.operations.querying import Querying, format_of

duckdb = pytest.importorskip("duckdb", reason="not tested here: duckdb is not installed")

N = 200


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rng = random.Random(7)
    root = tmp_path_factory.mktemp("logs") / "log"
    root.mkdir()
    for topic in ("orders", "orders.eu-1"):
        rows = [{"id": i, "total": rng.randrange(40) / 2, "who": rng.choice(["Ann", "Bo", None])} for i in range(N)]
        with kafkalog.PartitionWriter(root / f"{topic}-0", batch_size=400) as writer:
            stamps = [1_700_000_000_000 + 60_000 * i for i in range(N)]
            values = [json.dumps(row).encode() for row in rows]
            writer.append({"key": [b"k%d" % i for i in range(N)], "value": values, "timestamp": stamps})
    with kafkalog.PartitionWriter(root / "bytes-0") as writer:
        writer.append({"value": [b"\xff\x00", b"text"]})
    return root


def rows(log, query, **options):
    return [tuple(row.values()) for batch in Querying(log, **options).run(query) for row in batch.to_pylist()]


def test_queries_equal_those_of_tables(log):
    rng = random.Random(8)
    decode = {"key": "utf8", "value": "json"}
    orders = kafkalog.read_table(log, topics="orders", decode=decode)
    eu = kafkalog.read_table(log, topics="orders.eu-1", decode=decode)
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("orders", orders)
    connection.register("orders.eu-1", eu)
    for _ in range(max(fuzz_inputs() // 100, 20)):
        table = rng.choice(["orders", '"orders.eu-1"'])
        terms = [
            f"value.total {rng.choice(['>', '<=', '='])} {rng.randrange(40) / 2}",
            f"value.who {rng.choice(['= ' + repr('Ann'), 'is null'])}",
            f'"offset" between {rng.randrange(N)} and {rng.randrange(N)}',
            f"timestamp >= to_timestamp({1_700_000_000 + 60 * rng.randrange(N)})",
            f"key = 'k{rng.randrange(N)}'",
        ]
        where = rng.choice([" and ", " or "]).join(rng.sample(terms, rng.randrange(1, 4)))
        select = rng.choice(["value.id, key", "count(*)", 'value.who, sum(value.total), max("offset")', "*"])
        more = " group by 1" if "sum" in select else ""
        query = f"select {select} from {table} where {where}{more}"
        expected = [tuple(row.values()) for row in connection.sql(query).to_arrow_table().to_pylist()]
        assert sorted(map(str, rows(log, query))) == sorted(map(str, expected)), query
    joined = 'select count(*) from orders o join "orders.eu-1" e on o.key = e.key where o.value.total > e.value.total'
    assert rows(log, joined) == connection.sql(joined).fetchall()


def test_the_command_prints_rows(log, tmp_path, capsys):
    query = 'select "offset" as o, value.who as w, [1, null] as l from orders where value.id < 3 order by 1'
    expected = kafkalog.read_table(log, topics="orders", decode={"value": "json"}, columns=["value.who"])[0].to_pylist()
    assert main(["sql", query, str(log), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"o": i, "w": expected[i], "l": [1, None]} for i in range(3)]
    assert main(["sql", query, str(log), "--csv"]) == 0
    names, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
    assert names == ["o", "w", "l"]
    assert lines == [[str(i), expected[i] or "", "[1, null]"] for i in range(3)]
    assert main(["sql", query, str(log)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"0\t{expected[0] or 'null'}\t[1, null]"
    assert main(["sql", "select * from orders", str(log), "-o", str(tmp_path / "o.parquet")]) == 0
    assert pq.read_table(tmp_path / "o.parquet").num_rows == N
    assert main(["sql", "select value from bytes", str(log), "--json"]) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == ["/wA=", "text"]


def test_options_choose_records_and_formats(log):
    assert rows(log, "select count(*) from orders", start_offset=N - 5) == [(5,)]
    assert rows(log, "select count(*) from orders", start_timestamp=1_700_000_000_000 + 60_000 * (N - 7)) == [(7,)]
    ((value,),) = rows(log, "select value from orders limit 1", decode={"value": "utf8"})
    assert isinstance(value, str)


def test_results_of_any_type_are_printed_and_written(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    query = """select timestamp::varchar as t, interval 1 day as i, [interval 1 day] as l, sum("offset") over () as s,
        2::uhugeint as u, '101'::bit as b, union_value(k := 1) as k, timetz '10:00:00+02' as z, 'nan'::double as n
        from orders where "offset" < 2 order by "offset" limit 1"""
    expected = {"t": "2023-11-14 22:13:20+00", "i": "1 day", "l": "[1 day]", "s": 1, "u": "2", "b": "101", "k": "1"}
    expected |= {"z": "10:00:00+02", "n": "NaN"}
    assert main(["sql", query, str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    for suffix in ("parquet", "arrow", "csv", "jsonl"):
        assert main(["sql", query, str(log), "-o", str(tmp_path / f"o.{suffix}")]) == 0


def test_each_column_has_a_format_of_its_own(tmp_path):
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter(tmp_path / "log" / "t-0") as writer:
        writer.append({"key": [b"\0\0\0\5"], "value": [b'{"Id": 1, "id": 2}']})
    assert rows(tmp_path / "log", "select key, value.id from t", decode={"key": "int"}) == [(5, 1)]
    querying = Querying(tmp_path / "log")
    assert sum(batch.num_rows for batch in querying.run("select value from t")) == 1
    assert "value.id is found as value.Id" in str(querying.findings[0])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selec", "syntax error"),
        ("select * from nothing", 'The topics are tables: bytes, orders, "orders.eu-1"'),
        ("select value.nothing from orders", "nothing"),
    ],
)
def test_what_is_no_query_is_a_usage_error(log, query, message, capsys):
    assert main(["sql", query, str(log)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert main(["sql", query]) == 2


def test_formats_are_those_that_all_values_have():
    assert format_of([b'{"a": 1}', b" [1]"], None) == "json"
    assert format_of([b'{"a": 1}', b"x"], None) == "utf8"
    assert format_of([b'{"a": 1', b"x"], None) == "utf8"
    assert format_of([b"\xff"], None) is None
    assert format_of([b"\0\0\0\0\1"], None) is None
    assert format_of([], None) is None


def test_values_that_duckdb_has_no_type_for(tmp_path, capsys):
    """Decimals of more than 38 digits are text, and times beyond DuckDB's are null with a note."""
    kind = '{"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 10}'
    schema = f'{{"type": "record", "name": "R", "fields": [{{"name": "d", "type": {kind}}}]}}'
    schemas = {"decode": {"value": {"format": "avro", "schema": schema, "framed": False}}}
    far = [0, 1_700_000_000_000_000, 2**63 - 1]
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter(tmp_path / "log" / "t-0") as writer:
        writer.append({"value": [b"\x02\xff", b"\x02\x00", None], "timestamp": far})
    log = tmp_path / "log"
    assert rows(log, "select value.d from t", **schemas) == [("-0.0000000001",), ("0.0000000000",), (None,)]
    querying = Querying(log, **schemas)
    (found,) = [batch for batch in querying.run("select max(timestamp)::varchar as m from t") if batch.num_rows]
    assert found.to_pylist()[0]["m"].startswith("55840-11-08")
    (finding,) = querying.findings
    assert "1 value of timestamp" in str(finding)
    assert main(["sql", "select timestamp from t", str(log), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["timestamp"] for line in out.splitlines()][2] is None
    assert "1 value of timestamp: out of range" in err
