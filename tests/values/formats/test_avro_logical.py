"""Avro's logical types that Arrow lacks, the schema `bytes` in frames, and unions that appear in a later version."""

import io
import json
import uuid
from decimal import Decimal, localcontext

import fastavro
import pyarrow as pa
import pytest

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.values.encoding import EncodeError, ValueEncoder
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.payloads import Payloads

U = str(uuid.UUID(int=2**127 + 5))


def decoded(schema, values, **options):
    found = AvroValues(json.dumps(schema), **options).decode(Payloads.of(pa.array(values, pa.binary())))
    assert not found.failures
    return found.array


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
@pytest.mark.parametrize(("precision", "scale"), [(38, 2), (76, 18), (78, 0), (100, 18), (5000, 4999)])
def test_decimals_keep_all_digits(kind, precision, scale):
    schema = {"type": kind, "logicalType": "decimal", "precision": precision, "scale": scale}
    if kind == "fixed":
        schema |= {"name": "D", "size": precision // 2}
    encoder = ValueEncoder("avro", json.dumps(schema))
    with localcontext(prec=precision):
        numbers = [Decimal("9" * precision).scaleb(-scale), Decimal("-" + "9" * precision).scaleb(-scale)]
        numbers += [Decimal(0), Decimal(1).scaleb(-scale), Decimal(-5)]
        assert [
            Decimal(str(one)) for one in decoded(schema, [written(schema, one) for one in numbers]).to_pylist()
        ] == numbers
        for one in numbers:
            assert encoder.encode(f"{one:f}") == written(schema, one)
    with pytest.raises(EncodeError, match="digits"):
        encoder.encode("1" * (precision + 1))
    with pytest.raises(EncodeError, match="a decimal"):
        encoder.encode("NaN")


def test_decimals_of_more_digits_than_arrow_has_are_text():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 100, "scale": 18}
    texts = ["18.446744073709551616", "-0.000000000000000005", f"{2**256}.500000000000000000"]
    encoder = ValueEncoder("avro", json.dumps(schema))
    assert decoded(schema, [encoder.encode(one) for one in texts]).to_pylist() == texts


def test_uuids_durations_and_big_decimals_round_trip():
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "u", "type": ["null", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}]},
            {"name": "d", "type": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}},
            {"name": "b", "type": ["null", {"type": "bytes", "logicalType": "big-decimal"}]},
            {"name": "z", "type": {"type": "fixed", "name": "Z", "size": 0}},
            {"name": "l", "type": {"type": "map", "values": "U"}},
        ],
    }
    duration = {"months": 1, "days": 2, "millis": 2**32 - 1}
    values = [
        {"u": U, "d": duration, "b": "12.3400", "z": b"", "l": {"x": U}},
        {"u": None, "d": dict.fromkeys(duration, 0), "b": None, "z": b"", "l": {}},
    ]
    encoder = ValueEncoder("avro", json.dumps(schema))
    array = decoded(schema, [encoder.encode(values[0]), None, encoder.encode(values[1])])
    assert array.to_pylist(maps_as_pydicts="strict") == [values[0], None, values[1]]
    assert array.type.field("z").type == pa.binary()
    # fastavro knows UUIDs, and passes the bytes of the others: three numbers of four bytes, little-endian
    found = fastavro.schemaless_reader(io.BytesIO(encoder.encode(values[0])), fastavro.parse_schema(schema), None)
    assert found["d"] == (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"\xff" * 4
    # Source: Conversions.BigDecimalConversion, Avro 1.12: the number as bytes, then the scale
    number = (123400).to_bytes(3, "big")
    assert found["b"] == b"\x06" + number + b"\x08"
    for name, wrong in (("u", "x"), ("d", {"months": 1}), ("d", {**duration, "days": -1}), ("b", "x")):
        with pytest.raises(EncodeError, match=f"^{name}"):
            encoder.encode({**values[0], name: wrong})


def test_a_big_decimal_without_a_scale_does_not_decode():
    schema = {"type": "bytes", "logicalType": "big-decimal"}
    good = ValueEncoder("avro", json.dumps(schema)).encode("-1E+3")
    values = pa.array([good, b"\4\2\5", b"\0", b"\6\2\5\0"])
    found = AvroValues(json.dumps(schema)).decode(Payloads.of(values))
    assert found.array.to_pylist() == ["-1000", None, None, "5"]
    assert found.failures == {1: "a big-decimal is too short", 2: "a big-decimal is too short"}


def test_a_framed_schema_of_bytes_has_no_length(tmp_path):
    values = [b'{"id": "1"}', b"\x06abc", b"", b"\0"]
    with PartitionWriter(tmp_path / "t-0") as writer:
        frames = [b"\0\0\0\0\1" + one for one in values]
        writer.append({"key": [*frames, None], "value": [*frames, None]})
    options = {"decode": {"key": "avro", "value": "avro"}, "schemas": {1: '"bytes"'}, "columns": ["key", "value"]}
    for one in (
        options,
        {**options, "decode": {name: {"format": "avro", "schema": '"bytes"'} for name in ("key", "value")}},
    ):
        table = kafkalog.read_table(tmp_path, **one)
        assert table.column("value").to_pylist() == table.column("key").to_pylist() == [*values, None]
    encoder = ValueEncoder("avro", '"bytes"', schema_id=1)
    assert [encoder.encode(one) for one in values] == frames
    assert ValueEncoder("avro", '"bytes"').encode(b"ab") == b"\x04ab"
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert decoded(decimal, [b"\1\0"], is_framed=True).to_pylist() == [Decimal("2.56")]
    assert decoded(["null", "bytes"], [b"\2\4ab"], is_framed=True).to_pylist() == [b"ab"]


R = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
R2 = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (
            [("string", "x"), (["null", "string"], "x"), (["null", "string", "int"], 7)],
            [{"string": "x", "int": None}, {"string": "x", "int": None}, {"string": None, "int": 7}],
        ),
        (
            [(["null", "string"], None), (["string", "int"], "x")],
            [None, {"string": "x", "int": None}],
        ),
        (
            [(R, {"x": 1}), (["null", R2, "int"], {"x": "t"}), (["null", R2, "int"], 5)],
            [
                {"R": {"x": {"int": 1, "string": None}}, "int": None},
                {"R": {"x": {"int": None, "string": "t"}}, "int": None},
                {"R": None, "int": 5},
            ],
        ),
        ([("int", 1), ("string", "1"), (R, {"x": 5})], ["1", '"1"', '{"x":5}']),
        ([({"type": "array", "items": "int"}, [5]), ("string", "[5]")], ["[5]", '"[5]"']),
    ],
)
@pytest.mark.parametrize("columns", [["value"], ["value.a"]])
def test_a_value_has_one_form_in_all_versions(tmp_path, versions, expected, columns):
    schemas = [
        {"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": "int"}]}
        for kind, _ in versions
    ]
    with PartitionWriter(tmp_path / "t-0") as writer:
        for number, (schema, (_, value)) in enumerate(zip(schemas, versions, strict=True)):
            writer.append({"value": [b"\0\0\0\0" + bytes([number]) + written(schema, {"a": value, "b": 0})]})
    known = {number: json.dumps(schema) for number, schema in enumerate(schemas)}
    table = kafkalog.read_table(tmp_path, decode={"value": "avro"}, schemas=known, columns=columns)
    found = table.column(0).to_pylist()
    assert [one["a"] if columns == ["value"] else one for one in found] == expected
