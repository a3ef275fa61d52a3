# The only reader of untrusted bytes. A cursor is a pointer and an end. Each length is compared with the remaining bytes
# before use, and failures are a Status. Source: Kafka's ByteUtils and DefaultRecord.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum Status:
    OK = 0
    # a walk stopped without an error
    NEED_MORE = 1
    OUTPUT_FULL = 2
    # batch headers
    SIZE_NEGATIVE = 10
    SIZE_TOO_SMALL = 11
    BAD_MAGIC = 12
    HEADER_INCONSISTENT = 13
    OFFSET_ORDER = 14
    CRC_MISMATCH = 15
    # v2 records
    RECORD_COUNT = 20
    RECORD_LENGTH = 21
    RECORD_TRAILING_BYTES = 22
    VARINT_OVERLONG = 23
    VARINT_TRUNCATED = 24
    KEY_LENGTH = 25
    VALUE_LENGTH = 26
    HEADER_COUNT = 27
    HEADER_KEY_NULL = 28
    HEADER_LENGTH = 29
    TOO_MANY_HEADERS = 30
    # v0 and v1 messages
    LEGACY_NESTED = 40
    LEGACY_INNER_MAGIC = 41
    LEGACY_WRAPPER_OFFSET = 42
    LEGACY_EMPTY_WRAPPER = 43


cdef struct Cursor:
    const uint8_t* pointer
    const uint8_t* end


cdef extern from *:
    """
    #include <stdint.h>
    /* composed byte by byte: right for every byte order and alignment, and one movbe where available */
    static inline uint16_t kl_be16(const uint8_t *p) { return (uint16_t)((uint16_t)p[0] << 8 | p[1]); }
    static inline uint32_t kl_be32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint64_t kl_be64(const uint8_t *p) {
        return (uint64_t)kl_be32(p) << 32 | kl_be32(p + 4);
    }
    /* Java's arithmetic: wraps. Signed overflow is undefined in C, so it is done unsigned. */
    static inline int64_t kl_wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
    static inline int64_t kl_wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
    /* bytes between two pointers; in C, since Cython's overflow check treats pointers as integers */
    static inline Py_ssize_t kl_distance(const uint8_t *from, const uint8_t *to) { return to - from; }
    static inline int32_t kl_unzigzag32(uint32_t v) { return (int32_t)((v >> 1) ^ (0u - (v & 1))); }
    static inline int64_t kl_unzigzag64(uint64_t v) { return (int64_t)((v >> 1) ^ (0ull - (v & 1))); }
    static inline uint32_t kl_shl32(uint32_t v, int by) { return v << by; }
    static inline uint64_t kl_shl64(uint64_t v, int by) { return v << by; }
    """
    uint16_t load_be16 "kl_be16"(const uint8_t* p) noexcept nogil
    uint32_t load_be32 "kl_be32"(const uint8_t* p) noexcept nogil
    uint64_t load_be64 "kl_be64"(const uint8_t* p) noexcept nogil
    int64_t wrap_add "kl_wrap_add"(int64_t a, int64_t b) noexcept nogil
    int64_t wrap_sub "kl_wrap_sub"(int64_t a, int64_t b) noexcept nogil
    Py_ssize_t distance "kl_distance"(const uint8_t* start, const uint8_t* stop) noexcept nogil
    int32_t unzigzag32 "kl_unzigzag32"(uint32_t v) noexcept nogil
    int64_t unzigzag64 "kl_unzigzag64"(uint64_t v) noexcept nogil
    uint32_t shl32 "kl_shl32"(uint32_t v, int by) noexcept nogil
    uint64_t shl64 "kl_shl64"(uint64_t v, int by) noexcept nogil


cdef inline Py_ssize_t remaining(Cursor* cursor) noexcept nogil:
    return distance(cursor.pointer, cursor.end)


cdef inline int read_unsigned_varint(Cursor* cursor, uint32_t* value) noexcept nogil:
    """Read at most five bytes; the excess bits of the fifth are dropped, as in ByteUtils.readUnsignedVarint."""
    cdef uint32_t result
    cdef uint8_t byte
    cdef int shift
    if cursor.pointer >= cursor.end:
        return VARINT_TRUNCATED
    byte = cursor.pointer[0]
    cursor.pointer += 1
    if byte < 0x80:
        value[0] = byte
        return OK
    result = byte & 0x7F
    shift = 7
    while True:
        if cursor.pointer >= cursor.end:
            return VARINT_TRUNCATED
        byte = cursor.pointer[0]
        cursor.pointer += 1
        if byte < 0x80:
            value[0] = result | shl32(byte, shift)
            return OK
        if shift == 28:
            return VARINT_OVERLONG
        result |= shl32(byte & 0x7F, shift)
        shift += 7


cdef inline int read_varint(Cursor* cursor, int32_t* value) noexcept nogil:
    cdef uint32_t raw = 0
    cdef int status = read_unsigned_varint(cursor, &raw)
    value[0] = unzigzag32(raw)
    return status


cdef inline int read_unsigned_varlong(Cursor* cursor, uint64_t* value) noexcept nogil:
    """Read at most ten bytes, as in ByteUtils.readUnsignedVarlong."""
    cdef uint64_t result = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if cursor.pointer >= cursor.end:
            return VARINT_TRUNCATED
        byte = cursor.pointer[0]
        cursor.pointer += 1
        if byte < 0x80:
            value[0] = result | shl64(byte, shift)
            return OK
        if shift == 63:
            return VARINT_OVERLONG
        result |= shl64(byte & 0x7F, shift)
        shift += 7


cdef inline int read_varlong(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int status = read_unsigned_varlong(cursor, &raw)
    value[0] = unzigzag64(raw)
    return status
