"""Exports of decoded values in each format, loaded again: the same records, or what differs is said."""

import json
import random

import pytest
from effort import trials

import kafkalog
from kafkalog.cli.app import main

pytestmark = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")

FORMATS = ("parquet", "arrow", "csv", "jsonl")
DECODED = {"value_format": "json", "key_format": "utf8"}
DECODE = {"value": "json", "key": "utf8"}
WITH_BYTES = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "value_error",
              "value_bytes", "key_error", "key_bytes")  # fmt: skip


def write(root, values, topic="t"):
    root.mkdir(exist_ok=True)
    with kafkalog.PartitionWriter(root / f"{topic}-0") as writer:
        writer.append({"key": [b"k%d" % at for at in range(len(values))], "value": values})
    return root


def back(root, tmp_path, suffix, columns=None, **options):
    """The values of the log that the export of a log makes."""
    path = tmp_path / f"x.{suffix}"
    kafkalog.export(root, path, decode=DECODE, **({} if columns is None else {"columns": columns}))
    result = kafkalog.load(path, tmp_path / f"log-{suffix}", **DECODED, **options)
    return kafkalog.read_table(tmp_path / f"log-{suffix}").column("value").to_pylist(), result


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":1}', b'{"a":"s"}', b'{"a":{"b":2}}', b'{"a":[1]}', b'{"a":true}', b'{"a":"1"}', b'{"a":"\\u2028"}'],
        [b'{"a":18446744073709551616}', b'{"a":1}'],
        [b'{"a":9007199254740993,"l":[{"x":9007199254740993}]}', b'{"a":0.5,"l":[{"x":0.25}]}'],
        [b"1", b'"x"', b"[1]"],
        [b'{"a":{}}'],
        [b'{"a":[1]}', b'{"a":["x",{"b":1}]}'],
        [b'{"a":"1"}', b'{"a":"{}"}'],
        [b"{}"],
        [b'"1"', b'"x"', b'"\\"q\\""', b'"{}"', b'"null"'],
    ],
)
@pytest.mark.parametrize("suffix", FORMATS)
def test_json_is_the_same(tmp_path, suffix, values):
    found, result = back(write(tmp_path / "log", values), tmp_path, suffix)
    assert [*map(json.loads, found)] == [*map(json.loads, values)]
    assert result.n_tombstones == result.n_undecoded == 0


@pytest.mark.parametrize("suffix", FORMATS)
def test_fields_that_may_have_been_absent_are_noted(tmp_path, suffix):
    found, result = back(write(tmp_path / "log", [b'{"a":null,"b":1}', b'{"b":2}']), tmp_path, suffix)
    assert found == [b'{"a":null,"b":1}', b'{"a":null,"b":2}']
    assert "2 values with fields that are null" in str(result.notes)


@pytest.mark.parametrize("suffix", FORMATS)
def test_original_bytes_are_written_again(tmp_path, suffix):
    values = [b'{"a":1}', b"oops", None, b"\xff\x00", b"null"]
    found, result = back(write(tmp_path / "log", values), tmp_path, suffix, WITH_BYTES)
    assert found == values
    assert (result.n_tombstones, result.n_undecoded) == (1, 0)
    assert "1 tombstone" in str(result.notes)


@pytest.mark.parametrize("suffix", FORMATS)
def test_without_the_bytes_they_are_counted(tmp_path, suffix, capsys):
    root = write(tmp_path / "log", [b'{"a":1}', b"oops", None])
    path = tmp_path / f"x.{suffix}"
    columns = [name for name in WITH_BYTES if not name.endswith("_bytes")]
    kafkalog.export(root, path, decode=DECODE, columns=columns)
    command = ["load", str(path), "--value-format", "json", "--key-format", "utf8", "-q", "-o"]
    assert main([*command, str(tmp_path / "a")]) == 1
    assert "1 key or value did not decode" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "b"), "--on-decode-error", "null"]) == 0
    assert main([*command, str(tmp_path / "c"), "--on-decode-error", "skip"]) == 0
    assert [kafkalog.scan(tmp_path / one).count_rows() for one in "abc"] == [3, 3, 2]
    assert kafkalog.load(path, tmp_path / "d", **DECODED).n_undecoded == 1


def test_times_of_append_are_kept(tmp_path):
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter(
        tmp_path / "log" / "t-0", timestamp_type="LogAppendTime", log_append_time=7
    ) as writer:
        writer.append({"value": [b'{"a":1}']})
    for suffix in FORMATS:
        back(tmp_path / "log", tmp_path, suffix)
        table = kafkalog.read_table(tmp_path / f"log-{suffix}")
        assert table.column("timestamp_type").to_pylist() == [1], suffix


@pytest.mark.parametrize("seed", range(trials(2, 20)))
def test_random_records_come_back(tmp_path, seed):
    """Keys, values, headers, offsets, timestamps, nulls and tombstones, decoded or not, in each format."""
    draw = random.Random(seed)
    root = tmp_path / "log"
    root.mkdir()
    for partition in range(draw.randint(1, 2)):
        n = draw.randint(1, 12)
        with kafkalog.PartitionWriter(root / f"t-{partition}") as writer:
            offsets = sorted(draw.sample(range(50), n))
            writer.append(
                {
                    "offset": offsets,
                    "key": [_key(draw) for _ in range(n)],
                    "value": [_value(draw) for _ in range(n)],
                    "timestamp": [draw.choice([-1, 0, 1_700_000_000_123]) for _ in range(n)],
                    "headers": [_headers(draw) for _ in range(n)],
                }
            )
    expected = kafkalog.read_table(root).to_pylist()
    for suffix in FORMATS:
        plain, decoded = tmp_path / f"plain.{suffix}", tmp_path / f"decoded.{suffix}"
        kafkalog.export(root, plain)
        kafkalog.load(plain, tmp_path / f"plain-{suffix}")
        assert kafkalog.read_table(tmp_path / f"plain-{suffix}").to_pylist() == expected, suffix
        kafkalog.export(root, decoded, decode=DECODE, columns=WITH_BYTES)
        kafkalog.load(decoded, tmp_path / f"decoded-{suffix}", **DECODED)
        found = kafkalog.read_table(tmp_path / f"decoded-{suffix}").to_pylist()
        assert [*map(_comparable, found)] == [*map(_comparable, expected)], suffix


def _key(draw):
    return draw.choice([None, b"", b"a", b"\xff", b"null", b'caf\xc3\xa9,"\n'])


def _json(draw, depth=0):
    kind = draw.randrange(9 if depth < 2 else 7)
    plain = [None, True, draw.randrange(-5, 5), 2**63 + draw.randrange(9), 0.5, "", draw.choice(["1", "x\u2028", "{}"])]
    if kind < len(plain):
        return plain[kind]
    if kind == 7:
        return [_json(draw, depth + 1) for _ in range(draw.randrange(3))]
    return {name: _json(draw, depth + 1) for name in draw.sample(["a", "b", "c.d"], draw.randrange(4))}


def _value(draw):
    if draw.random() < 0.3:
        return draw.choice([None, b"", b"oops", b"\xff\x00", b"null"])
    return json.dumps(_json(draw)).encode()


def _headers(draw):
    names = draw.choices(["h", "h", "i"], k=draw.randrange(3))
    return [{"key": name, "value": draw.choice([None, b"", b"\xff", b"v"])} for name in names]


def _comparable(row):
    """The record, with its JSON less what a typed column does not have: fields that are absent in some values."""

    def without_nulls(value):
        if isinstance(value, dict):
            return {name: without_nulls(one) for name, one in sorted(value.items()) if one is not None}
        if isinstance(value, float) and value.is_integer():  # a whole number among fractions
            return int(value)
        return [without_nulls(one) for one in value] if isinstance(value, list) else value

    try:
        value = without_nulls(json.loads(row["value"]))
    except (TypeError, ValueError):
        value = row["value"]
    return {**row, "value": repr(value)}
