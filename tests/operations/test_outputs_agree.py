"""Decoded values of every type, with awkward names and extremes, are the same wherever they are shown or stored."""

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from io import BytesIO
from itertools import chain

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.types as pt
import pytest
from avro_cases import AvroCase
from effort import fuzz_inputs
from lakes import Delta, Iceberg

import kafkalog
from kafkalog.cli.app import main

NUMBERS = 'syntax = "proto3"; message M { uint64 u64 = 1; repeated fixed32 u32 = 2; map<uint32, uint64> m = 3; E e = 4;'
NUMBERS += " oneof o { string s = 5; sint64 n = 6; } enum E { A = 0; B = 1; } }"
JSON = [
    {
        "a b": 1,
        "user.id": {"x.y": [1.5, None]},
        "ü": "käse\U0001f9c0",
        "select": True,
        "x,y": "",
        "big": 2**64,
        "o": {},
    },
    {"a b": -(2**63), 'q"': "null", "%s": "a\n\"b\",'c'\t\\", "mixed": [1, "a", {"b": None}], "l": [[], [{"z": None}]]},
    {"mixed": {"k": 0.1}, "ü": None, "l": [], "user.id": None, "select": False, "big": 1, "x,y": " \r\n"},
    None,
]


def field(called, kind, **more):
    return {"name": called, "type": {"type": kind, **more} if more else kind}


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        *(field(kind, kind) for kind in ("boolean", "int", "long", "float", "double", "bytes", "string")),
        field("date", "int", logicalType="date"),
        *(field(f"t_{one}", "long", logicalType=f"timestamp-{one}") for one in ("millis", "micros", "nanos")),
        field("local", "long", logicalType="local-timestamp-micros"),
        field("time_ms", "int", logicalType="time-millis"),
        field("time_us", "long", logicalType="time-micros"),
        field("dec", "bytes", logicalType="decimal", precision=38, scale=3),
        field("huge", "bytes", logicalType="decimal", precision=60, scale=3),
        field("fixed", "fixed", name="F", size=3),
        field("enum", "enum", name="E", symbols=["A", "select"]),
        field("map", "map", values=["null", "long"]),
        field("union", ["null", "long", {"type": "record", "name": "U", "fields": [field("x", "string")]}]),
        field("times", "array", items=["null", {"type": "long", "logicalType": "timestamp-micros"}]),
        field("records", "array", items={"type": "record", "name": "I", "fields": [field("d", ["null", "double"])]}),
    ],
}
_US = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
_EARLY = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)


def row(**values):
    return values


AVRO_VALUES = [
    row(
        boolean=True, int=2**31 - 1, long=2**63 - 1, float=float(np.float32(0.1)), double=5e-324, bytes=b"\xff\0",
        string="ü\0", date=dt.date(9999, 12, 31), t_micros=_US, t_nanos=2**62 - 904,
        t_millis=_US.replace(microsecond=999_000), local=_US.replace(tzinfo=None),
        time_ms=dt.time(23, 59, 59, 999_000), time_us=dt.time(23, 59, 59, 999_999),
        dec=Decimal("9" * 35 + ".999"), huge=Decimal("-" + "9" * 57 + ".001"), fixed=b"\0\1\2", enum="select",
        map={"a.b": 1, "": None, 'q"': -1}, union=("U", {"x": ""}), times=[_US, None],
        records=[{"d": None}, {"d": 1.0}],
    ),
    row(
        boolean=False, int=-(2**31), long=-(2**63), float=math.inf, double=math.nan, bytes=b"", string='null,"\n',
        date=dt.date(1, 1, 1), t_millis=_EARLY, t_micros=_EARLY, t_nanos=1000, local=_EARLY.replace(tzinfo=None),
        time_ms=dt.time(0), time_us=dt.time(0, 0, 0, 1), dec=Decimal("0.001"), huge=Decimal(0), fixed=b"\xff" * 3,
        enum="A", map={}, union=2**53 + 1, times=[], records=[],
    ),
    row(
        boolean=False, int=0, long=0, float=-0.0, double=-math.inf, bytes=b"a", string="", date=dt.date(1970, 1, 1),
        t_millis=_EARLY, t_micros=_EARLY, t_nanos=-1000, local=_EARLY.replace(tzinfo=None), time_ms=dt.time(12),
        time_us=dt.time(12), dec=Decimal(-1), huge=Decimal(1), fixed=b"abc", enum="A", map={"k": None}, union=None,
        times=[None], records=[{"d": -0.5}],
    ),
]  # fmt: skip
PROTO_VALUES = [
    b"\x08" + b"\xff" * 9 + b"\1" + b"\x12\x08" + b"\xff" * 4 + b"\0" * 4
    + b"\x1a\x11\x08\xff\xff\xff\xff\x0f\x10" + b"\xff" * 9 + b"\1",
    b"\x20\1\x30\1",
    b"\x20\7\x2a\0",
]  # fmt: skip


def encoded():
    found = []
    for value in AVRO_VALUES:
        data = BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(AVRO))), value)
        found.append(data.getvalue())
    return found


LOGS = {
    "json": ([one and json.dumps(one).encode() for one in JSON], {"format": "json"}),
    "avro": (encoded(), {"format": "avro", "schema": json.dumps(AVRO), "framed": False}),
    "protobuf": (PROTO_VALUES, {"format": "protobuf", "schema": NUMBERS, "framed": False}),
}


@pytest.fixture(params=LOGS)
def case(request, tmp_path):
    values, how = LOGS[request.param]
    stamps = [1_700_000_000_000 + row for row in range(len(values))]
    keys = [b"\xff", None, b"", b"k"][: len(values)]
    kafkalog.write_table({"key": keys, "value": values, "timestamp": stamps}, tmp_path / "log", topic="t")
    return tmp_path, how


U64, U32 = 2**64 - 1, 2**32 - 1
TRUTH = {
    "json": JSON,
    "avro": [
        one
        | {
            "union": {"U": one["union"][1]}
            if isinstance(one["union"], tuple)
            else one["union"] and {"long": one["union"]}
        }
        for one in AVRO_VALUES
    ],
    "protobuf": [
        {"u64": U64, "u32": [U32, 0], "m": {U32: U64}, "e": "A"},
        {"u64": 0, "u32": [], "m": {}, "e": "B", "n": -1},
        {"u64": 0, "u32": [], "m": {}, "e": "7", "s": ""},
    ],
}


def canonical(value, kind):
    """A value of a type, in whatever form an output has it."""
    if value is None or pt.is_null(kind):
        return None
    if pt.is_struct(kind):
        if not kind.num_fields:
            return {}
        value = json.loads(value) if isinstance(value, str) else value
        return {one.name: canonical(value.get(one.name), one.type) for one in kind}
    if pt.is_list(kind):
        return [canonical(one, kind.value_type) for one in value]
    if pt.is_map(kind):
        pairs = (
            value.items()
            if isinstance(value, dict)
            else [tuple(one.values()) if isinstance(one, dict) else one for one in value]
        )
        return sorted((str(key), canonical(one, kind.item_type)) for key, one in pairs)
    if pt.is_integer(kind):
        return int(value)
    if pt.is_decimal(kind):
        return Decimal(value)
    if pt.is_floating(kind):
        number = float(value)
        return (
            str(number)
            if not math.isfinite(number)
            else repr(float(np.float32(number)) if kind == pa.float32() else number)
        )
    if isinstance(value, int) and pt.is_timestamp(kind):
        value = np.datetime64(value, kind.unit)
    if pt.is_timestamp(kind) or pt.is_date(kind):
        text = value.isoformat() if isinstance(value, (dt.date, dt.datetime)) else str(value)
        text = text.replace("+00:00", "").removesuffix("Z").replace(" ", "T")
        return str(np.datetime64(text, "D" if pt.is_date(kind) else "us"))
    if pt.is_time(kind):
        return dt.time.fromisoformat(str(value)).isoformat("microseconds")
    if pt.is_binary(kind) or pt.is_fixed_size_binary(kind):
        return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    # without a common type, it is JSON
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def without_nan(value):
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list) else None if value == "nan" else value


def values_of(table):
    return table.sort_by("offset").column("value").to_pylist()


def files(folder, options, found):
    """The values in files and tables, as these have them; findings of the exports are added to `found`."""
    log = folder / "log"
    for suffix in ("parquet", "arrow", "csv", "jsonl"):
        found += kafkalog.export(log, folder / f"o.{suffix}", **options).findings
    yield "parquet", values_of(pq.read_table(folder / "o.parquet"))
    yield "arrow", values_of(pa.ipc.open_file(folder / "o.arrow").read_all())
    nulls = {"strings_can_be_null": True, "quoted_strings_can_be_null": False}
    convert = pa.csv.ConvertOptions(column_types={"value": pa.string()}, **nulls)
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    texts = pa.csv.read_csv(folder / "o.csv", parse_options=parse, convert_options=convert).column("value").to_pylist()
    yield "csv", [text and json.loads(text) for text in texts]
    yield "jsonl", [json.loads(line)["value"] for line in (folder / "o.jsonl").read_text().splitlines()]
    (folder / "lake").mkdir()
    for lake in (Delta(folder / "lake"), Iceberg(folder / "lake")):
        found += lake.run(log, **options, partition_by=()).findings
        stored = lake.table().to_pyarrow_table() if isinstance(lake, Delta) else lake.output.scan().to_arrow()
        yield lake.format, values_of(stored)
        if lake.format == "delta" or options["decode"]["value"] != {"format": "json"}:
            # Iceberg's files have other names for awkward ones
            rows = duckdb.sql(f'select "offset", value from {lake.scanned()}').to_arrow_table()
            yield f"{lake.format} in DuckDB", values_of(rows)


def shown(folder, how, printed):
    """The values as programs have them, and as commands print them."""
    log, decode = folder / "log", {"value": how}
    yield "dataset", values_of(kafkalog.dataset(log, decode=decode).to_table())
    yield "polars", kafkalog.scan(log, decode=decode).to_polars()["value"].to_list()
    options = ["--value-format", how["format"]]
    if "schema" in how:
        (folder / "schema").write_text(how["schema"])
        options += ["--schema", str(folder / "schema"), "--no-frame"]
    for command in (["cat", str(log)], ["sql", 'select * from t order by "offset"', str(log)]):
        assert main([*command, *options, "--json"]) == 0
        yield command[0], [json.loads(line)["value"] for line in printed().splitlines()]
    frame = kafkalog.read_pandas(log, decode=decode)
    yield "pandas", [one if isinstance(one, dict) else None for one in frame["value"]]


def test_values_are_the_same_everywhere(case, capsys):
    folder, how = case
    table = kafkalog.read_table(folder / "log", decode={"value": how})
    kind = table.schema.field("value").type
    expected = [canonical(one, kind) for one in TRUTH[how["format"]]]
    assert [canonical(one, kind) for one in table.column("value").to_pylist()] == expected
    findings = []
    everywhere = (
        files(folder, {"decode": {"value": how}}, findings),
        shown(folder, how, lambda: capsys.readouterr().out),
    )
    for name, found in chain(*everywhere):
        same = [canonical(one, kind) for one in found]
        if name == "pandas":  # NumPy has no null in a list of numbers
            same, expected = without_nan(same), without_nan(expected)
        assert same == expected, name
    assert not findings


WIDER = {"int": "long", "long": "double", "float": "double"}


def history(seed):
    """Versions of a random schema: fields come and go, and types become wider."""
    case = AvroCase(seed)
    fields = case.schema["fields"]
    for _ in range(3):
        kept = [one for one in fields if case.random.random() < 0.8] or fields[:1]
        yield case.schema | {"fields": kept}, case
        fields = [
            one | {"type": WIDER[one["type"]]} if str(one["type"]) in WIDER and case.random.random() < 0.5 else one
            for one in fields
        ]


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(2))
def test_histories_of_schemas_are_the_same_in_files_and_tables(tmp_path, part):
    """Each value is what its writer wrote, or null with a finding, and the same in each output."""
    for seed in range(part, max(fuzz_inputs() // 4000, 2), 2):
        schemas, values, truth = {}, [], []
        for number, (schema, case) in enumerate(history(seed)):
            schemas[number] = json.dumps(schema)
            parsed = fastavro.parse_schema(json.loads(schemas[number]))
            for _ in range(110):
                given, is_shown = case._value(schema)
                data = BytesIO()
                fastavro.schemaless_writer(data, parsed, given)
                values.append(b"\0" + number.to_bytes(4, "big") + data.getvalue())
                truth.append(is_shown)
        folder = tmp_path / str(seed)
        folder.mkdir()
        kafkalog.write_table({"value": values}, folder / "log", topic="t")
        options = {"decode": {"value": "avro"}, "schemas": schemas}
        scan = kafkalog.scan(folder / "log", **options)
        table = scan.to_table()
        kind = table.schema.field("value").type
        expected = [canonical(one, kind) for one in table.column("value").to_pylist()]
        n_null = 0
        for one, row in zip(truth, expected, strict=True):
            for name, field_value in canonical(one, kind).items():
                n_null += row[name] != field_value
                assert row[name] in (field_value, None), (seed, name)
        assert n_null == sum(int(one.detail.split()[0]) for one in scan.findings)
        findings = []
        for name, found in files(folder, options, findings):
            if "iceberg" not in name or not any("empty one" in one.detail for one in findings):
                assert [canonical(one, kind) for one in found] == expected, (seed, name)
