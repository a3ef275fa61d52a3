"""Hostile batches: whatever their bytes are, nothing but a `KafkalogError` comes of them, soon, and in little memory.

Inputs are made by `mutants`. What was found once is in `regress/` and stays there.
"""

from __future__ import annotations

import functools
import json
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import builder
import numpy as np
import pytest
import zstandard
from effort import THOROUGH, counted
from fuzzing import LIMITS, MODES, N_INPUTS, REGRESS, SECONDS, SEED, keep, tables
from guard import guarded
from mutants import BASE, BEFORE, BEHIND, LEVELS, records, repaired, seeds
from peaks import NEEDS_PROC, begin, peak, printed_by
from reading import EVERYTHING

import kafkalog
from kafkalog.errors import KafkalogError, Reason
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource

MEMORY_GROWTH = 200 * 2**20


BYTES_A_SECOND = 256 * 2**20


class Drained(NamedTuple):
    """What reading on past every bad batch gave."""

    parts: list[RecordColumns]
    errors: list[KafkalogError]

    def n_bytes(self):
        """Bytes of the keys and values."""
        columns = [part[name] for part in self.parts for name in ("key", "value") if name in part]
        return sum(int(column.data.size) for column in columns)


def drain(data, mode):
    """Every batch of a buffer, past those that are damaged, as far as their headers can be walked."""
    parts = []
    errors = []
    try:
        for window in walk(BufferSource(data), limits=LIMITS):
            first, n = 0, len(window.batches)
            while first < n:
                done = decode(
                    window,
                    mode.columns,
                    first=first,
                    selection=EVERYTHING,
                    check_crcs=mode.check_crcs,
                    limits=LIMITS,
                )
                if done.columns is not None:
                    parts.append(done.columns)
                first += done.n_batches
                if done.error is not None:
                    errors.append(done.error)
                    first += 1
    except KafkalogError as error:
        errors.append(error)
    return Drained(parts, errors)


def check_error(error, size):
    """An error says where, and why."""
    assert isinstance(error.reason, Reason)
    assert error.detail
    assert error.position is not None
    assert 0 <= error.position < max(size, 1)
    assert error.base_offset is None or -(2**63) <= error.base_offset < 2**63
    assert error.length is None or error.length >= 0
    assert error.reason.value in str(error)


def feed(data, mode, at_start=False):
    """Read an input out of guarded memory and hold what comes of it against the promises."""
    buffer = guarded(data, at_start=at_start)
    begin = time.process_time()
    try:
        drained = drain(buffer, mode)
        seconds = time.process_time() - begin
        for error in drained.errors:
            check_error(error, len(data))
            assert mode.check_crcs or error.reason is not Reason.CRC_MISMATCH
    except Exception as error:
        path = keep(data, f"{type(error).__name__}: {error} (columns {len(mode.columns)}, CRCs {mode.check_crcs})")
        raise AssertionError(f"seed {SEED}: {type(error).__name__}: {error}; the input is in {path}") from error
    if seconds > SECONDS and seconds > SECONDS + drained.n_bytes() / BYTES_A_SECOND:
        pytest.fail(f"seed {SEED}: {seconds:.1f} s; the input is in {keep(data, f'took {seconds:.1f} s')}")
    return drained


def overlong(value):
    """The varint of more bytes than any reader may take."""
    return b"\xff" * 10 + builder.varint(value)


@functools.cache
def hostile_batches():
    """Batches with a lie in each size and count field there is."""
    made = []
    sizes = (2**31 - 1, -1, 2**62, -(2**31), -(2**63), 2**31, 2**30, 0, 1)
    plain = b"".join(records())
    for size in sizes:
        narrow = builder.wrap32(size)
        for codec in range(5):
            made += [
                builder.batch_v2(records(), codec=codec, records_count=narrow),
                builder.batch_v2(records(), codec=codec, last_offset_delta=narrow),
                builder.batch_v2(records(), codec=codec, length=narrow),
            ]
        varint = builder.varint(size)
        # attributes, timestamp delta, offset delta, key, value, headers, each with a size that is a lie
        bodies = [
            b"\0\0\0" + varint + b"key\2v\0",
            b"\0\0\0\6key" + varint + b"value\0",
            b"\0\0\0\6key\2v" + varint,
            b"\0\0\0\6key\2v" + varint + b"\2h\0\2h\0",
            b"\0\0\0\6key\2v\2" + varint + b"h\0",
            b"\0\0\0\6key\2v\2\2h" + varint + b"h",
            b"\0" + varint + varint + b"\6key\2v\0",
        ]
        for body in bodies:
            for codec in (0, 4):
                made.append(builder.batch_v2([builder.varint(len(body)) + body], codec=codec, records_count=1))
                made.append(builder.batch_v2([varint + body], codec=codec, records_count=1))
        made.append(builder.batch_v2([varint + plain], records_count=1))
        for magic in (0, 1):
            made.append(builder.message(0, b"k", b"v" * 9, magic=magic, size=narrow))
            for at in (18, 18 + 4 + 1) if magic == 0 else (26, 26 + 4 + 1):
                message = builder.message(0, b"k", b"v" * 9, magic=magic)
                lie = message[:at] + struct.pack(">i", narrow) + message[at + 4 :]
                made.append(builder.fix_crc(lie))
                for codec in (1, 2, 3):
                    made.append(builder.wrapper([lie], offset=0, magic=magic, codec=codec))
            lie = builder.message(0, b"k", b"v", magic=magic, size=narrow)
            made += [builder.wrapper([lie], offset=0, magic=magic, codec=codec) for codec in (1, 2, 3)]
    unsigned = (2**31 - 1, 2**32 - 1, 2**32, 2**62, 2**31, 0, 1, 2**26)
    for size in unsigned:
        word = size & 0xFFFFFFFF
        raw = builder.snappy_raw(plain)
        lz4 = builder.lz4_frame(plain, content_size=True)
        lz4_plain = builder.lz4_frame(plain)
        gzip = builder.gzip_member(plain)
        zstd_header = b"\x28\xb5\x2f\xfd"
        payloads = [
            (2, builder.unsigned_varint(size) + raw[2:]),
            (2, b"\x82SNAPPY\0" + struct.pack(">iiI", 1, 1, word) + raw),
            (2, b"\x82SNAPPY\0" + struct.pack(">III", word, word, len(raw)) + raw),
            (3, lz4_plain[:7] + struct.pack("<I", word) + lz4_plain[11:]),
            (
                3,
                lz4[:6]
                + struct.pack("<Q", size)
                + builder.lz4_header_checksum(lz4[4:6] + struct.pack("<Q", size), 2)
                + lz4[15:],
            ),
            (1, gzip[:-4] + struct.pack("<I", word)),
            (1, gzip[:3] + b"\4" + gzip[4:10] + struct.pack("<H", word & 0xFFFF) + gzip[10:]),
            (4, zstd_header + b"\xe0" + struct.pack("<Q", size) + b"\x01\0\0"),
            (4, zstd_header + b"\xc0\xf8" + struct.pack("<Q", size) + b"\x03\0\0\0"),
            (4, zstd_header + b"\0" + bytes((size >> 24 & 0xFF,)) + struct.pack("<I", word)[:3] + plain),
            (4, b"\x50\x2a\x4d\x18" + struct.pack("<I", word) + plain),
        ]
        for codec, payload in payloads:
            made.append(builder.batch_v2(records(), codec=codec, payload=payload))
            if codec < 4:
                made += [builder.wrapper([], offset=3, magic=magic, codec=codec, payload=payload) for magic in (0, 1)]
    for body in (overlong(3), b"\xff" * 9, b"\x80" * 4, b"\x80" * 5 + b"\0" * 9):
        made += [builder.batch_v2([body], codec=codec, records_count=1) for codec in range(5)]
        made.append(builder.batch_v2([builder.varint(len(body) + 1) + b"\0" + body], records_count=1))
    return tuple(struct.pack(">q", BASE) + batch[8:] for batch in made)


@pytest.mark.parametrize("level", LEVELS)
def test_mutated_batches_give_records_or_kafkalog_errors_in_bounded_time_and_memory(level):
    make, share = LEVELS[level]
    target = int(N_INPUTS * share)
    rng = np.random.default_rng([SEED, [*LEVELS].index(level)])
    everything = seeds()
    for seed in everything:  # the seeds themselves, which also warms every cache before the memory is looked at
        for mode in MODES:
            assert not feed(seed.data, mode).errors
    rss = begin()
    a_seed = -(-target // len(everything))
    done = 0
    reasons = Counter()
    for seed in everything:
        for i, data in enumerate(counted(make(rng, seed, a_seed))):
            done += 1
            mode = MODES[done % 3]
            at_start = done % 4 == 0
            if i % 24 == 0:
                # among good ones: the first is always read, and what one mode finds wrong, another finds, too
                data = BEFORE + data + BEHIND
                drained = [feed(data, each, at_start) for each in MODES]
                for result in drained:
                    assert result.parts
                    assert result.parts[0]["offset"][:2].tolist() == [0, 1]
                wrong = [[(error.position, error.reason) for error in result.errors] for result in drained]
                assert wrong[0] == wrong[1], keep(data, "what is wrong depends on the columns")
                errors = drained[0].errors
            else:
                errors = feed(data, mode, at_start).errors
            reasons.update(error.reason for error in errors)
    assert done >= target
    assert len(reasons) >= (8 if level == "raw" else 15), reasons
    growth = peak() - rss
    assert growth < MEMORY_GROWTH, f"{growth / 2**20:.0f} MiB more"


@pytest.mark.parametrize("at_start", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lie_in_any_size_or_count_field_is_an_error_or_harmless(at_start):
    rss = begin()
    for batch in hostile_batches()[:: 1 if THOROUGH else 20]:
        for mode in MODES:
            for data in (batch, BEFORE + batch + BEHIND, repaired(batch), BEFORE + repaired(batch) + BEHIND):
                feed(data, mode, at_start)
    assert peak() - rss < MEMORY_GROWTH


def test_a_byte_outside_a_guarded_buffer_kills_the_process():
    code = (
        "import ctypes, guard, sys; at_start = sys.argv[1] == 'start';"
        "a = guard.guarded(b'abc', at_start=at_start);"
        "assert a.tobytes() == b'abc' and ctypes.string_at(a.ctypes.data, 3) == b'abc';"
        "ctypes.string_at(a.ctypes.data + (-1 if at_start else 3), 1)"
    )
    for where in ("start", "end"):
        run = subprocess.run(
            [sys.executable, "-c", code, where], cwd=Path(__file__).parents[1] / "support", stderr=subprocess.PIPE
        )
        killed = run.returncode in (-signal.SIGSEGV, -signal.SIGBUS) or b"AddressSanitizer" in run.stderr
        assert killed, run.stderr.decode()


GIB = 2**30


def zeros_zstd(n=GIB):
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    chunk = bytes(2**24)
    return b"".join([stream.compress(chunk) for _ in range(n // len(chunk))]) + stream.flush()


def zeros_gzip(n=GIB):
    # the same flushed block again and again; the trailer, which nobody lives to see, is wrong
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflater.compress(bytes(2**24)) + deflater.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * (n // 2**24) + b"\x03\0" + struct.pack("<II", 0, n & 0xFFFFFFFF)


def zeros_lz4(n=GIB):
    frame = builder.lz4_frame(bytes(2**22), block_size_code=7)
    return frame[:7] + frame[7:-4] * (n // 2**22) + frame[-4:]


def zeros_snappy(n=2**28):
    xerial = builder.snappy_xerial(bytes(2**20), 2**20)
    return xerial[:16] + xerial[16:] * (n // 2**20)


def bombs():
    """Small files that say or hold far more than any reader may take."""
    found = {}
    big_record = builder.varint(2**30) + b"\0\0\0\1" + builder.varint(2**30 - 20)
    for name, codec, make in (
        ("zstd", 4, zeros_zstd),
        ("gzip", 1, zeros_gzip),
        ("lz4", 3, zeros_lz4),
        ("snappy", 2, zeros_snappy),
    ):
        payload = make()
        found[f"{name}, v2"] = builder.batch_v2([], codec=codec, payload=payload, records_count=1, last_offset_delta=0)
        if codec != 4:
            for magic in (0, 1):
                found[f"{name}, v{magic}"] = builder.wrapper([], offset=0, magic=magic, codec=codec, payload=payload)
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    payload = (
        stream.compress(big_record) + b"".join([stream.compress(bytes(2**24)) for _ in range(64)]) + stream.flush()
    )
    found["one record of 1 GiB"] = builder.batch_v2([], codec=4, payload=payload, records_count=1, last_offset_delta=0)
    body = b"\0\0\0\1\1" + builder.varint(2_000_000) + bytes(4_000_000)
    header_bomb = builder.zstd_frame(builder.varint(len(body)) + body, level=19)
    found["2,000,000 headers"] = builder.batch_v2(
        [], codec=4, payload=header_bomb, records_count=1, last_offset_delta=0
    )
    # windows of 2 GiB, asked for by the frame header
    found["zstd window"] = builder.batch_v2(
        [], codec=4, payload=b"\x28\xb5\x2f\xfd\0\xa8\1\0\0", records_count=1, last_offset_delta=0
    )
    for number, batch in enumerate(hostile_batches()):
        found[f"lie {number}"] = batch
    return found


BOMB_READER = """
import pathlib, sys
from fuzzing import MODES
from mutants import BEFORE
from reading import read
from kafkalog.errors import Limits
from peaks import begin, peak
limits = Limits(max_decompressed_bytes=int(sys.argv[1]))

read(BEFORE)
found = {}
for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
    data = path.read_bytes()
    before = begin()
    for mode in MODES:
        result = read(data, mode.columns, check_crcs=mode.check_crcs, limits=limits)
        found.setdefault(path.name, []).append(result.error is None)
        del result
    grown = peak() - before
    if grown > int(sys.argv[3]):
        sys.exit(f"{path.name}: {grown / 2**20:.0f} MiB, {len(data)} bytes in the file")
    worst = max(grown, found.get("worst", [0])[0])
    found["worst"] = [worst]
import json
print(json.dumps(found))
"""


def run_bombs(files, tmp_path, max_decompressed, allowed):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    # glibc gives blocks from this size on back when they are free; else its limit grows, and how much it keeps
    # between two files depends on all that was before
    environment = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    return json.loads(printed_by(BOMB_READER, max_decompressed, tmp_path, allowed, **environment))


@NEEDS_PROC
@pytest.mark.slow
def test_a_bomb_is_refused_within_64_mib_and_the_limit(tmp_path):
    max_decompressed = 32 * 2**20
    files = bombs()
    found = run_bombs(files, tmp_path, max_decompressed, 64 * 2**20 + max_decompressed)
    assert len(found) == len(files) + 1
    for name, read_well in found.items():
        assert name == "worst" or name.startswith("lie") or not any(read_well), name


def test_what_was_found_once_stays_found(tmp_path):
    stored = sorted(REGRESS.glob("*.bin"))
    assert stored, "the inputs of regress/ are missing"
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        for file in stored:
            assert file.with_suffix(".reason").read_text().strip(), f"{file.name} has no reason"
            data = file.read_bytes()
            for mode in MODES:
                feed(data, mode)
                feed(data, mode, at_start=True)
                feed(BEFORE + data + BEHIND, mode)
            path.write_bytes(BEFORE + data + BEHIND)
            for reaction in ("raise", "stop", "skip"):
                tables(directory, reaction, 2)
