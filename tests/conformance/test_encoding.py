"""What we write is what Kafka's own builder writes, and Kafka reads what we compress."""

import base64
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from conformance.kafka import jvm
from effort import examples
from encoding import Wanted, columns_of, encoded, encoded_alone, some_batches, some_rows, twin_of

from kafkalog import codec
from kafkalog.format import CODEC_LEVELS, Codec
from kafkalog.records.codecs import Compression
from kafkalog.records.encode import cut_batches, encode_marker

pytestmark = pytest.mark.broker


def json_of(batch, magic=2):
    """For `Builder.java`."""
    said = {
        "magic": magic,
        "codec": batch.compression.codec.name.lower(),
        "base_offset": batch.base_offset,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "records": json_rows(batch.rows),
    }
    if batch.compression.level is not None:
        said["level"] = batch.compression.level
    if batch.log_append_time is not None:
        said |= {"timestamp_type": "LogAppendTime", "log_append_time": batch.log_append_time}
    if not batch.rows or batch.last_offset != batch.rows[-1][0]:
        said["last_offset"] = batch.last_offset
    if not batch.rows:
        said["max_timestamp"] = batch.newest
    return said


def json_rows(rows):
    """Records for `Builder.java`."""
    return [
        (offset, timestamp, _text(key), _text(value), [(name.decode(), _text(content)) for name, content in headers])
        for offset, timestamp, key, value, headers in rows
    ]


def _text(value):
    return None if value is None else base64.b64encode(value).decode()


BUILDER = Path(__file__).with_name("Builder.java")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """Runs commands of `Builder.java` in one JVM."""
    said = tmp_path_factory.mktemp("builder") / "stderr"
    with said.open("wb") as log:
        process = subprocess.Popen(
            jvm(BUILDER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )

    def run(command, given, answer):
        process.stdin.write(json.dumps({"do": command, "in": str(given), "out": str(answer)}) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n", said.read_text()

    yield run
    process.communicate(timeout=200)


def built(kafka, folder, batches):
    """The bytes of each batch by Kafka's builder."""
    given, answer = folder / "batches.json", folder / "batches.bin"
    given.write_text("".join(json.dumps(batch) + "\n" for batch in batches))
    kafka("build", given, answer)
    data = answer.read_bytes()
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    assert len(found) == len(batches)
    return found


@pytest.mark.slow
def test_uncompressed_batches_are_byte_for_byte_those_of_kafkas_builder(kafka, tmp_path):
    source = random.Random(20)
    n = examples(100)
    logs = [some_batches(source, n, first) for first in (0, 1, 2**31 - 5, 2**33, 2**40, 2**62) for _ in range(2)]
    batches = [batch for log in logs for batch in log]
    assert len(batches) == 12 * n
    theirs = built(kafka, tmp_path, [json_of(batch) for batch in batches])
    for batch, bytes_ in zip(batches, theirs, strict=True):
        assert encoded_alone(batch).data.tobytes() == bytes_
    assert [twin_of(batch) for batch in batches[::20]] == theirs[::20]
    at = 0
    for log in logs:
        assert encoded(log).data.tobytes() == b"".join(theirs[at : at + len(log)])
        at += len(log)
    # nothing of what can be different was left out
    for name in ("is_transactional", "is_control"):
        assert {getattr(batch, name) for batch in batches} == {True, False}
    for name in ("log_append_time", "delete_horizon_ms", "producer_id", "leader_epoch", "base_sequence"):
        assert len({getattr(batch, name) for batch in batches}) > 2
    assert any(batch.last_offset > batch.rows[-1][0] for batch in batches)
    assert any(batch.base_offset < batch.rows[0][0] for batch in batches)
    rows = [row for batch in batches for row in batch.rows]
    assert {None, b""} <= {row[2] for row in rows} & {row[3] for row in rows}
    assert -1 in {row[1] for row in rows}


@pytest.mark.slow
def test_markers_and_empty_batches_are_kafkas(kafka, tmp_path):
    source = random.Random(21)
    ours, asked = [], []
    for _ in range(40):
        common = {
            "producer_id": source.choice((0, 7, 2**50)),
            "producer_epoch": source.choice((0, 2**15 - 1)),
            "leader_epoch": source.choice((-1, 4)),
        }
        offset, timestamp = source.choice((0, 2**41)), source.choice((0, 1_700_000_000_000))
        coordinator, commits = source.choice((0, 3, 2**31 - 1)), source.random() < 0.5
        ours.append(
            encode_marker(offset, coordinator_epoch=coordinator, is_commit=commits, timestamp=timestamp, **common)
        )
        asked.append(
            {
                **common,
                "marker": "COMMIT" if commits else "ABORT",
                "coordinator_epoch": coordinator,
                "timestamp": timestamp,
                "base_offset": offset,
            }
        )
        empty = Wanted(
            [],
            offset,
            offset + source.choice((0, 9)),
            max_timestamp=source.choice((-1, timestamp)),
            log_append_time=source.choice((None, timestamp)),
            base_sequence=source.choice((-1, 4)),
            is_transactional=source.random() < 0.5,
            is_control=source.random() < 0.5,
            compression=Compression(Codec.ZSTD),
            **common,
        )
        if not empty.is_control:
            empty.base_sequence = 4
        ours.append(encoded_alone(empty))
        asked.append(json_of(empty))
    theirs = built(kafka, tmp_path, asked)
    for mine, bytes_ in zip(ours, theirs, strict=True):
        assert mine.data.tobytes() == bytes_
        assert len(mine.batches) == 1
        assert mine.batches.size_in_bytes[0] == len(bytes_) in (61, 78)


def read_back(kafka, folder, data):
    """Records as Kafka reads them from a segment of these bytes."""
    log, answer = folder / "00000000000000000000.log", folder / "records.json"
    log.write_bytes(data)
    kafka("read", log, answer)
    return [json.loads(line) for line in answer.read_text().splitlines()]


def as_read(rows, codec, sequence=None):
    return [
        {
            "codec": codec,
            "offset": offset,
            "timestamp": timestamp,
            "sequence": -1,
            "key": _text(key),
            "value": _text(value),
            "headers": [[name.decode(), _text(content)] for name, content in headers],
        }
        for offset, timestamp, key, value, headers in rows
    ]


def every_compression():
    """Every codec at its default, and at levels from end to end."""
    levels = {
        Codec.GZIP: [-1, *CODEC_LEVELS[Codec.GZIP]],
        Codec.LZ4: [*CODEC_LEVELS[Codec.LZ4]],
        Codec.ZSTD: [CODEC_LEVELS[Codec.ZSTD][0], -7, 0, 1, 3, 9, 22],
    }
    return [
        *(Compression(codec) for codec in Codec),
        *(Compression(codec, level) for codec, some in levels.items() for level in some),
    ]


@pytest.mark.slow
def test_kafka_reads_what_we_compress_with_every_codec_and_level(kafka, tmp_path):
    source = random.Random(23)
    batches = []
    offset = 2**34
    for compression in every_compression():
        for n in (1, 60):
            rows = some_rows(source, offset, n)
            # more than a block of any codec: in part like text, in part like noise
            words = b" ".join(b"word%d" % source.randrange(500) for _ in range(30_000 if n > 1 else 0))
            rows.append((rows[-1][0] + 1, 5, None, words + source.randbytes(100_000 if n > 1 else 10), []))
            batches.append(Wanted(rows, offset, rows[-1][0], compression=compression))
            offset = rows[-1][0] + 1
    data = encoded(batches).data.tobytes()
    expected = [row for batch in batches for row in as_read(batch.rows, batch.compression.codec.name.lower())]
    assert read_back(kafka, tmp_path, data) == expected


@pytest.mark.slow
def test_batches_end_where_a_producers_do(kafka, tmp_path):
    source = random.Random(25)
    given, answer = tmp_path / "logs.json", tmp_path / "boundaries.json"
    logs = []
    for n in (1, 2, 30, 200) * 30:
        rows = some_rows(source, first := source.choice((0, 2**40)), n)
        rows = [(first + i, *row[1:]) for i, row in enumerate(rows)]  # a producer leaves no gaps
        logs.append((source.choice((0, 1, 61, 100, 1000, 16_384, 1_000_000)), rows))
    # sizes at which the varint of a length grows by a byte, and a little more fits behind a large first record
    for n in range(55, 75):
        logs.append((200, [(i, 5, None, b"v" * n, []) for i in range(9)]))
        logs.append((n, [(i, 5, None, b"v" * (60 if i % 3 == 0 else 1), []) for i in range(9)]))
    lines = (json.dumps({"batch_size": size, "records": json_rows(rows)}) for size, rows in logs)
    given.write_text("\n".join(lines))
    kafka("cut", given, answer)
    theirs = [json.loads(line) for line in answer.read_text().splitlines()]
    ours = [cut_batches(columns_of(rows), batch_size=size).tolist() for size, rows in logs]
    assert ours == theirs
    assert any(len(boundaries) > 10 for boundaries in ours)
    assert any(len(boundaries) == 2 for boundaries in ours)


N_CODEC_BATCHES = int(os.environ.get("KAFKALOG_CODEC_BATCHES") or examples(4000))
"""As many are decoded, and as many encoded."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_public_codec_agrees_with_kafkas_classes(kafka, tmp_path):
    """Random batches of all formats and codecs: of Kafka's builder to be decoded, and of ours for Kafka to read."""
    kinds, n = [Compression(kind) for kind in Codec], 100
    n_decoded = 0
    for number in range(-(-N_CODEC_BATCHES // (n * len(kinds)))):
        source = random.Random(5500 + number)
        for compression in kinds:
            batches = some_batches(source, n, compression=compression)
            theirs = built(kafka, tmp_path, [json_of(batch) for batch in batches])
            for batch, bytes_ in zip(batches, theirs, strict=True):
                time = batch.log_append_time
                agrees(codec.decode(bytes_, include_control=True), batch.rows, time)
                headers = codec.decode_headers(bytes_)
                assert (headers.base_offset[0], headers.last_offset[0]) == (batch.base_offset, batch.last_offset)
            n_decoded += n
            if compression.codec != Codec.ZSTD and number % 5 == 0:
                decodes_older_formats(source, compression, kafka, tmp_path)
            logs, offset = [], source.choice((0, 2**33))
            for _ in range(n):
                rows = some_rows(source, offset, source.choice((1, 3, 20)))
                logs.append(Wanted(rows, offset, rows[-1][0], compression=compression))
                offset = rows[-1][0] + 1
            ours = [codec.encode(columns_of(batch.rows), compression=compression) for batch in logs]
            if compression.codec == Codec.NONE:
                assert ours == built(kafka, tmp_path, [json_of(batch) for batch in logs])
            expected = as_read([row for batch in logs for row in batch.rows], compression.codec.name.lower())
            assert read_back(kafka, tmp_path, b"".join(ours)) == expected
    assert n_decoded >= N_CODEC_BATCHES


def agrees(decoded, rows, time=None):
    """Columns have the values of these rows; all have the timestamp `time` if there is one."""
    assert decoded.offset.tolist() == [row[0] for row in rows]
    assert decoded.timestamp.tolist() == [row[1] if time is None else time for row in rows]
    assert decoded.key.to_pylist() == [row[2] for row in rows]
    assert decoded.value.to_pylist() == [row[3] for row in rows]
    assert decoded.headers.to_pylist() == [row[4] for row in rows]


def decodes_older_formats(source, compression, kafka, folder):
    for magic in (0, 1):
        batches = []
        for _ in range(20):
            rows = some_rows(source, source.choice((0, 2**40)), source.choice((1, 3, 20)), headers=False)
            rows = [(offset, -1 if magic == 0 else time, *rest) for offset, time, *rest in rows]
            batches.append(Wanted(rows, rows[0][0], rows[-1][0], compression=compression))
        for batch, bytes_ in zip(batches, built(kafka, folder, [json_of(b, magic) for b in batches]), strict=True):
            agrees(codec.decode(bytes_), batch.rows)
