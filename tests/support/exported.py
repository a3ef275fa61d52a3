"""What exports hold, read without kafkalog."""

import base64
import json
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq

BYTES = ("key", "value")


def parse_csv(text, null):
    """RFC 4180 by the letter, which tells what is in quotes from what is not."""
    pattern = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\n)')
    position, row = 0, []
    while position < len(text):
        match = pattern.match(text, position)
        assert match, text[position : position + 80]
        quoted, plain, end = match.groups()
        row.append(quoted.replace('""', '"') if quoted is not None else None if plain == null else plain)
        position = match.end()
        if end == "\n":
            yield row
            row = []


def from_text(name, text, kind):
    """A value as `to_pylist` has it, of its text in CSV."""
    if text is None:
        return None
    if name in BYTES:
        return base64.b64decode(text, validate=True)
    if name == "headers":
        return from_json_headers(json.loads(text))
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    return text if pa.types.is_string(kind) else int(text)


def from_json_headers(headers):
    return [
        {"key": name, "value": None if value is None else base64.b64decode(value, validate=True)}
        for name, value in headers
    ]


def from_json(line):
    row = json.loads(line)
    for name in BYTES:
        if row.get(name) is not None:
            row[name] = base64.b64decode(row[name], validate=True)
    if "headers" in row:
        row["headers"] = from_json_headers(row["headers"])
    return dict(row)


def rows_of(table):
    """Rows with timestamps in milliseconds."""
    index = table.schema.get_field_index("timestamp")
    return (
        table.set_column(index, "timestamp", table["timestamp"].cast("int64")).to_pylist()
        if index >= 0
        else table.to_pylist()
    )


def read_csv_rows(path, schema, null=""):
    header, *lines = parse_csv(path.read_bytes().decode(), null)
    assert header == schema.names
    return [
        {name: from_text(name, text, schema.field(name).type) for name, text in zip(schema.names, line, strict=True)}
        for line in lines
    ]


def read_parquet(path):
    return pq.read_table(path)


def read_arrow(path):
    return pa.ipc.open_file(str(path)).read_all()


def read_stream(path):
    return pa.ipc.open_stream(path.read_bytes()).read_all()


def records(table, *names):
    """Rows of a table; a timestamp that is none is -1, as it is written."""
    names = names or ("timestamp", "key", "value", "headers")
    rows = []
    for row in table.select(list(names)).to_pylist():
        if "timestamp" in row:
            stamp = row["timestamp"]
            row["timestamp"] = -1 if stamp is None else round(stamp.timestamp() * 1000)
        rows.append(tuple(str(value) if isinstance(value, list) else value for value in row.values()))
    return rows
