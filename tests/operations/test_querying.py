"""Queries in SQL over topics, as they are over tables of the same records."""

import csv
import io
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import trials

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
    for _ in range(trials(6, 150)):
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
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == [{"base64": "/wA="}, "text"]


JOIN = 'select a.value.who, b.value.who from orders a join "orders.eu-1" b using ("offset") order by a."offset" limit 3'


def test_columns_of_one_name_are_kept_apart(log, tmp_path, capsys):
    a, b = (
        kafkalog.read_table(log, topics=topic, decode={"value": "json"}, columns=["value.who"], limit=3)[0].to_pylist()
        for topic in ("orders", "orders.eu-1")
    )
    expected = [{"who": one, "who_1": other} for one, other in zip(a, b, strict=True)]
    assert main(["sql", JOIN, str(log), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == expected
    assert "who_1" in err
    for option, delimiter in (("--csv", ","), ("", "\t")):
        assert main(["sql", JOIN, str(log), *filter(None, [option])]) == 0
        first, *lines = capsys.readouterr().out.splitlines()
        assert first == f"who{delimiter}who_1"
        assert len(lines) == 3
    for suffix in ("parquet", "arrow", "jsonl", "csv"):
        path = tmp_path / f"o.{suffix}"
        assert main(["sql", JOIN, str(log), "-o", str(path)]) == 0
        if suffix != "arrow":
            assert duckdb.sql(f"select * from '{path}'").columns == ["who", "who_1"]
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == expected
    result = kafkalog.sql("select 1 as x, 2 as x, 3 as x_1, 4 as X", log)
    assert result.columns == ["x", "x_2", "x_1", "X"]
    assert result.fetchall() == [(1, 2, 3, 4)]


def test_a_query_in_python(log):
    result = kafkalog.sql('select "offset" as o, value.who as w from orders where value.id < 3 order by 1', log)
    rows = result.fetchall()
    assert [row[0] for row in rows] == [0, 1, 2]
    assert result.arrow().to_pylist() == [{"o": o, "w": w} for o, w in rows]
    assert pa.table(result).equals(result.arrow())
    assert result.df()["o"].tolist() == [0, 1, 2]
    assert result.pl().rows() == rows
    assert (result.columns, result.n_undecoded, repr(result)) == (
        ["o", "w"],
        0,
        "QueryResult(o, w); fetchall(), df() and arrow() give its rows",
    )
    with pytest.raises(ValueError, match="nowhere"):
        kafkalog.sql("select * from nowhere", log)
    with pytest.raises(TypeError):
        kafkalog.sql("select 1", log, on_decode="null")


def test_the_table_records_has_all_topics(log, tmp_path):
    assert rows(log, "select topic, count(*) from records group by 1 order by 1") == [
        ("bytes", 2),
        ("orders", N),
        ("orders.eu-1", N),
    ]
    # bytes, if a topic has some that are no text
    assert rows(log, "select max(value) from records where topic = 'bytes'") == [(b"\xff\x00",)]
    texts = tmp_path / "log"
    for topic in ("orders", "orders.eu-1"):
        shutil.copytree(log / f"{topic}-0", texts / f"{topic}-0")
    query = "select count(*) from records where value like '%\"Ann\"%' and key like 'k1%'"
    assert rows(texts, query)[0][0] > 20
    # as `cat`, without internal topics
    shutil.copytree(log / "bytes-0", texts / "__consumer_offsets-0")
    assert rows(texts, "select count(*) from records") == [(2 * N,)]
    assert rows(texts, "select count(*) from records", internal=True) == [(2 * N + 2,)]


def test_a_topic_of_the_name_records_is_that_table(tmp_path):
    for topic in ("Records", "orders"):
        kafkalog.write_table({"value": [topic.encode()]}, tmp_path / "log", topic=topic)
    assert rows(tmp_path / "log", "select topic from records") == [("Records",)]


def test_bytes_are_shown_in_one_way(tmp_path, capsys):
    """No two values look alike, whatever the output is."""
    values = [
        b"\xff\x00\x01",
        b"/wAB",
        b'{"base64": "/wAB"}',
        b"ff0001",
        b"",
        None,
        b"\x00\x00\x00\x01",
        b"\x00\x00\x00\xc8",
    ]
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": values})
    for encoding in ("utf8", "base64", "hex"):
        for option in ("--json", "--csv", "-o"):
            path = tmp_path / f"{encoding}.csv"
            output = [option, str(path)] if option == "-o" else [option]
            assert main(["sql", "select value from t", str(tmp_path), "--encoding", encoding, *output]) == 0
            text = path.read_text() if option == "-o" else capsys.readouterr().out
            lines = text.splitlines()[option != "--json" :]
            assert len({*lines}) == len(lines) == len(values), (encoding, option)
    assert main(["sql", "select value from t limit 1", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"value": {"base64": "/wAB"}}


def test_topics_that_differ_by_case(tmp_path, capsys):
    topics = ("Orders", "orders", "ORDERS")
    for topic in topics:
        with kafkalog.PartitionWriter(tmp_path / f"{topic}-0") as writer:
            writer.append({"value": [topic.encode()]})
    for topic in topics:
        assert kafkalog.sql(f"select value from {topic} where value <> 'orderS'", tmp_path).fetchall() == [(topic,)]
    for number, topic in enumerate(sorted(topics), 1):
        assert kafkalog.sql(f'select value from "{topic}#{number}"', tmp_path).fetchall() == [(topic,)]
    joined = kafkalog.sql('select a.value, b.value from "Orders#2" a, "orders#3" b', tmp_path)
    assert joined.fetchall() == [("Orders", "orders")]
    for query in ("select * from oRders", "select * from Orders, orders"):
        assert main(["sql", query, str(tmp_path)]) == 2
        assert '"ORDERS#1", "Orders#2", "orders#3"' in capsys.readouterr().err
    assert main(["sql", "select * from Orders", str(tmp_path)]) == 0
    assert "not ORDERS or orders" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
def test_values_that_do_not_decode_are_counted(tmp_path, capsys):
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"key": [b"a", b"a", b"b"], "value": [b'{"a":1}', b"oops", b'{"a":2}']})
    command = ["sql", "select value.a from t order by 1", str(tmp_path), "--value-format", "json", "--json"]
    assert main([*command, "-q"]) == 1
    assert "1 value did not decode" in capsys.readouterr().err
    assert main([*command, "--on-decode-error", "null"]) == 0
    assert capsys.readouterr().out.splitlines() == ['{"a": 1}', '{"a": 2}', '{"a": null}']
    assert main([*command, "--on-decode-error", "skip"]) == 0
    assert capsys.readouterr().out.splitlines() == ['{"a": 1}', '{"a": 2}']
    decode = {"value": "json"}
    count = kafkalog.sql("select count(*) from t", tmp_path, decode=decode, on_decode_error="skip")
    assert count.fetchall() == [(2,)]
    joined = kafkalog.sql("select count(*) from t x join t y on x.value.a = y.value.a", tmp_path, decode=decode)
    assert joined.fetchall() == [(2,)]
    assert joined.n_undecoded == 1
    assert kafkalog.sql('select sum("offset") from t', tmp_path, decode=decode).n_undecoded == 0


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
def test_only_what_a_query_reads_is_decoded(tmp_path, capsys):
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"key": [b"a", b"\xff", b"b"], "value": [b'{"a":1}', b"oops", b'{"a":2}']})
    decode = {"key": "utf8", "value": "json"}
    expected = {
        'topic, count(*), sum("offset") from t group by 1': ([("t", 3, 3)], 0),
        "count(*) from records": ([(3,)], 0),
        "value.a from t order by 1": ([(1,), (2,), (None,)], 1),
        "key from t order by 1": ([("a",), ("b",), (None,)], 1),
        "key from t where value.a = 2": ([("b",)], 2),
        "count(*) from t where value.a > 0 and key is not null": ([(2,)], 2),
    }
    for query, (rows, n_undecoded) in expected.items():
        result = kafkalog.sql(f"select {query}", tmp_path, decode=decode)
        assert (result.fetchall(), result.n_undecoded) == (rows, n_undecoded), query
    scan = kafkalog.scan(tmp_path, decode=decode)
    for names in (["offset"], ["value"], ["key", "timestamp"], ["headers", "key", "value"]):
        assert scan.schema.names  # learned
        narrowed = scan.narrowed(names)
        assert narrowed.to_table().equals(scan.to_table().select(names))
        assert narrowed.n_undecoded == len({"key", "value"} & {*names})
    assert main(["sql", "select count(*) from records", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_damage_that_is_skipped_makes_the_exit_code(log, tmp_path):
    shutil.copytree(log / "orders-0", tmp_path / "orders-0")
    path = min((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert main(["sql", "select count(value) from orders", str(tmp_path), "--on-corruption", "skip"]) == 1


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
        ("select max(offset) from orders", 'offset is a word of SQL: put the column in double quotes, as "offset"'),
        ("select topic, offset from records limit 5 offset 10", "offset is a word of SQL"),
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
