"""The base offset of a compressed v0 or v1 message, for which a broker decompresses it, and dies of what is inside.

A damaged magic byte makes such a message of a v2 batch. Mirrors `AbstractLegacyRecordBatch.DeepRecordsIterator`.
"""

from __future__ import annotations

import zlib

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.repair.startup.forecast import LoadFailure

_ATTRIBUTES = 17
_LEAST_STEP = 2**8
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
    inner = _offsets(_decompressed(_value(message, magic, where), codec, magic, where), where)
    if not inner:
        raise LoadFailure("InvalidRecordException", f"{where} is empty")
    # some versions of librdkafka leave the outer offset at 0
    if magic == 0 or offset == 0:
        return inner[0]
    if offset < inner[-1]:
        raise LoadFailure("InvalidRecordException", f"{where} has offset {offset}, and {inner[-1]} inside")
    return offset - inner[-1] + inner[0]


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
    """What a damaged gzip stream holds before the damage."""
    stream, found = zlib.decompressobj(wbits=31), bytearray()
    at, step = 0, max(_LEAST_STEP, len(value) // 2**12)
    while at < len(value) and len(found) < DEFAULT_LIMITS.max_decompressed_bytes:
        before = stream.copy()
        try:
            found += stream.decompress(value[at : at + step])
            at += step
        except zlib.error:
            if step == 1:
                break
            stream, step = before, 1
    return bytes(found)


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
