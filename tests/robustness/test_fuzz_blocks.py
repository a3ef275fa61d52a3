"""LZ4 and snappy blocks made element by element: the kernel gives what the library gives, or leaves them to it.

Real data compresses into a few kinds of elements; these have lengths and distances of every kind, near every end.
"""

import cramjam
import lz4.block
import numpy as np
import pytest
from builder import xxh32
from damaged_partitions import changed_bytes
from effort import counted, fuzz_inputs
from fuzzing import SEED
from guard import Guard

from kafkalog import format as kf
from kafkalog._kernels.fill import PAD
from kafkalog.records.spans import new_codecs

pytestmark = pytest.mark.kernels

BLOCK = 2**16
HEAD = b"\x04\x22\x4d\x18\x60\x40" + bytes([xxh32(b"\x60\x40") >> 8 & 0xFF])
LENGTHS = (0, 1, 2, 3, 5, 7, 11, 12, 14, 15, 16, 17, 18, 19, 29, 31, 32, 33, 60, 64, 65, 269, 270, 271, 274, 600)
DISTANCES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 255, 256, 4096, 65_535)


def lz4_length(n):
    """What follows a nibble of 15."""
    return b"\xff" * (n // 255) + bytes([n % 255])


def lz4_elements(rng):
    """A block whose matches may reach too far, and which may not end as a block has to."""
    out, written = [], 0
    for _ in range(int(rng.integers(0, 60))):
        n, match = (int(rng.choice(LENGTHS)) if rng.random() < 0.3 else int(rng.integers(0, 20)) for _ in range(2))
        written += n
        if rng.random() < 0.99:
            distance = int(rng.integers(1, written + 1)) if written else 1
        else:
            distance = int(rng.choice(DISTANCES))
        if rng.random() < 0.3:
            distance = min(int(rng.choice(DISTANCES[1:])), max(written, 1))
        out.append(bytes([min(n, 15) << 4 | min(match, 15)]))
        out.append(
            (lz4_length(n - 15) if n >= 15 else b"") + rng.bytes(n) + min(distance, 65_535).to_bytes(2, "little")
        )
        out.append(lz4_length(match - 15) if match >= 15 else b"")
        written += match + 4
    last = int(rng.integers(0, 40)) if rng.random() < 0.5 else int(rng.integers(12, 60))
    out.append(bytes([min(last, 15) << 4]) + (lz4_length(last - 15) if last >= 15 else b"") + rng.bytes(last))
    return b"".join(out)


def snappy_elements(rng):
    """A raw block, whose size may be told wrong."""
    out, written = [], 0
    for _ in range(int(rng.integers(1, 60))):
        if not written or rng.random() < 0.4:
            n = int(rng.choice(LENGTHS[1:])) if rng.random() < 0.2 else int(rng.integers(1, 20))
            out.append(bytes([n - 1 << 2]) if n <= 60 else bytes([61 << 2]) + (n - 1).to_bytes(2, "little"))
            out.append(rng.bytes(n))
        else:
            n = int(rng.integers(1, 65))
            distance = int(rng.choice(DISTANCES)) if rng.random() < 0.3 else int(rng.integers(1, written + 1))
            if rng.random() < 0.98:
                distance = max(min(distance, written), 1)
            if distance < 2048 and 4 <= n < 12 and rng.random() < 0.5:
                out.append(bytes([1 | n - 4 << 2 | distance >> 8 << 5, distance & 0xFF]))
            elif distance < BLOCK:
                out.append(bytes([2 | n - 1 << 2]) + distance.to_bytes(2, "little"))
            else:
                out.append(bytes([3 | n - 1 << 2]) + distance.to_bytes(4, "little"))
        written += n
    size = written if rng.random() < 0.97 else max(written + int(rng.integers(-2, 3)), 0)
    told = b""
    while size > 127:
        told, size = told + bytes([size & 127 | 128]), size >> 7
    return told + bytes([size]) + b"".join(out)


def damaged(rng, block):
    return changed_bytes(rng, block) if rng.random() < 0.3 else block


def given(codec, stream, room, source):
    """What the kernel decompresses at the very ends of memory, None if it leaves the stream alone."""
    to = room.room[room.capacity - BLOCK - PAD :]
    n = new_codecs().decompress(codec, source.ending(stream), to)
    return None if n < 0 else to[:n].tobytes()


def test_lz4_blocks_are_what_the_library_makes_of_them():
    rng = np.random.default_rng(SEED)
    room, source = Guard(BLOCK + PAD), Guard(BLOCK)
    n_good = n_left = 0
    for _ in counted(range(fuzz_inputs(3))):
        block = damaged(rng, lz4_elements(rng))
        if not 0 < len(block) <= BLOCK:
            continue
        try:
            expected = lz4.block.decompress(block, uncompressed_size=BLOCK)
        except lz4.block.LZ4BlockError:
            expected = None
        stream = HEAD + len(block).to_bytes(4, "little") + block + bytes(4)
        found = given(kf.Codec.LZ4, stream, room, source)
        # the library accepts some blocks that end as none may, and distances of 0: these are left to it
        assert found is None or found == expected, block.hex()
        n_good += found is not None
        n_left += found is None and expected is not None
    assert n_left < fuzz_inputs(3) // 20 < n_good


def test_snappy_blocks_are_what_the_library_makes_of_them():
    rng = np.random.default_rng(SEED)
    room, source = Guard(BLOCK + PAD), Guard(BLOCK)
    n_good = 0
    for _ in counted(range(fuzz_inputs(3))):
        block = damaged(rng, snappy_elements(rng))
        if not block:
            continue
        try:
            expected = bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError:
            expected = None
        found = given(kf.Codec.SNAPPY, block, room, source)
        assert found == expected, block.hex()
        n_good += expected is not None
    assert n_good > fuzz_inputs(3) // 10
