"""Decodes v0 and v1 messages: uncompressed ones in bulk, and the message sets inside compressed ones.

Kafka: LegacyRecord, AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._kernels.crc cimport crc32
from kafkalog._kernels.wire cimport (
    CRC_MISMATCH, KEY_LENGTH, LEGACY_EMPTY_WRAPPER, LEGACY_INNER_MAGIC, LEGACY_NESTED, LEGACY_WRAPPER_OFFSET, OK,
    OUTPUT_FULL, SIZE_TOO_SMALL, VALUE_LENGTH, load_be32, load_be64, wrap_add, wrap_sub,
)

cdef enum:
    ENVELOPE = 12
    CRC_START = 16
    KEY_V0 = 18
    KEY_V1 = 26
    MIN_SIZE_V0 = 14
    MIN_SIZE_V1 = 22
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08


cdef inline int key_and_value(const uint8_t* origin, Py_ssize_t at, Py_ssize_t end, int8_t magic, int32_t* key_start,
                              int32_t* key_size, int32_t* value_start, int32_t* value_size) noexcept nogil:
    """Find the spans of key and value of the message at `at`; a negative length is null."""
    cdef Py_ssize_t position = at + (KEY_V0 if magic == 0 else KEY_V1)
    cdef int32_t size
    if end - position < 4:
        return KEY_LENGTH
    size = <int32_t>load_be32(origin + position)
    position += 4
    key_start[0] = <int32_t>position
    key_size[0] = -1
    if size >= 0:
        if size > end - position:
            return KEY_LENGTH
        key_size[0] = size
        position += size
    if end - position < 4:
        return VALUE_LENGTH
    size = <int32_t>load_be32(origin + position)
    position += 4
    value_start[0] = <int32_t>position
    value_size[0] = -1
    if size >= 0:
        if size > end - position:
            return VALUE_LENGTH
        value_size[0] = size
    return OK


def walk_messages(const uint8_t[::1] data not None, const int64_t[::1] start not None, const int32_t[::1] size not None,
                  const int8_t[::1] magic not None, const uint32_t[::1] crc not None, bint check_crc,
                  int32_t[::1] key_start not None, int32_t[::1] key_size not None, int32_t[::1] value_start not None,
                  int32_t[::1] value_size not None):
    """Find the spans of key and value of v0 and v1 messages in `data`. Return `(status, n_done)`.

    The value of a compressed message is its compressed message set.
    """
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t row = 0
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    if size.shape[0] != n or magic.shape[0] != n or crc.shape[0] != n or key_start.shape[0] != n \
            or key_size.shape[0] != n or value_start.shape[0] != n or value_size.shape[0] != n:
        raise ValueError("columns differ in length")
    if data.shape[0] > 0x7FFFFFFF:
        raise ValueError("data is 2 GiB or more")
    for row in range(n):
        if start[row] < 0 or size[row] < 26 or size[row] > data.shape[0] - start[row] or magic[row] > 1:
            raise ValueError("a message lies outside data")
    row = 0
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        while row < n:
            if check_crc and crc32(origin + start[row] + CRC_START, size[row] - CRC_START) != crc[row]:
                status = CRC_MISMATCH
                break
            status = key_and_value(origin, start[row], start[row] + size[row], magic[row], &key_start[row],
                                   &key_size[row], &value_start[row], &value_size[row])
            if status != OK:
                break
            row += 1
    return status, row


def walk_message_set(const uint8_t[::1] data not None, Py_ssize_t start, Py_ssize_t stop, int64_t wrapper_offset,
                     int8_t wrapper_magic, int16_t wrapper_attributes, int64_t wrapper_timestamp,
                     int64_t[::1] offset not None, int64_t[::1] timestamp not None, int8_t[::1] timestamp_type not None,
                     int32_t[::1] key_start not None, int32_t[::1] key_size not None, int32_t[::1] value_start not None,
                     int32_t[::1] value_size not None):
    """Find the spans of messages decompressed from a wrapper, in `data[start:stop]`. Return `(status, n, position)`.

    A truncated last message is dropped, as in Kafka. The wrapper's magic decides how offsets are read, the inner magic
    decides about timestamps.
    """
    cdef Py_ssize_t capacity = offset.shape[0]
    cdef Py_ssize_t at = start
    cdef Py_ssize_t n = 0
    cdef Py_ssize_t i
    cdef int64_t total, shift, last
    cdef int32_t size
    cdef uint8_t magic
    cdef bint appended = wrapper_magic >= 1 and wrapper_attributes & LOG_APPEND_TIME_BIT != 0
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    if (timestamp.shape[0] != capacity or timestamp_type.shape[0] != capacity or key_start.shape[0] != capacity
            or key_size.shape[0] != capacity or value_start.shape[0] != capacity or value_size.shape[0] != capacity):
        raise ValueError("columns differ in length")
    if start < 0 or stop < start or stop > data.shape[0] or data.shape[0] > 0x7FFFFFFF:
        raise ValueError("the message set lies outside data")
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        while stop - at >= ENVELOPE:
            size = <int32_t>load_be32(origin + at + 8)
            if size < MIN_SIZE_V0:
                status = SIZE_TOO_SMALL
                break
            total = <int64_t>size + ENVELOPE
            if total > stop - at:
                break
            magic = origin[at + 16]
            if magic > 1:
                status = LEGACY_INNER_MAGIC
                break
            if magic == 1 and size < MIN_SIZE_V1:
                status = SIZE_TOO_SMALL
                break
            if origin[at + 17] & CODEC_MASK:
                status = LEGACY_NESTED
                break
            if n >= capacity:
                status = OUTPUT_FULL
                break
            # inner checksums are not compared, since the wrapper's covers them; Kafka's consumer compares both
            offset[n] = <int64_t>load_be64(origin + at)
            if magic == 0:
                timestamp[n] = -1
                timestamp_type[n] = -1
            else:
                timestamp[n] = wrapper_timestamp if appended else <int64_t>load_be64(origin + at + 18)
                # v0 has no timestamp type, and neither have messages in a v0 wrapper
                timestamp_type[n] = -1 if wrapper_magic == 0 else appended
            status = key_and_value(origin, at, at + total, <int8_t>magic, &key_start[n], &key_size[n], &value_start[n],
                                   &value_size[n])
            if status != OK:
                break
            n += 1
            at += total
        if status == OK and n == 0:
            status = LEGACY_EMPTY_WRAPPER
        if status == OK and wrapper_magic >= 1:
            # relative offsets; if the wrapper's offset is 0, as librdkafka writes it, the base is 0. Use the last
            # offset, not the count: compaction leaves gaps inside wrappers
            last = offset[n - 1]
            if wrapper_offset == 0:
                shift = 0
            elif wrapper_offset < last:
                status = LEGACY_WRAPPER_OFFSET
                shift = 0
            else:
                shift = wrap_sub(wrapper_offset, last)
            if status == OK:
                for i in range(n):
                    offset[i] = wrap_add(offset[i], shift)
    return status, n, at
