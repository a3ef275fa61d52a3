"""Compress the records of a batch, in the same frames as Kafka's own writers.

Snappy in xerial blocks of 32 KiB, LZ4 frames of independent 64 KiB blocks without checksums, zstd frames without a
content size, one gzip member. `cramjam` (snappy, lz4), `zstandard` and zlib implement the codecs; this module writes
the frames. Mirrors `SnappyOutputStream`, `Lz4BlockOutputStream` and the rest of `org.apache.kafka.common.compress`.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import cramjam
import numpy as np
import zstandard

from kafkalog import format as kf
from kafkalog.records.codecs import (
    LZ4_MAGIC,
    XERIAL_MAGIC,
    ZSTD_NEEDS_V2,
    Arena,
    Compression,
    as_array,
    header_checksum,
)

XERIAL_BLOCK: Final = 32 * 1024
LZ4_BLOCK: Final = 64 * 1024


Compress = Callable[[Arena, memoryview], None]
"""Appends the compressed form of bytes to an arena."""


def compressor(compression: Compression, *, magic: int = 2) -> Compress:
    """Return a function that compresses batches with these settings; not to be shared between threads.

    `magic` is that of the batch: the header checksum of a v0 LZ4 frame is different (KAFKA-3160), and zstd exists from
    v2 on.
    """
    level = compression.effective_level
    if level is None:
        return _append if compression.codec == kf.Codec.NONE else _snappy
    if compression.codec == kf.Codec.GZIP:
        return partial(_gzip, level)
    if compression.codec == kf.Codec.LZ4:
        frame = _LZ4_FRAMES[min(magic, 1)]
        return partial(_lz4_fast, frame) if level == _LZ4_FAST else partial(_lz4_high, frame, level)
    if magic < 2:
        raise ValueError(ZSTD_NEEDS_V2)
    return partial(_zstd, _zstd_encoder(level))


def _append(arena: Arena, view: memoryview) -> None:
    arena.append(view)


_GZIP_MEMBER = 31  # zlib's number for its largest window in a gzip member


def _gzip(level: int, arena: Arena, view: memoryview) -> None:
    arena.append(zlib.compress(view, level, _GZIP_MEMBER))


def _zstd(encoder: zstandard.ZstdCompressor, arena: Arena, view: memoryview) -> None:
    arena.append(encoder.compress(view))


_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_BE32 = struct.Struct(">i")


def _snappy(arena: Arena, view: memoryview) -> None:
    n = len(view)
    # at worst, snappy makes a block a sixth and 32 bytes larger
    room = arena.reserve(16 + (n // XERIAL_BLOCK + 1) * 36 + n + n // 6)
    room[:16] = _XERIAL_HEADER
    at = 16
    for start in range(0, n, XERIAL_BLOCK):
        size = cramjam.snappy.compress_raw_into(view[start : start + XERIAL_BLOCK], as_array(room[at + 4 :]))
        _BE32.pack_into(room, at, size)
        at += 4 + size
    arena.used += at


_LZ4_FAST = 9
_LZ4_LEAST_HIGH = 2  # below this, cramjam's frame compressor uses the fast compressor
_LE32 = struct.Struct("<I")
_UNCOMPRESSED = 0x80000000
_LZ4_END = bytes(4)
_LZ4_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks of 64 KiB, no other options
_LZ4_FRAMES = tuple(
    LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes((header_checksum(guarded + _LZ4_DESCRIPTOR),)) for guarded in (LZ4_MAGIC, b"")
)


def _lz4_fast(frame: bytes, arena: Arena, view: memoryview) -> None:
    n = len(view)
    # at worst, LZ4 makes a block a 255th and 16 bytes larger
    room = arena.reserve(7 + (n // LZ4_BLOCK + 1) * 20 + n + n // 255 + 4)
    room[:7] = frame
    at = 7
    for start in range(0, n, LZ4_BLOCK):
        block = view[start : start + LZ4_BLOCK]
        size = cramjam.lz4.compress_block_into(block, as_array(room[at + 4 :]), store_size=False)
        # an incompressible block is stored unchanged, marked by the top bit of its size
        if size < len(block):
            _LE32.pack_into(room, at, size)
        else:
            size = len(block)
            _LE32.pack_into(room, at, size | _UNCOMPRESSED)
            room[at + 4 : at + 4 + size] = block
        at += 4 + size
    room[at : at + 4] = _LZ4_END
    arena.used += at + 4


def _lz4_high(frame: bytes, level: int, arena: Arena, view: memoryview) -> None:
    """Write blocks of the high compressor.

    cramjam offers it only for whole frames. So each 64 KiB becomes a frame of cramjam, and its block is copied.
    """
    arena.append(frame)
    for start in range(0, len(view), LZ4_BLOCK):
        encoder = cramjam.lz4.Compressor(level=max(level, _LZ4_LEAST_HIGH), content_checksum=False, block_linked=False)
        encoder.compress(view[start : start + LZ4_BLOCK].tobytes())  # cramjam accepts no memoryview here
        theirs = memoryview(np.frombuffer(encoder.finish(), np.uint8))
        checksum = 4 if theirs[4] & 0x10 else 0  # drop the checksum after each block, since Kafka writes none
        at = 7
        while header := _LE32.unpack_from(theirs, at)[0]:
            end = at + 4 + (header & ~_UNCOMPRESSED)
            arena.append(theirs[at:end])
            at = end + checksum
    arena.append(_LZ4_END)


_threads = threading.local()


def _zstd_encoder(level: int) -> zstandard.ZstdCompressor:
    """Return the thread's encoder of a level: creating one costs more than compressing a small batch."""
    encoders: dict[int, Any] | None = getattr(_threads, "zstd", None)
    if encoders is None:
        encoders = _threads.zstd = {}
    encoder: zstandard.ZstdCompressor | None = encoders.get(level)
    if encoder is None:
        encoders.clear()  # keep only one: an encoder of a high level holds megabytes
        encoder = encoders[level] = zstandard.ZstdCompressor(
            level=level, write_content_size=False, write_checksum=False, write_dict_id=False
        )
    return encoder
