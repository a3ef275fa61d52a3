"""The base offset of a compressed v0 or v1 message, for which a broker decompresses it, and dies of what is inside.

A damaged magic byte makes such a message of a v2 batch. Mirrors `AbstractLegacyRecordBatch.DeepRecordsIterator`.
"""

from __future__ import annotations

import zlib
from contextlib import suppress

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.repair.startup.forecast import LoadFailure

_ATTRIBUTES = 17
_GZIP_INPUT_BYTES, _GZIP_OUTPUT_BYTES = 2**13, 2**14
_GZIP_HEADER_BYTES = 10
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_KEY_SIZE = {0: 18, 1: 26}


def base_offset(message: bytes, position: int) -> int:
    """The offset of a message, or of the first one in it, as a broker finds it.

    Parameters
    ----------
    message : bytes
        With its offset and size.
    position : int
        Where it begins, for what is raised.

    Raises
    ------
    LoadFailure
        The broker dies of it.

    Notes
    -----
    Checksums are not looked at. Source: LegacyRecord, AbstractLegacyRecordBatch.baseOffset, Kafka 4.3.
    """
    codec, magic, where = message[_ATTRIBUTES] & 7, message[16], f"the compressed message at {position}"
    offset = int.from_bytes(message[:8], "big", signed=True)
    if codec == kf.Codec.NONE:
        return offset
    if codec > kf.Codec.ZSTD:
        raise LoadFailure("IllegalArgumentException", f"{where} has codec {codec}")
    if magic > 1 or codec == kf.Codec.ZSTD:
        raise LoadFailure("InvalidRecordException", f"{where} has magic {magic} and codec {codec}")
    content = _decompressed(_value(message, magic, where), codec, magic, where)
    inner = _offsets(content, where)
    if not inner:
        raise LoadFailure("InvalidRecordException", f"{where} is empty")
    # some versions of librdkafka leave the outer offset at 0
    is_relative = magic == 1 and offset != 0
    if is_relative and offset < inner[-1]:
        raise LoadFailure("InvalidRecordException", f"{where} has offset {offset}, and {inner[-1]} inside")
    inner_codec = content[_ATTRIBUTES] & 7
    if inner_codec != kf.Codec.NONE:
        failure = "IllegalArgumentException" if inner_codec > kf.Codec.ZSTD else "InvalidRecordException"
        raise LoadFailure(failure, f"{where} has a message with codec {inner_codec} inside")
    return offset - inner[-1] + inner[0] if is_relative else inner[0]


def _value(message: bytes, magic: int, where: str) -> bytes:
    """Source: LegacyRecord.value, Utils.sizeDelimited, Kafka 4.3."""
    at = _KEY_SIZE[magic]
    for _ in range(2):  # the key, the value
        if not 0 <= at <= len(message) - 4:
            raise LoadFailure("IndexOutOfBoundsException", f"{where} has a key of a wrong size")
        start, size = at + 4, int.from_bytes(message[at : at + 4], "big", signed=True)
        at = start + max(size, 0)
    if size < 0:
        raise LoadFailure("InvalidRecordException", f"{where} has no value")
    if at > len(message):
        raise LoadFailure("IllegalArgumentException", f"{where} has a value of a wrong size")
    return message[start:at]


def _decompressed(value: bytes, codec: int, magic: int, where: str) -> bytes:
    arena = Arena()
    try:
        decompress_into(arena, codec, np.frombuffer(value, np.uint8), magic=magic, limits=DEFAULT_LIMITS)
    except KafkalogError as error:
        if codec == kf.Codec.GZIP:
            _offsets(_first_part(value), where)  # a broker decompresses as it reads, and may die before it comes so far
        raise LoadFailure("KafkaException", f"{where} cannot be decompressed: {error}") from error
    return arena.data[: arena.used].tobytes()


def _first_part(value: bytes) -> bytes:
    """What a broker gets out of a damaged gzip stream.

    It inflates 8 KiB at a time into 16 KiB, and of the part with the damage it gets nothing.

    Notes
    -----
    Source: GzipCompression.wrapForInput, Kafka 4.3; java.util.zip.GZIPInputStream, Inflater.
    """
    stream, found, start = zlib.decompressobj(wbits=-zlib.MAX_WBITS), bytearray(), _end_of_gzip_header(value)
    with suppress(zlib.error):
        for at in () if start is None else range(start, len(value), _GZIP_INPUT_BYTES):
            if len(found) >= DEFAULT_LIMITS.max_decompressed_bytes:
                break
            part = value[at : at + _GZIP_INPUT_BYTES]
            while part:
                found += stream.decompress(part, _GZIP_OUTPUT_BYTES)
                part = stream.unconsumed_tail
    return bytes(found)


def _end_of_gzip_header(value: bytes) -> int | None:
    """Where the compressed bytes begin; None: a broker makes nothing of the header."""
    if value[:3] != b"\x1f\x8b\x08" or len(value) < _GZIP_HEADER_BYTES:
        return None
    flags, at = value[3], _GZIP_HEADER_BYTES
    if flags & _GZIP_HEADER_CRC:
        return None
    if flags & _GZIP_EXTRA:
        at += 2 + int.from_bytes(value[at : at + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            at = value.find(0, at) + 1
            if at == 0:
                return None
    return at


def _offsets(data: bytes, where: str) -> list[int]:
    """Offsets of the messages inside. Source: AbstractLegacyRecordBatch.DataLogInputStream, Kafka 4.3."""
    found, at = [], 0
    while at + kf.LOG_OVERHEAD <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < kf.MESSAGE_V0_OVERHEAD:
            raise LoadFailure("CorruptRecordException", f"{where} has a message of {size} bytes inside")
        if at + kf.LOG_OVERHEAD + size > len(data):
            break
        found.append(int.from_bytes(data[at : at + 8], "big", signed=True))
        at += kf.LOG_OVERHEAD + size
    return found
