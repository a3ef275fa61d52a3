"""Rows of any columns become records, and exports of decoded values come back."""

import gzip
import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from refusals import fails_with

import kafkalog
from kafkalog import UnwritableError
from kafkalog.cli.app import main
from kafkalog.errors import UnknownNameError

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


def values(log, format="json", columns=("value",)):
    return kafkalog.read_table(log, decode={"value": format}, columns=columns).to_pylist()


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "a.arrow"])
def test_rows_of_each_format_become_json(tmp_path, name):
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


def test_a_table_of_rows():
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        log = Path(root) / "log"
        kafkalog.write_table(pa.Table.from_pylist(ROWS), log, topic="t", value_format="json", columns={"key": "name"})
        assert values(log) == [{"value": row} for row in ROWS]


@pytest.mark.parametrize("more", [[], ["--schema-id", "9"]])
def test_the_command_encodes_avro_and_protobuf(tmp_path, more):
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


def test_columns_of_records_are_no_part_of_the_value(tmp_path):
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


def loaded(path, tmp_path, **options):
    result = kafkalog.load(path, tmp_path / "log", **{"topic": "t", "value_format": "json", **options})
    table = kafkalog.read_table(tmp_path / "log").to_pylist()
    shutil.rmtree(tmp_path / "log")
    return [json.loads(row["value"]) for row in table], result


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("column", "values", "options"),
    [
        ("topic", ["news", "sport"], {"topic": "articles"}),
        ("partition", [3, 5], {"partitions": 1}),
        ("partition", [-3, None], {"partitions": 2}),
        ("offset", [120, 60], {"keep_offsets": False}),
        ("offset", [120, 60], {"partitions": 2}),
        ("segment", ["gold", "silver"], {}),
        ("sequence", [7, 5], {}),
    ],
)
def test_columns_of_the_user_named_like_those_of_a_record(tmp_path, suffix, column, values, options):
    rows = [{"id": at, column: value} for at, value in enumerate(values, 1)]
    path = write_rows(tmp_path / f"a.{suffix}", rows)
    found, _ = loaded(path, tmp_path, **options)
    assert sorted(found, key=lambda row: row["id"]) == rows


def write_rows(path, rows):
    """A file of rows, by its suffix."""
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_numbers_of_csv_are_printed_as_they_are_written(tmp_path):
    cells = {
        "ref": ["32E0134", "12E12"], "version": ["1.10", "1.1"], "minus": ["-0", "1"], "tiny": ["0.00001", "1"],
        "long": ["0.12345678901234567890", "1"], "zip": ["01234", "1"], "n": ["1", "-20"], "x": ["0.5", "1.0"],
        "big": ["123456789012345678901234567890", "1"],
    }  # fmt: skip
    rows = [*zip(*cells.values(), strict=True)]
    path = write(tmp_path / "a.csv", "\n".join(",".join(row) for row in ([*cells], *rows)) + "\n")
    found, result = loaded(path, tmp_path)
    for name, texts in cells.items():
        values = [row[name] for row in found]
        if name in ("n", "x", "big"):
            assert [repr(value) for value in values] == texts
        else:
            assert values == texts
    (note,) = (note for note in result.notes if "stay text" in note)
    for name in ("ref", "version", "minus", "tiny", "long"):
        assert f"{name} (such as" in note
    found, _ = loaded(path, tmp_path, text_columns=["n", "x"])
    assert [(row["n"], row["x"]) for row in found] == [("1", "0.5"), ("-20", "1.0")]
    with pytest.raises(UnknownNameError, match="there is no column 'nothing'"):
        loaded(path, tmp_path, text_columns=["nothing"])


def test_a_file_whose_columns_say_nothing_names_the_option(tmp_path, capsys):
    path = write(tmp_path / "a.csv", CSV)
    assert main(["load", str(path), "-o", str(tmp_path / "log"), "--topic", "t"]) != 0
    assert "--value-format json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schema": '"int"'}, ValueError, "value_format"),
        ({"header_columns": ["id"]}, ValueError, "value_format"),
        ({"value_format": "avro"}, ValueError, "needs a schema"),
        ({"value_format": "json", "columns": {"key": "nothing"}}, UnknownNameError, "no column 'nothing'"),
        ({"value_format": "json", "header_columns": ["nothing"]}, UnknownNameError, "no column 'nothing'"),
        ({"value_format": "avro", "schema": json.dumps(SCHEMA | {"fields": SCHEMA["fields"][:1]})}, UnwritableError,
         r"row 0: the value has a field"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        kafkalog.load(write(tmp_path / "a.csv", CSV), tmp_path / "log", topic="t", **options)
    assert not (tmp_path / "log").exists()


def test_rows_from_a_stream(tmp_path):
    stream = io.BytesIO(CSV.encode())
    kafkalog.load(stream, tmp_path / "log", format="csv", topic="t", value_format="json")
    assert values(tmp_path / "log") == [{"value": row} for row in ROWS]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "csv", "jsonl"])
@pytest.mark.parametrize(("key", "value"), [("utf8", "json"), ("long", "json"), (None, "json"), ("int", None)])
def test_decoded_columns_are_exported_and_loaded(tmp_path, suffix, key, value):
    """A load with the formats of the export restores keys, values and headers."""
    rows = [{"id": 1, "s": {"x": [1, None]}, "t": "é"}, None, {"id": 2**60 + 1, "s": None, "t": "a,b"}]
    keys = {
        "utf8": [b"abcd", None, b"c,\xc3\xa9"], "long": [b"\0" * 7 + b"\5", None, b"\xff" * 8],
        "int": [b"\0" * 4, None, b"\xff" * 4], None: [b"\xff", None, b""],
    }[key]  # fmt: skip
    one = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], [], [{"key": "", "value": b"abcd"}]]
    data = {
        "key": keys,
        "value": [row and json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() for row in rows],
        "headers": pa.array(headers, one),
        "timestamp": [1, 2, 3],
    }
    kafkalog.write_table(data, tmp_path / "log", topic="t")
    output, again = tmp_path / f"o.{suffix}", tmp_path / "again"
    decode = {name: format for name, format in (("key", key), ("value", value)) if format is not None}
    kafkalog.export(tmp_path / "log", output, decode=decode)
    formats = {"key_format": key, "value_format": value}
    if key is None and suffix in ("csv", "jsonl"):
        with fails_with("column_type"):
            kafkalog.load(output, again, **formats)
        formats["encoding"] = "base64"
    kafkalog.load(output, again, **formats)
    first, second = (kafkalog.read_table(one) for one in (tmp_path / "log", again))
    assert first.equals(second)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_columns_of_headers_are_headers_again(tmp_path, suffix):
    one = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "a.b", "value": b"1"}, {"key": "c", "value": b"\xff"}], [], [{"key": "c", "value": b""}]]
    rows = {"value": [b'{"x":1}', b'{"x":2}', None], "headers": pa.array(headers, one)}
    kafkalog.write_table(rows, tmp_path / "log", topic="t")
    columns = ["value", "headers.a.b", "headers.c", "timestamp_type"]
    for decode in ({}, {"value": "json"}):
        output, again = tmp_path / f"{len(decode)}.{suffix}", tmp_path / f"again{len(decode)}"
        kafkalog.export(tmp_path / "log", output, columns=columns, decode=decode)
        kafkalog.load(output, again, topic="t", value_format=decode.get("value"))
        assert kafkalog.read_table(again, columns=["value", "headers"]).equals(
            kafkalog.read_table(tmp_path / "log", columns=["value", "headers"])
        )


def test_cells_keep_their_digits_and_name_what_a_record_has(tmp_path):
    text = "id,big,price,at,p\n7,9223372036854775808,0.1000000000000000055511151231257827,2024-01-01T00:00:00Z,1\n"
    path = write(tmp_path / "a.csv", text + "8,1,1,2024-01-01T00:00:01.5Z,0\n")
    columns = {"timestamp": "at", "key": "id", "partition": "p"}
    kafkalog.load(path, tmp_path / "log", topic="t", value_format="json", columns=columns)
    found = kafkalog.read_table(tmp_path / "log", columns=["partition", "timestamp", "key", "value"]).to_pylist()
    assert [row["value"].decode() for row in found] == [
        '{"id":8,"big":1,"price":1,"at":"2024-01-01T00:00:01.5Z","p":0}',
        f'{{"id":7,"big":{2**63},"price":0.1000000000000000055511151231257827,"at":"2024-01-01T00:00:00Z","p":1}}',
    ]
    assert [row["timestamp"].isoformat() for row in found] == [
        "2024-01-01T00:00:01.500000+00:00",
        "2024-01-01T00:00:00+00:00",
    ]
