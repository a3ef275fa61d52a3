"""Batches to start from, of every kind that brokers wrote, and changed copies of them.

Three levels: any byte changed; changed, then sizes and checksum made right again, so that the decoders see it; changed
under the compression.
"""

from __future__ import annotations

import functools
import struct
import zlib
from dataclasses import dataclass

import builder
import golden_sets
import numpy as np
import reference
import zstandard

from kafkalog._kernels import crc as crc_kernels

BASE = 1000
"""Base offset of every seed, so that there is room for a batch before it and behind it."""
ENVELOPE = 12

I32 = (0, 1, 2, 7, -1, -2, 13, 14, 21, 22, 48, 49, 2**31 - 1, 2**31 - 8, -(2**31), 2**16, 2**24, 2**30)
I64 = (0, 1, -1, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), -(2**62))


@dataclass(frozen=True)
class Seed:
    """A batch to start from."""

    data: bytes
    magic: int
    codec: int
    payload_start: int
    """Where the records, compressed or not, start."""
    plain: bytes
    """The records, or what a v0 or v1 message wraps; empty where it wraps nothing."""


def payload_start(batch):
    if batch[16] == 2:
        return 61
    key = 18 if batch[16] == 0 else 26
    size = int.from_bytes(batch[key : key + 4], "big", signed=True)
    return key + 4 + max(size, 0) + 4


def make_seed(batch):
    batch = struct.pack(">q", BASE) + batch[8:]
    magic = batch[16]
    codec = (batch[22] if magic == 2 else batch[17]) & 7
    start = payload_start(batch)
    payload = batch[start:]
    if codec:
        payload = reference.decompress(codec, payload, magic) if len(payload) else b""
    elif magic < 2:
        payload = b""
    return Seed(batch, magic, codec, start, payload)


def kind_of(batch):
    if batch[16] == 2:
        return 2, batch[22], int(batch[57:61] == bytes(4))
    return batch[16], batch[17]


@functools.cache
def golden_batches():
    """Distinct batches that brokers wrote, by what their attributes say, the smallest first."""
    found = {}
    for name in golden_sets.SETS:
        for partition in golden_sets.partitions(name).values():
            for path in sorted(partition.glob("*.log")):
                data = path.read_bytes()
                for start, stop in builder.batch_positions(data):
                    if 26 <= stop - start <= 20_000:
                        batch = data[start:stop]
                        found.setdefault(kind_of(batch), set()).add(batch)
    return {kind: sorted(batches, key=lambda batch: (len(batch), batch)) for kind, batches in sorted(found.items())}


def records(n=3):
    """Records with all that a record can have."""
    return [
        builder.record_v2(
            i, i * 7, (None, b"", b"key")[i % 3], (b"value" * 9, None, b"")[i % 3], [(b"h", b"1"), (b"", None)]
        )
        for i in range(n)
    ]


@functools.cache
def seeds():
    """Batches of every kind: the smallest and a larger one of each that brokers wrote, and built ones."""
    chosen = []
    for batches in golden_batches().values():
        small = [batch for batch in batches if len(batch) <= 1500]
        chosen += [*small[:3], *small[len(small) // 2 :][:1], *small[-1:]]
        chosen += [batch for batch in batches if len(batch) > 1500][:1]
    for codec in range(5):
        payload = b"".join(records(5))
        for variant in range(builder.N_VARIANTS[codec]):
            form = builder.compress_variant(codec, payload, 2, variant)
            chosen.append(builder.batch_v2(records(5), codec=codec, payload=form, transactional=bool(variant % 2)))
    for magic in (0, 1):
        inner = [builder.message(i, b"k" * i, (b"value", None, b"")[i % 3], magic=magic, timestamp=i) for i in range(4)]
        for codec in (1, 2, 3):
            for variant in range(builder.N_VARIANTS[codec]):
                payload = builder.compress_variant(codec, b"".join(inner), magic, variant)
                chosen.append(builder.wrapper([], offset=3, magic=magic, codec=codec, payload=payload))
    chosen += [
        builder.control_batch(builder.COMMIT),
        builder.batch_v2([], last_offset_delta=3),
        builder.batch_v2(records(40)),
    ]
    return tuple(make_seed(batch) for batch in dict.fromkeys(chosen))


INTERESTING = np.array([0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x10, 0x20, 0x40, 0x0E, 0x3D], np.uint8)
WORDS = np.array([list(struct.pack(">i", value)) for value in I32], np.uint8)
LONGS = np.array([list(struct.pack(">q", value)) for value in I64], np.uint8)
V2_FIELDS = np.array([8, 12, 17, 23, 53, 57])
LEGACY_FIELDS = np.array([8, 12, 18, 22, 26, 30])


def mutants(rng, data, n, *, hot=0, fields=None):
    """Changed copies of some bytes: a few bits, bytes or big-endian integers, then a fifth cut, spliced or repeated.

    Half of the changes fall on the first `hot` bytes; integers go to `fields` where they are given.
    """
    size = len(data)
    if not size:
        yield from (rng.bytes(int(length)) for length in rng.integers(0, 40, n))
        return
    rows = np.tile(np.frombuffer(data, np.uint8), (n, 1))
    n_changes = rng.integers(1, 5, n)
    row = np.repeat(np.arange(n), n_changes)
    total = row.size
    at = rng.integers(0, size, total)
    if hot:
        at = np.where(rng.random(total) < 0.5, rng.integers(0, min(hot, size), total), at)
    old = rows[row, at]
    kind = rng.integers(0, 4, total)
    flipped = old ^ (np.uint8(1) << rng.integers(0, 8, total).astype(np.uint8))
    stepped = old + np.where(rng.random(total) < 0.5, np.uint8(1), np.uint8(255))
    rows[row, at] = np.choose(
        kind, [flipped, stepped, INTERESTING[rng.integers(0, INTERESTING.size, total)], rng.integers(0, 256, total)]
    )
    for table, share in ((WORDS, 3), (LONGS, 12)):
        width = table.shape[1]
        if size >= width:
            some = rng.permutation(n)[: n // share]
            where = rng.integers(0, size - width + 1, some.size)
            if fields is not None:
                where = np.minimum(fields[rng.integers(0, fields.size, some.size)], size - width)
            rows[some[:, None], where[:, None] + np.arange(width)] = table[rng.integers(0, len(table), some.size)]
    changed = rows.tobytes()
    what = rng.integers(0, 20, n).tolist()
    first = rng.integers(0, size, n).tolist()
    length = np.minimum(rng.geometric(0.15, n), size).tolist()
    for i in range(n):
        one = changed[i * size : (i + 1) * size]
        start = first[i]
        if what[i] == 0:
            one = one[:start]
        elif what[i] == 1:
            one = one[:start] + one[start + length[i] :]
        elif what[i] == 2:
            one = one[: start + length[i]] + one[start:]
        elif what[i] == 3:
            one = one[:start] + one[length[i] : length[i] + 30] + one[start:]
        yield one


def repaired(batch):
    """A batch with the size and the checksum of its bytes, if it is long enough to have them."""
    if len(batch) < 26:
        return batch
    size = struct.pack(">i", len(batch) - ENVELOPE)
    if batch[16] == 2:
        return b"".join(
            (batch[:8], size, batch[12:17], struct.pack(">I", crc_kernels.checksum_crc32c(batch[21:])), batch[21:])
        )
    return b"".join((batch[:8], size, struct.pack(">I", zlib.crc32(batch[16:])), batch[16:]))


def packed(codec, plain, magic):
    if codec == builder.GZIP:
        return builder.gzip_member(plain, 1)
    if codec == builder.ZSTD:
        return ZSTD.compress(plain)
    return builder.compress(codec, plain, magic)


ZSTD = zstandard.ZstdCompressor(level=1)


def with_records(seed, codec, plain):
    """A seed with other records, compressed anew, sizes and checksum right."""
    payload = packed(codec, plain, seed.magic)
    head = bytearray(seed.data[: seed.payload_start])
    at = 22 if seed.magic == 2 else 17
    head[at] = head[at] & 0xF8 | codec
    if seed.magic < 2:
        head[-4:] = struct.pack(">i", len(payload))
    return repaired(bytes(head) + payload)


def raw_inputs(rng, seed, n):
    """Level 1: nothing is repaired."""
    return mutants(rng, seed.data, n, hot=seed.payload_start)


def repaired_inputs(rng, seed, n):
    """Level 2: sizes and checksum are right again, but for a few."""
    fields = V2_FIELDS if seed.magic == 2 else LEGACY_FIELDS
    keep_magic = rng.random(n) < 0.9
    for i, one in enumerate(mutants(rng, seed.data, n, hot=seed.payload_start, fields=fields)):
        if keep_magic[i] and len(one) > 16:
            one = one[:16] + seed.data[16:17] + one[17:]
        yield repaired(one)


def recompressed_inputs(rng, seed, n):
    """Level 3: what the compression hides is changed, under each codec in turn."""
    if seed.magic < 2 and not seed.plain:
        yield from repaired_inputs(rng, seed, n)
        return
    codecs = (0, 1, 2, 3, 4) if seed.magic == 2 else (1, 2, 3)
    count = struct.pack(">i", 0)
    counts = rng.integers(0, 40, n)
    for i, plain in enumerate(mutants(rng, seed.plain, n)):
        batch = with_records(seed, codecs[i % len(codecs)], plain)
        if seed.magic == 2 and counts[i] < 8:
            count = struct.pack(">i", int(counts[i]))
            batch = repaired(batch[:57] + count + batch[61:])
        yield batch


LEVELS = {
    "raw": (raw_inputs, 0.3),
    "repaired": (repaired_inputs, 0.4),
    "recompressed": (recompressed_inputs, 0.3),
}

BEFORE = builder.batch_v2(records(2), base_offset=0)
BEHIND = builder.batch_v2(records(2), base_offset=2**40)


def segments(seed, n):
    """Changed batches of all levels, each between two good ones."""
    everything, levels = seeds(), [*LEVELS.values()]
    for number in range(n):
        rng = np.random.default_rng([seed, number])
        (changed,) = levels[number % len(levels)][0](rng, everything[int(rng.integers(len(everything)))], 1)
        yield BEFORE + changed + BEHIND
