# Walks the headers of record batches of any magic. Kafka: FileLogInputStream.nextBatch, DefaultRecordBatch,
# AbstractLegacyRecordBatch.

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkalog._kernels.header_rows cimport Rows
from kafkalog._kernels.wire cimport (
    BAD_MAGIC, HEADER_INCONSISTENT, NEED_MORE, OFFSET_ORDER, OK, OUTPUT_FULL, SIZE_NEGATIVE, SIZE_TOO_SMALL,
    Cursor, load_be16, load_be32, load_be64, read_varint, read_varlong, remaining,
)

cdef enum:
    ENVELOPE = 12
    MAGIC_END = 17
    CODEC_MASK = 0x07
    CONTROL_BIT = 0x20
    NOT_CONTROL = -1
    NO_CONTROL_RECORD = -2
    # bytes after the size field in the shortest message or batch
    MIN_SIZE_ANY = 14
    MIN_SIZE_V1 = 22
    MIN_SIZE_V2 = 49


cdef inline int check_envelope(const uint8_t* p, Py_ssize_t left, int64_t* total) noexcept nogil:
    """Check a size field and a magic byte; `total` is the size of the batch in bytes, if known.

    As in FileLogInputStream, 17 bytes or fewer count as the torn start of a batch, whatever they contain.
    """
    cdef int32_t size
    cdef uint8_t magic
    total[0] = 0
    if left < ENVELOPE:
        return NEED_MORE
    size = <int32_t>load_be32(p + 8)
    if left <= MAGIC_END:
        # the caller reads this many bytes next: an impossible size must not make it read gigabytes
        if size >= MIN_SIZE_ANY:
            total[0] = <int64_t>size + ENVELOPE
        return NEED_MORE
    if size < 0:
        return SIZE_NEGATIVE
    if size < MIN_SIZE_ANY:
        return SIZE_TOO_SMALL
    total[0] = <int64_t>size + ENVELOPE
    magic = p[16]
    # FileLogInputStream treats magics above 2 as v2 and negative ones as v0: only the checksum rejects them
    if magic > 2:
        return BAD_MAGIC
    if (magic == 1 and size < MIN_SIZE_V1) or (magic == 2 and size < MIN_SIZE_V2):
        return SIZE_TOO_SMALL
    if total[0] > left:
        return NEED_MORE
    return OK


cdef inline int control_type_of(const uint8_t* start, const uint8_t* end, int32_t count) noexcept nogil:
    """The type in the key of the first record of an uncompressed control batch."""
    cdef Cursor cursor
    cdef int32_t n = 0
    cdef int64_t delta = 0
    cursor.pointer = start
    cursor.end = end
    # compaction may remove the record of a control batch
    if count <= 0:
        return NO_CONTROL_RECORD
    if read_varint(&cursor, &n) != OK or cursor.pointer >= cursor.end:
        return NO_CONTROL_RECORD
    cursor.pointer += 1
    if read_varlong(&cursor, &delta) != OK or read_varint(&cursor, &n) != OK or read_varint(&cursor, &n) != OK:
        return NO_CONTROL_RECORD
    # versions above 0 are read as 0 (ControlRecordType.parseTypeId)
    if n < 4 or remaining(&cursor) < 4 or <int16_t>load_be16(cursor.pointer) < 0:
        return NO_CONTROL_RECORD
    return <int16_t>load_be16(cursor.pointer + 2)


cdef inline int walk_headers(const uint8_t* window, Py_ssize_t* at, Py_ssize_t end, int64_t window_start,
                             int64_t* previous_offset, Py_ssize_t* n_rows, Py_ssize_t capacity, int64_t* needed,
                             const Rows* rows) noexcept nogil:
    """Walk from `window[at]` to `end` and add rows up to `capacity`. Moves all pointers; the status tells why it
    stopped."""
    # local copies: a byte that is written, such as a magic, may alias any pointer elsewhere
    cdef Rows to = rows[0]
    # with short messages, latency from size to size dominates: keep the variables in registers
    cdef Py_ssize_t row = n_rows[0]
    cdef Py_ssize_t here = at[0]
    cdef int64_t before = previous_offset[0]
    cdef int64_t size = 0
    cdef const uint8_t* p = NULL
    cdef int64_t first, last
    cdef int32_t delta
    cdef int8_t version
    cdef int16_t bits
    cdef int status
    while True:
        size = 0
        status = NEED_MORE
        if here >= end:
            break
        status = OUTPUT_FULL
        if row >= capacity:
            break
        p = window + here
        status = check_envelope(p, end - here, &size)
        if status != OK:
            break
        version = <int8_t>p[16]
        first = <int64_t>load_be64(p)
        if version == 2:
            delta = <int32_t>load_be32(p + 23)
            # a last offset beyond int64 would wrap and become the lowest
            if delta < 0 or first > INT64_MAX - delta:
                status = HEADER_INCONSISTENT
                break
            last = first + delta
            bits = <int16_t>load_be16(p + 21)
            to.leader_epoch[row] = <int32_t>load_be32(p + 12)
            to.crc[row] = load_be32(p + 17)
            to.base_timestamp[row] = <int64_t>load_be64(p + 27)
            to.max_timestamp[row] = <int64_t>load_be64(p + 35)
            to.producer_id[row] = <int64_t>load_be64(p + 43)
            to.producer_epoch[row] = <int16_t>load_be16(p + 51)
            to.base_sequence[row] = <int32_t>load_be32(p + 53)
            to.records_count[row] = <int32_t>load_be32(p + 57)
            if bits & CONTROL_BIT == 0:
                to.control_type[row] = NOT_CONTROL
            # compressed markers are not decoded here; with_markers in state/producers.py does it where needed
            elif bits & CODEC_MASK:
                to.control_type[row] = NO_CONTROL_RECORD
            else:
                to.control_type[row] = control_type_of(p + 61, p + size, to.records_count[row])
        else:
            last = first
            bits = p[17]
            to.leader_epoch[row] = -1
            to.crc[row] = load_be32(p + 12)
            to.base_timestamp[row] = <int64_t>load_be64(p + 18) if version == 1 else -1
            to.max_timestamp[row] = to.base_timestamp[row]
            to.producer_id[row] = -1
            to.producer_epoch[row] = -1
            to.base_sequence[row] = -1
            to.control_type[row] = NOT_CONTROL
            if bits & CODEC_MASK:
                first = -1
                to.records_count[row] = -1
            else:
                to.records_count[row] = 1
        # a compressed v0 or v1 message has only a last offset
        if (first if first >= 0 or version == 2 else last) <= before:
            status = OFFSET_ORDER
            break
        before = last
        to.position[row] = window_start + here
        # fits in 32 bits, since a window has less than 2 GiB
        to.size_in_bytes[row] = <int32_t>size
        to.base_offset[row] = first
        to.last_offset[row] = last
        to.magic[row] = version
        to.attributes[row] = bits
        row += 1
        here += size
    at[0] = here
    n_rows[0] = row
    previous_offset[0] = before
    needed[0] = size
    return status
