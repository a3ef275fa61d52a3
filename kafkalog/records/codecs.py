"""Codecs, levels, and bounded decompression: a stream beyond the limit raises.

Accepts exactly the streams that Kafka's own consumer accepts, so a topic is readable here if and only if it is readable
there. `isal` (gzip), `cramjam` (snappy, LZ4 blocks) and `zstandard` implement the codecs. This module implements
Kafka's framing: xerial blocks, and the LZ4 frame with its v0 header checksum. `kafkalog.records.compress`
compresses. Mirrors `org.apache.kafka.common.compress`.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import Any, Final, Self

import cramjam
import numpy as np
import numpy.typing as npt
import zstandard
from isal import isal_zlib

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_xxh32
from kafkalog.calls import leading_names
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    KafkalogError,
    LimitExceededError,
    Limits,
    Reason,
    UnsupportedError,
)
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import Bytes
from kafkalog.text import near

MAX_RATIO: Final = {kf.Codec.GZIP: 1032, kf.Codec.SNAPPY: 22, kf.Codec.LZ4: 256, kf.Codec.ZSTD: 32_768}
"""Largest expansion that a codec's format allows, in bytes per byte of input; a larger declared size is wrong."""

_SLACK = 64 * 1024
_ZSTD_MAX_WINDOW = 2**27
ZSTD_NEEDS_V2: Final = "zstd came with message format v2"
_CHUNK = 64 * 1024


@leading_names
@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level, as in the configuration of Kafka's producers and brokers.

    Raises
    ------
    ValueError
        There is no such codec, or it has no such level.

    Notes
    -----
    lz4 has one fast level, 9, which is the default. The others compress better and many times slower, 1 the least and
    12 to 17 the most. zstd accepts any level from -131072 (fastest) to 22. snappy has no levels.

    Source: GzipCompression, Lz4Compression, ZstdCompression, Kafka 4.3.

    Examples
    --------
    >>> Compression.parse("zstd", level=5)
    Compression(codec=<Codec.ZSTD: 4>, level=5)
    """

    codec: kf.Codec
    """May be given by its name."""
    level: int | None = None
    """As `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`; None for Kafka's default."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", _codec(self.codec))
        if self.level is None:
            return
        name = self.codec.name.lower()
        if self.codec not in kf.CODEC_LEVELS:
            raise ValueError(f"{name} has no compression levels, not even {self.level!r}")
        levels = kf.CODEC_LEVELS[self.codec]
        if isinstance(self.level, bool) or not isinstance(self.level, (int, np.integer)):
            raise TypeError(f"a compression level is an int, not {self.level!r}")
        object.__setattr__(self, "level", int(self.level))
        if self.level not in levels and self.level != kf.DEFAULT_LEVELS[self.codec]:
            default = ", or -1 for the default" if self.codec == kf.Codec.GZIP else ""
            raise ValueError(f"{name} has levels {levels.start} to {levels.stop - 1}{default}, not {self.level}")

    @classmethod
    def parse(cls, value: str | int | Compression | None, *, level: int | None = None) -> Self:
        """Make one from the name of a codec (None is "none"); a `Compression` is kept, except for a `level` given."""
        if isinstance(value, Compression):
            return cls(value.codec, value.level if level is None else level)
        return cls(_codec("none" if value is None else value), level)

    @property
    def effective_level(self) -> int | None:
        """The level, or Kafka's default without one; None for codecs without levels."""
        return kf.DEFAULT_LEVELS.get(self.codec) if self.level is None else self.level

    def __str__(self) -> str:
        name = self.codec.name.lower()
        return name if self.level is None else f"{name}({self.level})"


_CODECS: Final = {codec.name.lower(): codec for codec in kf.Codec}


def _codec(value: str | int) -> kf.Codec:
    if type(value) is kf.Codec:
        return value
    if isinstance(value, str):
        if value.lower() not in _CODECS:
            name, _, level = value.partition(":")
            if name in _CODECS and level.isdecimal():
                raise ValueError(f"no codec {value!r}; the level is compression_level={level} (--compression-level)")
            meant = near(value, _CODECS)
            raise ValueError(
                f"no codec {value!r}; {f'did you mean {meant}? ' if meant else ''}Kafka has {', '.join(_CODECS)}"
            )
        return _CODECS[value.lower()]
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"a codec is a name or a Codec, not {value!r}")
    return kf.Codec(int(value))


UNCOMPRESSED: Final = Compression(kf.Codec.NONE)


class Arena:
    """A growing buffer that decompressed batches are appended to.

    `data` is uint8[capacity], valid up to `used`. Growing replaces the array; references to the old one stay valid.
    """

    def __init__(self, capacity: int = 0) -> None:
        self.data: Bytes = empty(capacity, np.uint8)
        self.used = 0
        self._view = memoryview(self.data)

    def reserve(self, n: int) -> memoryview:
        """Return exactly `n` writable bytes after those in use."""
        stop = self.used + n
        if self.data.size < stop:
            grown = empty(max(stop, 2 * self.data.size), np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data, self._view = grown, memoryview(grown)
        return self._view[self.used : stop]

    def append(self, data: Any) -> None:
        n = len(data)
        self.reserve(n)[:] = data
        self.used += n


def unknown_codec(codec: int) -> UnsupportedError:
    """The error for a codec id that Kafka does not define."""
    return UnsupportedError(Reason.UNKNOWN_CODEC, f"codec {codec}; Kafka has 0 to {kf.LAST_CODEC}")


def decompress_into(
    arena: Arena,
    codec: int,
    data: Bytes,
    *,
    magic: int,
    limits: Limits = DEFAULT_LIMITS,
) -> int:
    """Append the decompressed content of a batch or of a compressed message to an arena; return the number of bytes.

    Codec 0 copies. `magic` counts: the header checksum of a v0 LZ4 frame is different, and zstd exists from v2 on. If
    this raises, the arena's content is unchanged. Raises CorruptionError if the stream is damaged (`codec_stream`),
    declares a size that its codec cannot reach (`codec_ratio`), or its codec does not exist in this format
    (`legacy_codec`). Raises LimitExceededError beyond `max_decompressed_bytes`, after about as many bytes, and
    UnsupportedError for other codec ids.
    """
    used = arena.used
    try:
        if codec == kf.Codec.NONE:
            arena.append(data)
        elif codec == kf.Codec.GZIP:
            _gzip(arena, data, limits.max_decompressed_bytes)
        elif codec == kf.Codec.SNAPPY:
            _snappy(arena, data, limits.max_decompressed_bytes)
        elif codec == kf.Codec.LZ4:
            _lz4(arena, data, limits.max_decompressed_bytes, magic)
        elif codec == kf.Codec.ZSTD:
            if magic < 2:
                raise CorruptionError(Reason.LEGACY_CODEC, ZSTD_NEEDS_V2)
            _zstd(arena, data, limits.max_decompressed_bytes)
        else:
            raise unknown_codec(codec)
    except KafkalogError:
        arena.used = used
        raise
    except Exception as error:
        # each codec package has its own exceptions, which change from release to release
        arena.used = used
        raise _stream_error(codec, str(error) or type(error).__name__) from error
    return arena.used - used


def _stream_error(codec: int, detail: str) -> CorruptionError:
    return CorruptionError(Reason.CODEC_STREAM, f"{kf.codec_name(codec)}: {detail}")


def _check_limit(n: int, limit: int, what: str) -> None:
    if n > limit:
        raise LimitExceededError(Reason.DECOMPRESSED_TOO_LARGE, f"{what}, max_decompressed_bytes is {limit}", length=n)


_GZIP_STEP = 256
_GZIP_MIN_NEXT = 18  # Java looks for another member only if more bytes follow than a header and a trailer have


def _gzip(arena: Arena, data: Bytes, limit: int) -> None:
    """Decompress concatenated members; bytes after the last one are ignored, as by `GZIPInputStream`."""
    view = memoryview(data)
    start = total = 0  # start of the member, and bytes decompressed from all members before it
    while not start or (len(view) - start > _GZIP_MIN_NEXT and bytes(view[start : start + 2]) == b"\x1f\x8b"):
        member = isal_zlib.decompressobj(wbits=31)
        # isal copies input after a member's end: passing all of it for each small member would be quadratic
        at, step = start, len(view) if not start else _GZIP_STEP
        pending: Any = b""
        while not member.eof:
            if not pending:
                pending = view[at : at + step]
                at, step = at + len(pending), 4 * step
            try:
                # one byte above the limit is enough to detect an excess
                out = member.decompress(pending, min(max(8 * len(pending), _CHUNK), limit + 1 - total))
            except isal_zlib.IsalError:
                if start and total and not _is_gzip_header(view[start:]):
                    return
                raise
            pending = member.unconsumed_tail
            total += len(out)
            _check_limit(total, limit, f"the gzip stream holds more than {limit} bytes")
            arena.append(out)
            if not out and not pending and at == len(view) and not member.eof:
                raise _stream_error(kf.Codec.GZIP, "the stream ends early")
        start = at - len(member.unused_data)


def _is_gzip_header(data: memoryview) -> bool:
    return len(data) >= 10 and bytes(data[:3]) == b"\x1f\x8b\x08" and not data[3] & 0xE0


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def _snappy(arena: Arena, data: Bytes, limit: int) -> None:
    """Decompress xerial chunks, or one raw block; where two streams were joined, a second xerial header is skipped."""
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_MAGIC:
        _snappy_block(arena, view, limit, 0)
        return
    if len(view) < _XERIAL_HEADER:
        raise _stream_error(kf.Codec.SNAPPY, "the xerial header is cut off")
    total = 0
    at = _XERIAL_HEADER
    while at < len(view):
        if bytes(view[at : at + 4]) == XERIAL_MAGIC[:4]:
            _check_second_header(view[at : at + _XERIAL_HEADER])
            at += _XERIAL_HEADER
            continue
        if len(view) - at < 4:
            return  # snappy-java also treats a truncated chunk length as the end of the stream
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if not 0 < size <= len(view) - at:
            raise _stream_error(kf.Codec.SNAPPY, f"a chunk of {size} bytes where {len(view) - at} are left")
        total += _snappy_block(arena, view[at : at + size], limit, total)
        at += size


def _check_second_header(xerial: memoryview) -> None:
    """Check a second xerial header as snappy-java does; it does not check the version of the first one."""
    if len(xerial) < _XERIAL_HEADER:
        raise _stream_error(kf.Codec.SNAPPY, "a second xerial header is cut off")
    version = int.from_bytes(xerial[8:12], "big", signed=True)
    if version < 1:
        raise _stream_error(kf.Codec.SNAPPY, f"xerial version {version}, 1 is the first")


def _snappy_block(arena: Arena, block: memoryview, limit: int, total: int) -> int:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _stream_error(kf.Codec.SNAPPY, "the block's length is damaged")
    # check both before memory is reserved: a few damaged bytes can declare gigabytes
    if declared > len(block) * MAX_RATIO[kf.Codec.SNAPPY] + _SLACK:
        raise CorruptionError(
            Reason.CODEC_RATIO, f"snappy: {len(block)} bytes declare {declared}, more than any block can hold"
        )
    _check_limit(total + declared, limit, f"the snappy block declares {declared} bytes")
    if declared == 0:
        if len(block) != 1:
            raise _stream_error(kf.Codec.SNAPPY, "bytes after an empty block")
        return 0
    n: int = cramjam.snappy.decompress_raw_into(block, as_array(arena.reserve(declared)))
    if n != declared:
        raise _stream_error(kf.Codec.SNAPPY, f"a block of {n} bytes that declares {declared}")
    arena.used += n
    return n


def as_array(room: memoryview) -> npt.NDArray[np.uint8]:
    """The same bytes as an array, since cramjam cannot write to a memoryview without the GIL."""
    return np.frombuffer(room, np.uint8)


LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_BLOCK_CHECKSUM = 0x10
_CONTENT_SIZE = 0x08
_CONTENT_CHECKSUM = 0x04


def _lz4(arena: Arena, data: Bytes, limit: int, magic: int) -> None:
    """Decompress one frame as `Lz4BlockInputStream` does.

    Kafka does not verify a content size or a content checksum, and ignores bytes after the end mark. The header
    checksum of a v0 frame also covers the magic number (KAFKA-3160), so it is not verified.
    """
    view = memoryview(data)
    if len(view) < 7 or bytes(view[:4]) != LZ4_MAGIC:
        raise _stream_error(kf.Codec.LZ4, "no LZ4 frame")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1:
        raise _stream_error(kf.Codec.LZ4, f"frame version {flags >> 6}, not 1")
    if not flags & 0x20:
        raise _stream_error(kf.Codec.LZ4, "blocks that depend on each other, which Kafka does not read")
    if flags & 0x03 or block_descriptor & 0x8F or not 4 <= block_descriptor >> 4 <= 7:
        raise _stream_error(kf.Codec.LZ4, "the frame descriptor is damaged")
    body = 15 if flags & _CONTENT_SIZE else 7
    if len(view) < body:
        raise _stream_error(kf.Codec.LZ4, "the frame header is cut off")
    if magic > 0 and header_checksum(bytes(view[4 : body - 1])) != view[body - 1]:
        raise _stream_error(kf.Codec.LZ4, "the header checksum does not match")
    _lz4_blocks(arena, view[body:], 1 << 2 * (block_descriptor >> 4) + 8, limit, flags)


def _lz4_blocks(arena: Arena, blocks: memoryview, block_size: int, limit: int, flags: int) -> None:
    """Decompress blocks up to the end mark; `flags` are those of the frame."""
    trailer = 4 if flags & _BLOCK_CHECKSUM else 0
    total = at = 0
    n_bytes = len(blocks)
    while n_bytes - at >= 4:
        (header,) = _U32.unpack_from(blocks, at)
        at += 4
        size = header & 0x7FFFFFFF
        if size == 0:
            if flags & _CONTENT_CHECKSUM and n_bytes - at < 4:
                break
            return
        if size > block_size:
            raise _stream_error(kf.Codec.LZ4, f"a block of {size} bytes in a frame of blocks up to {block_size}")
        if size + trailer > n_bytes - at:
            break
        block = blocks[at : at + size]
        at += size
        if trailer:
            if checksum_xxh32(block) != _U32.unpack_from(blocks, at)[0]:
                raise _stream_error(kf.Codec.LZ4, "a block's checksum does not match")
            at += trailer
        if header & 0x80000000:
            arena.append(block)
            total += size
        else:
            room = as_array(arena.reserve(block_size))
            n = cramjam.lz4.decompress_block_into(block, room, output_len=block_size)
            arena.used += n
            total += n
        if total > limit:
            _check_limit(total, limit, f"the LZ4 frame holds more than {limit} bytes")
    raise _stream_error(kf.Codec.LZ4, "the frame ends early")


def _zstd(arena: Arena, data: Bytes, limit: int) -> None:
    """Decompress concatenated frames, with or without their content size."""
    if not len(data):
        return
    total = 0
    guess = max(4 * len(data), _CHUNK)
    with _zstd_decoder().stream_reader(memoryview(data), read_across_frames=True, closefd=False) as reader:
        while True:
            wanted = min(guess, limit + 1 - total)  # one byte above the limit detects an excess
            n = reader.readinto(arena.reserve(wanted))
            total += n
            arena.used += n
            _check_limit(total, limit, f"the zstd stream holds more than {limit} bytes")
            if n < wanted:
                break
    _check_zstd_end(data)


_threads = threading.local()


def _zstd_decoder() -> zstandard.ZstdDecompressor:
    """Return the thread's decoder: creating one costs more than decompressing a small batch."""
    decoder: zstandard.ZstdDecompressor | None = getattr(_threads, "zstd", None)
    if decoder is None:
        decoder = _threads.zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    return decoder


def _check_zstd_end(data: Bytes) -> None:
    """Raise if the last frame is cut off: the stream reader does not, so frame headers and block sizes are walked."""
    view = data.tobytes()
    at = 0
    while at < len(view):
        magic = view[at : at + 4]
        if len(magic) == 4 and magic[1:] == b"\x2a\x4d\x18" and magic[0] & 0xF0 == 0x50:
            at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
            if at > len(view):
                raise _stream_error(kf.Codec.ZSTD, "the stream ends early")
            continue
        if magic != b"\x28\xb5\x2f\xfd" or len(view) - at < 6:
            raise _stream_error(kf.Codec.ZSTD, "bytes after the last frame")
        flags = view[at + 4]
        single_segment = flags >> 5 & 1
        content_size = (single_segment, 2, 4, 8)[flags >> 6]
        at += 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size
        last = 0
        while not last:
            if len(view) - at < 3:
                raise _stream_error(kf.Codec.ZSTD, "the stream ends early")
            header = int.from_bytes(view[at : at + 3], "little")
            last, kind, size = header & 1, header >> 1 & 3, header >> 3
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (flags >> 2 & 1)
        if at > len(view):
            raise _stream_error(kf.Codec.ZSTD, "the stream ends early")


def header_checksum(descriptor: bytes) -> int:
    """The header checksum byte of an LZ4 frame descriptor."""
    return int(checksum_xxh32(descriptor)) >> 8 & 0xFF


_U32 = struct.Struct("<I")
