"""A slow, plain twin of Kafka's record readers: bytes of one segment in, records out.

It mirrors ``FileLogInputStream``, ``DefaultRecordBatch``, ``DefaultRecord``, ``AbstractLegacyRecordBatch``,
``LegacyRecord`` and the codecs of ``org.apache.kafka.common.compress``, one small function per Java method, and is the
oracle of the differential tests. It shares no code with the library and never imports it. Two things differ from Kafka
on purpose: every batch has its CRC and its place in the offset order checked, and a batch counts only as a whole.

The order in which one batch is judged (the first finding wins):

1. fewer than 17 bytes left: ``partial_tail``;
2. size below 14: ``zero_fill`` if nothing but zeros follows, else ``size_negative`` or ``size_too_small``;
3. magic not 0, 1 or 2: ``bad_magic``; size below the magic's minimum: ``size_too_small``;
4. the batch reaches past the end: ``partial_tail``;
5. CRC: ``crc_mismatch``;
6. ``header_inconsistent`` (v2 with a negative last offset delta), then ``offset_order``;
7. unknown codec: ``unsupported``; zstd under magic 0 or 1: ``header_inconsistent``;
8. record count, codec stream, records, in this order.

It does not look at the keys of control records while it decodes, or at any file but the ``.log``. What becomes of
transactions is told by ``Producers`` and ``read_committed``, which are given the decoded batches of a whole partition:
they do as a broker does when it appends, and as a consumer does with what it fetches.
"""

import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

import cramjam
import lz4.block
import zstandard
from builder import crc32c, wrap32, wrap64, xxh32

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
DEFAULT_LIMIT = 256 << 20

_MIN_SIZE = {0: 14, 1: 22, 2: 49}
_ENVELOPE = 12
_MAGIC_END = 17
_V2_HEADER = 61

Headers = list[tuple[bytes, bytes | None]]


class Record(NamedTuple):
    """One record as a consumer would see it, plus where it was found."""

    offset: int
    timestamp: int | None
    """Milliseconds; None where the format has no timestamp (v0)."""
    timestamp_type: int
    """-1 none, 0 CreateTime, 1 LogAppendTime."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    codec: int = 0
    batch_base_offset: int = 0
    batch_position: int = 0
    magic: int = 2


@dataclass
class Batch:
    """The header of one v2 batch, or of one v0/v1 message or wrapper, with its decoded records."""

    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    codec: int
    timestamp_type: int
    base_timestamp: int
    """v2: the header field (with a delete horizon, the horizon). v0/v1: the outer message's timestamp, -1 for v0."""
    max_timestamp: int
    leader_epoch: int = -1
    last_offset_delta: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    records_count: int = 1
    """v2: the header field. v0/v1: how many records were found."""
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon: int | None = None
    records: list[Record] = field(default_factory=list)


@dataclass(frozen=True)
class Problem:
    """Why reading stopped; ``reason`` is set where ``kind`` is ``corrupt``."""

    kind: str
    position: int
    reason: str | None = None
    detail: str = ""


@dataclass
class Result:
    """What a segment holds up to its first problem; ``end`` is the number of valid bytes."""

    records: list[Record]
    batches: list[Batch]
    end: int
    problem: Problem | None


class Damage(Exception):
    """Raised by the decoders; ``position`` is filled in by iter_batches (start of the batch)."""

    def __init__(self, kind, reason=None, detail=""):
        super().__init__(kind, reason, detail)
        self.kind = kind
        self.reason = reason
        self.detail = detail
        self.position = -1

    def problem(self):
        """Return the same facts as a value."""
        return Problem(self.kind, self.position, self.reason, self.detail)


def _corrupt(reason, detail=""):
    raise Damage("corrupt", reason, detail)


# ------------------------------------------------------------------------------------------------------- codecs


class _Output:
    """Collects decompressed bytes and refuses to hold more than ``limit`` of them."""

    def __init__(self, limit):
        self.limit = limit
        self.chunks = []
        self.size = 0

    def add(self, chunk):
        self.size += len(chunk)
        if self.size > self.limit:
            raise Damage("limit", detail=f"more than {self.limit} bytes after decompression")
        self.chunks.append(chunk)

    def room(self):
        return self.limit - self.size

    def value(self):
        return b"".join(self.chunks)


def decompress(codec, data, magic, limit=DEFAULT_LIMIT):
    """Decompress one payload as Kafka's ``Compression.wrapForInput`` would, read to its end.

    Raises Damage: ``corrupt`` with ``codec_stream``, ``codec_checksum`` or ``codec_trailing``; ``limit`` if more than
    ``limit`` bytes would come out; ``unsupported`` for an unknown codec id.
    """
    out = _Output(limit)
    if codec == NONE:
        out.add(data)
    elif codec == GZIP:
        _gunzip(data, out)
    elif codec == SNAPPY:
        _unsnappy(data, out)
    elif codec == LZ4:
        _unlz4(data, out, check_header=magic != 0)
    elif codec == ZSTD:
        _unzstd(data, out)
    else:
        raise Damage("unsupported", detail=f"codec id {codec}")
    return out.value()


def _gzip_header_end(data, start):
    """Position after the member header at ``start``, None if malformed; ``GZIPInputStream.readHeader``."""
    if len(data) - start < 10 or data[start : start + 3] != b"\x1f\x8b\x08":
        return None
    flags = data[start + 3]
    position = start + 10
    if flags & 4:
        if position + 2 > len(data):
            return None
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (8, 16):
        if flags & flag:
            zero = data.find(b"\0", position)
            if zero < 0:
                return None
            position = zero + 1
    if flags & 2:
        if position + 2 > len(data):
            return None
        if int.from_bytes(data[position : position + 2], "little") != zlib.crc32(data[start:position]) & 0xFFFF:
            return None
        position += 2
    return position if position <= len(data) else None


def _gunzip(data, out):
    """``java.util.zip.GZIPInputStream``: what follows a member and is no member header is ignored."""
    position = _gzip_header_end(data, 0)
    if position is None:
        _corrupt("codec_stream", "gzip: bad member header")
    while True:
        inflater = zlib.decompressobj(-15)
        member = _Output(out.room())
        rest = data[position:]
        try:
            while not inflater.eof:
                chunk = inflater.decompress(rest, member.room() + 1)
                member.add(chunk)
                rest = inflater.unconsumed_tail
                if not chunk and not rest and not inflater.eof:
                    _corrupt("codec_stream", "gzip: cut off")
        except zlib.error as error:
            _corrupt("codec_stream", f"gzip: {error}")
        trailer = len(data) - len(inflater.unused_data)
        if trailer + 8 > len(data):
            _corrupt("codec_stream", "gzip: trailer cut off")
        crc, isize = struct.unpack_from("<II", data, trailer)
        plain = member.value()
        if crc != zlib.crc32(plain) or isize != len(plain) & 0xFFFFFFFF:
            _corrupt("codec_checksum", "gzip: trailer does not match")
        out.add(plain)
        # Java looks for a next member only when more than header (10) and trailer (8) bytes follow.
        if len(data) - (trailer + 8) <= 18:
            return
        position = _gzip_header_end(data, trailer + 8)
        if position is None:
            return


_XERIAL = b"\x82SNAPPY\0"


def _unsnappy(data, out):
    """``org.xerial.snappy.SnappyInputStream``: framed blocks, or one raw block when there is no frame header."""
    if not data:
        _corrupt("codec_stream", "snappy: empty input")
    if len(data) < 16 or not data.startswith(_XERIAL):
        out.add(_unsnappy_block(data, out.room()))
        return
    position = 16  # snappy-java takes any version in the first header
    while position + 4 <= len(data):  # fewer than four bytes left: the end
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if data.startswith(_XERIAL[:4], position):
            if position + 16 > len(data):
                _corrupt("codec_stream", "snappy: second header cut off")
            _check_xerial_version(data, position)
            position += 16
            continue
        position += 4
        if size < 0 or size > len(data) - position:
            _corrupt("codec_stream", f"snappy: block of {size} bytes, {len(data) - position} left")
        out.add(_unsnappy_block(data[position : position + size], out.room()))
        position += size


def _check_xerial_version(data, position):
    if int.from_bytes(data[position + 8 : position + 12], "big", signed=True) < 1:
        _corrupt("codec_stream", "snappy: incompatible version")


def _unsnappy_block(block, limit):
    """One raw Snappy block: its length as a varint, then what the library makes bytes of."""
    cursor = Cursor(block)
    try:
        size = cursor.unsigned(5)
    except Damage:
        _corrupt("codec_stream", "snappy: bad length")
    if size >> 32:
        _corrupt("codec_stream", "snappy: bad length")
    if size > limit:
        # No block expands more than 64 bytes for each 3: a size beyond that is a lie, not a large block.
        if size > 22 * len(block):
            _corrupt("codec_stream", "snappy: impossible length")
        raise Damage("limit", detail=f"snappy block of {size} bytes, {limit} allowed")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        _corrupt("codec_stream", f"snappy: {error}")


def _unlz4(data, out, *, check_header):
    """``Lz4BlockInputStream``: exactly one frame; what follows its EndMark is ignored.

    Under magic 0 the header checksum is not looked at, because old clients computed it wrongly (KAFKA-3160). The
    content checksum is skipped, a block checksum is verified after the block was decompressed.
    """
    if len(data) < 6:
        _corrupt("codec_stream", "lz4: header cut off")
    if data[:4] != b"\x04\x22\x4d\x18":
        _corrupt("codec_stream", "lz4: no frame")
    flg, bd = data[4], data[5]
    if flg >> 6 != 1 or not flg & 0x20 or flg & 3:
        _corrupt("codec_stream", f"lz4: FLG {flg:#04x}")
    if bd & 0x8F or not 4 <= bd >> 4 <= 7:
        _corrupt("codec_stream", f"lz4: BD {bd:#04x}")
    max_block = 1 << (8 + 2 * (bd >> 4))
    position = 14 if flg & 8 else 6
    if position >= len(data):
        _corrupt("codec_stream", "lz4: header cut off")
    if check_header and data[position] != xxh32(data[4:position]) >> 8 & 0xFF:
        _corrupt("codec_checksum", "lz4: header checksum")
    position += 1
    while True:
        if position + 4 > len(data):
            _corrupt("codec_stream", "lz4: no EndMark")
        word = int.from_bytes(data[position : position + 4], "little")
        position += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            if flg & 4 and position + 4 > len(data):
                _corrupt("codec_stream", "lz4: content checksum cut off")
            return
        if size > max_block or position + size > len(data):
            _corrupt("codec_stream", f"lz4: block of {size} bytes")
        block = data[position : position + size]
        position += size
        plain = block if word >> 31 else _unlz4_block(block, max_block)
        if flg & 16:
            if position + 4 > len(data):
                _corrupt("codec_stream", "lz4: block checksum cut off")
            if int.from_bytes(data[position : position + 4], "little") != xxh32(block):
                _corrupt("codec_checksum", "lz4: block checksum")
            position += 4
        out.add(plain)


def _unlz4_block(block, max_block):
    try:
        return bytes(lz4.block.decompress(block, uncompressed_size=max_block))
    except lz4.block.LZ4BlockError as error:
        _corrupt("codec_stream", f"lz4: {error}")


def _unzstd(data, out):
    """``ZstdInputStreamNoFinalizer``: any number of frames, skippable ones too, and nothing else."""
    position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        whole = position + 4 <= len(data)
        if whole and magic & 0xFFFFFFF0 == 0x184D2A50:
            if position + 8 > len(data):
                _corrupt("codec_stream", "zstd: skippable frame cut off")
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            if position > len(data):
                _corrupt("codec_stream", "zstd: skippable frame cut off")
            continue
        if not whole or magic != 0xFD2FB528:
            _corrupt("codec_trailing" if position else "codec_stream", "zstd: no frame")
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            while not frame.eof:
                if position >= len(data):
                    _corrupt("codec_stream", "zstd: frame cut off")
                piece = data[position : position + 256]  # small, so that no step expands far beyond the limit
                position += len(piece)
                out.add(frame.decompress(piece))
        except zstandard.ZstdError as error:
            _corrupt("codec_checksum" if "checksum" in str(error) else "codec_stream", f"zstd: {error}")
        position -= len(frame.unused_data)


# ------------------------------------------------------------------------------------------------------ varints


class Cursor:
    """Reads fields from ``data[position:end]``."""

    def __init__(self, data, position=0, end=None):
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    def left(self):
        """How many bytes are left."""
        return self.end - self.position

    def take(self, size):
        """Return the next ``size`` bytes, which the caller knows to be there."""
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def unsigned(self, max_bytes):
        value = 0
        for i in range(max_bytes):
            if self.position >= self.end:
                _corrupt("varint_truncated")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value
        return _corrupt("varint_overlong")

    def varint(self):
        """``ByteUtils.readVarint``: zig-zag, at most 5 bytes, bits beyond 32 are dropped."""
        raw = self.unsigned(5) & 0xFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self):
        """``ByteUtils.readVarlong``: zig-zag, at most 10 bytes, bits beyond 64 are dropped."""
        raw = self.unsigned(10) & 0xFFFFFFFFFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def sized(self, reason):
        """A varint length and as many bytes; any negative length is null (``Utils.readBytes``)."""
        size = self.varint()
        if size < 0:
            return None
        if size > self.left():
            _corrupt(reason, f"{size} bytes, {self.left()} left")
        return self.take(size)


def increment_sequence(sequence, increment):
    """``DefaultRecordBatch.incrementSequence``, in Java's 32-bit arithmetic."""
    if sequence > wrap32(0x7FFFFFFF - increment):
        return wrap32(increment - (0x7FFFFFFF - sequence) - 1)
    return sequence + increment


# --------------------------------------------------------------------------------------------------- v2 batches


def _decode_v2(data, position, size_in_bytes, limit):
    """``DefaultRecordBatch.iterator``; the envelope and the CRC were checked before."""
    (
        base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, records_count,
    ) = struct.unpack_from(">qiibIhiqqqhii", data, position)  # fmt: skip
    log_append = bool(attributes & 8)
    batch = Batch(
        position=position,
        size_in_bytes=size_in_bytes,
        magic=magic,
        base_offset=base_offset,
        last_offset=wrap64(base_offset + last_offset_delta),
        crc=crc,
        attributes=attributes,
        codec=attributes & 7,
        timestamp_type=LOG_APPEND_TIME if log_append else CREATE_TIME,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
        is_transactional=bool(attributes & 16),
        is_control=bool(attributes & 32),
        delete_horizon=base_timestamp if attributes & 64 else None,
    )
    if batch.codec not in CODECS:
        raise Damage("unsupported", detail=f"codec id {batch.codec}")
    if records_count < 0:
        _corrupt("record_count", f"{records_count}")
    if records_count == 0:
        return batch  # whatever else the payload holds is not looked at
    payload = data[position + _V2_HEADER : position + size_in_bytes]
    cursor = Cursor(decompress(batch.codec, payload, magic, limit))
    for i in range(records_count):
        if cursor.left() == 0:
            _corrupt("record_count", f"{i} records instead of {records_count}")
        batch.records.append(_decode_record(cursor, batch))
    if cursor.left():
        _corrupt("record_trailing_bytes", f"{cursor.left()} bytes")
    return batch


def _decode_record(cursor, batch):
    """``DefaultRecord.readFrom``."""
    body_length = cursor.varint()
    if body_length <= 0 or body_length > cursor.left():
        _corrupt("record_length", f"body of {body_length} bytes, {cursor.left()} left")
    body = Cursor(cursor.data, cursor.position, cursor.position + body_length)
    body.take(1)  # attributes: unused, not checked
    timestamp = wrap64(batch.base_timestamp + body.varlong())
    if batch.timestamp_type == LOG_APPEND_TIME:
        timestamp = batch.max_timestamp
    offset_delta = body.varint()
    key = body.sized("key_length")
    value = body.sized("value_length")
    headers_count = body.varint()
    if headers_count < 0 or headers_count > body.left():
        _corrupt("header_count", f"{headers_count} headers, {body.left()} bytes left")
    headers = []
    for _ in range(headers_count):
        name = body.sized("header_length")
        if name is None:
            _corrupt("header_key_null")
        headers.append((name, body.sized("header_length")))
    if body.left():
        _corrupt("record_length", f"{body.left()} bytes of the body left")
    cursor.position = body.end
    return Record(
        offset=wrap64(batch.base_offset + offset_delta),
        timestamp=timestamp,
        timestamp_type=batch.timestamp_type,
        key=key,
        value=value,
        headers=headers,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        sequence=-1 if batch.base_sequence < 0 else increment_sequence(batch.base_sequence, offset_delta),
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        codec=batch.codec,
        batch_base_offset=batch.base_offset,
        batch_position=batch.position,
        magic=batch.magic,
    )


# ----------------------------------------------------------------------------------------------- v0/v1 messages


class _Message(NamedTuple):
    """The fields of one v0/v1 message (``LegacyRecord``), without envelope and CRC."""

    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _parse_message(body):
    """``LegacyRecord``'s accessors; ``body`` starts at the CRC and its magic is 0 or 1."""
    magic, attributes = body[4], body[5]
    timestamp = -1
    position = 6
    if magic == 1:
        timestamp = int.from_bytes(body[6:14], "big", signed=True)
        position = 14
    fields = []
    for reason in ("key_length", "value_length"):
        if position + 4 > len(body):
            _corrupt(reason, "cut off")
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        position += 4
        if size < 0:
            fields.append(None)
            continue
        if size > len(body) - position:
            _corrupt(reason, f"{size} bytes, {len(body) - position} left")
        fields.append(body[position : position + size])
        position += size
    return _Message(magic, attributes, timestamp, fields[0], fields[1])  # bytes after the value: not looked at


def _legacy_timestamp_type(message):
    if message.magic == 0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if message.attributes & 8 else CREATE_TIME


def _decode_legacy(data, position, size_in_bytes, limit):
    """``AbstractLegacyRecordBatch.iterator``: one message, or the messages inside a compressed wrapper."""
    offset = int.from_bytes(data[position : position + 8], "big", signed=True)
    body = data[position + _ENVELOPE : position + size_in_bytes]
    codec = body[5] & 7
    if codec not in CODECS:
        raise Damage("unsupported", detail=f"codec id {codec}")
    if codec == ZSTD:
        _corrupt("header_inconsistent", "zstd in a v0/v1 message")
    outer = _parse_message(body)
    batch = Batch(
        position=position,
        size_in_bytes=size_in_bytes,
        magic=outer.magic,
        base_offset=offset,
        last_offset=offset,
        crc=int.from_bytes(body[:4], "big"),
        attributes=outer.attributes,
        codec=codec,
        timestamp_type=_legacy_timestamp_type(outer),
        base_timestamp=outer.timestamp,
        max_timestamp=outer.timestamp,
    )
    if codec == NONE:
        found = [(offset, outer)]
    else:
        if outer.value is None:
            _corrupt("value_length", "compressed wrapper with a null value")
        found = _unwrap(offset, outer, decompress(codec, outer.value, outer.magic, limit))
    batch.base_offset = found[0][0]
    batch.records_count = len(found)
    for record_offset, message in found:
        timestamp = message.timestamp
        timestamp_type = batch.timestamp_type
        if message.magic == 0:
            timestamp, timestamp_type = None, NO_TIMESTAMP_TYPE
        elif timestamp_type == LOG_APPEND_TIME:
            timestamp = outer.timestamp
        batch.records.append(
            Record(
                record_offset,
                timestamp,
                timestamp_type,
                message.key,
                message.value,
                [],
                codec=codec,
                batch_base_offset=batch.base_offset,
                batch_position=position,
                magic=message.magic,
            )
        )
    return batch


def _unwrap(wrapper_offset, wrapper, plain):
    """``DeepRecordsIterator``: the messages of a wrapper with their absolute offsets.

    The wrapper's magic rules the offsets, each inner magic its own timestamp (KAFKA-4298). Inner CRCs are not checked.
    """
    found = []
    position = 0
    while position + _ENVELOPE <= len(plain):
        offset, size = struct.unpack_from(">qi", plain, position)
        if size < 14:
            _corrupt("record_length", f"inner message of {size} bytes")
        position += _ENVELOPE
        if size > len(plain) - position:
            break  # a cut-off last message is silently dropped
        body = plain[position : position + size]
        position += size
        if body[4] not in (0, 1):
            _corrupt("legacy_inner_magic", f"magic {body[4]}")
        if body[5] & 7:
            _corrupt("legacy_nested", f"codec id {body[5] & 7}")
        if size < _MIN_SIZE[body[4]]:
            _corrupt("record_length", f"inner message of {size} bytes")
        found.append((offset, _parse_message(body)))
    if not found:
        _corrupt("record_count", "compressed wrapper without messages")
    if wrapper.magic == 0:
        return found
    last_inner = found[-1][0]
    if wrapper_offset != 0 and wrapper_offset < last_inner:
        _corrupt("legacy_wrapper_offset", f"wrapper offset {wrapper_offset}, last inner offset {last_inner}")
    base = 0 if wrapper_offset == 0 else wrapper_offset - last_inner
    return [(wrap64(base + offset), message) for offset, message in found]


# ----------------------------------------------------------------------------------------------------- segments


def _envelope(data, position):
    """``FileLogInputStream.nextBatch``: (total size, magic) of the batch at ``position``."""
    left = len(data) - position
    if left < _MAGIC_END:
        raise Damage("partial_tail", detail=f"{left} bytes")
    size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    magic = int.from_bytes(data[position + 16 : position + 17], "big", signed=True)
    if size < 14:
        if not any(data[position:]):
            raise Damage("zero_fill", detail=f"{left} bytes")
        _corrupt("size_negative" if size < 0 else "size_too_small", f"size {size}")
    if magic not in _MIN_SIZE:
        _corrupt("bad_magic", f"magic {magic}")
    if size < _MIN_SIZE[magic]:
        _corrupt("size_too_small", f"size {size} for magic {magic}")
    if _ENVELOPE + size > left:
        raise Damage("partial_tail", detail=f"{left} bytes of {_ENVELOPE + size}")
    return _ENVELOPE + size, magic


def _check_crc(data, position, size_in_bytes, magic):
    """``DefaultRecordBatch.ensureValid`` and ``LegacyRecord.ensureValid``."""
    batch = data[position : position + size_in_bytes]
    if magic == 2:
        stored, computed = int.from_bytes(batch[17:21], "big"), crc32c(batch[21:])
    else:
        stored, computed = int.from_bytes(batch[12:16], "big"), zlib.crc32(batch[16:])
    if stored != computed:
        _corrupt("crc_mismatch", f"stored {stored:#010x}, computed {computed:#010x}")


def iter_batches(data, limit=DEFAULT_LIMIT):
    """Yield the batches of a segment; at the first problem raise Damage with its position.

    ``limit`` is the largest number of bytes that one batch may decompress to.
    """
    position = 0
    last_offset = -1  # Kafka's offsets begin at 0
    while position < len(data):
        try:
            size_in_bytes, magic = _envelope(data, position)
            _check_crc(data, position, size_in_bytes, magic)
            offset = int.from_bytes(data[position : position + 8], "big", signed=True)
            delta = 0
            if magic == 2:
                delta = int.from_bytes(data[position + 23 : position + 27], "big", signed=True)
                if delta < 0 or offset + delta >= 1 << 63:
                    _corrupt("header_inconsistent", f"last offset delta {delta}")
            if offset <= last_offset:
                _corrupt("offset_order", f"offset {offset} after {last_offset}")
            decode = _decode_v2 if magic == 2 else _decode_legacy
            batch = decode(data, position, size_in_bytes, limit)
        except Damage as damage:
            damage.position = position
            raise
        yield batch
        last_offset = batch.last_offset
        position += size_in_bytes


def read_segment(data, limit=DEFAULT_LIMIT):
    """Read a whole ``.log`` file up to its first problem; the batches before it are kept."""
    result = Result([], [], 0, None)
    try:
        for batch in iter_batches(data, limit):
            result.batches.append(batch)
            result.records += batch.records
            result.end = batch.position + batch.size_in_bytes
    except Damage as damage:
        result.problem = damage.problem()
    return result


# ------------------------------------------------------------------------------------------------- transactions

ABORT, COMMIT = 0, 1


class AbortedTxn(NamedTuple):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def marker_type(batch):
    """The type of a control batch's first record; None for no control batch, or one without records."""
    if not batch.is_control or not batch.records:
        return None
    key = batch.records[0].key
    assert key is not None
    return int.from_bytes(key[2:4], "big", signed=True)


class Producers:
    """``ProducerStateManager``: appended to batch by batch; the transaction index is a list."""

    def __init__(self):
        self.ongoing = {}
        """First offset of the transaction of each producer that has one open."""
        self.aborted = []
        self.log_end_offset = 0

    def append(self, batch):
        """``UnifiedLog.append``, as far as it is about transactions."""
        self.log_end_offset = batch.last_offset + 1
        if batch.magic < 2 or batch.producer_id < 0:
            return
        if not batch.is_control:
            if batch.is_transactional:
                self.ongoing.setdefault(batch.producer_id, batch.base_offset)
            return
        kind = marker_type(batch)
        if kind is None or batch.producer_id not in self.ongoing:
            return
        first = self.ongoing.pop(batch.producer_id)
        if kind == ABORT:
            stable = min(self.ongoing.values(), default=batch.last_offset + 1)
            self.aborted.append(AbortedTxn(batch.producer_id, first, batch.last_offset, stable))

    @property
    def last_stable_offset(self):
        """``UnifiedLog.lastStableOffset`` with the high watermark at the log's end."""
        return min(self.ongoing.values(), default=self.log_end_offset)

    def collect_aborted(self, start, end):
        """``TransactionIndex.collectAbortedTxns``, over all segments."""
        return [txn for txn in self.aborted if txn.last_offset >= start and txn.first_offset < end]


def read_committed(batches, start=0, end=None):
    """``CompletedFetch``: what a consumer returns of one fetch of everything from ``start`` on."""
    producers = Producers()
    for batch in batches:
        producers.append(batch)
    stable = producers.last_stable_offset
    pending = sorted(producers.collect_aborted(start, stable), key=lambda txn: txn.first_offset)
    aborted_ids = set()
    records = []
    for batch in batches:
        if batch.last_offset < start or batch.base_offset >= stable:
            continue
        if batch.producer_id >= 0:
            while pending and pending[0].first_offset <= batch.last_offset:
                aborted_ids.add(pending.pop(0).producer_id)
            if marker_type(batch) == ABORT:
                aborted_ids.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in aborted_ids:
                continue
        if not batch.is_control:
            records += [
                record for record in batch.records if start <= record.offset and (end is None or record.offset < end)
            ]
    return records
