"""Builds the bytes of records, batches and messages, right or deliberately wrong, for tests and benchmarks.

The counterpart of Kafka's ``MemoryRecordsBuilder``, ``DefaultRecordBatch.writeHeader`` and ``LegacyRecord.write``,
written on its own: it shares no code with the library. Every header field can be overridden. Nothing is checked: what
the arguments say is what is written.
"""

import functools
import struct
import zlib

import cramjam
import lz4.block
import numpy as np
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

ABORT, COMMIT = 0, 1

_V2_TAIL = struct.Struct(">hiqqqhii")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


# ---------------------------------------------------------------------------------------------------- checksums


_AT_ONCE = 1024
_PLACES = np.arange(_AT_ONCE) * 256


@functools.cache
def _crc32c_tables():
    """What each byte adds to the CRC-32C of `_AT_ONCE` bytes at each of their places, one table after the other."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (np.uint32(0x82F63B78) * (table & 1))
    tables = [table]
    while len(tables) < _AT_ONCE:
        tables.append((tables[-1] >> 8) ^ table[tables[-1] & 255])
    return np.concatenate(tables[::-1])


def crc32c(data):
    """CRC-32C (Castagnoli) of ``data``."""
    crc = 0xFFFFFFFF
    for start in range(0, len(data), _AT_ONCE):
        part = np.frombuffer(data[start : start + _AT_ONCE], np.uint8).astype(np.intp)
        part[:4] ^= np.frombuffer(crc.to_bytes(4, "little"), np.uint8)[: len(part)]
        part += _PLACES[-len(part) :]
        crc = (crc >> 8 * len(part)) ^ int(np.bitwise_xor.reduce(_crc32c_tables()[part]))
    return crc ^ 0xFFFFFFFF


def xxh32(data):
    """XXH32 of ``data`` with seed 0, taken from the content checksum that the lz4 library writes."""
    import lz4.frame

    return int.from_bytes(lz4.frame.compress(data, content_checksum=True)[-4:], "little")


def fix_crc(batch):
    """One batch or message of any magic with the CRC of all the bytes given, whatever its size field says."""
    if batch[16] == 2:
        return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]
    return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]


# ----------------------------------------------------------------------------------------------------- encoding


def varint(value):
    """Zig-zag varint of an i32 or i64, as ``ByteUtils.writeVarint`` and ``writeVarlong``."""
    return unsigned_varint(value * 2 if value >= 0 else -value * 2 - 1)


def unsigned_varint(value):
    """Unsigned little-endian base-128 varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def wrap32(value):
    """The i32 that Java's int arithmetic makes of ``value``."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def wrap64(value):
    """The i64 that Java's long arithmetic makes of ``value``."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# ------------------------------------------------------------------------------------------------------- codecs


def gzip_member(data, level=6):
    """One gzip member with the header of Java's ``GZIPOutputStream`` (OS byte 255)."""
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflater.compress(data) + deflater.flush()
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def snappy_raw(data):
    """One raw Snappy block, as librdkafka writes it."""
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_xerial(data, block_size=32 * 1024):
    """The framing of ``SnappyOutputStream``: header, then length-prefixed raw blocks."""
    out = [_XERIAL_HEADER]
    for i in range(0, len(data), block_size):
        block = snappy_raw(data[i : i + block_size])
        out += (struct.pack(">i", len(block)), block)
    return b"".join(out)


def lz4_frame(
    data, magic=2, *, block_checksum=False, content_size=False, content_checksum=False, block_size_code=4, end_mark=True
):
    """One LZ4 frame of independent blocks; FLG 60 BD 40 by default, as Kafka's ``Lz4BlockOutputStream``.

    Under ``magic`` 0 the header checksum is the wrong one of KAFKA-3160, computed over the frame's magic number too.
    """
    flags = 0x60 | 0x10 * block_checksum | 0x08 * content_size | 0x04 * content_checksum
    descriptor = bytes((flags, block_size_code << 4))
    if content_size:
        descriptor += struct.pack("<Q", len(data))
    out = [_LZ4_MAGIC, descriptor, lz4_header_checksum(descriptor, magic)]
    block_size = 1 << (8 + 2 * block_size_code)
    for i in range(0, len(data), block_size):
        chunk = data[i : i + block_size]
        block = lz4.block.compress(chunk, store_size=False)
        word = len(block)
        if word >= len(chunk):
            block, word = chunk, len(chunk) | 0x80000000
        out += (struct.pack("<I", word), block)
        if block_checksum:
            out.append(struct.pack("<I", xxh32(block)))
    if end_mark:
        out.append(bytes(4))
        if content_checksum:
            out.append(struct.pack("<I", xxh32(data)))
    return b"".join(out)


@functools.lru_cache(maxsize=64)
def lz4_header_checksum(descriptor, magic):
    """The HC byte of an LZ4 frame: right for magic 1 and 2, wrong as Kafka's for magic 0."""
    return bytes((xxh32((_LZ4_MAGIC if magic == 0 else b"") + descriptor) >> 8 & 0xFF,))


def zstd_frame(data, *, content_size=False, checksum=False, level=3):
    """One Zstandard frame, streamed without content size as ``ZstdOutputStreamNoFinalizer`` writes it."""
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=content_size)
    if content_size:
        return compressor.compress(data)
    stream = compressor.compressobj()
    return stream.compress(data) + stream.flush()


def compress(codec, data, magic=2):
    """Compress a payload in the form Kafka's Java client writes."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip_member(data)
    if codec == SNAPPY:
        return snappy_xerial(data)
    if codec == LZ4:
        return lz4_frame(data, magic)
    if codec == ZSTD:
        return zstd_frame(data)
    return data  # an unknown id: only the header will say so


def _halves(data, one):
    half = len(data) // 2
    return one(data[:half]) + one(data[half:])


_VARIANTS = {
    NONE: (lambda data, magic: data,),
    GZIP: (
        lambda data, magic: gzip_member(data),
        lambda data, magic: gzip_member(data, 9),
        lambda data, magic: _halves(data, gzip_member),
        lambda data, magic: gzip_member(data) + b"no further member",
    ),
    SNAPPY: (
        lambda data, magic: snappy_xerial(data),
        lambda data, magic: snappy_raw(data),
        lambda data, magic: snappy_xerial(data, 512),
        lambda data, magic: _halves(data, snappy_xerial),
    ),
    LZ4: (
        lz4_frame,
        lambda data, magic: lz4_frame(data, magic, block_checksum=True),
        lambda data, magic: lz4_frame(data, magic, content_size=True),
        lambda data, magic: lz4_frame(data, magic, content_checksum=True, block_size_code=7),
        lambda data, magic: lz4_frame(data, magic) + b"ignored after the EndMark",
    ),
    ZSTD: (
        lambda data, magic: zstd_frame(data),
        lambda data, magic: zstd_frame(data, content_size=True),
        lambda data, magic: zstd_frame(data, checksum=True),
        lambda data, magic: _halves(data, zstd_frame),
        lambda data, magic: b"\x50\x2a\x4d\x18\x04\0\0\0skip" + zstd_frame(data),
    ),
}

N_VARIANTS = {codec: len(forms) for codec, forms in _VARIANTS.items()}


def compress_variant(codec, data, magic=2, variant=0):
    """One of the ``N_VARIANTS[codec]`` forms that producers write and Kafka reads; 0 is the Java client's."""
    return _VARIANTS[codec][variant](data, magic)


def compress_variants(codec, data, magic=2):
    """The same payload in every such form."""
    return [form(data, magic) for form in _VARIANTS[codec]]


# ----------------------------------------------------------------------------------------------- v2 batches


def _sized(data):
    return b"\x01" if data is None else varint(len(data)) + data


def record_v2(
    offset_delta=0,
    timestamp_delta=0,
    key=None,
    value=None,
    headers=(),
    *,
    attributes=0,
    headers_count=None,
    body_length=None,
):
    """One record of a v2 batch (``DefaultRecord.writeTo``)."""
    body = b"".join(
        (
            bytes((attributes & 0xFF,)),
            varint(timestamp_delta),
            varint(offset_delta),
            _sized(key),
            _sized(value),
            varint(len(headers) if headers_count is None else headers_count),
            *(part for name, header_value in headers for part in (_sized(name), _sized(header_value))),
        )
    )
    return varint(len(body) if body_length is None else body_length) + body


def batch_v2(
    records=(),
    *,
    base_offset=0,
    codec=NONE,
    leader_epoch=0,
    magic=2,
    attributes=None,
    log_append_time=False,
    transactional=False,
    control=False,
    delete_horizon=False,
    last_offset_delta=None,
    base_timestamp=0,
    max_timestamp=None,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    records_count=None,
    payload=None,
    length=None,
    crc=None,
    recrc=True,
):
    """One v2 batch from encoded records, or with a payload as it is.

    What is None is computed: attributes from the codec and the flags, counts and the largest timestamp from the
    records, length and CRC. ``recrc=False`` writes 0 as the CRC.
    """
    records = list(records)
    if payload is None:
        payload = compress(codec, b"".join(records), 2)
    if attributes is None:
        attributes = codec | 8 * log_append_time | 16 * transactional | 32 * control | 64 * delete_horizon
    covered = (
        _V2_TAIL.pack(
            attributes,
            len(records) - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records) if records_count is None else records_count,
        )
        + payload
    )
    if crc is None:
        crc = crc32c(covered) if recrc else 0
    if length is None:
        length = 9 + len(covered)
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + covered


def control_batch(
    control_type,
    *,
    base_offset=0,
    producer_id=0,
    producer_epoch=0,
    coordinator_epoch=0,
    timestamp=0,
    leader_epoch=0,
    key=None,
    value=None,
):
    """A transaction marker batch of 78 bytes: ``control_type`` is ABORT (0) or COMMIT (1); key and value can be set."""
    if key is None:
        key = struct.pack(">hh", 0, control_type)
    if value is None:
        value = struct.pack(">hi", 0, coordinator_epoch)
    return batch_v2(
        [record_v2(0, 0, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
        base_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


# ----------------------------------------------------------------------------------------------- v0/v1 messages


def message(
    offset,
    key=None,
    value=None,
    *,
    magic=1,
    timestamp=-1,
    attributes=None,
    codec=NONE,
    log_append_time=False,
    size=None,
    crc=None,
):
    """One v0 or v1 message with its envelope (``LegacyRecord.write``); ``value`` is written as it is given."""
    if attributes is None:
        attributes = codec | 8 * log_append_time
    covered = b"".join(
        (
            struct.pack(">bb", magic, attributes),
            b"" if magic == 0 else struct.pack(">q", timestamp),
            struct.pack(">i", -1 if key is None else len(key)),
            key or b"",
            struct.pack(">i", -1 if value is None else len(value)),
            value or b"",
        )
    )
    if crc is None:
        crc = zlib.crc32(covered)
    return struct.pack(">qiI", offset, 4 + len(covered) if size is None else size, crc) + covered


def wrapper(
    messages,
    *,
    offset,
    magic=1,
    codec=GZIP,
    timestamp=-1,
    log_append_time=False,
    attributes=None,
    key=None,
    payload=None,
):
    """A compressed message set of what ``message`` made, or with a payload as it is.

    Their offsets are relative (0, 1, ...) in a v1 wrapper, absolute in a v0 wrapper. ``offset`` is the absolute one of
    the last message, or 0 as librdkafka sends it.
    """
    if payload is None:
        payload = compress(codec, b"".join(messages), magic)
    return message(
        offset,
        key,
        payload,
        magic=magic,
        timestamp=timestamp,
        attributes=attributes,
        codec=codec,
        log_append_time=log_append_time,
    )


def batch_positions(data):
    """(start, end) of every whole batch of a healthy segment, found by the size fields alone."""
    found = []
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data):
            break
        found.append((position, end))
        position = end
    return found
