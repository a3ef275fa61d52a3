# Reads the tokens of JSON (words, strings, numbers) from untrusted bytes through a cursor. The status `OTHER` means
# that the bytes are not JSON, or that the slower parser must read this value.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from kafkalog._kernels.wire cimport OK, Cursor, distance, remaining

cdef enum:
    OTHER = 200
    LEAST_POWER = -342
    MOST_POWER = 308
    MOST_EXPONENT = 100000


cdef extern from *:
    """
    /* a double has 53 bits, and distinguishes numbers of 17 digits */
    static const uint64_t kl_most_exact = 9007199254740992u;
    static const uint64_t kl_most_told_apart = 100000000000000000u;
    """
    const uint64_t MOST_EXACT "kl_most_exact"
    const uint64_t MOST_TOLD_APART "kl_most_told_apart"


cdef struct Number:
    uint64_t digits       # the first 19 digits
    int64_t exponent      # power of ten
    bint negative
    bint integer
    bint inexact          # more digits follow, not all of them 0


cdef extern from "json_impl.h":
    const uint8_t* plain "kl_plain"(const uint8_t* p, const uint8_t* end, uint8_t* bits) noexcept nogil
    bint next_double "kl_double"(uint64_t digits, int64_t exponent, const uint64_t* power, double* to) noexcept nogil
    uint64_t one_more "kl_one_more"(uint64_t digits, uint8_t digit) noexcept nogil
    int64_t signed_number "kl_signed"(uint64_t digits, int negative) noexcept nogil
    int64_t unescape "kl_unescape"(const uint8_t* p, int64_t n, uint8_t* to) noexcept nogil

cdef extern from "utf8_impl.h":
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil


cdef inline uint8_t next_byte(Cursor* cursor) noexcept nogil:
    """The next byte that is not whitespace, without taking it; 0 at the end."""
    cdef uint8_t byte
    while cursor.pointer < cursor.end:
        byte = cursor.pointer[0]
        if byte > 0x20 or (byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09):
            return byte
        cursor.pointer += 1
    return 0


cdef inline int read_word(Cursor* cursor, const char* word, int size) noexcept nogil:
    if remaining(cursor) < size or memcmp(cursor.pointer, word, size) != 0:
        return OTHER
    cursor.pointer += size
    return OK


cdef inline bint is_digit(Cursor* cursor) noexcept nogil:
    return cursor.pointer < cursor.end and 0x30 <= cursor.pointer[0] <= 0x39


cdef inline int read_string(Cursor* cursor, const uint8_t** begin, int64_t* size, bint* escaped) noexcept nogil:
    """Read a string. Its escapes are kept and not checked."""
    cdef uint8_t bits = 0
    cursor.pointer += 1  # the quote
    begin[0] = cursor.pointer
    escaped[0] = False
    while True:
        cursor.pointer = plain(cursor.pointer, cursor.end, &bits)
        if cursor.pointer >= cursor.end or cursor.pointer[0] < 0x20:
            return OTHER
        if cursor.pointer[0] == 0x22:
            break
        escaped[0] = True
        if remaining(cursor) < 2:
            return OTHER
        # the escaped byte may be a quote; the rest of a longer escape needs no special care
        bits |= cursor.pointer[1]
        cursor.pointer += 2
    size[0] = distance(begin[0], cursor.pointer)
    cursor.pointer += 1
    if bits >= 0x80 and not is_utf8(begin[0], size[0]):
        return OTHER
    return OK


cdef inline int read_number(Cursor* cursor, Number* number) noexcept nogil:
    cdef int64_t exponent = 0
    cdef bint below = False
    number.digits, number.exponent, number.inexact, number.integer = 0, 0, False, True
    number.negative = cursor.pointer[0] == 0x2D
    if number.negative:
        cursor.pointer += 1
    if not is_digit(cursor):
        return OTHER
    if cursor.pointer[0] == 0x30:
        cursor.pointer += 1
        if is_digit(cursor):
            return OTHER
    while is_digit(cursor):
        if number.digits < 1000000000000000000ULL:
            number.digits = one_more(number.digits, cursor.pointer[0])
        else:
            number.exponent += 1
            number.inexact |= cursor.pointer[0] != 0x30
        cursor.pointer += 1
    if cursor.pointer < cursor.end and cursor.pointer[0] == 0x2E:
        cursor.pointer += 1
        number.integer = False
        if not is_digit(cursor):
            return OTHER
        while is_digit(cursor):
            if number.digits < 1000000000000000000ULL:
                number.digits = one_more(number.digits, cursor.pointer[0])
                number.exponent -= 1
            else:
                number.inexact |= cursor.pointer[0] != 0x30
            cursor.pointer += 1
    if cursor.pointer < cursor.end and (cursor.pointer[0] | 0x20) == 0x65:
        cursor.pointer += 1
        number.integer = False
        if cursor.pointer < cursor.end and (cursor.pointer[0] == 0x2B or cursor.pointer[0] == 0x2D):
            below = cursor.pointer[0] == 0x2D
            cursor.pointer += 1
        if not is_digit(cursor):
            return OTHER
        while is_digit(cursor):
            if exponent < MOST_EXPONENT:
                exponent = 10 * exponent + (cursor.pointer[0] - 0x30)
            cursor.pointer += 1
        number.exponent += -exponent if below else exponent
    return OK


cdef inline bint is_kept(Number* number) noexcept nogil:
    """Whether a double certainly keeps all digits; whole numbers must be exact."""
    if number.integer:
        return number.exponent == 0 and not number.inexact and number.digits <= MOST_EXACT
    return not number.inexact and number.digits < MOST_TOLD_APART


cdef inline int to_double(Number* number, const uint64_t* powers, double* to) noexcept nogil:
    cdef double other = 0
    cdef const uint64_t* power
    to[0] = 0
    if number.digits == 0:
        if number.inexact:
            return OTHER
    elif number.exponent == 0 and not number.inexact:
        to[0] = <double>number.digits
    elif number.exponent < LEAST_POWER or number.exponent > MOST_POWER:
        return OTHER
    else:
        power = powers + 2 * (number.exponent - LEAST_POWER)
        if not next_double(number.digits, number.exponent, power, to):
            return OTHER
        # with more digits, the number lies between these two doubles
        if number.inexact and not (next_double(number.digits + 1, number.exponent, power, &other) and other == to[0]):
            return OTHER
    if number.negative:
        to[0] = -to[0]
    return OK
