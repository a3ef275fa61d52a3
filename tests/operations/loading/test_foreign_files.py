"""Files of other programs: Kafka Connect's sinks, kcat, spreadsheets."""

import contextlib
import io
import json
import random

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from avro_cases import AvroCase
from effort import fuzz_inputs, trials
from refusals import fails_with

import kafkalog
from kafkalog.errors import ReadError
from kafkalog.interchange.text_output import plain_values
from kafkalog.protocol.encoder import uvarint

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}


def sink(root, suffix, rows, partition, first, place):
    """A file as a sink of Kafka Connect writes it."""
    folder = root / "topics" / "orders" / place
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"orders+{partition}+{first:010}.{suffix}"
    if suffix == "avro":
        with open(path, "wb") as file:
            fastavro.writer(file, SCHEMA, rows, codec="deflate")
    elif suffix == "json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("suffix", ["avro", "json", "snappy.parquet"])
@pytest.mark.parametrize("by_time", [False, True])
def test_the_layout_of_kafka_connect(tmp_path, suffix, by_time):
    for partition in (0, 12):
        for first in (0, 2, 10):
            place = f"year=2024/month=01/day={first:02}" if by_time else f"partition={partition}"
            sink(tmp_path, suffix, [{"id": first}, {"id": first + 1}], partition, first, place)
    kafkalog.load(tmp_path / "topics", tmp_path / "log", value_format="json")
    found = kafkalog.read_table(tmp_path / "log", decode={"value": "json"}, columns=["topic", "partition", "value.id"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("orders", partition, number) for partition in (0, 12) for number in (0, 1, 2, 3, 10, 11)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_random_avro_files_are_those_that_fastavro_writes(tmp_path, codec):
    rng, n_packed = random.Random(codec), 0
    for number in range(trials(1, 9)):
        case = AvroCase(rng.randrange(2**32))
        given, shown = zip(*(case.value() for _ in range(30)), strict=True)
        path = tmp_path / f"{number}.avro"
        try:
            with open(path, "wb") as file:
                fastavro.writer(file, case.schema, given, codec=codec, sync_interval=rng.choice([10, 16_000]))
        except ValueError:  # fastavro needs a package for this codec
            continue
        n_packed += 1
        kafkalog.load(path, tmp_path / f"log{number}", topic="t", value_format="json")
        values = kafkalog.read_table(tmp_path / f"log{number}", columns=["value"]).column("value").to_pylist()
        decode = {"value": {"format": "avro", "schema": json.dumps(case.schema), "framed": False}}
        plain = _framed(tmp_path / f"plain{number}", case.schema, given)
        kind = kafkalog.read_table(plain, columns=["value"], decode=decode).schema.field("value").type
        expected = plain_values(pa.array(shown, kind))
        assert [json.loads(value) for value in values] == [json.loads(json.dumps(one)) for one in expected]
    assert n_packed or codec in ("snappy", "zstandard")


def _framed(root, schema, rows):
    found = []
    for row in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema, row)
        found.append(data.getvalue())
    kafkalog.write_table({"value": found}, root, topic="t")
    return root


def test_damaged_avro_files_are_errors(tmp_path):
    data = io.BytesIO()
    fastavro.writer(data, SCHEMA, [{"id": number} for number in range(50)], sync_interval=20)
    whole, rng, n_read = data.getvalue(), random.Random(1), 0
    for number in range(max(fuzz_inputs() // 200, 40)):
        broken = bytearray(whole[: rng.randrange(len(whole))] if number % 2 else whole)
        for _ in range(rng.randrange(1, 4) if number % 2 == 0 else 0):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        (tmp_path / "a.avro").write_bytes(broken)
        with contextlib.suppress(ReadError):
            kafkalog.load(tmp_path / "a.avro", tmp_path / "log", topic="t", value_format="json", dry_run=True)
            n_read += 1
    assert 0 < n_read < number


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
@pytest.mark.parametrize("packed", [b"", b"\xff", b"\xff" * 9, bytes(5)])
def test_blocks_that_do_not_unpack_are_errors(tmp_path, codec, packed):
    about = {"avro.codec": codec.encode(), "avro.schema": json.dumps(SCHEMA).encode()}
    parts = [b"Obj\x01", uvarint(2 * len(about))]
    for name, value in about.items():
        parts += [uvarint(2 * len(name)), name.encode(), uvarint(2 * len(value)), value]
    parts += [b"\0", bytes(16), uvarint(2), uvarint(2 * len(packed)), packed, bytes(16)]
    (tmp_path / "a.avro").write_bytes(b"".join(parts))
    with pytest.raises(ReadError):
        kafkalog.load(tmp_path / "a.avro", tmp_path / "log", topic="t", value_format="json", dry_run=True)


def test_metadata_of_a_table_are_no_rows(tmp_path):
    (tmp_path / "table" / "metadata").mkdir(parents=True)
    (tmp_path / "table" / "metadata" / "v1.metadata.json").write_text("{}")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "table" / "part-0.parquet")
    assert kafkalog.load(tmp_path / "table", tmp_path / "log", topic="t", value_format="json").n_records == 1


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_columns_between_other_signs(tmp_path, delimiter):
    text = '\ufeffid,price,note\r\n7,"1,5","a\nb"\r\n8,2,"say ""x"""\r\n'.replace(",", delimiter).replace(
        f"1{delimiter}5", "1,5"
    )
    (tmp_path / "a.csv").write_bytes(text.encode())
    kafkalog.load(tmp_path / "a.csv", tmp_path / "log", topic="t", value_format="json")
    values = kafkalog.read_table(tmp_path / "log", columns=["value"]).column("value").to_pylist()
    assert [json.loads(value) for value in values] == [
        {"id": 7, "price": "1,5", "note": "a\nb"},
        {"id": 8, "price": "2", "note": 'say "x"'},
    ]
    (tmp_path / "b.csv").write_bytes(text.encode() + b"9\r\n")
    with fails_with("column_value"):
        kafkalog.load(tmp_path / "b.csv", tmp_path / "other", topic="t", value_format="json")


def test_lines_of_kcat(tmp_path):
    rows = [
        {"topic": "t", "partition": 0, "offset": 3, "tstype": "create", "ts": 5, "broker": 0,
         "headers": ["a", "1", "a", None], "key": "k", "payload": "x"},
        {"topic": "t", "partition": 0, "offset": 5, "tstype": "create", "ts": 6, "key": None, "payload": None},
    ]  # fmt: skip
    path = tmp_path / "kcat.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = {"value": "payload", "timestamp": "ts"}
    kafkalog.load(path, tmp_path / "log", encoding="utf8", columns=columns, ignore_columns=True)
    found = kafkalog.read_table(tmp_path / "log", columns=["offset", "key", "value", "headers"]).to_pylist()
    assert found == [
        {
            "offset": 3,
            "key": b"k",
            "value": b"x",
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        },
        {"offset": 5, "key": None, "value": None, "headers": []},
    ]
