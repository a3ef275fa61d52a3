"""The status codes of the kernels, by name; and arrays of varints."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

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


def read_varints(const uint8_t[::1] data not None, bint zigzag, int64_t[::1] out not None):
    """Read varints of at most 64 bits until the data ends. Return `(status, n, position)`.

    `out` receives the numbers; those of 64 unsigned bits wrap. Position is that of the first varint that is not read.
    """
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    cdef const uint8_t* before
    cdef Cursor cursor
    cdef uint64_t raw = 0
    cdef Py_ssize_t n = 0
    cdef int status = OK
    cursor.pointer = before = start
    cursor.end = &data[0] + data.shape[0] if data.shape[0] else NULL
    with nogil:
        while cursor.pointer < cursor.end:
            before = cursor.pointer
            if n == out.shape[0]:
                status = OUTPUT_FULL
                break
            status = read_unsigned_varlong(&cursor, &raw)
            # the tenth byte has the 64th bit
            if status == OK and distance(before, cursor.pointer) == 10 and cursor.pointer[-1] > 1:
                status = VARINT_OVERLONG
            if status != OK:
                break
            out[n] = unzigzag64(raw) if zigzag else <int64_t>raw
            n += 1
            before = cursor.pointer
    return status, n, distance(start, before)
