"""A field has the same value whatever else is decoded, filtered or asked for, in every engine."""

import json
import random
import warnings

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.types as pt
import pytest
from effort import thinned
from histories import History

import kafkalog
from kafkalog.values.types import field_at

pytestmark = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
HISTORIES = thinned(range(300), 150, spare=8)


def at(array, path):
    try:
        return field_at(array, path)
    except KeyError:
        return pa.nulls(len(array))


def shown(values):
    """Values that compare also if they are NaN."""
    return [repr(value) for value in values]


def paths_of(kind):
    """The fields of a struct, and the fields in them."""
    for field in kind if pt.is_struct(kind) else ():
        yield (field.name,)
        for inner in field.type if pt.is_struct(field.type) else ():
            yield field.name, inner.name


def is_plain(kind):
    return pt.is_integer(kind) or pt.is_floating(kind) or pt.is_string(kind) or pt.is_boolean(kind)


@pytest.mark.parametrize("seed", HISTORIES)
def test_every_projection_and_filter_agrees_with_decoding_everything_first(seed, tmp_path):
    history = History(seed, tmp_path)
    chance = random.Random(seed)

    def read(columns, **more):
        return kafkalog.read_table(history.path, columns=columns, **history.options, **more)

    table = read(["offset", "value", "value_error"]).combine_chunks()
    value = table.column("value").combine_chunks()
    value = value.chunk(0) if isinstance(value, pa.ChunkedArray) else value
    errors = table.column("value_error").to_pylist()
    assert not any("the values before" in (why or "") for why in errors)
    mixed = {path for path in paths_of(value.type) if _is_json_text(at(value, path))}
    names = {path: ".".join(["value", *path]) for path in paths_of(value.type)}
    for path, name in names.items():
        expected = at(value, path)
        alone = read(["offset", name])
        assert alone.schema.field(name).type == expected.type
        assert shown(alone.column(name).to_pylist()) == shown(expected.to_pylist()), name
        beside = read([name, "value_error", "value"])
        assert shown(beside.column(name).to_pylist()) == shown(expected.to_pylist()), name
        assert beside.column("value_error").to_pylist() == errors
        rows = expected.to_pylist()
        conditions = [("is null", None, [row is None for row in rows])]
        if is_plain(expected.type) and path not in mixed:
            known = [row for row in rows if row is not None]
            for literal in known and chance.sample(known, 1):
                conditions.append(("==", literal, [row is not None and row == literal for row in rows]))
        for operation, literal, holds in conditions:
            term = (name, operation) if literal is None else (name, operation, literal)
            wanted = [offset for offset, ok in zip(table.column("offset").to_pylist(), holds, strict=True) if ok]
            for columns in (["offset"], ["offset", name], ["offset", "value"], ["offset", "value_error"]):
                if literal is None or literal == literal:
                    assert read(columns, filters=[term]).column("offset").to_pylist() == wanted, (term, columns)
    _check_engines(history, names, value, table)


def _is_json_text(array):
    if not pt.is_string(array.type):
        return False
    texts = [one for one in array.to_pylist() if one is not None]
    try:
        return any(not isinstance(json.loads(one), str) or one[:1] == '"' for one in texts)
    except ValueError:
        return False


def _check_engines(history, names, value, table):
    columns = ["offset", "value"]
    dataset = kafkalog.dataset(history.path, columns=columns, **history.options)
    assert shown(dataset.to_table(columns=columns).column("value").to_pylist()) == shown(value.to_pylist())
    frame = pl.scan_pyarrow_dataset(dataset).select("offset").collect()
    assert frame["offset"].to_list() == table.column("offset").to_pylist()
    fields = {path: name for path, name in names.items() if len(path) == 1 and is_plain(at(value, path).type)}
    for path in fields:
        expected = at(value, path)
        query = f'select value."{path[0]}" from {{}} order by "offset"'
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = kafkalog.sql(query.format("t"), history.path, on_decode_error="null", **history.options).fetchall()
        assert shown(one for (one,) in rows) == shown(expected.to_pylist())
        assert shown(one for (one,) in duckdb.sql(query.format("dataset")).fetchall()) == shown(expected.to_pylist())
        lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("value").struct.field(path[0]).is_not_null())
        found = lazy.select("offset").collect()["offset"].to_list()
        offsets = table.column("offset").to_pylist()
        assert found == [one for one, item in zip(offsets, expected.to_pylist(), strict=True) if item is not None]


@pytest.mark.parametrize("name", ["avro", "jsonschema"])
def test_value_error_names_all_fields_whichever_are_selected(tmp_path, name):
    schema = {
        "avro": {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
        },
        "jsonschema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    }[name]
    value = {"avro": b"\2\2\xff", "jsonschema": b'{"a":1,"b":"x"}'}[name]
    kafkalog.write_table({"value": [value]}, tmp_path / "log", topic="t")
    decode = {"value": {"format": name, "schema": json.dumps(schema), "framed": False}}
    errors = [
        kafkalog.read_table(tmp_path / "log", columns=columns, decode=decode).column("value_error").to_pylist()
        for columns in (
            ["value", "value_error"],
            ["value_error"],
            ["value_error", "value.a"],
            ["value.a", "value_error"],
        )
    ]
    assert "b" in errors[0][0]
    assert errors == [errors[0]] * 4


def test_a_declared_type_keeps_the_fields_that_fit(tmp_path):
    from kafkalog.values.formats.json_text import JsonValues
    from kafkalog.values.payloads import Payloads

    reader = JsonValues()
    reader.declare(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    payloads = Payloads.of(pa.array([b'{"a":"four","b":"q"}', b'{"a":4,"b":"r","c":1}']))
    found = reader.decode(payloads)
    assert found.array.to_pylist() == [{"a": None, "b": "q"}, {"a": 4, "b": "r"}]
    assert found.faults == {0: "a: another type than the values before have"}
    assert reader.decode(payloads, [("b",)]).array.to_pylist() == [{"b": "q"}, {"b": "r"}]
