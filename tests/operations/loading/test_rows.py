"""Rows of any columns become records, and exports of decoded values come back."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog import UnwritableError
from kafkalog.cli.app import main

CSV = 'id,name,total,zip,ok,when\n7,Ann,1.5,00123,true,2026-01-01\n8,"B, ""o""",2,9,false,\n'
ROWS = [
    {"id": 7, "name": "Ann", "total": 1.5, "zip": "00123", "ok": True, "when": "2026-01-01"},
    {"id": 8, "name": 'B, "o"', "total": 2.0, "zip": "9", "ok": False, "when": None},
]
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "total", "type": "double"},
        {"name": "zip", "type": "string"}, {"name": "ok", "type": "boolean"},
        {"name": "when", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}  # fmt: skip


def values(log: Path, format: Any = "json", columns: Any = ("value",)) -> list[Any]:
    return kafkalog.read_table(log, decode={"value": format}, columns=columns).to_pylist()


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "a.arrow"])
def test_rows_of_each_format_become_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    table = pa.Table.from_pylist(ROWS)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        write(path, CSV if "csv" in name else "".join(f"{json.dumps(row)}\n" for row in ROWS))
    kafkalog.load(path, tmp_path / "log", topic="t", value_format="json", columns={"key": "id"}, header_columns=["zip"])
    found = kafkalog.read_table(tmp_path / "log", columns=["key", "value", "headers"]).to_pylist()
    assert [json.loads(row["value"]) for row in found] == [
        {name: value for name, value in row.items() if name != "zip"} for row in ROWS
    ]
    assert [row["key"] for row in found] == [b"7", b"8"]
    assert [row["headers"] for row in found] == [[{"key": "zip", "value": b"00123"}], [{"key": "zip", "value": b"9"}]]


def test_a_table_of_rows() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        log = Path(root) / "log"
        kafkalog.write_table(pa.Table.from_pylist(ROWS), log, topic="t", value_format="json", columns={"key": "name"})
        assert values(log) == [{"value": row} for row in ROWS]


@pytest.mark.parametrize("more", [[], ["--schema-id", "9"]])
def test_the_command_encodes_avro_and_protobuf(tmp_path: Path, more: list[str]) -> None:
    path = write(tmp_path / "a.csv", CSV)
    write(tmp_path / "s.avsc", json.dumps(SCHEMA))
    write(tmp_path / "other.proto", 'syntax = "proto3"; message Name { string v = 1; }')
    proto = 'syntax = "proto3"; import "other.proto"; message No { int32 a = 1; } message M { optional int64 id = 1;'
    write(
        tmp_path / "m.proto",
        proto + " string name = 2; double total = 3; string zip = 4; bool ok = 5; string when = 6; }",
    )
    for format, schema, extra in (("avro", "s.avsc", []), ("protobuf", "m.proto", ["--message", "M"])):
        output, schema = tmp_path / format, str(tmp_path / schema)
        command = ["load", str(path), "-o", str(output), "--topic", "t", "--value-format", format, "--schema", schema]
        assert main([*command, *extra, *more]) == 0
        how = {"format": format, "schema": schema, "framed": bool(more), **({"message": "M"} if extra else {})}
        rows = [row["value"] for row in values(output, how)]
        assert [row | {"when": row["when"] and str(row["when"])} for row in rows] == [
            ROWS[0], ROWS[1] if format == "avro" else ROWS[1] | {"when": ""},
        ]  # fmt: skip


def test_columns_of_records_are_no_part_of_the_value(tmp_path: Path) -> None:
    rows = [
        {"key": "k", "timestamp": 5, "headers": [["h", "v"]], "partition": 0, "offset": 3, "a": 18446744073709551615},
        {"key": None, "timestamp": None, "headers": [], "partition": 0, "offset": 4, "b": [1e-7, {}]},
    ]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    kafkalog.load(path, tmp_path / "log", topic="t", value_format="json")
    found = kafkalog.read_table(tmp_path / "log").to_pylist()
    assert [json.loads(row["value"]) for row in found] == [{"a": 2**64 - 1}, {"b": [1e-7, {}]}]
    assert [(row["offset"], row["key"]) for row in found] == [(3, b"k"), (4, None)]
    assert found[0]["headers"] == [{"key": "h", "value": b"v"}]


def test_a_file_whose_columns_say_nothing_names_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", CSV)
    assert main(["load", str(path), "-o", str(tmp_path / "log"), "--topic", "t"]) != 0
    assert "--value-format json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schema": '"int"'}, ValueError, "value_format"),
        ({"header_columns": ["id"]}, ValueError, "value_format"),
        ({"value_format": "avro"}, ValueError, "needs a schema"),
        ({"value_format": "json", "columns": {"key": "nothing"}}, UnwritableError, "no column 'nothing'"),
        ({"value_format": "json", "header_columns": ["nothing"]}, UnwritableError, "no column 'nothing'"),
        ({"value_format": "avro", "schema": json.dumps(SCHEMA | {"fields": SCHEMA["fields"][:1]})}, UnwritableError,
         r"row 0: the value has a field"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        kafkalog.load(write(tmp_path / "a.csv", CSV), tmp_path / "log", topic="t", **options)
    assert not (tmp_path / "log").exists()


def test_rows_from_a_stream(tmp_path: Path) -> None:
    stream = io.BytesIO(CSV.encode())
    kafkalog.load(stream, tmp_path / "log", format="csv", topic="t", value_format="json")
    assert values(tmp_path / "log") == [{"value": row} for row in ROWS]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "csv", "jsonl"])
def test_decoded_values_are_exported_and_loaded(tmp_path: Path, suffix: str) -> None:
    rows = [{"id": 1, "s": {"x": [1, None]}, "t": "é"}, None, {"id": 2**60 + 1, "s": None, "t": "a,b"}]
    data = {
        "key": [b"a", None, b"c"],
        "value": [row and json.dumps(row, separators=(",", ":")).encode() for row in rows],
    }
    kafkalog.write_table({**data, "timestamp": [1, 2, 3]}, tmp_path / "log", topic="t")
    how: dict[str, Any] = {"encoding": "utf8"} if suffix in ("csv", "jsonl") else {}
    kafkalog.export(tmp_path / "log", tmp_path / f"o.{suffix}", decode={"value": "json", "key": "utf8"}, **how)
    kafkalog.load(tmp_path / f"o.{suffix}", tmp_path / "again", value_format="json")
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    first, second = (
        kafkalog.read_table(tmp_path / one, columns=columns, decode={"value": "json"}) for one in ("log", "again")
    )
    assert first.equals(second)
