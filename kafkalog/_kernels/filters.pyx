"""Filters spans of bytes in place: comparisons, prefixes, searches, membership, headers by name.

Every function clears rows of a mask; it skips rows that are already cleared.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from kafkalog._kernels.wire cimport OK, Cursor, distance, read_varint, remaining

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) || defined(__clang__)
    #define kl_prefetch(p) __builtin_prefetch(p)
    #else
    #define kl_prefetch(p) ((void)0)
    #endif
    static inline uint64_t kl_word(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return w; }
    static inline uint64_t kl_tail(const uint8_t *p, Py_ssize_t n) {
        uint64_t w = 0;
        while (n > 0) w = w << 8 | p[--n];
        return w;
    }
    /* keys differ at the end more often than at the start */
    static inline int kl_same(const uint8_t *a, const uint8_t *b, Py_ssize_t n) {
        if (n >= 8) return kl_word(a + n - 8) == kl_word(b + n - 8) && memcmp(a, b, n - 8) == 0;
        while (n > 0) { n--; if (a[n] != b[n]) return 0; }
        return 1;
    }
    /* only for tables in memory: the result depends on the machine */
    static inline uint64_t kl_hash(const uint8_t *p, Py_ssize_t n) {
        uint64_t h = (uint64_t)n * 0x9E3779B97F4A7C15u;
        while (n >= 8) { h = (h ^ kl_word(p)) * 0x9E3779B97F4A7C15u; h ^= h >> 29; p += 8; n -= 8; }
        if (n > 0) h = (h ^ kl_tail(p, n)) * 0x9E3779B97F4A7C15u;
        return h ^ h >> 32;
    }
    static inline uint64_t kl_bit(uint64_t h) { return (uint64_t)1 << (h & 63); }
    """
    void kl_prefetch(const void* p) noexcept nogil
    bint same "kl_same"(const uint8_t* a, const uint8_t* b, Py_ssize_t n) noexcept nogil
    uint64_t hashed "kl_hash"(const uint8_t* p, Py_ssize_t n) noexcept nogil
    uint64_t bit_of "kl_bit"(uint64_t h) noexcept nogil

cdef enum:
    AHEAD = 12
    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    LESS_EQUAL = 3
    GREATER = 4
    GREATER_EQUAL = 5
    STARTS_WITH = 6
    CONTAINS = 7
    IS_NULL = 8
    IS_NOT_NULL = 9

OPERATIONS = {
    "==": EQUAL,
    "!=": NOT_EQUAL,
    "<": LESS,
    "<=": LESS_EQUAL,
    ">": GREATER,
    ">=": GREATER_EQUAL,
    "starts_with": STARTS_WITH,
    "contains": CONTAINS,
    "is null": IS_NULL,
    "is not null": IS_NOT_NULL,
}

cdef struct Text:
    const uint8_t* pointer
    Py_ssize_t size


cdef inline bint search(const uint8_t* data, Py_ssize_t size, Text needle) noexcept nogil:
    cdef const uint8_t* at = data
    cdef const uint8_t* last
    if needle.size == 0:
        return True
    if needle.size > size:
        return False
    last = data + (size - needle.size)
    while at <= last:
        at = <const uint8_t*>memchr(at, needle.pointer[0], distance(at, last) + 1)
        if at == NULL:
            return False
        if memcmp(at, needle.pointer, needle.size) == 0:
            return True
        at += 1
    return False


cdef inline bint judge(const uint8_t* data, Py_ssize_t size, int operation, Text text) noexcept nogil:
    """Whether a comparison of a value with a text is true; it is false for null (a negative `size`)."""
    cdef int order
    cdef Py_ssize_t shorter
    if operation == IS_NULL:
        return size < 0
    if size < 0:
        return False
    if operation == IS_NOT_NULL:
        return True
    if operation == EQUAL:
        return size == text.size and same(data, text.pointer, size)
    if operation == NOT_EQUAL:
        return size != text.size or not same(data, text.pointer, size)
    if operation == STARTS_WITH:
        return size >= text.size and same(data, text.pointer, text.size)
    if operation == CONTAINS:
        return search(data, size, text)
    shorter = size if size < text.size else text.size
    order = memcmp(data, text.pointer, shorter)
    if order == 0:
        order = (size > text.size) - (size < text.size)
    if operation == LESS:
        return order < 0
    if operation == LESS_EQUAL:
        return order <= 0
    if operation == GREATER:
        return order > 0
    return order >= 0


cdef inline Text text_of(const uint8_t[::1] needle) noexcept nogil:
    cdef Text text
    text.size = needle.shape[0]
    text.pointer = &needle[0] if text.size else <const uint8_t*>b""
    return text


cdef int check_spans(const uint8_t[::1] data, const int32_t[::1] start, const int32_t[::1] size,
                     uint8_t[::1] mask) except -1:
    if size.shape[0] != start.shape[0] or mask.shape[0] != start.shape[0]:
        raise ValueError("columns differ in length")
    return 0


def match_bytes(const uint8_t[::1] data not None, const int32_t[::1] start not None, const int32_t[::1] size not None,
                int operation, const uint8_t[::1] needle not None, uint8_t[::1] mask not None):
    """Clear the rows of `mask` whose comparison with `needle` is false; bytes compare unsigned."""
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t limit = data.shape[0]
    cdef Py_ssize_t i, soon
    cdef const uint8_t* origin = NULL
    cdef Text text = text_of(needle)
    cdef bint outside = False
    check_spans(data, start, size, mask)
    if not EQUAL <= operation <= IS_NOT_NULL:
        raise ValueError("no such operation")
    if limit:
        origin = &data[0]
    with nogil:
        for i in range(n):
            # the bytes of rows may be scattered over megabytes: prefetch them
            if i + AHEAD < n:
                soon = start[i + AHEAD]
                if 0 <= soon < limit:
                    kl_prefetch(origin + soon)
            if mask[i] == 0:
                continue
            if size[i] > 0 and (start[i] < 0 or size[i] > limit - start[i]):
                outside = True
                break
            # a different length decides without reading the bytes, which may not be in cache
            if operation == EQUAL and size[i] != text.size:
                mask[i] = 0
            else:
                mask[i] = judge(origin + start[i] if size[i] > 0 else text.pointer, size[i], operation, text)
    if outside:
        raise IndexError("a span lies outside data")


cdef class TextSet:
    """Texts to search for, copied and hashed once; safe to use from several threads.

    Text `i` is ``texts[offsets[i]:offsets[i + 1]]``.
    """

    cdef readonly int64_t n_texts
    cdef object given
    cdef uint8_t* texts
    cdef int64_t* offsets
    cdef int32_t* table
    cdef uint64_t* bits
    cdef uint64_t n_places
    cdef uint64_t n_words

    def __cinit__(self, const uint8_t[::1] texts not None, const int64_t[::1] offsets not None):
        cdef int64_t n = offsets.shape[0] - 1
        cdef int64_t n_bytes = texts.shape[0]
        cdef int64_t i
        cdef uint64_t h, place
        self.texts, self.offsets, self.table, self.bits = NULL, NULL, NULL, NULL
        if n < 0 or n >= (<int64_t>1 << 30):
            raise ValueError("no offsets, or too many")
        self.n_texts = n
        self.n_places = 16
        while self.n_places < <uint64_t>(2 * n):
            self.n_places *= 2
        self.n_words = self.n_places // 8
        self.texts = <uint8_t*>malloc(n_bytes + 1)
        self.offsets = <int64_t*>malloc((n + 1) * sizeof(int64_t))
        self.table = <int32_t*>malloc(self.n_places * sizeof(int32_t))
        self.bits = <uint64_t*>calloc(self.n_words, sizeof(uint64_t))
        if self.texts == NULL or self.offsets == NULL or self.table == NULL or self.bits == NULL:
            raise MemoryError()
        if n_bytes:
            memcpy(self.texts, &texts[0], n_bytes)
        # hash the copies, since the caller may change its arrays
        memcpy(self.offsets, &offsets[0], (n + 1) * sizeof(int64_t))
        for i in range(n):
            if self.offsets[i] < 0 or self.offsets[i + 1] < self.offsets[i] or self.offsets[i + 1] > n_bytes:
                raise IndexError("a text lies outside its data")
        # for pickle: filters go to Spark's workers
        self.given = bytes(texts), bytes(offsets)
        with nogil:
            for place in range(self.n_places):
                self.table[place] = -1
            for i in range(n):
                h = hashed(self.texts + self.offsets[i], self.offsets[i + 1] - self.offsets[i])
                self.bits[(h >> 6) & (self.n_words - 1)] |= bit_of(h)
                place = (h >> 24) & (self.n_places - 1)
                while self.table[place] >= 0:
                    place = (place + 1) & (self.n_places - 1)
                self.table[place] = <int32_t>i

    def __dealloc__(self):
        free(self.texts)
        free(self.offsets)
        free(self.table)
        free(self.bits)

    def __reduce__(self):
        return _text_set, self.given


def _text_set(texts, offsets):
    return TextSet(texts, memoryview(offsets).cast("q"))


cdef bint is_in(TextSet texts, const uint8_t* pointer, int64_t size) noexcept nogil:
    cdef uint64_t h = hashed(pointer, size)
    cdef uint64_t place, _probe
    cdef int32_t number
    # a bit filter rules out most values, and stays in cache
    if texts.bits[(h >> 6) & (texts.n_words - 1)] & bit_of(h) == 0:
        return False
    # other bits of the hash than above, so that a false positive there is rarely one here
    place = (h >> 24) & (texts.n_places - 1)
    for _probe in range(texts.n_places):
        number = texts.table[place]
        if number < 0:
            return False
        if texts.offsets[number + 1] - texts.offsets[number] == size and \
                same(texts.texts + texts.offsets[number], pointer, size):
            return True
        place = (place + 1) & (texts.n_places - 1)
    return False


def match_set(const uint8_t[::1] data not None, const int32_t[::1] start not None, const int32_t[::1] size not None,
              TextSet texts not None, bint null_is_in, bint negate, uint8_t[::1] mask not None):
    """Clear the rows of `mask` whose bytes are not in a set; negated, those whose bytes are."""
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t limit = data.shape[0]
    cdef Py_ssize_t i, soon
    cdef bint found
    cdef bint outside = False
    cdef const uint8_t* origin = NULL
    cdef const uint8_t* empty = <const uint8_t*>b""
    check_spans(data, start, size, mask)
    if limit:
        origin = &data[0]
    with nogil:
        for i in range(n):
            if i + AHEAD < n:
                soon = start[i + AHEAD]
                if 0 <= soon < limit:
                    kl_prefetch(origin + soon)
            if mask[i] == 0:
                continue
            if size[i] > 0 and (start[i] < 0 or size[i] > limit - start[i]):
                outside = True
                break
            if size[i] < 0:
                found = null_is_in
            else:
                found = is_in(texts, origin + start[i] if size[i] else empty, size[i])
            mask[i] = found != negate
    if outside:
        raise IndexError("a span lies outside data")


def match_header(const uint8_t[::1] data not None, const int32_t[::1] headers_start not None,
                 const int32_t[::1] headers_count not None, const uint8_t[::1] name not None, int operation,
                 const uint8_t[::1] needle not None, bint any_value, bint negate, uint8_t[::1] mask not None):
    """Clear the rows of `mask` without a header of this name whose comparison with `needle` is true.

    `any_value` compares only the name. `negate` clears the rows that have such a header.
    """
    cdef Py_ssize_t n = headers_start.shape[0]
    cdef Py_ssize_t limit = data.shape[0]
    cdef Py_ssize_t i
    cdef int32_t _j
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    cdef const uint8_t* origin = NULL
    cdef const uint8_t* key
    cdef Cursor cursor
    cdef Text wanted = text_of(name)
    cdef Text text = text_of(needle)
    cdef bint found
    cdef bint outside = False
    check_spans(data, headers_start, headers_count, mask)
    if not EQUAL <= operation <= IS_NOT_NULL:
        raise ValueError("no such operation")
    if limit:
        origin = &data[0]
    with nogil:
        for i in range(n):
            if mask[i] == 0:
                continue
            found = False
            if headers_count[i] > 0:
                if headers_start[i] < 0 or headers_start[i] > limit:
                    outside = True
                    break
                cursor.pointer = origin + headers_start[i]
                cursor.end = origin + limit
                for _j in range(headers_count[i]):
                    if read_varint(&cursor, &key_size) != OK or key_size < 0 or key_size > remaining(&cursor):
                        outside = True
                        break
                    key = cursor.pointer
                    cursor.pointer += key_size
                    if read_varint(&cursor, &value_size) != OK or value_size > remaining(&cursor):
                        outside = True
                        break
                    # names may repeat within a record; one match is enough
                    if key_size == wanted.size and same(key, wanted.pointer, key_size):
                        if any_value or judge(cursor.pointer, value_size, operation, text):
                            found = True
                            break
                    if value_size > 0:
                        cursor.pointer += value_size
                if outside:
                    break
            mask[i] = found != negate
    if outside:
        raise IndexError("headers lie outside data")
