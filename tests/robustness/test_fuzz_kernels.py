"""Kernels refuse arguments that no caller here makes, and touch nothing outside of their arrays."""

import tempfile
from collections import Counter

import numpy as np
import pytest
from effort import counted
from fuzzing import N_INPUTS, SEED
from guard import Guard, guarded
from mutants import I32, I64, mutants, seeds

import kafkalog
from kafkalog._kernels import crc as crc_kernels
from kafkalog._kernels import decode as record_kernels
from kafkalog._kernels import encode as encode_kernels
from kafkalog._kernels import fill as fill_kernels
from kafkalog._kernels import header_walk as batch_kernels
from kafkalog._kernels import legacy as legacy_kernels
from kafkalog._kernels import resync as resync_kernels
from kafkalog._kernels.batch_spec import FIELDS, Heads, write_heads
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog._kernels.record_windows import RecordWindows
from kafkalog.records.batch_table import BatchTable, ReadTable, columns_of
from kafkalog.undeleting.images import BATCH

REFUSALS = (ValueError, IndexError)
HOSTILE_DTYPES = {
    "b": np.int8,
    "h": np.int16,
    "i": np.int32,
    "q": np.int64,
    "I": np.uint32,
    "B": np.uint8,
}


_room = Guard(4096)
_codecs = fill_kernels.Codecs()


class Arguments:
    """Draws arrays and numbers that are out of bounds as often as not."""

    def __init__(self, rng):
        self.rng = rng
        self.guard = Guard(4096)
        self.data = np.empty(0, np.uint8)

    def bytes(self):
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

    def number(self, bits=64):
        pick = int(self.rng.integers(0, 3))
        if pick == 0:
            return int(self.rng.integers(-2, self.data.size + 3))
        values = I64 if bits == 64 else tuple(value for value in I32 if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
        return 61 if pick == 1 else int(self.rng.choice(np.array(values)))

    def column(self, kind, n):
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

    def columns(self, kinds, n):
        return [self.column(kind, n) for kind in kinds]


def _walk_batches(a, n):
    batch_kernels.walk_batches(a.bytes(), a.number(), a.number(), a.number(), *a.columns("qiqqibIhqqqhiih", n))


def _read_at(a, n):
    batch_kernels.read_at(a.bytes(), a.number(), a.column("q", n), 0, np.zeros(n, BATCH))


def _find_headers(a, n):
    rows = np.zeros(n, BATCH)
    batch_kernels.find_headers(a.bytes(), a.number(), a.number(), a.number(16), a.number(), 0, rows)


def _find_starts(a, n):
    rows = np.zeros(n, BATCH)
    for name in BATCH.names:
        rows[name] = a.column("I" if name == "crc" else {2: "h", 4: "i", 8: "q"}[BATCH[name].itemsize], n)
    rows["image"] %= 3
    batch_kernels.find_starts(rows, a.column("q", n % 4), np.zeros(n, np.uint8))


def _scan_window(a, n):
    data, room = a.bytes(), np.zeros(40, np.uint32)
    numbers = a.number(), a.number(), a.number(), a.number()
    state = a.column("q", 7)
    rows = a.columns("qiqqib", n)
    resync_kernels.scan_window(data, *numbers, room, room.copy(), np.ones(2, np.int64), state, *rows)


def _check_crcs(a, n):
    data = a.bytes()
    crc_kernels.check_crcs(data, a.number(), *a.columns("qibIB", n))


def _walk_messages(a, n):
    data = a.bytes()
    legacy_kernels.walk_messages(data, *a.columns("qibI", n), bool(n % 2), *a.columns("iiii", n))


def _walk_message_set(a, n):
    legacy_kernels.walk_message_set(
        a.bytes(), a.number(), a.number(), a.number(), n % 3, a.number(16), a.number(), *a.columns("qqbiiii", n)
    )


def _walk_records(a, n):
    data = a.bytes()
    headers = [None] * 2 if a.rng.random() < 0.3 else a.columns("ii", n)
    record_kernels.walk_records(
        data,
        *a.columns("qqqqqhiI", n % 5),
        bool(n % 2),
        a.number(32),
        a.number(32),
        *a.columns("qqiiii", n),
        *headers,
    )


def _record_windows(a, n):
    """From bytes; half of the calls say what a caller says."""
    data, sound = a.bytes(), bool(n % 2)
    names = [name for name in ("offset", "timestamp", "key", "value", "headers") if a.rng.random() < 0.7]
    windows = RecordWindows(
        names,
        str(a.rng.choice(["arrow", "views", "numpy"])),
        int(a.rng.integers(1, 2**14)),
        read_bytes=a.number(16),
        max_batch_bytes=2**20 if sound else a.number(),
        max_records=2**20 if sound else a.number(32),
        max_headers=2**20 if sound else a.number(32),
        max_batch_headers=2**20 if sound else a.number(32),
        max_decompressed=2**20 if sound else a.number(16),
        check_crc=a.rng.random() < 0.5,
        stop_at=0 if sound else a.number(8),
        offsets=(-(2**63), 2**63 - 1) if sound else (a.number(), a.number()),
    )
    place = (0, data.size, data.size, -1) if sound else tuple(a.number() for _ in range(4))
    found = windows.next(_codecs, -1, *place, data)
    if found is not None:
        assert found.n_batches == found.rows.n > 0
        assert 0 <= found.end_position - place[0] <= data.size
        assert (found.columns is None) == (found.n_records == 0)


def _decompress_payloads(a, n):
    data = a.bytes()
    batches = a.columns("qqhi", n % 5)
    arena = _room.ending(bytes(int(a.rng.integers(0, 2000))))
    numbers = a.number(32), a.number(), _codecs, arena, a.number(), a.number()
    fill_kernels.decompress_payloads(data, *batches, *numbers, a.column("q", n % 5))


def _read_intact(a, n):
    """From the file with the same bytes, or from them; half of the calls say what a caller says."""
    data = a.bytes()
    content = data.tobytes()
    numbers = (0, a.data.size, -1, 2**20) if n % 2 else tuple(a.number() for _ in range(4))
    offsets = (-(2**63), 2**63 - 1) if n % 4 < 2 else (a.number(), a.number())
    is_there = a.rng.random() < 0.5
    room = None if is_there else a.guard.ending(bytes(int(a.rng.integers(0, 4096))))
    rows = HeaderRows(n)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        batch_kernels.read_intact(
            file.fileno(),
            *numbers,
            a.rng.random() < 0.5,
            a.number(8),
            *offsets,
            int(a.rng.integers(0, 3000)),
            room,
            data if is_there else None,
            None,
            rows,
        )
    assert rows.n <= rows.capacity <= n + 7
    if rows.n:
        batches = ReadTable(rows)
        facts = batches.first_offset, batches.end_offset, batches.last_position, batches.end_position
        facts += (batches.attribute_bits,)
        columns = BatchTable(*columns_of(rows))
        assert len(batches) == len(columns) == rows.n
        assert facts == (
            *(columns.first_offset, columns.end_offset, columns.last_position, columns.end_position),
            columns.attribute_bits,
        )


def _find_boundary(a, n):
    a.bytes()
    with tempfile.TemporaryFile() as file:
        file.write(a.data.tobytes())
        file.flush()
        start, stop, n_bytes = a.number(), a.number(), a.number()
        found = batch_kernels.find_boundary(file.fileno(), start, stop, n_bytes)
        assert start < found <= stop or found == stop
        if stop <= a.data.size:
            assert batch_kernels.find_boundary(a.data[start:], start, stop, n_bytes) == found


def _written(a, n):
    """Columns that lead anywhere, or nearly right, heads and boundaries; the columns keep what they were given."""
    data = np.array(a.bytes())
    right = a.rng.random() < 0.7

    def offsets(rows):
        return np.sort(a.rng.integers(0, data.size + 1, rows + 1)) if right else a.column("q", rows + 1)

    def binary(rows):
        return [None] * 3 if a.rng.random() < 0.2 else [offsets(rows), data, None if n % 2 else a.column("B", rows)]

    n_headers = n % 4
    headers = [None] * 7
    if n % 3:
        lists = np.sort(a.rng.integers(0, n_headers + 1, n + 1)) if right else a.column("q", n + 1)
        headers = [lists, *binary(n_headers), *binary(n_headers)]
    offset = np.sort(a.column("q", n)) if right else a.column("q", n)
    columns = encode_kernels.Columns(offset, a.column("q", n), *binary(n), *binary(n), *headers)
    n_batches = n % 5
    heads = Heads(n_batches)
    for field in range(len(FIELDS)):
        if a.rng.random() < 0.6:
            heads.fill(field, a.number() if n % 2 else a.column("q", n_batches))
    boundaries = np.sort(a.rng.integers(0, n + 1, n_batches + 1)) if right else a.column("q", n_batches + 1)
    if a.rng.random() < 0.7:
        heads.begin(boundaries, offset, a.column("q", n), bool(n % 2), bool(n % 4))
        heads.check(boundaries, offset)
        heads.number_sequences(a.number())
    return columns, heads, boundaries


def _measure_batches(a, n):
    columns, heads, boundaries = _written(a, n)
    if n % 2:
        encode_kernels.cut_batches(columns, a.number(), a.number(), a.column("q", n + 1))
        return
    encode_kernels.measure_batches(columns, boundaries, heads, a.column("i", n), a.column("q", len(heads)))


def _write_batches(a, n):
    columns, heads, boundaries = _written(a, n)
    out = _room.ending(bytes(int(a.rng.integers(0, 2000))))
    body_size, payload_size = a.column("i", n), a.column("q", len(heads))
    bounds = (0, len(heads)) if n % 2 else (int(a.rng.integers(-1, 5)), int(a.rng.integers(-1, 5)))
    encode_kernels.write_batches(columns, boundaries, heads, body_size, payload_size, *bounds, bool(n % 3), out)
    n_batches = max(len(heads) - n % 2, 0)
    write_heads(heads, int(a.rng.integers(-1, 3)), *a.columns("qq", n_batches), out)


KERNEL_CALLS = (
    *(_walk_batches, _scan_window, _check_crcs, _walk_messages, _walk_message_set, _walk_records, _record_windows),
    *(_read_at, _find_headers, _find_starts),
    *(_decompress_payloads, _read_intact, _find_boundary, _measure_batches, _write_batches),
)


@pytest.mark.parametrize("call", KERNEL_CALLS, ids=lambda call: call.__name__.strip("_"))
def test_a_kernel_refuses_arguments_that_lead_outside_its_arrays(call):
    arguments = Arguments(np.random.default_rng([SEED, 7]))
    outcomes = Counter()
    for i in counted(range(max(200, N_INPUTS // 80))):
        try:
            call(arguments, i % 23)
            outcomes["fine"] += 1
        except REFUSALS:
            outcomes["refused"] += 1
    assert outcomes["fine"], "nothing got past the checks"
    assert outcomes["refused"]


@pytest.mark.parametrize("number", [-1, 2**63 - 1, -(2**63), 2**62])
def test_a_kernel_refuses_a_start_far_outside(number):
    data = guarded(seeds()[0].data)
    sums = [np.zeros(data.size // resync_kernels.BLOCK_BYTES + 2, np.uint32) for _ in range(2)]
    rows = [np.zeros(4, dtype) for dtype in ("i8", "i8", "i4", "i8", "i8", "i4", "i1")]
    with pytest.raises(ValueError):
        resync_kernels.scan_window(data, number, 0, data.size, 2**20, *sums, np.ones(2, np.int64), *rows)
    columns = [np.zeros(4, dtype) for dtype in kafkalog.records.batch_table.COLUMNS.values()]
    with pytest.raises(ValueError):
        batch_kernels.walk_batches(data, number, 0, -1, *columns)
    one = [np.full(1, 26, np.int32), np.full(1, 2, np.int8), np.zeros(1, np.uint32), np.zeros(1, np.uint8)]
    with pytest.raises(ValueError):
        crc_kernels.check_crcs(data, 0, np.full(1, number), *one)
    with pytest.raises(ValueError):
        crc_kernels.check_crcs(data, number, np.full(1, 0), *one)


def test_messages_and_headers_at_the_very_end_of_memory_are_walked():
    # what was decompressed lies in the arena, behind which there is more of it: here there is nothing
    rng = np.random.default_rng([SEED, 8])
    wrappers = [seed for seed in seeds() if seed.magic < 2 and seed.plain]
    statuses = Counter()
    for i in counted(range(max(200, N_INPUTS // 20))):
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
