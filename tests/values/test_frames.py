"""Frames of schema registries: next to a twin in plain Python, and from end to end."""

import io
import json
import random
import struct
import uuid
import zlib

import fastavro
import pyarrow as pa
import pytest

import kafkalog
from kafkalog import DecodeWarning
from kafkalog.cli import main
from kafkalog.values import frames
from kafkalog.values.frames import FrameReader
from kafkalog.values.payloads import Payloads

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
GUID = "0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab"


def avro(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": value})
    return out.getvalue()


def glue(key, payload, *, compressed=False):
    """A value as GlueSchemaRegistrySerializer writes it."""
    data = zlib.compress(payload) if compressed else payload
    return bytes([3, 5 if compressed else 0]) + uuid.UUID(key).bytes + data


def reference(name):
    """Apicurio's message `Ref`, delimited."""
    return bytes([len(name) + 2, 10, len(name)]) + name.encode()


def zigzag(*numbers):
    return bytes(2 * number for number in numbers)


class Twin:
    """Random values with frames; `expected` has the schema, the message and the own bytes of each."""

    def __init__(self, seed, *, column, is_protobuf):
        self.random = chance = random.Random(seed)
        self.values, self.headers, self.expected = [], [], []
        self._column, self._is_protobuf = column, is_protobuf
        ids = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(3)] + [GUID[:-4] + "0000"]
        for _ in range(60):
            kinds = (self.confluent, self.guid, self.header, self.long_id, self.apicurio, self.glue)
            payload = chance.choice([b"", b"\0\1\2", bytes(chance.randbytes(chance.randrange(40))) or b"x"])
            value, headers, key, selector = chance.choice(kinds)(payload, chance.choice(ids))
            self.values.append(value)
            noise = {"key": "trace", "value": b"\0\0\0\0\1"}
            self.headers.append([noise, *headers] if chance.random() < 0.5 else headers)
            self.expected.append((key, selector, payload))
        for _ in range(5):
            self.values.append(None)
            self.headers.append([])
            self.expected.append(None)

    def _message(self):
        """Message indexes or the name of a message, and their bytes."""
        if not self._is_protobuf:
            return (), b""
        chance = self.random
        if chance.random() < 0.3:
            name = chance.choice(["Order", "A_1", "shop.Order"])
            return name, reference(name)
        indexes = tuple(chance.randrange(5) for _ in range(chance.randrange(4)))
        return indexes or (0,), zigzag(len(indexes), *indexes)

    def confluent(self, payload, _):
        key = self.random.choice([1, 7, 2**31, 2**32 - 1])
        selector, data = self._message()
        return b"\0" + struct.pack(">I", key) + data + payload, [], key, selector

    def guid(self, payload, key):
        selector, data = self._message()
        return b"\1" + uuid.UUID(key).bytes + data + payload, [], key, selector

    def header(self, payload, key):
        selector, data = ((0, 1), zigzag(2, 0, 1)) if self._is_protobuf else ((), b"")
        frame = b"\1" + uuid.UUID(key).bytes + data
        name = f"__{self._column}_schema_id"
        again = [{"key": name, "value": b"\0\0\0\0\1"}] * self.random.randrange(2)
        return payload, [{"key": name, "value": frame}, *again], key, selector

    def long_id(self, payload, _):
        """An id of 8 bytes: DefaultIdHandler of version 2, Legacy8ByteIdHandler of version 3."""
        key = self.random.choice([1, 9, 2**31, 2**32 - 1])
        selector, data = ("Order", reference("Order")) if self._is_protobuf else ((), b"")
        return b"\0" + struct.pack(">q", key) + data + payload, [], key, selector

    def apicurio(self, payload, _):
        key = self.random.choice([3, 2**40])
        name = self.random.choice([f"apicurio.{self._column}.{kind}Id" for kind in ("global", "content")])
        headers = [{"key": name, "value": struct.pack(">q", key)}]
        if self.random.random() < 0.3:
            headers.insert(0, {"key": name, "value": struct.pack(">q", 5)})  # the last one counts
        if not self._is_protobuf:
            headers.append({"key": f"apicurio.{self._column}.encoding", "value": b"BINARY"})
            return payload, headers, key, ()
        is_named, has_reference = self.random.random() < 0.7, self.random.random() < 0.5
        if is_named:
            suffix = ".key" if self._column == "key" else ""
            headers.append({"key": f"apicurio.protobuf.type{suffix}", "value": b"Order"})
        selector = "Order" if is_named or has_reference else ()
        return (reference("Order") if has_reference else b"") + payload, headers, key, selector

    def glue(self, payload, key):
        number = self.random.choice([0, 1, 200])
        data = {0: b"\0", 1: b"\1", 200: b"\xc8\1"}[number] if self._is_protobuf else b""
        selector = number if self._is_protobuf else ()
        return glue(key, data + payload, compressed=self.random.random() < 0.5), [], key, selector


@pytest.mark.parametrize("is_protobuf", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_frames_of_all_registries_are_those_of_the_twin(seed, is_protobuf):
    column = ("key", "value")[seed % 2]
    twin = Twin(seed, column=column, is_protobuf=is_protobuf)
    first = seed % 7
    payloads = Payloads.of(pa.array(twin.values, pa.binary())[first:])
    headers = pa.array(twin.headers, HEADERS)[first:]
    reader = FrameReader(column, has_messages=is_protobuf)
    groups, failures = reader.read(payloads, headers)
    assert not failures
    found = [None] * len(payloads)
    for group in groups:
        for at, row in enumerate(group.rows.tolist()):
            assert found[row] is None
            found[row] = group.key, group.selector, group.payloads.bytes(at)
    assert found == twin.expected[first:]
    stripped, _ = reader.strip(payloads, headers)
    wanted = [None if one is None else one[2] for one in twin.expected[first:]]
    assert [stripped.bytes(row) for row in range(len(payloads))] == wanted


@pytest.mark.parametrize("is_protobuf", [False, True])
def test_damaged_frames_only_fail_their_own_values(is_protobuf):
    chance = random.Random(3)
    twin = Twin(4, column="value", is_protobuf=is_protobuf)
    values = []
    for value in twin.values * 20:
        data = bytearray(value or b"")
        for _ in range(chance.randrange(3)):
            if data:
                data[chance.randrange(min(len(data), 24))] = chance.randrange(256)
        values.append(bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.2 else data))
    headers = pa.array(twin.headers * 20, HEADERS)
    reader = FrameReader("value", has_messages=is_protobuf)
    together, why = reader.read(Payloads.of(pa.array(values)), headers)
    found = {
        row: (group.key, group.selector, group.payloads.bytes(at))
        for group in together
        for at, row in enumerate(group.rows.tolist())
    }
    assert found.keys() | why.keys() == set(range(len(values)))
    assert not found.keys() & why.keys()
    for row, value in enumerate(values):
        alone, reason = reader.read(Payloads.of(pa.array([value])), headers[row : row + 1])
        assert reason == ({0: why[row]} if row in why else {})
        assert [(group.key, group.selector, group.payloads.bytes(0)) for group in alone] == [
            found[row] for _ in range(row in found)
        ]


def test_compressed_values_are_bounded(monkeypatch):
    monkeypatch.setattr(frames, "MOST_INFLATED_BYTES", 10_000)
    bomb = glue(GUID, b"\0" * 10_001, compressed=True)
    fits = glue(GUID, b"\0" * 10_000, compressed=True)
    damaged = bytes([3, 5]) + uuid.UUID(GUID).bytes
    values = [bomb, fits, damaged + b"????", damaged, fits[:-3], bytes([3, 4]) + fits[2:], fits + b"behind", fits[:17]]
    groups, failures = FrameReader("value").read(Payloads.of(pa.array(values)), None)
    assert [(group.key, group.rows.tolist()) for group in groups] == [(GUID, [1, 6])]
    assert groups[0].payloads.bytes(1) == b"\0" * 10_000
    assert failures == {
        0: "the value takes too much memory",
        2: failures[2],
        3: "the compressed bytes end inside the value",
        4: "the compressed bytes end inside the value",
        5: "AWS Glue's frame names an unknown compression",
        7: "the bytes end inside the schema id",
    }
    assert failures[2].startswith("zlib does not decompress the value")
    monkeypatch.setattr(frames, "MOST_INFLATED_TOTAL", 25_000)
    groups, failures = FrameReader("value").read(Payloads.of(pa.array([fits] * 4)), None)
    assert groups[0].rows.tolist() == [0, 1]
    assert failures == dict.fromkeys((2, 3), "the value takes too much memory")


def test_values_of_aws_glue_are_decoded_with_schemas_by_uuid(tmp_path, capsys):
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / f"{GUID}.avsc").write_text(json.dumps(ORDER))
    values = [glue(GUID, avro(1)), glue(GUID, avro(2), compressed=True), None, glue(str(uuid.UUID(int=5)), avro(3))]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="orders")
    for source in (schemas, {GUID.upper(): json.dumps(ORDER)}):
        with pytest.warns(DecodeWarning):
            table = kafkalog.read_table(
                tmp_path / "log", decode={"value": "avro"}, schemas=source, columns=["value", "value_error"]
            )
        assert table.column("value").to_pylist() == [{"id": 1}, {"id": 2}, None, None]
        assert table.column("value_error").to_pylist() == [None] * 3 + [f"no schema {uuid.UUID(int=5)} is known"]
    given = ["--value-format", "avro", "--schemas", str(schemas), "--columns", "value.id", "-n", "2"]
    assert main(["cat", str(tmp_path / "log"), *given]) == 0
    assert capsys.readouterr().out.splitlines() == ["value.id=1", "value.id=2"]


def test_values_of_apicurio_are_decoded_with_schemas_by_id(tmp_path):
    header = [{"key": "apicurio.value.globalId", "value": struct.pack(">q", 7)}]
    in_json = [*header, {"key": "apicurio.value.encoding", "value": b"JSON"}]
    short = [{"key": "apicurio.value.contentId", "value": b"\0"}]
    values = [b"\0" + struct.pack(">q", 7) + avro(1), b"\0\0\0\0\7" + avro(2), avro(3), b'{"id": 4}', avro(5)]
    kafkalog.write_table(
        pa.table({"value": values, "headers": pa.array([[], [], header, in_json, short], HEADERS)}),
        tmp_path / "log",
        topic="orders",
    )
    options = {"decode": {"value": "avro"}, "schemas": {7: json.dumps(ORDER)}}
    with pytest.warns(DecodeWarning):
        table = kafkalog.read_table(tmp_path / "log", columns=["value", "value_error"], **options)
    assert table.column("value").to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}, None, None]
    assert table.column("value_error").to_pylist() == [
        *[None] * 3,
        "Avro's JSON encoding is not decoded",
        "the header apicurio.value.contentId holds no schema id",
    ]


def test_an_id_of_zero_is_half_of_a_long_one_unless_it_is_known(tmp_path):
    long = struct.pack(">q", 7)
    values = [b"\0" + long + avro(1), b"\0\0\0\0\0" + avro(2)]
    for number, value in enumerate(values):
        kafkalog.write_table({"value": [value]}, tmp_path / str(number), topic="t")

    def read(number, how, **more):
        options = {"decode": {"value": {"format": "avro", **how}}, "columns": ["value.id"], **more}
        return kafkalog.read_table(tmp_path / str(number), **options).column(0).to_pylist()

    schema = json.dumps(ORDER)
    assert read(0, {}, schemas={7: schema}) == [1]
    assert read(1, {}, schemas={7: schema, 0: schema}) == [2]
    assert read(0, {"schema": schema, "id_size": 8}) == [1]
    assert read(1, {"schema": schema}) == [2]
    decoding = ["--value-format", "avro", "--id-size", "8", "--schemas", str(tmp_path)]
    assert main(["cat", str(tmp_path / "0"), *decoding]) == 0
    with pytest.raises(ValueError, match="id_size is 4 or 8, not 5"):
        read(0, {"id_size": 5})
    with pytest.raises(ValueError, match="json has no schema"):
        kafkalog.scan(tmp_path / "0", decode={"value": {"format": "json", "id_size": 8}})
