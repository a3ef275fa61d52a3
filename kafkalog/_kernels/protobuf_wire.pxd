# The wire format of Protobuf: numbers, tags, spans and groups of untrusted bytes, through the cursor of wire.pxd.

from libc.stdint cimport int32_t, uint8_t, uint64_t

from kafkalog._kernels.wire cimport OK, Cursor, distance, remaining, shl64

cdef enum Wire:
    VARINT = 0
    EIGHT_BYTES = 1
    DELIMITED = 2
    GROUP = 3
    END_OF_GROUP = 4
    FOUR_BYTES = 5

cdef enum Failure:
    TRUNCATED = 100
    OVERLONG = 101
    BAD_TAG = 102
    BAD_LENGTH = 103
    BAD_GROUP = 104
    TOO_DEEP = 105
    NOT_UTF8 = 106
    BAD_PACKED = 107
    BAD_TIMESTAMP = 108
    SEVERAL_PARTS = 109
    NO_MEMORY = 110

cdef enum:
    MOST_DEPTH = 100


cdef inline int read_number(Cursor* cursor, uint64_t* value) noexcept nogil:
    """Read a varint of at most ten bytes."""
    cdef uint64_t result = 0
    cdef uint8_t byte
    cdef int shift = 0
    if cursor.pointer < cursor.end and cursor.pointer[0] < 0x80:
        value[0] = cursor.pointer[0]
        cursor.pointer += 1
        return OK
    while shift < 70:
        if cursor.pointer >= cursor.end:
            return TRUNCATED
        byte = cursor.pointer[0]
        cursor.pointer += 1
        result |= shl64(byte & 0x7F, shift)
        if byte < 0x80:
            value[0] = result
            return OK
        shift += 7
    return OVERLONG


cdef inline int read_tag(Cursor* cursor, int32_t* number, int32_t* wire) noexcept nogil:
    cdef const uint8_t* begin = cursor.pointer
    cdef uint64_t tag = 0
    cdef int status = read_number(cursor, &tag)
    if status != OK:
        return status
    if tag < 8 or (tag >> 32) != 0 or distance(begin, cursor.pointer) > 5:  # as Google's library
        return BAD_TAG
    number[0] = <int32_t>(tag >> 3)
    wire[0] = <int32_t>(tag & 7)
    return OK


cdef inline int read_span(Cursor* cursor, Cursor* inside) noexcept nogil:
    """Read a length and the bytes after it."""
    cdef uint64_t size = 0
    cdef int status = read_number(cursor, &size)
    if status != OK:
        return status
    if size > <uint64_t>remaining(cursor):
        return BAD_LENGTH
    inside.pointer = cursor.pointer
    cursor.pointer += size
    inside.end = cursor.pointer
    return OK


cdef inline int skip_value(Cursor* cursor, int32_t number, int32_t wire, int depth) noexcept nogil:
    """Skip the value of a field."""
    cdef uint64_t ignored = 0
    cdef Cursor inside
    if wire == VARINT:
        return read_number(cursor, &ignored)
    if wire == DELIMITED:
        return read_span(cursor, &inside)
    if wire == GROUP:
        return read_group(cursor, &inside, number, depth)
    if wire == EIGHT_BYTES or wire == FOUR_BYTES:
        if remaining(cursor) < (8 if wire == EIGHT_BYTES else 4):
            return TRUNCATED
        cursor.pointer += 8 if wire == EIGHT_BYTES else 4
        return OK
    return BAD_GROUP if wire == END_OF_GROUP else BAD_TAG


cdef inline int read_group(Cursor* cursor, Cursor* inside, int32_t number, int depth) noexcept nogil:
    """Read the bytes of a group, up to its end tag."""
    cdef int32_t inner = 0
    cdef int32_t wire = 0
    cdef int status
    if depth > MOST_DEPTH:
        return TOO_DEEP
    inside.pointer = cursor.pointer
    while True:
        inside.end = cursor.pointer
        status = read_tag(cursor, &inner, &wire)
        if status != OK:
            return status
        if wire == END_OF_GROUP:
            if inner != number:
                return BAD_GROUP
            return OK
        status = skip_value(cursor, inner, wire, depth + 1)
        if status != OK:
            return status


cdef inline int read_content(Cursor* cursor, Cursor* inside, int32_t number, int32_t wire, int depth) noexcept nogil:
    """Read the bytes of a message."""
    return read_group(cursor, inside, number, depth) if wire == GROUP else read_span(cursor, inside)
