"""Decoded values in each output: what was reported of other tools, and logs whose fields come and go."""

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from io import BytesIO

import fastavro
import pyarrow.dataset
import pytest
from effort import fuzz_inputs
from lakes import Delta, Directory, Iceberg

import kafkalog
from kafkalog.cli.app import main

LAKES = {"parquet": Directory, "delta": Delta, "iceberg": Iceberg}
FAR = 2**62


@pytest.fixture(params=LAKES)
def lake(request, tmp_path):
    pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")
    (tmp_path / "lake").mkdir()
    return LAKES[request.param](tmp_path / "lake")


def append(root, values, topic="t"):
    data = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
    root.mkdir(exist_ok=True)
    with kafkalog.PartitionWriter(root / f"{topic}-0") as writer:
        writer.append({"value": data, "timestamp": [1_700_000_000_000] * len(data)})
    return root


def rows(lake, column="value"):
    """A column of all rows, read by the library of the table."""
    if isinstance(lake, Delta):
        table = lake.table().to_pyarrow_table()
    elif isinstance(lake, Iceberg):
        table = lake.output.scan().to_arrow()
    else:
        files = [pyarrow.dataset.dataset(path) for path in sorted(lake.output.rglob("*.parquet"))]
        table = pyarrow.dataset.dataset(files[-1:]).to_table() if len(files) == 1 else None
        if table is None:
            # the newest file has all columns
            newest = max(sorted(lake.output.rglob("*.parquet")), key=lambda path: path.name)
            schema = pyarrow.dataset.dataset(newest).schema
            table = pyarrow.dataset.dataset(lake.output, schema=schema).to_table()
    return [row[column] for row in sorted(table.to_pylist(), key=lambda row: row["offset"])]


def export(root, lake, format="json", **options):
    return lake.run(root, decode={"value": {"format": format, **options}}, partition_by=())


def avro(schema, *values):
    found = []
    for value in values:
        data = BytesIO()
        fastavro.schemaless_writer(data, schema, value)
        found.append(data.getvalue())
    return found


def record(**fields):
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def test_only_objects_without_fields(tmp_path, lake):
    export(append(tmp_path / "log", [{}]), lake)
    assert rows(lake) == ["{}"]
    export(append(tmp_path / "log", [{"a": 1}]), lake)  # the column exists, and is text
    assert rows(lake) == ["{}", '{"a":1}']


@pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
def test_times_that_a_table_does_not_hold_are_null_and_counted(tmp_path, lake):
    logical = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(
        t=logical, l={"type": "array", "items": logical}, m={"type": "map", "values": logical},
        d={"type": "int", "logicalType": "date"}, n={"type": "long", "logicalType": "timestamp-nanos"},
        h={"type": "int", "logicalType": "time-millis"},
    )  # fmt: skip
    day, moment = datetime(1970, 1, 2, tzinfo=UTC).date(), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    near = {"t": 1_700_000_000_000, "l": [1_700_000_000_000], "m": {}, "d": 1, "n": 10**18 * 17 // 10, "h": 1500}
    far = {"t": FAR, "l": [1_700_000_000_000, FAR, -FAR], "m": {"k": FAR}, "d": 2**31 - 1, "n": 1, "h": 0}
    plain = json.loads(json.dumps(schema).replace("logicalType", "l"))
    root = append(tmp_path / "log", avro(plain, near, far))
    result = export(root, lake, "avro", schema=json.dumps(schema), framed=False)
    first, second = rows(lake)
    assert (first["t"], first["l"], first["d"], first["n"]) == (moment, [moment], day, moment)
    assert str(first["h"]).startswith("00:00:01.500")
    assert (second["t"], second["l"], second["m"], second["d"]) == (None, [moment, None, None], [("k", None)], None)
    lost = {one.detail.split(":")[0] for one in result.findings}
    assert lost == {
        *("1 value of value.t", "2 values of value.l[]", "1 value of value.m{}", "1 value of value.d"),
        "1 value of value.n",
    }


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_the_command_prints_what_the_table_does_not_hold(tmp_path, lake, capsys):
    root = tmp_path / "log"
    root.mkdir()
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b"v", b"v"], "timestamp": [1_700_000_000_000, 17 * 10**17]})
    assert main(["export", str(root), "-o", lake.name, "--format", lake.format, "--resume"]) == 0
    assert "1 value of timestamp" in capsys.readouterr().err
    assert [row and row.year for row in rows(lake, "timestamp")] == [2023, None]


def test_fields_come_and_go(tmp_path, lake):
    nights = [
        [{"a": 1, "b": 2}],
        [{"a": 2}],
        [{"a": 3, "c": {"x": [1.5]}}],
        [{"c": {"y": "t"}}],
        [],
        [{"b": 9_007_199_254_740_993, "c": None}],
    ]
    for values in nights:
        if values:
            append(tmp_path / "log", values)
        assert export(tmp_path / "log", lake).n_records == len(values)
    assert rows(lake) == [
        {"a": 1, "b": 2, "c": None},
        {"a": 2, "b": None, "c": None},
        {"a": 3, "b": None, "c": {"x": [1.5], "y": None}},
        {"a": None, "b": None, "c": {"x": None, "y": "t"}},
        {"a": None, "b": 9_007_199_254_740_993, "c": None},
    ]


def test_a_field_that_was_null_gets_its_type_later(tmp_path, lake):
    for value in ({"a": 1, "b": None}, {"a": None, "b": "x"}):
        export(append(tmp_path / "log", [value]), lake)
    assert rows(lake) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_values_that_do_not_fit_the_type_that_a_column_has_are_text_beside_it(tmp_path, lake):
    """Nothing is lost if a field has another type in a later run, and every later run goes on."""
    export(append(tmp_path / "log", [{"a": 1, "b": "t", "l": [1], "s": {"x": 1}}]), lake)
    others = [
        {"a": "x", "b": 5, "l": ["q", 2]},
        {"a": 2**64, "b": [1], "s": [1]},
        {"a": 2, "b": {"c": 1}, "s": {"x": 1.5}},
    ]
    result = export(append(tmp_path / "log", others), lake)
    assert rows(lake) == [
        {"a": 1, "b": "t", "l": [1], "s": {"x": 1}, "a__text": None, "l__text": None, "s__text": None},
        {
            "a": None,
            "b": "5",
            "l": [None, 2],
            "s": None,
            "a__text": '"x"',
            "l__text": '["\\"q\\"","2"]',
            "s__text": None,
        },
        {"a": None, "b": "[1]", "l": None, "s": None, "a__text": str(2**64), "l__text": None, "s__text": "[1]"},
        {"a": 2, "b": '{"c":1}', "l": None, "s": None, "a__text": None, "l__text": None, "s__text": '{"x":1.5}'},
    ]
    assert sorted(one.detail for one in result.findings) == [
        "1 value of value.l[]: string that does not fit int64, so in l__text",
        "2 values of value.a: string that does not fit int64, so in a__text",
        "2 values of value.s: string that does not fit struct, so in s__text",
    ]
    export(append(tmp_path / "log", [{"a": 3, "l": []}, {"a": 1.5, "s": {"x": "y"}}]), lake)
    assert [row["a"] for row in rows(lake)[-2:]] == [3, None]
    assert rows(lake)[-1] == {
        "a": None, "b": None, "l": None, "s": {"x": None, "x__text": "y"},
        "a__text": "1.5", "l__text": None, "s__text": None,
    }  # fmt: skip
    assert export(append(tmp_path / "log", [[1], None]), lake).n_records == 2
    assert rows(lake, "value__text")[-2:] == ["[1]", None]


def test_numbers_of_a_later_schema_are_wider(tmp_path, lake):
    """Iceberg widens the column. The others keep its type: what it cannot hold is next to it, and counted."""
    old = record(a="int", f="float", l={"type": "array", "items": "int"})
    new = record(a="long", f="double", l={"type": "array", "items": "long"})
    options = {"schemas": {0: json.dumps(old), 1: json.dumps(new)}, "partition_by": (), "decode": {"value": "avro"}}
    root = tmp_path / "log"
    for number, (schema, value) in enumerate(
        ((old, {"a": 1, "f": 0.5, "l": [1]}), (new, {"a": 2**40, "f": 0.25, "l": [2**40]}))
    ):
        append(root, [b"\0" + number.to_bytes(4, "big") + avro(schema, value)[0]])
        findings = [one.detail for one in lake.run(root, **options).findings]
    first, second = rows(lake)
    assert (first["a"], first["f"], first["l"]) == (1, 0.5, [1])
    if isinstance(lake, Iceberg):
        assert second == {"a": 2**40, "f": 0.25, "l": [2**40]}
        assert not findings
    else:
        assert (second["a__text"], second["f"], second["l__text"]) == (str(2**40), 0.25, f"[{2**40}]")
        assert "1 value of value.a: int64 that does not fit int32, so in a__text" in findings


def test_a_directory_has_no_field_without_a_type(tmp_path):
    """Readers of directories take the types of one file."""
    (tmp_path / "lake").mkdir()
    lake = Directory(tmp_path / "lake")
    for value in ({"a": 1, "b": None, "c": {"d": None, "e": 1}}, {"a": 2, "b": "x", "c": {"d": [1]}}):
        export(append(tmp_path / "log", [value]), lake)
    assert pyarrow.dataset.dataset(lake.output).to_table().column("value").to_pylist() == [
        {"a": 1, "c": {"e": 1}},
        {"a": 2, "c": {"e": None}},
    ]
    polars = pytest.importorskip("polars", reason="not tested here: polars is not installed")
    newest = max(lake.output.rglob("*.parquet"))
    how = polars.ScanCastOptions(missing_struct_fields="insert")
    schema = polars.read_parquet_schema(newest)
    found = polars.scan_parquet(lake.output / "*.parquet", schema=schema, cast_options=how).collect()
    assert found["value"].to_list() == rows(lake)


def test_fields_that_differ_by_case_are_refused_by_delta_before_anything_is_written(tmp_path, capsys):
    pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    root = append(tmp_path / "log", [{"x": [{"Id": 1, "id": 2}]}])
    command = ["export", str(root), "--value-format", "json", "-o", str(tmp_path / "table"), "--format", "delta"]
    assert main([*command, "--resume"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "value.x.Id and value.x.id" in line
    assert not (tmp_path / "table").exists()


def test_text_has_times_without_a_date_and_all_digits(tmp_path, capsys):
    schema = record(
        d={"type": "int", "logicalType": "date"},
        ms={"type": "long", "logicalType": "timestamp-millis"},
        us=["null", {"type": "long", "logicalType": "timestamp-micros"}],
    )
    plain = json.loads(json.dumps(schema).replace("logicalType", "l"))
    values = avro(plain, {"d": 2**31 - 1, "ms": FAR, "us": 2**63 - 1}, {"d": -1, "ms": -(2**63), "us": None})
    root = append(tmp_path / "log", values)
    (tmp_path / "s.avsc").write_text(json.dumps(schema))
    expected = [
        {"d": "5881580-07-11", "ms": "146140482-04-24T15:36:27.904Z", "us": "294247-01-10T04:00:54.775807Z"},
        {"d": "1969-12-31", "ms": str(-(2**63)), "us": None},
    ]
    decoding = ["--value-format", "avro", "--schema", str(tmp_path / "s.avsc"), "--no-frame", "--columns", "value"]
    assert main(["cat", str(root), *decoding, "--json"]) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == expected
    assert main(["export", str(root), *decoding, "-o", str(tmp_path / "o.csv")]) == 0
    assert '""5881580-07-11""' in (tmp_path / "o.csv").read_text()


def test_a_record_of_the_least_timestamp_is_shown():
    from kafkalog.cli.reading.record_text import TextFormat

    stamps = pyarrow.array([-(2**63)], pyarrow.int64()).cast(pyarrow.timestamp("ms", "UTC"))
    batch = pyarrow.RecordBatch.from_arrays([stamps], ["timestamp"])
    assert TextFormat(["timestamp"]).lines(batch) == "-9223372036854775808ms\n"


@pytest.mark.parametrize(
    ("units", "values", "expected"),
    [
        (["millis", "nanos", "millis"], [32_503_680_000_000, 5, 1_700_000_000_000], [None, 5, 17 * 10**17]),
        (["millis", "micros", "millis"], [2**63 - 1, 5, 1_700_000_000_000], [None, 5, 17 * 10**14]),
    ],
)
def test_versions_of_a_schema_with_times_in_other_units(tmp_path, units, values, expected):
    schemas, data = {}, []
    for number, (unit, value) in enumerate(zip(units, values, strict=True)):
        inner = {"type": "array", "items": {"type": "long", "logicalType": f"timestamp-{unit}"}}
        plain = record(t="long", l={"type": "array", "items": "long"})
        schemas[number] = json.dumps(record(t=inner["items"], l=inner))
        data.append(b"\0" + number.to_bytes(4, "big") + avro(plain, {"t": value, "l": [value]})[0])
    root = append(tmp_path / "log", data)
    scan = kafkalog.scan(root, decode={"value": "avro"}, schemas=schemas, columns=["value.t", "value.l", "value_error"])
    with pytest.warns(kafkalog.DecodeWarning):
        table = scan.to_table()
    assert table.column("value.t").cast("int64").to_pylist() == expected
    assert table.column("value.l").combine_chunks().flatten().cast("int64").to_pylist() == expected
    errors = table.column("value_error").to_pylist()
    assert [one is None for one in errors] == [False, True, True]
    assert sorted(one.detail.split(":")[0] for one in scan.findings) == ["1 value of value.l[]", "1 value of value.t"]


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
@pytest.mark.parametrize("seed", range(max(fuzz_inputs() // 2000, 6)))
def test_times_have_the_unit_that_loses_fewest_values(tmp_path, seed):
    source = random.Random(seed)
    per_second = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
    units = source.sample(sorted(per_second), source.choice([2, 3]))
    pairs = [(source.choice(units), source.choice([0, 5, 7_000, 9_000_000, 4 * 10**12, 2**62])) for _ in range(9)]
    schemas, data = {}, []
    for number, unit in enumerate(units):
        inner = {"type": "long", "logicalType": f"timestamp-{unit}"}
        items = {"type": "array", "items": ["null", {"type": "map", "values": inner}]}
        schemas[number] = json.dumps(record(deep=items))
    for unit, value in pairs:
        plain = record(deep={"type": "array", "items": ["null", {"type": "map", "values": "long"}]})
        data.append(b"\0" + units.index(unit).to_bytes(4, "big") + avro(plain, {"deep": [None, {"k": value}]})[0])
    root = append(tmp_path / "log", data)
    scan = kafkalog.scan(root, decode={"value": "avro"}, schemas=schemas, columns=["value.deep", "value_error"])
    table = scan.to_table()

    def held(unit):
        """The values in a unit, None for one that is finer or out of range."""
        exact = [Fraction(value, per_second[name]) * unit for name, value in pairs]
        return [int(one) if one.denominator == 1 and one < 2**63 else None for one in exact]

    best = min((held(unit) for unit in per_second.values()), key=lambda one: one.count(None))
    used = {name for name, _ in pairs}
    (kind,) = {one for one in ("ms", "us", "ns") if f"timestamp[{one}," in str(table.schema.field(0).type)}
    expected = held({"ms": 10**3, "us": 10**6, "ns": 10**9}[kind])
    assert expected.count(None) == best.count(None) or len(used) == 1
    deep = table.column(0).combine_chunks().flatten().drop_null()
    assert deep.items.cast("int64").to_pylist() == expected
    assert [one is None for one in table.column(1).to_pylist()] == [one is not None for one in expected]
    assert sum(int(one.detail.split()[0]) for one in scan.findings) == expected.count(None)


def test_numbers_of_json_in_a_command(tmp_path, capsys):
    values = [b'{"id": 9007199254740993, "p": [9223372036854775807]}', b'{"id": 0.5, "p": [1.5]}']
    root = append(tmp_path / "log", [*values])
    command = ["cat", str(root), "--value-format", "json", "--json", "--columns", "value"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        '{"value": {"id": "9007199254740993", "p": ["9223372036854775807"]}}',
        '{"value": {"id": "0.5", "p": ["1.5"]}}',
    ]
    assert main([*command, "--filter", "value.id == 9007199254740992"]) == 0
    assert capsys.readouterr().out == ""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    table = kafkalog.read_table(
        append(tmp_path / "other", [b'{"id": 18446744073709551615}', b'{"id": 1}']),
        decode={"value": {"format": "jsonschema", "schema": json.dumps(schema), "framed": False}},
        columns=["value.id"],
    )
    assert table.column(0).to_pylist() == [Decimal(2**64 - 1), Decimal(1)]


def test_null_lists_of_objects_are_null_or_said_to_be_empty(lake, tmp_path):
    values = [{"a": [{"b": 1}], "m": {"n": [{"c": 2}]}}, {"m": {"n": None}}, {"m": None}, {"a": [], "m": {"n": []}}]
    result = export(append(tmp_path / "log", values), lake)
    found = rows(lake)
    a, n = [one["a"] for one in found], [one["m"] and one["m"]["n"] for one in found]
    said = [one.detail.split(":")[0] for one in result.findings]
    if isinstance(lake, Iceberg):  # of pyiceberg
        assert (a, n) == ([[{"b": 1}], [], [], []], [[{"c": 2}], [], None, []])
        assert said == ["2 values of value.a", "1 value of value.m.n"]
    else:
        assert (a, n) == ([[{"b": 1}], None, None, []], [[{"c": 2}], None, None, []])
        assert not said


def test_a_message_of_a_protobuf_file_is_named(tmp_path, capsys):
    schema = tmp_path / "m.proto"
    schema.write_text('syntax = "proto3"; message First { string a = 1; } message Second { uint64 b = 1; }')
    root = append(tmp_path / "log", [b"\x08\x07"])
    command = ["cat", str(root), "--value-format", "protobuf", "--schema", str(schema), "--no-frame", "--json"]
    assert main([*command, "--message", "Second", "--columns", "value"]) == 0
    assert json.loads(capsys.readouterr().out) == {"value": {"b": 7}}
    assert main([*command, "--columns", "value"]) == 0
    assert json.loads(capsys.readouterr().out) == {"value": {"a": ""}}
