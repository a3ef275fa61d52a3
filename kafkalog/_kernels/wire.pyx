"""The primitive types of Kafka's wire format, one value at a time, and the status codes of the kernels by name."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

STATUS = {
    "OK": OK,
    "NEED_MORE": NEED_MORE,
    "OUTPUT_FULL": OUTPUT_FULL,
    "SIZE_NEGATIVE": SIZE_NEGATIVE,
    "SIZE_TOO_SMALL": SIZE_TOO_SMALL,
    "BAD_MAGIC": BAD_MAGIC,
    "HEADER_INCONSISTENT": HEADER_INCONSISTENT,
    "OFFSET_ORDER": OFFSET_ORDER,
    "CRC_MISMATCH": CRC_MISMATCH,
    "RECORD_COUNT": RECORD_COUNT,
    "RECORD_LENGTH": RECORD_LENGTH,
    "RECORD_TRAILING_BYTES": RECORD_TRAILING_BYTES,
    "VARINT_OVERLONG": VARINT_OVERLONG,
    "VARINT_TRUNCATED": VARINT_TRUNCATED,
    "KEY_LENGTH": KEY_LENGTH,
    "VALUE_LENGTH": VALUE_LENGTH,
    "HEADER_COUNT": HEADER_COUNT,
    "HEADER_KEY_NULL": HEADER_KEY_NULL,
    "HEADER_LENGTH": HEADER_LENGTH,
    "TOO_MANY_HEADERS": TOO_MANY_HEADERS,
    "LEGACY_NESTED": LEGACY_NESTED,
    "LEGACY_INNER_MAGIC": LEGACY_INNER_MAGIC,
    "LEGACY_WRAPPER_OFFSET": LEGACY_WRAPPER_OFFSET,
    "LEGACY_EMPTY_WRAPPER": LEGACY_EMPTY_WRAPPER,
}


def decode_unsigned_varint(const uint8_t[::1] data not None):
    """`(status, value, n_bytes)` of the unsigned varint at the start of `data`."""
    cdef Cursor cursor
    cdef uint32_t value = 0
    cdef int status
    cdef Py_ssize_t n = data.shape[0]
    if n == 0:
        return VARINT_TRUNCATED, 0, 0
    cursor.pointer = &data[0]
    cursor.end = &data[0] + n
    status = read_unsigned_varint(&cursor, &value)
    return status, value, n - remaining(&cursor)


def decode_varint(const uint8_t[::1] data not None):
    """`(status, value, n_bytes)` of the zig-zag varint at the start of `data`."""
    cdef Cursor cursor
    cdef int32_t value = 0
    cdef int status
    cdef Py_ssize_t n = data.shape[0]
    if n == 0:
        return VARINT_TRUNCATED, 0, 0
    cursor.pointer = &data[0]
    cursor.end = &data[0] + n
    status = read_varint(&cursor, &value)
    return status, value, n - remaining(&cursor)


def decode_varlong(const uint8_t[::1] data not None):
    """`(status, value, n_bytes)` of the zig-zag varlong at the start of `data`."""
    cdef Cursor cursor
    cdef int64_t value = 0
    cdef int status
    cdef Py_ssize_t n = data.shape[0]
    if n == 0:
        return VARINT_TRUNCATED, 0, 0
    cursor.pointer = &data[0]
    cursor.end = &data[0] + n
    status = read_varlong(&cursor, &value)
    return status, value, n - remaining(&cursor)
