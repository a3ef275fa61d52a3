"""Seeded segments to measure on: real record batches with their indexes, written without kafkalog.

The shapes are records a topic holds, in batches of 16 KiB before compression (C: 64 KiB):

=====  =======================================================================================
A      8-byte keys, JSON values of 45-55 bytes
B      16-byte keys, JSON values of 150-250 bytes
C      16-byte keys, JSON values of 900-1148 bytes, three headers
M      mixed: keys of 4-93 bytes (one in ten null), values of 12-400 bytes (one in twenty null),
       timestamps out of order
V1 V0  the records of B in message format v1 and v0 (v1 compressed: a wrapper message a batch)
=====  =======================================================================================

A segment's size is counted before compression: 64 MiB, or KAFKALOG_BENCH_MIB. Segments are kept in
KAFKALOG_BENCH_CACHE, or under the temporary directory, and written once. Layouts mirror `DefaultRecordBatch`,
`LegacyRecord` and `LogSegment.append` (index.interval.bytes = 4096). The values are text whose pieces repeat as in
real events, so codecs find about what they find in production; no two records are equal.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from page_cache import read_from_disk

GENERATION = 1  # of the bytes below; a new one is a new cache
SEED = 42
DEFAULT_MIB = 64
BASE_NAME = "00000000000000000000"
INDEX_INTERVAL_BYTES = 4096
FIRST_TIMESTAMP = 1_700_000_000_000
PARTITION_LEADER_EPOCH = 7

SHAPES = ("A", "B", "C", "M", "V1", "V0")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

Header = tuple[bytes, bytes]
Record = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]

_EVENTS = ("page_view", "click", "add_to_cart", "purchase", "search", "login")
_COUNTRIES = ("DE", "FR", "US", "GB", "JP", "BR", "IN", "PL")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (Windows NT 10.0)",
    "okhttp/4.12.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4)",
)
_BATCH_V2 = struct.Struct(">qiibIhiqqqhii")
_CRC_START_V2 = 21  # the attributes: what comes before is rewritten by brokers
_CHUNK = 4096


@dataclass(frozen=True)
class BenchSegment:
    """A segment on disk and what it holds. Sizes in bytes; `raw_bytes` is its size before compression."""

    path: str
    shape: str
    codec: str
    n_records: int
    n_batches: int
    size_in_bytes: int
    raw_bytes: int
    key_bytes: int
    value_bytes: int
    last_offset: int
    first_timestamp: int
    last_timestamp: int

    @property
    def name(self) -> str:
        """As benchmarks name it: `B`, `B-zstd`."""
        return self.shape if self.codec == "none" else f"{self.shape}-{self.codec}"

    @property
    def raw_mib(self) -> float:
        return self.raw_bytes / 2**20

    def closed(self) -> str:
        """A partition with this segment, and an empty one behind it, to which a broker would append."""
        log = Path(self.path)
        directory = log.parents[1] / "closed" / log.parent.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{self.last_offset + 1:020d}.log").touch()
        with suppress(FileExistsError):
            (directory / log.name).hardlink_to(log)
        return str(directory)

    def copied_to(self, directory: str | Path) -> Path:
        """A copy of the `.log` file alone, for what writes next to it or into it; read from disk once."""
        copy = Path(shutil.copy(self.path, directory))
        read_from_disk(copy)
        return copy


def segment(name: str, mib: int | None = None) -> BenchSegment:
    """The segment called `SHAPE` or `SHAPE-CODEC`: written if the cache does not have it, then read from disk once.

    Parameters
    ----------
    name : str
        One of `SHAPES`, and after a dash one of `CODECS`.
    mib : int, optional
        Size before compression in MiB; KAFKALOG_BENCH_MIB, else 64.

    Returns
    -------
    BenchSegment
    """
    shape, _, codec = name.partition("-")
    codec = codec or "none"
    if shape not in SHAPES or codec not in CODECS or (shape == "V0" and codec != "none"):
        raise ValueError(f"no such segment: {name!r}")
    mib = mib or int(os.environ.get("KAFKALOG_BENCH_MIB", DEFAULT_MIB))
    home = cache_dir() / f"generation-{GENERATION}" / f"{mib}-mib" / f"{shape}-{codec}"
    facts = home / "segment.json"
    if not facts.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
        try:
            written = _write(staged, shape, codec, mib << 20)
            (staged / facts.name).write_text(json.dumps(written, indent=1) + "\n")
            staged.rename(home)
        except OSError:
            if not facts.exists():  # else another process was quicker, with the same bytes
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    log = home / "bench-0" / f"{BASE_NAME}.log"
    read_from_disk(log)
    return BenchSegment(path=str(log), **json.loads(facts.read_text()))


def cache_dir() -> Path:
    """Where segments and what is made of them are kept between runs."""
    named = os.environ.get("KAFKALOG_BENCH_CACHE")
    if named:
        return Path(named)
    home = Path(tempfile.gettempdir()) / f"kafkalog-bench-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise PermissionError(f"{home} belongs to somebody else: name another directory in KAFKALOG_BENCH_CACHE")
    return home


# records


def records(shape: str) -> Iterator[Record]:
    """The endless, seeded records of a shape: (timestamp in ms, key, value, headers)."""
    if shape == "M":
        return _mixed()
    return _events("B" if shape.startswith("V") else shape)


def _events(shape: str) -> Iterator[Record]:
    rng = np.random.default_rng(SEED)
    pieces = [f',"attr_{n % 40}":"val-{rng.integers(3000)}"' for n in range(1 << 14)]
    low, high = {"A": (45, 56), "B": (150, 251), "C": (900, 1149)}[shape]
    timestamp = FIRST_TIMESTAMP
    while True:
        ids = rng.integers(0, 20_000_000, _CHUNK).tolist()
        hashes = rng.integers(0, 2**63, _CHUNK, np.int64).tolist()
        lengths = rng.integers(low, high, _CHUNK).tolist()
        steps = rng.integers(0, 4, _CHUNK).tolist()
        for user, pick, length, step in zip(ids, hashes, lengths, steps, strict=True):
            event = _EVENTS[pick % 6]
            cents = pick // 6 % 100_000
            if shape == "A":
                text = f'{{"id":{pick % 100_000_000},"t":"{event}","v":{cents / 1000}}}'.ljust(length)
                yield timestamp, b"k%07d" % (user % 10_000_000), text.encode(), ()
            else:
                text = (
                    f'{{"event_id":"{pick & 0xFFFFFFFF:08x}","type":"{event}","user_id":{user},"ts":{timestamp},'
                    f'"country":"{_COUNTRIES[pick >> 32 & 7]}","amount":{cents / 100},"currency":"EUR",'
                    f'"agent":"{_AGENTS[pick >> 35 & 3]}"'
                )
                parts, size, piece = [text], len(text) + 30, pick >> 37
                while size < length:
                    parts.append(pieces[piece & 0x3FFF])
                    size += len(parts[-1])
                    piece = piece * 5 + 1
                parts.append("}")
                headers: tuple[Header, ...] = ()
                if shape == "C":
                    headers = (
                        (b"trace-id", b"%016x" % pick),
                        (b"content-type", b"application/json"),
                        (b"source", b"svc-%d" % (pick % 20)),
                    )
                yield timestamp, b"user-%011d" % user, "".join(parts).encode(), headers
            timestamp += step


def _mixed() -> Iterator[Record]:
    rng = np.random.default_rng(SEED)
    timestamp = FIRST_TIMESTAMP
    letters = bytes(rng.integers(97, 123, 1 << 16, np.uint8))
    while True:
        key_lengths = np.where(rng.random(_CHUNK) < 0.1, -1, rng.integers(4, 94, _CHUNK)).tolist()
        value_lengths = np.exp(2.5 + rng.random(_CHUNK) * 3.5).astype(int)
        value_lengths = np.where(rng.random(_CHUNK) < 0.05, -1, value_lengths).tolist()
        starts = rng.integers(0, len(letters) - 1000, _CHUNK).tolist()
        steps = rng.integers(-90, 110, _CHUNK).tolist()
        for n_key, n_value, start, step in zip(key_lengths, value_lengths, starts, steps, strict=True):
            key = None if n_key < 0 else letters[start : start + n_key]
            value = None if n_value < 0 else letters[start + 100 : start + 100 + n_value]
            yield timestamp, key, value, ()
            timestamp += step


# batches


def _write(home: Path, shape: str, codec: str, target: int) -> dict[str, int | str]:
    """Write the partition directory `bench-0` under `home`; return the facts about it."""
    encode: Callable[[int, list[Record], str], tuple[bytes, int]] = {"V1": _messages_v1, "V0": _messages_v0}.get(
        shape, _batch_v2
    )
    partition = home / "bench-0"
    partition.mkdir()
    facts = dict.fromkeys(("n_records", "n_batches", "size_in_bytes", "raw_bytes", "key_bytes", "value_bytes"), 0)
    offset_index, time_index = bytearray(), bytearray()
    max_timestamp, max_timestamp_offset, since_entry, indexed_timestamp = -1, -1, 0, -1
    pending: list[bytes] = []
    with (partition / f"{BASE_NAME}.log").open("wb") as log:
        for batch in _batched(shape, codec):
            encoded, raw = encode(facts["n_records"], batch, codec)
            last_offset = facts["n_records"] + len(batch) - 1
            batch_timestamp = max(record[0] for record in batch) if shape != "V0" else -1
            if batch_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = batch_timestamp, last_offset
            if since_entry > INDEX_INTERVAL_BYTES:
                offset_index += struct.pack(">ii", last_offset, facts["size_in_bytes"])
                if max_timestamp > indexed_timestamp:
                    time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset)
                    indexed_timestamp = max_timestamp
                since_entry = 0
            since_entry += len(encoded)
            facts["n_records"] += len(batch)
            facts["n_batches"] += 1
            facts["size_in_bytes"] += len(encoded)
            facts["raw_bytes"] += raw
            facts["key_bytes"] += sum(len(key) for _, key, _, _ in batch if key is not None)
            facts["value_bytes"] += sum(len(value) for _, _, value, _ in batch if value is not None)
            pending.append(encoded)
            done = facts["raw_bytes"] >= target
            if done or len(pending) == 1024:
                log.write(b"".join(pending if shape in ("V0", "V1") else _with_crcs(pending)))
                pending = []
            if done:
                break
    if max_timestamp > indexed_timestamp:
        time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset)
    (partition / f"{BASE_NAME}.index").write_bytes(offset_index)
    (partition / f"{BASE_NAME}.timeindex").write_bytes(time_index)
    return {
        "shape": shape,
        "codec": codec,
        **facts,
        "last_offset": facts["n_records"] - 1,
        "first_timestamp": FIRST_TIMESTAMP if shape != "V0" else -1,
        "last_timestamp": max_timestamp,
    }


def _batched(shape: str, codec: str) -> Iterator[list[Record]]:
    limit = 65536 if shape == "C" else 16384
    if shape in ("V0", "V1") and codec == "none":
        limit = 0  # before v2 only compression made batches
    overhead = {"C": 70, "V1": 34}.get(shape, 8)
    batch: list[Record] = []
    size = 61
    for record in records(shape):
        _, key, value, _ = record
        n = len(key or b"") + len(value or b"") + overhead
        if size + n > limit and batch:
            yield batch
            batch, size = [], 61
        batch.append(record)
        size += n


def _batch_v2(base_offset: int, batch: list[Record], codec: str) -> tuple[bytes, int]:
    """A v2 record batch whose CRC is still to be filled in, and its size before compression."""
    base_timestamp = batch[0][0]
    parts: list[bytes] = []
    null = _varint(-1)
    for delta, (timestamp, key, value, headers) in enumerate(batch):
        body = b"".join(
            (
                b"\0",
                _varint(timestamp - base_timestamp),
                _varint(delta),
                null if key is None else _varint(len(key)) + key,
                null if value is None else _varint(len(value)) + value,
                _varint(len(headers)),
                *(_varint(len(name)) + name + _varint(len(content)) + content for name, content in headers),
            )
        )
        parts += (_varint(len(body)), body)
    payload = b"".join(parts)
    raw = _BATCH_V2.size + len(payload)
    payload = compress(codec, payload)
    head = _BATCH_V2.pack(
        base_offset,
        _BATCH_V2.size - 12 + len(payload),
        PARTITION_LEADER_EPOCH,
        2,
        0,
        CODECS[codec],
        len(batch) - 1,
        base_timestamp,
        max(record[0] for record in batch),
        -1,
        -1,
        -1,
        len(batch),
    )
    return head + payload, raw


def _messages_v1(base_offset: int, batch: list[Record], codec: str) -> tuple[bytes, int]:
    """Messages of format v1: plain ones, or one wrapper with relative offsets inside."""
    inner_base = base_offset if codec == "none" else 0
    messages = b"".join(
        _message(inner_base + n, 1, 0, timestamp, key, value) for n, (timestamp, key, value, _) in enumerate(batch)
    )
    if codec == "none":
        return messages, len(messages)
    newest = max(record[0] for record in batch)
    wrapped = compress(codec, messages)
    return _message(base_offset + len(batch) - 1, 1, CODECS[codec], newest, None, wrapped), len(messages) + 34


def _messages_v0(base_offset: int, batch: list[Record], codec: str) -> tuple[bytes, int]:
    """Messages of format v0, never compressed here."""
    messages = b"".join(_message(base_offset + n, 0, 0, 0, key, value) for n, (_, key, value, _) in enumerate(batch))
    return messages, len(messages)


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"".join(
        (
            bytes((magic, attributes)),
            struct.pack(">q", timestamp) if magic else b"",
            b"\xff\xff\xff\xff" if key is None else struct.pack(">i", len(key)) + key,
            b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value,
        )
    )
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def _encode_varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_VARINTS = [_encode_varint(number) for number in range(4096)]


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < 4096 else _encode_varint(number)


def compress(codec: str, payload: bytes) -> bytes:
    """As Kafka's producers frame it: lz4 frames of independent 64 KiB blocks, xerial snappy, zstd without a size."""
    if codec == "none":
        return payload
    if codec == "gzip":
        return zlib.compress(payload, wbits=31)
    if codec == "lz4":
        import lz4.frame

        return lz4.frame.compress(payload, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    if codec == "zstd":
        return _zstd().compress(payload)
    import cramjam

    framed = [b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"]
    for start in range(0, len(payload), 32768):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + 32768]))
        framed += (struct.pack(">i", len(block)), block)
    return b"".join(framed)


@cache
def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdCompressor(level=3, write_content_size=False)


# checksums: CRC-32C of many batches at once, a byte position of all of them a step


def _with_crcs(batches: list[bytes]) -> Iterator[bytes]:
    lengths = np.array([len(batch) for batch in batches]) - _CRC_START_V2
    # right-aligned in one matrix: leading zeros leave a register of zeros alone, and an initial register of ones is
    # the same as inverting the first four bytes
    columns = np.zeros((int(lengths.max()), len(batches)), np.uint8)
    for n, batch in enumerate(batches):
        tail = np.frombuffer(batch, np.uint8, offset=_CRC_START_V2).copy()
        tail[:4] ^= 0xFF
        columns[len(columns) - len(tail) :, n] = tail
    table = _crc32c_table()
    crcs = np.zeros(len(batches), np.uint32)
    for row in columns:
        crcs = table[(crcs ^ row) & 0xFF] ^ (crcs >> 8)
    for batch, crc in zip(batches, (~crcs).tolist(), strict=True):
        yield batch[:17] + struct.pack(">I", crc) + batch[21:]


@cache
def _crc32c_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table
