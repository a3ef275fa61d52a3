"""Hostile bytes: whatever a file holds, nothing but a `KafkalogError` comes of it, soon, and in little memory.

Inputs are made by `mutants`. `KAFKALOG_FUZZ_SEED` and `KAFKALOG_FUZZ_N` choose other inputs and more of them. What was
found once is in `regress/` and stays there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import builder
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import zstandard
from effort import fuzz_inputs
from guard import Guard, guarded
from mutants import BASE, BEFORE, BEHIND, I32, I64, LEVELS, golden_batches, hostile_batches, mutants, repaired, seeds
from reading import EVERYTHING, read

import kafkalog
from kafkalog._kernels import crc as crc_kernels
from kafkalog._kernels import decode as record_kernels
from kafkalog._kernels import encode as encode_kernels
from kafkalog._kernels import filters as predicate_kernels
from kafkalog._kernels import header_walk as batch_kernels
from kafkalog._kernels import indexes as index_kernels
from kafkalog._kernels import legacy as legacy_kernels
from kafkalog._kernels import wire as wire_kernels
from kafkalog.errors import KafkalogError, Limits, Reason
from kafkalog.records.columns import ALL_COLUMNS, RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource

SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_INPUTS = fuzz_inputs()
REGRESS = Path(__file__).parents[1] / "regress"
LIMITS = Limits(max_decompressed_bytes=4 * 2**20)
MEMORY_GROWTH = 200 * 2**20
SECONDS = 1.0
BYTES_A_SECOND = 256 * 2**20

# --- reading ----------------------------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """A way to read."""

    columns: Sequence[str]
    check_crcs: bool


MODES = (Mode(ALL_COLUMNS, True), Mode(("offset",), True), Mode(ALL_COLUMNS, False))


class Drained(NamedTuple):
    """What reading on past every bad batch gave."""

    parts: list[RecordColumns]
    errors: list[KafkalogError]

    def n_bytes(self) -> int:
        """Bytes of the keys and values."""
        columns: list[Any] = [part[name] for part in self.parts for name in ("key", "value") if name in part]
        return sum(int(column.data.size) for column in columns)


def drain(data: Any, mode: Mode) -> Drained:
    """Every batch of a buffer, past those that are damaged, as far as their headers can be walked."""
    parts: list[RecordColumns] = []
    errors: list[KafkalogError] = []
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


def check_error(error: KafkalogError, size: int) -> None:
    """An error says where, and why."""
    assert isinstance(error.reason, Reason)
    assert error.detail
    assert error.position is not None
    assert 0 <= error.position < max(size, 1)
    assert error.base_offset is None or -(2**63) <= error.base_offset < 2**63
    assert error.length is None or error.length >= 0
    assert error.reason.value in str(error)


def keep(data: bytes, problem: str) -> Path:
    """Store an input that did what none may do, for `regress/` to replay from then on."""
    REGRESS.mkdir(exist_ok=True)
    path = REGRESS / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.write_bytes(data)
    path.with_suffix(".reason").write_text(problem + "\n")
    return path


def feed(data: bytes, mode: Mode, at_start: bool = False) -> Drained:
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


def peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("level", LEVELS)
def test_mutated_batches_give_records_or_kafkalog_errors_in_bounded_time_and_memory(level: str) -> None:
    make, share = LEVELS[level]
    target = int(N_INPUTS * share)
    rng = np.random.default_rng([SEED, [*LEVELS].index(level)])
    everything = seeds()
    for seed in everything:  # the seeds themselves, which also warms every cache before the memory is looked at
        for mode in MODES:
            assert not feed(seed.data, mode).errors
    rss = peak_rss()
    a_seed = -(-target // len(everything))
    done = 0
    reasons: Counter[str] = Counter()
    for seed in everything:
        for i, data in enumerate(make(rng, seed, a_seed)):
            done += 1
            mode = MODES[done % 3]
            at_start = done % 4 == 0
            if i % 24 == 0:
                # among good ones: the first is always read, and what one mode finds wrong, another finds, too
                data = BEFORE + data + BEHIND
                drained = [feed(data, each, at_start) for each in MODES]
                for result in drained:
                    assert result.parts
                    assert result.parts[0]["offset"][:2].tolist() == [0, 1]  # type: ignore[index, union-attr]
                wrong = [[(error.position, error.reason) for error in result.errors] for result in drained]
                assert wrong[0] == wrong[1], keep(data, "what is wrong depends on the columns")
                errors = drained[0].errors
            else:
                errors = feed(data, mode, at_start).errors
            reasons.update(error.reason for error in errors)
    assert done >= target
    assert len(reasons) >= (8 if level == "raw" else 15), reasons
    growth = peak_rss() - rss
    assert growth < MEMORY_GROWTH, f"{growth / 2**20:.0f} MiB more"


@pytest.mark.parametrize("at_start", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lie_in_any_size_or_count_field_is_an_error_or_harmless(at_start: bool) -> None:
    rss = peak_rss()
    for batch in hostile_batches():
        for mode in MODES:
            for data in (batch, BEFORE + batch + BEHIND, repaired(batch), BEFORE + repaired(batch) + BEHIND):
                feed(data, mode, at_start)
    assert peak_rss() - rss < MEMORY_GROWTH


@pytest.mark.slow
def test_every_prefix_and_every_suffix_of_every_seed_is_read() -> None:
    for seed in seeds():
        step = max(1, len(seed.data) // 40)
        for at in range(0, len(seed.data), step):
            mode = MODES[at % 3]
            feed(seed.data[:at], mode)
            feed(seed.data[at:], mode)
            if at >= 26:
                feed(repaired(seed.data[:at]), mode)


def test_a_byte_outside_a_guarded_buffer_kills_the_process() -> None:
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


# --- kernels, called with arguments that no caller here makes ---------------------------------------------------------

REFUSALS = (ValueError, IndexError)
HOSTILE_DTYPES: dict[str, Any] = {
    "b": np.int8,
    "h": np.int16,
    "i": np.int32,
    "q": np.int64,
    "I": np.uint32,
    "B": np.uint8,
}


_room = Guard(4096)


class Arguments:
    """Draws arrays and numbers that are out of bounds as often as not."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.guard = Guard(4096)
        self.data: Any = np.empty(0, np.uint8)

    def bytes(self) -> npt.NDArray[np.uint8]:
        """Bytes to be read: noise, or a batch, at the end of memory."""
        pick = int(self.rng.integers(0, 4))
        if pick == 0:
            data = self.rng.bytes(int(self.rng.integers(0, 120)))
        else:
            every = seeds()
            data = every[int(self.rng.integers(0, len(every)))].data[:4000]
            data = data[61:] if pick == 3 else data
        buffer = self.guard.ending(data)
        self.data = buffer
        return buffer

    def number(self, bits: int = 64) -> int:
        pick = int(self.rng.integers(0, 3))
        if pick == 0:
            return int(self.rng.integers(-2, self.data.size + 3))
        values = I64 if bits == 64 else tuple(value for value in I32 if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
        return 61 if pick == 1 else int(self.rng.choice(np.array(values)))

    def column(self, kind: str, n: int) -> Any:
        """An array of `n` numbers, rarely of another length."""
        if self.rng.random() < 0.01:
            n += int(self.rng.integers(-1, 2))
        n = max(n, 0)
        dtype = HOSTILE_DTYPES[kind]
        info = np.iinfo(dtype)
        near = self.rng.integers(-2, self.data.size + 3, n)
        if self.rng.random() < 0.3:
            wild = self.rng.choice(np.array(I64 if kind == "q" else I32, np.int64), n)
            near = np.where(self.rng.random(n) < 0.2, wild, near)
        return np.clip(near, info.min, info.max).astype(dtype)

    def columns(self, kinds: str, n: int) -> list[Any]:
        return [self.column(kind, n) for kind in kinds]


def _walk_batches(a: Arguments, n: int) -> None:
    batch_kernels.walk_batches(a.bytes(), a.number(), a.number(), a.number(), *a.columns("qiqqibIhqqqhiih", n))


def _find_batch(a: Arguments, n: int) -> None:
    batch_kernels.find_batch(a.bytes(), a.number(), a.number(), a.number())


def _check_crcs(a: Arguments, n: int) -> None:
    data = a.bytes()
    crc_kernels.check_crcs(data, a.number(), *a.columns("qibIB", n))


def _walk_messages(a: Arguments, n: int) -> None:
    data = a.bytes()
    legacy_kernels.walk_messages(data, *a.columns("qibI", n), bool(n % 2), *a.columns("iiii", n))


def _walk_message_set(a: Arguments, n: int) -> None:
    legacy_kernels.walk_message_set(
        a.bytes(), a.number(), a.number(), a.number(), n % 3, a.number(16), a.number(), *a.columns("qqbiiii", n)
    )


def _walk_records(a: Arguments, n: int) -> None:
    data = a.bytes()
    copies: list[Any] = []
    for _ in range(2):  # of the keys, of the values
        room = np.empty(int(a.rng.integers(0, 200)), np.uint8)
        copies += [None] * 3 if a.rng.random() < 0.3 else [a.column("q", n + 1), room, a.column("B", n)]
    spans = [None] * 4 if a.rng.random() < 0.3 else a.columns("iiii", n)
    headers = [None] * 2 if a.rng.random() < 0.3 else a.columns("ii", n)
    record_kernels.walk_records(
        data,
        *a.columns("qqqqqhiI", n % 5),
        bool(n % 2),
        a.number(32),
        a.number(32),
        *a.columns("qq", n),
        *spans,
        *headers,
        *copies,
    )


def _survey_batches(a: Arguments, n: int) -> None:
    a.bytes()
    batch_kernels.survey_batches(*a.columns("qibhi", n), a.number(), *a.columns("qq", n))


def _build_entries(a: Arguments, n: int) -> None:
    a.bytes()
    columns = a.columns("qqq", n)
    carried = a.column("q", 7)
    index_kernels.build_entries(*columns, a.number(), a.number(), carried, *a.columns("iiqi", n))


def _rows(a: Arguments, n: int) -> Any:
    return None if a.rng.random() < 0.5 else a.column("q", n)


def _measure_binary(a: Arguments, n: int) -> None:
    a.bytes()
    record_kernels.measure_binary(a.column("i", n), _rows(a, n))


def _fill_binary(a: Arguments, n: int) -> None:
    data = a.bytes()
    out = np.empty(int(a.rng.integers(0, 200)), np.uint8)
    validity = None if n % 2 else a.column("B", n)
    record_kernels.fill_binary(data, *a.columns("ii", n), _rows(a, n), a.column("q", n + 1), out, validity)


def _walk_headers(a: Arguments, n: int) -> None:
    data = a.bytes()
    room = int(a.rng.integers(0, 60))
    record_kernels.walk_headers(data, *a.columns("ii", n), _rows(a, n), a.column("q", n + 1), *a.columns("iiii", room))


def _needle(a: Arguments) -> npt.NDArray[np.uint8]:
    start = int(a.rng.integers(0, a.data.size + 1))
    return np.array(a.data[start : start + int(a.rng.integers(0, 9))])


def _mask(a: Arguments, n: int) -> Any:
    return (a.column("B", n) % 3).astype(np.uint8)


def _match_bytes(a: Arguments, n: int) -> None:
    data = a.bytes()
    operation = int(a.rng.integers(-1, 11))
    predicate_kernels.match_bytes(data, *a.columns("ii", n), operation, _needle(a), _mask(a, n))


def _text_set(a: Arguments, n: int) -> None:
    data = a.bytes()
    offsets = a.column("q", n % 4)
    texts = predicate_kernels.TextSet(data, np.sort(offsets) if n % 2 else offsets)
    assert texts.n_texts == n % 4 - 1 or offsets.size != n % 4


def _match_set(a: Arguments, n: int) -> None:
    listed = [a.rng.bytes(int(size)) for size in a.rng.integers(0, 5, n % 7)]
    data = a.bytes()
    if n % 2:
        listed.append(_needle(a).tobytes())
    offsets = np.cumsum([0, *map(len, listed)], dtype=np.int64)
    texts = predicate_kernels.TextSet(np.frombuffer(b"".join(listed), np.uint8), offsets)
    predicate_kernels.match_set(data, *a.columns("ii", n), texts, bool(n % 2), bool(n % 3), _mask(a, n))


def _match_header(a: Arguments, n: int) -> None:
    data = a.bytes()
    operation = int(a.rng.integers(-1, 11))
    flags = bool(n % 2), bool(n % 3)
    columns = a.columns("ii", n)
    predicate_kernels.match_header(data, *columns, _needle(a), operation, _needle(a), *flags, _mask(a, n))


def _written(a: Arguments, n: int) -> tuple[encode_kernels.Columns, encode_kernels.Heads, Any]:
    """Columns that lead anywhere, or nearly right, heads and boundaries; the columns keep what they were given."""
    data = np.array(a.bytes())
    right = a.rng.random() < 0.7

    def offsets(rows: int) -> Any:
        return np.sort(a.rng.integers(0, data.size + 1, rows + 1)) if right else a.column("q", rows + 1)

    def binary(rows: int) -> list[Any]:
        return [None] * 3 if a.rng.random() < 0.2 else [offsets(rows), data, None if n % 2 else a.column("B", rows)]

    n_headers = n % 4
    headers: list[Any] = [None] * 7
    if n % 3:
        lists = np.sort(a.rng.integers(0, n_headers + 1, n + 1)) if right else a.column("q", n + 1)
        headers = [lists, *binary(n_headers), *binary(n_headers)]
    offset = np.sort(a.column("q", n)) if right else a.column("q", n)
    columns = encode_kernels.Columns(offset, a.column("q", n), *binary(n), *binary(n), *headers)
    n_batches = n % 5
    heads = encode_kernels.Heads(*a.columns("qqihqqqhii", n_batches))
    boundaries = np.sort(a.rng.integers(0, n + 1, n_batches + 1)) if right else a.column("q", n_batches + 1)
    return columns, heads, boundaries


def _measure_batches(a: Arguments, n: int) -> None:
    columns, heads, boundaries = _written(a, n)
    if n % 2:
        encode_kernels.cut_batches(columns, a.number(), a.number(), a.column("q", n + 1))
        return
    encode_kernels.measure_batches(
        columns, boundaries, *a.columns("qq", len(heads)), a.column("i", n), *a.columns("qq", len(heads))
    )


def _write_batches(a: Arguments, n: int) -> None:
    columns, heads, boundaries = _written(a, n)
    out = _room.ending(bytes(int(a.rng.integers(0, 2000))))
    body_size, payload_size = a.column("i", n), a.column("q", len(heads))
    bounds = (0, len(heads)) if n % 2 else (int(a.rng.integers(-1, 5)), int(a.rng.integers(-1, 5)))
    encode_kernels.write_batches(columns, boundaries, heads, body_size, payload_size, *bounds, bool(n % 3), out)
    n_batches = max(len(heads) - n % 2, 0)
    encode_kernels.write_heads(heads, int(a.rng.integers(-1, 3)), *a.columns("qq", n_batches), out)


def _varints(a: Arguments, n: int) -> None:
    data = a.guard.ending(a.rng.integers(64, 256, n % 13).astype(np.uint8))
    for decode_one in (wire_kernels.decode_unsigned_varint, wire_kernels.decode_varint, wire_kernels.decode_varlong):
        _, _, used = decode_one(data)
        assert 0 <= used <= data.size


KERNEL_CALLS = (
    _walk_batches,
    _survey_batches,
    _build_entries,
    _find_batch,
    _check_crcs,
    _walk_messages,
    _walk_message_set,
    _walk_records,
    _measure_binary,
    _fill_binary,
    _walk_headers,
    _match_bytes,
    _text_set,
    _match_set,
    _match_header,
    _measure_batches,
    _write_batches,
    _varints,
)


@pytest.mark.parametrize("call", KERNEL_CALLS, ids=lambda call: call.__name__.strip("_"))
def test_a_kernel_refuses_arguments_that_lead_outside_its_arrays(call: Callable[[Arguments, int], None]) -> None:
    arguments = Arguments(np.random.default_rng([SEED, 7]))
    outcomes: Counter[str] = Counter()
    for i in range(max(200, N_INPUTS // 80)):
        try:
            call(arguments, i % 23)
            outcomes["fine"] += 1
        except REFUSALS:
            outcomes["refused"] += 1
    assert outcomes["fine"], "nothing got past the checks"
    assert outcomes["refused"] or call is _varints


@pytest.mark.parametrize("number", [-1, 2**63 - 1, -(2**63), 2**62])
def test_a_kernel_refuses_a_start_far_outside(number: int) -> None:
    data = guarded(seeds()[0].data)
    with pytest.raises(ValueError, match="outside"):
        batch_kernels.find_batch(data, number, -1, 10**6)
    columns = [np.zeros(4, dtype) for dtype in kafkalog.records.batch_table.COLUMNS.values()]
    with pytest.raises(ValueError, match="outside"):
        batch_kernels.walk_batches(data, number, 0, -1, *columns)
    one: list[Any] = [np.full(1, 26, np.int32), np.full(1, 2, np.int8), np.zeros(1, np.uint32), np.zeros(1, np.uint8)]
    with pytest.raises(ValueError, match="outside"):
        crc_kernels.check_crcs(data, 0, np.full(1, number), *one)
    with pytest.raises(ValueError, match="outside"):
        crc_kernels.check_crcs(data, number, np.full(1, 0), *one)


def test_messages_and_headers_at_the_very_end_of_memory_are_walked() -> None:
    # what was decompressed lies in the arena, behind which there is more of it: here there is nothing
    rng = np.random.default_rng([SEED, 8])
    wrappers = [seed for seed in seeds() if seed.magic < 2 and seed.plain]
    statuses: Counter[int] = Counter()
    for i in range(max(200, N_INPUTS // 20)):
        seed = wrappers[i % len(wrappers)]
        (plain,) = mutants(rng, seed.plain, 1) if i % 5 else (seed.plain[: int(rng.integers(0, len(seed.plain)))],)
        data = guarded(plain, at_start=i % 4 == 0)
        n = data.size // 26
        columns = [np.zeros(n, dtype) for dtype in (np.int64, np.int64, np.int8, *[np.int32] * 4)]
        status, n_done, at = legacy_kernels.walk_message_set(data, 0, data.size, 2**40, seed.magic, 0, 0, *columns)
        assert 0 <= n_done <= n
        assert 0 <= at <= data.size
        for start, size in (columns[3:5], columns[5:7]):
            assert (size[:n_done] <= data.size - start[:n_done]).all()
        statuses[status] += 1
    assert len(statuses) > 4


# --- files ------------------------------------------------------------------------------------------------------------

TOPICS = ("p-multi", "p-txn", "p-v0v1v2-mixed", "p-v1-lz4")
Row = tuple[int, bytes | None, bytes | None]


class Damage(NamedTuple):
    """A file after an accident."""

    what: str
    data: bytes
    touched: npt.NDArray[np.int_]
    """Bytes that were changed, or between which the file was cut."""
    in_place: bool


def damage(rng: np.random.Generator, data: bytes) -> Damage:
    """One accident of a disk, a cable, or a program."""
    size = len(data)
    at = int(rng.integers(0, max(size, 1)))
    n = min(int(rng.choice([1, 2, 7, 61, 512, 4096])), size - at)
    what = str(
        rng.choice(["flip", "flips", "noise", "zeros", "ones", "stale", "cut", "insert", "remove", "repeat", "append"])
    )
    changed = bytearray(data)
    touched, in_place = np.arange(at, at + n), True
    if what == "flip" and size:
        changed[at] ^= 1 << int(rng.integers(0, 8))
        touched = np.array([at])
    elif what == "flips" and size:
        touched = rng.integers(0, size, 6)
        for place in touched.tolist():
            changed[place] ^= int(rng.integers(1, 256))
    elif what == "noise":
        changed[at : at + n] = rng.bytes(n)
    elif what == "zeros":
        changed[at : at + n] = bytes(n)
    elif what == "ones":
        changed[at : at + n] = b"\xff" * n
    elif what == "stale":
        source = int(rng.integers(0, size - n + 1))
        changed[at : at + n] = data[source : source + n]
    else:
        in_place = False
        touched = np.array([at, at + n])
        if what == "cut":
            del changed[at:]
        elif what == "insert":
            changed[at:at] = rng.bytes(n)
        elif what == "remove":
            del changed[at : at + n]
        elif what == "repeat":
            changed[at:at] = data[at : at + n]
        elif what == "append":
            changed += rng.bytes(n)
    return Damage(what, bytes(changed), touched, in_place)


def rows_of(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    for topic, partition, *row in zip(*columns, strict=True):
        found.setdefault(f"{topic}-{partition}", []).append(tuple(row))
    return found


def tables(
    path: Path, mode: Any, threads: int, topics: Sequence[str] | None = None
) -> tuple[pa.Table, list[kafkalog.Finding], KafkalogError | None]:
    """What a scan gives, what it found, and what it raised, within a second."""
    batches: list[pa.RecordBatch] = []
    error: KafkalogError | None = None
    scan: kafkalog.Scan | None = None
    begin = time.process_time()
    try:
        scan = kafkalog.scan(path, topics=topics, on_corruption=mode, threads=threads, limits=LIMITS)
        batches.extend(scan.to_batches())
    except KafkalogError as problem:
        error = problem
    assert time.process_time() - begin < SECONDS
    for batch in batches:
        batch.validate(full=True)
    assert error is None or error.path is not None
    findings = [] if scan is None else scan.findings
    assert all(isinstance(finding.reason, Reason) and str(finding) for finding in findings)
    schema = batches[0].schema if batches else kafkalog.scan(path, limits=LIMITS).schema
    return pa.Table.from_batches(batches, schema), findings, error


@pytest.mark.parametrize("kind", ["log", "sidecar"])
def test_a_damaged_file_costs_its_own_records_and_nothing_else(kind: str, tmp_path: Path, log_dir: Path) -> None:
    root = tmp_path / "log_dir"
    root.mkdir()
    for path in log_dir.iterdir():
        if path.is_dir() and path.name.rsplit("-", 1)[0] in TOPICS:
            shutil.copytree(path, root / path.name)
    pristine = rows_of(kafkalog.read_table(root))
    logs = [path for path in sorted(root.glob("*/*")) if path.suffix == ".log" and path.stat().st_size]
    others = [path for path in sorted(root.glob("*/*")) if path.suffix != ".log" and path.is_file()]
    files = logs if kind == "log" else others
    starts = {path: np.array([start for start, _ in builder.batch_positions(path.read_bytes())]) for path in logs}
    rng = np.random.default_rng([SEED, 9, kind == "log"])
    lost = errors = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        for i in range(max(60, N_INPUTS // (140 if kind == "log" else 500))):
            path = files[int(rng.integers(0, len(files)))]
            name = path.parent.name
            topics = {name.rsplit("-", 1)[0], "p-multi"}
            unhurt = {key: rows for key, rows in pristine.items() if key.rsplit("-", 1)[0] in topics}
            good = path.read_bytes()
            bad = damage(rng, good)
            mode = ("skip", "stop", "raise")[i % 3]
            note = f"seed {SEED}, input {i}: {bad.what} at {bad.touched[:4].tolist()} of {path.name}, {mode}"
            path.write_bytes(bad.data)
            try:
                table, findings, error = tables(root, mode, 1 + i // 3 % 2, [*topics])
            finally:
                path.write_bytes(good)
            assert error is None or mode == "raise", note
            errors += error is not None
            rows = rows_of(table)
            if kind == "sidecar":
                assert error is None, note
                assert rows == unhurt, note
                continue
            mine, wanted = rows.pop(name, []), unhurt.pop(name)
            if error is None:
                assert rows == unhurt, note
            # offsets and leader epochs are not under the checksum, and a splice can pair a head with another body
            position = starts[path]
            inside = bad.touched - position[np.searchsorted(position, bad.touched, side="right") - 1]
            exact = bool((inside >= (8 if bad.in_place else 17)).all())
            if exact:
                assert set(mine) <= set(wanted), note
            else:
                assert {row[1:] for row in mine} <= {row[1:] for row in wanted}, note
            if exact and bad.in_place and mode != "skip":
                assert mine == wanted[: len(mine)], note
            if exact and bad.in_place and len(mine) < len(wanted):
                assert error is not None or findings, note
            lost += len(mine) < len(wanted)
    if kind == "log":
        assert lost > 10
        assert errors > 5


# --- single bits ------------------------------------------------------------------------------------------------------


@functools.cache
def small_batches() -> dict[str, bytes]:
    """A small batch of each kind that brokers wrote."""
    found: dict[str, bytes] = {}
    for kind, batches in golden_batches().items():
        fitting = [batch for batch in batches if len(batch) < 330] or batches[:1]
        # the smallest often has no key, no value, nothing
        found["-".join(map(str, kind))] = fitting[min(3, len(fitting) - 1)]
    return found


@pytest.mark.parametrize("kind", sorted(small_batches()))
def test_every_bit_under_the_checksum_is_watched_over(kind: str) -> None:
    batch = small_batches()[kind]
    batch = struct.pack(">q", BASE) + batch[8:]
    magic, compressed = batch[16], bool(batch[22 if batch[16] == 2 else 17] & 7)
    good = read(batch)
    assert good.error is None
    # after the offset: the size, the epoch (v2), the magic, the checksum, and what it covers
    watched = set(range(8, len(batch))) - (set(range(12, 16)) if magic == 2 else set())
    buffer = guarded(batch)
    outcomes: Counter[str] = Counter()
    for at in range(len(batch)):
        for bit in range(8):
            buffer[at] ^= 1 << bit
            result = read(BufferSource(buffer), ALL_COLUMNS if at < 17 else ("offset",))
            buffer[at] ^= 1 << bit
            if at in watched:
                assert result.error is not None, f"bit {bit} of byte {at} went unseen"
                assert not result.columns.n_records
                continue
            outcomes[
                same_but_for_the_unwatched(good.columns, result.columns, result.error, at, bit, magic, compressed)
            ] += 1
    assert outcomes["refused"] >= (0 if magic == 0 else 1), "an offset below 0 is always refused"
    assert sum(outcomes.values()) == (96 if magic == 2 else 64)


def same_but_for_the_unwatched(
    good: RecordColumns,
    got: RecordColumns,
    error: KafkalogError | None,
    at: int,
    bit: int,
    magic: int,
    compressed: bool,
) -> str:
    """What a bit does that no checksum covers: it moves the offsets, or it is the leader epoch, or it is refused."""
    if error is not None:
        assert at < 8
        assert error.reason in (Reason.OFFSET_ORDER, Reason.HEADER_INCONSISTENT, Reason.LEGACY_WRAPPER_OFFSET)
        assert not got.n_records
        return "refused"
    changed = {"leader_epoch"} if at >= 12 else {"offset", "batch_base_offset"}
    for name in ALL_COLUMNS:
        if name in changed:
            continue
        one, other = good[name], got[name]
        if isinstance(one, np.ndarray):
            assert np.array_equal(one, other), name  # type: ignore[arg-type]
        else:
            assert one.to_pylist() == other.to_pylist(), name  # type: ignore[union-attr]
    if at < 8:
        moved = (
            int.from_bytes(
                struct.pack(">q", BASE)[:at]
                + bytes((struct.pack(">q", BASE)[at] ^ 1 << bit,))
                + struct.pack(">q", BASE)[at + 1 :],
                "big",
                signed=True,
            )
            - BASE
        )
        shift = 0 if magic == 0 and compressed else moved
        if not (magic == 1 and compressed and moved == -BASE):
            assert np.array_equal(good["offset"] + shift, got["offset"])  # type: ignore[operator, arg-type]
        return "moved"
    assert good["offset"].tolist() == got["offset"].tolist()  # type: ignore[union-attr]
    return "epoch"


# --- bombs ------------------------------------------------------------------------------------------------------------

GIB = 2**30


def zeros_zstd(n: int = GIB) -> bytes:
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    chunk = bytes(2**24)
    return b"".join([stream.compress(chunk) for _ in range(n // len(chunk))]) + stream.flush()


def zeros_gzip(n: int = GIB) -> bytes:
    # the same flushed block again and again; the trailer, which nobody lives to see, is wrong
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflater.compress(bytes(2**24)) + deflater.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * (n // 2**24) + b"\x03\0" + struct.pack("<II", 0, n & 0xFFFFFFFF)


def zeros_lz4(n: int = GIB) -> bytes:
    frame = builder.lz4_frame(bytes(2**22), block_size_code=7)
    return frame[:7] + frame[7:-4] * (n // 2**22) + frame[-4:]


def zeros_snappy(n: int = 2**28) -> bytes:
    xerial = builder.snappy_xerial(bytes(2**20), 2**20)
    return xerial[:16] + xerial[16:] * (n // 2**20)


def bombs() -> dict[str, bytes]:
    """Small files that say or hold far more than any reader may take."""
    found: dict[str, bytes] = {}
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
import resource, sys
import numpy as np, pathlib
import test_fuzz
from reading import read
from kafkalog.errors import Limits
limits = Limits(max_decompressed_bytes=int(sys.argv[1]))

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

read(test_fuzz.BEFORE)
found = {}
for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
    data = path.read_bytes()
    try:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
    except OSError:
        pass  # then the peaks are those of all so far
    before = status("VmRSS")
    for mode in test_fuzz.MODES:
        result = read(data, mode.columns, check_crcs=mode.check_crcs, limits=limits)
        found.setdefault(path.name, []).append(result.error is None)
        del result
    peak = status("VmHWM") - before
    if peak > int(sys.argv[3]):
        sys.exit(f"{path.name}: {peak / 2**20:.0f} MiB, {len(data)} bytes in the file")
    worst = max(peak, found.get("worst", [0])[0])
    found["worst"] = [worst]
import json
print(json.dumps(found))
"""


def run_bombs(files: dict[str, bytes], tmp_path: Path, max_decompressed: int, allowed: int) -> dict[str, list[Any]]:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    arguments = [str(max_decompressed), str(tmp_path), str(allowed)]
    command = [sys.executable, "-c", BOMB_READER, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[Any]] = json.loads(run.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="peaks come from /proc")
@pytest.mark.slow
def test_a_bomb_is_refused_within_64_mib_and_the_limit(tmp_path: Path) -> None:
    max_decompressed = 32 * 2**20
    files = bombs()
    found = run_bombs(files, tmp_path, max_decompressed, 64 * 2**20 + max_decompressed)
    assert len(found) == len(files) + 1
    for name, read_well in found.items():
        assert name == "worst" or name.startswith("lie") or not any(read_well), name


# --- what was found ---------------------------------------------------------------------------------------------------


def test_what_was_found_once_stays_found(tmp_path: Path) -> None:
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
