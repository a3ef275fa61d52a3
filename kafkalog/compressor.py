"""Compresses the records of a batch in the frames that Kafka's own writers make.

Snappy in xerial blocks of 32 KiB, LZ4 frames of independent 64 KiB blocks without checksums, zstd frames without a
content size, one gzip member. The codecs are left to `cramjam` (snappy, lz4), `zstandard` and zlib; what is put around
them is here. Mirrors `SnappyOutputStream`, `Lz4BlockOutputStream` and the rest of `org.apache.kafka.common.compress`.
"""

from __future__ import annotations

import struct
import threading
import zlib
from typing import Any, Final

import cramjam
import numpy as np
import zstandard

from kafkalog import format as kf
from kafkalog.compression import XERIAL_MAGIC, Arena, Compression, header_checksum
from kafkalog.source import Bytes

XERIAL_BLOCK: Final = 32 * 1024
LZ4_BLOCK: Final = 64 * 1024


def compress(compression: Compression, data: Bytes, *, magic: int = 2) -> Bytes:
    """Compress the records of a batch, or the messages of a wrapper.

    Parameters
    ----------
    compression : Compression
    data : uint8[n]
    magic : int
        Of the batch: a v0 LZ4 frame has a header checksum of its own kind (KAFKA-3160), and zstd exists from v2 on.

    Returns
    -------
    uint8[m]
    """
    arena = Arena(compress_bound(compression, len(data)))
    compress_into(arena, compression, data, magic=magic)
    return arena.data[: arena.used]


def compress_into(arena: Arena, compression: Compression, data: Bytes, *, magic: int = 2) -> int:
    """Append the compressed form of `data` to an arena; how many bytes that took."""
    used = arena.used
    view = memoryview(data)
    codec = compression.codec
    if codec == kf.Codec.NONE:
        arena.append(view)
    elif codec == kf.Codec.GZIP:
        arena.append(zlib.compress(view, _level(compression), _GZIP_MEMBER))
    elif codec == kf.Codec.SNAPPY:
        _snappy(arena, view)
    elif codec == kf.Codec.LZ4:
        arena.append(_LZ4_FRAMES[min(magic, 1)])
        if _level(compression) == _LZ4_FAST:
            _lz4_fast(arena, view)
        else:
            _lz4_high(arena, view, _level(compression))
        arena.append(_LZ4_END)
    else:
        if magic < 2:
            raise ValueError("zstd came with message format v2")
        arena.append(_zstd_encoder(_level(compression)).compress(view))
    return arena.used - used


def compress_bound(compression: Compression, n: int) -> int:
    """At most so many bytes come out of `n`; a guess that is nearly always enough for codecs that are copied anyway."""
    if compression.codec == kf.Codec.SNAPPY:
        return 16 + (n // XERIAL_BLOCK + 1) * 36 + n + n // 6
    if compression.codec == kf.Codec.LZ4:
        return 11 + (n // LZ4_BLOCK + 1) * 20 + n + n // 255
    return n + n // 1000 + 64


def _level(compression: Compression) -> int:
    level = compression.effective_level
    if level is None:
        raise ValueError(f"{compression} has no levels")
    return level


_GZIP_MEMBER = 31  # zlib's number for its largest window in a gzip member


_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_BE32 = struct.Struct(">i")


def _snappy(arena: Arena, view: memoryview) -> None:
    arena.append(_XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK):
        block = view[start : start + XERIAL_BLOCK]
        room = arena.reserve(4 + 32 + len(block) + len(block) // 6)
        n = cramjam.snappy.compress_raw_into(block, room[4:])
        _BE32.pack_into(room, 0, n)
        arena.used += 4 + n


_LZ4_FAST = 9
_LZ4_LEAST_HIGH = 2  # the frame compressor takes less for the fast one
_LE32 = struct.Struct("<I")
_UNCOMPRESSED = 0x80000000
_LZ4_END = bytes(4)
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks of 64 KiB, nothing else
_LZ4_FRAMES = tuple(
    _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes((header_checksum(guarded + _LZ4_DESCRIPTOR),)) for guarded in (_LZ4_MAGIC, b"")
)


def _lz4_fast(arena: Arena, view: memoryview) -> None:
    for start in range(0, len(view), LZ4_BLOCK):
        block = view[start : start + LZ4_BLOCK]
        size = len(block)
        room = arena.reserve(20 + size + size // 255)
        n = cramjam.lz4.compress_block_into(block, room[4:], store_size=False)
        if n >= size:
            _LE32.pack_into(room, 0, size | _UNCOMPRESSED)
            room[4 : 4 + size] = block
            n = size
        else:
            _LE32.pack_into(room, 0, n)
        arena.used += 4 + n


def _lz4_high(arena: Arena, view: memoryview, level: int) -> None:
    """Blocks of the high compressor: cramjam offers it for frames only, so a frame is taken apart."""
    encoder = cramjam.lz4.Compressor(level=max(level, _LZ4_LEAST_HIGH), content_checksum=False, block_linked=False)
    encoder.compress(view.tobytes())  # it takes nothing else
    frame = memoryview(np.frombuffer(encoder.finish(), np.uint8))
    trailer = 4 if frame[4] & 0x10 else 0  # a checksum behind each block, which Kafka does not write
    at = 7
    done = 0
    while (header := _LE32.unpack_from(frame, at)[0]) != 0:
        size = header & ~_UNCOMPRESSED
        arena.append(frame[at : at + 4 + size])
        at += 4 + size + trailer
        done += 1
    if frame[5] != _LZ4_DESCRIPTOR[1] or done != -(-len(view) // LZ4_BLOCK):
        raise AssertionError("an LZ4 frame of other blocks than 64 KiB")


_threads = threading.local()


def _zstd_encoder(level: int) -> zstandard.ZstdCompressor:
    """One a thread and level: making one costs more than a small batch."""
    encoders: dict[int, Any] | None = getattr(_threads, "zstd", None)
    if encoders is None:
        encoders = _threads.zstd = {}
    encoder: zstandard.ZstdCompressor | None = encoders.get(level)
    if encoder is None:
        encoders.clear()  # a large level holds megabytes
        encoder = encoders[level] = zstandard.ZstdCompressor(
            level=level, write_content_size=False, write_checksum=False, write_dict_id=False
        )
    return encoder
