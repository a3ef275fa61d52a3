"""Decodes Avro: runs a program over the bytes of many values and appends to columns.

A program is a table of nodes, one for each type in the schema. A node has an operation, the column to append to (-1
skips the value) and child nodes. In a recursive schema, a node is its own descendant. Depth is bounded.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._kernels.value_columns cimport (
    EMPTY, FLAT, LIST, STRUCT, TEXT, Column, Columns, Faults, append_flat, append_null, append_offset, append_text,
    append_validity, cut, decode_values, note_fault, read_columns, release, take_faults,
)
from kafkalog._kernels.wire cimport OK, Cursor, distance, read_varlong, remaining

cdef enum Op:
    NULL_OP = 0
    BOOL_OP = 1
    INT_OP = 2         # b: units per millisecond of a time of day
    LONG_OP = 3
    FIXED_OP = 4       # a: size; also floats and doubles
    BYTES_OP = 5
    STRING_OP = 6
    ENUM_OP = 7        # a, b: first symbol and number of symbols
    ARRAY_OP = 8       # a: least bytes of an item
    MAP_OP = 9         # a: least bytes of an item; children: key column's node, value
    RECORD_OP = 10
    NULLABLE_OP = 11   # a: which branch is null (-1: none); children: the branches
    UNION_OP = 12      # a: which branch is null (-1: none); children: the branches
    RAW_OP = 13        # the bytes of the value inside
    DECIMAL_OP = 14    # a: size of a fixed, -1 for bytes; b: digits

cdef enum:
    # widths of Arrow's decimals in bytes, and the maximum digits of the narrow one
    NARROW = 16
    NARROW_DIGITS = 38
    WIDE = 32

cdef enum Failure:
    TRUNCATED = 100
    OVERLONG = 101
    TRAILING = 102
    BAD_LENGTH = 103
    BAD_BOOL = 104
    BAD_INT = 105
    BAD_ENUM = 106
    BAD_BRANCH = 107
    TOO_DEEP = 108
    NOT_UTF8 = 109
    TOO_MANY_ITEMS = 110
    BAD_DECIMAL = 111
    NO_MEMORY = 112
    BAD_TIME = 113

OPS = {
    "null": NULL_OP, "boolean": BOOL_OP, "int": INT_OP, "long": LONG_OP, "fixed": FIXED_OP, "bytes": BYTES_OP,
    "string": STRING_OP, "enum": ENUM_OP, "array": ARRAY_OP, "map": MAP_OP, "record": RECORD_OP,
    "nullable": NULLABLE_OP, "union": UNION_OP, "raw": RAW_OP, "decimal": DECIMAL_OP,
}
KINDS = {"flat": FLAT, "text": TEXT, "list": LIST, "struct": STRUCT, "empty": EMPTY}
FAILURES = {
    TRUNCATED: "the bytes end inside the value",
    OVERLONG: "a variable-length integer is too long",
    TRAILING: "bytes are left after the value",
    BAD_LENGTH: "a length is negative or larger than what is left",
    BAD_BOOL: "a boolean is neither 0 nor 1",
    BAD_INT: "an int has more than 32 bits",
    BAD_ENUM: "an enum has no such symbol",
    BAD_BRANCH: "a union has no such branch",
    TOO_DEEP: "the value is nested too deeply",
    NOT_UTF8: "a string is not UTF-8",
    TOO_MANY_ITEMS: "an array or a map has too many items for its bytes",
    BAD_DECIMAL: "a decimal does not fit its precision",
    BAD_TIME: "a time is not within a day",
    NO_MEMORY: "the value takes too much memory",
}

FAULTS = frozenset((NOT_UTF8, BAD_ENUM, BAD_DECIMAL, BAD_TIME))
"""Failures of single fields: the bytes of the next field are known."""

cdef enum:
    MOST_DEPTH = 100
    MOST_EMPTY_ITEMS = 1024


cdef int64_t DAY_MS = 86400000


cdef struct Node:
    int32_t op
    int32_t column
    int32_t first
    int32_t count
    int32_t a
    int32_t b


cdef struct State:
    const Node* nodes
    const int32_t* node_children
    Columns columns
    const int32_t* symbol_offsets
    const uint8_t* symbols
    Faults faults
    int hidden           # the failure of a field without a column
    bint has_bad_key     # whether a key of the current map does not decode


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Whether a little-endian number of 16 or 32 bytes has at most `digits` decimal digits. */
    static int kl_has_digits(const uint8_t *p, int width, int digits) {
        uint64_t value[4], limit[4] = {1, 0, 0, 0};
        int words = width / 8;
        memcpy(value, p, (size_t)width);
        if (p[width - 1] >> 7) { /* absolute value: invert all bits and add 1 */
            uint64_t carry = 1;
            for (int i = 0; i < words; i++) {
                value[i] = ~value[i] + carry;
                carry = carry && value[i] == 0;
            }
        }
        for (; digits > 0; digits--) {
            unsigned __int128 product = 0;
            for (int i = 0; i < words; i++) {
                product += (unsigned __int128)limit[i] * 10;
                limit[i] = (uint64_t)product;
                product >>= 64;
            }
        }
        for (int i = words - 1; i >= 0; i--)
            if (value[i] != limit[i]) return value[i] < limit[i];
        return 0;
    }
    /* Size of the varint at p; 0 if it does not end within eight bytes. */
    static inline int kl_varint_size(const uint8_t *p) {
        uint64_t last;
        memcpy(&last, p, 8);
        last = ~last & 0x8080808080808080u;
        return last ? __builtin_ctzll(last) / 8 + 1 : 0;
    }
    """
    bint has_digits "kl_has_digits"(const uint8_t* p, int width, int digits) noexcept nogil
    int varint_size "kl_varint_size"(const uint8_t* p) noexcept nogil

cdef extern from "utf8_impl.h":
    bint is_ascii "kl_is_ascii"(const uint8_t* p, int64_t n) noexcept nogil
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil


cdef inline int read_long(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef uint8_t byte
    # most numbers take one byte
    if cursor.pointer < cursor.end:
        byte = cursor.pointer[0]
        if byte < 0x80:
            cursor.pointer += 1
            value[0] = (byte >> 1) ^ -<int64_t>(byte & 1)
            return OK
    else:
        return TRUNCATED
    if read_varlong(cursor, value) != OK:
        if cursor.pointer >= cursor.end:
            return TRUNCATED
        return OVERLONG
    return OK


cdef inline int read_bytes(Cursor* cursor, int64_t size, const uint8_t** begin, int64_t* n) noexcept nogil:
    """Read `size` bytes, or, if `size` is negative, a length and that many bytes."""
    cdef int status
    n[0] = size
    if size < 0:
        status = read_long(cursor, n)
        if status != OK:
            return status
    if n[0] < 0 or n[0] > remaining(cursor):
        return BAD_LENGTH if size < 0 else TRUNCATED
    begin[0] = cursor.pointer
    cursor.pointer += n[0]
    return OK


cdef inline int grown(int status) noexcept nogil:
    if status != 0:
        return NO_MEMORY
    return OK


cdef int fault(State* state, const Node* node, int status) noexcept nogil:
    """Append null for a field that does not decode; without `faults`, the whole value fails."""
    cdef Column* column
    if state.faults.rows == NULL:
        return status
    if node.column < 0:
        state.hidden = status
        return OK
    column = &state.columns.all[node.column]
    if not column.nullable:
        state.has_bad_key = True
        return grown(append_text(&state.columns, column, NULL, 0))
    note_fault(&state.faults, node.column, status)
    return grown(append_null(&state.columns, node.column))


cdef int read_decimal(State* state, Column* column, const uint8_t* source, int64_t size, int digits) noexcept nogil:
    """Read a big-endian integer of any size into the column's width. Without a column, only check it."""
    cdef uint8_t sign = 0xFF if size and source[0] >= 0x80 else 0
    cdef uint8_t[WIDE] room
    cdef int width = NARROW if digits <= NARROW_DIGITS else WIDE
    cdef int64_t i
    cdef uint8_t* to = room
    # so few bytes cannot exceed the digits
    if column == NULL and size <= (digits * 415 // 1000):
        return OK
    while size > width:
        if source[0] != sign:
            return BAD_DECIMAL
        source += 1
        size -= 1
    if size == width and (0xFF if source[0] >= 0x80 else 0) != sign:
        return BAD_DECIMAL
    if column != NULL:
        to = append_flat(&state.columns, column)
        if to == NULL:
            return NO_MEMORY
    memset(to, sign, <size_t>width)
    for i in range(size):
        to[size - 1 - i] = source[i]
    if not has_digits(to, width, digits):
        return BAD_DECIMAL
    return OK


cdef int read_items(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Read the blocks of an array or a map, up to the empty block."""
    cdef Column* column = NULL
    cdef Column* items = NULL
    cdef int64_t count, size, _
    cdef int64_t n = 0
    cdef int32_t child
    cdef int32_t k
    cdef bint had_bad_key = state.has_bad_key
    cdef int status
    state.has_bad_key = False
    if node.column >= 0:
        column = &state.columns.all[node.column]
        items = &state.columns.all[state.columns.children[column.first]]
        if column.nullable and append_validity(&state.columns, column, 1) != OK:
            return NO_MEMORY
    while True:
        status = read_long(cursor, &count)
        if status != OK:
            return status
        if count == 0:
            break
        # a negative count is followed by the block's size, for readers that skip; it is not needed here
        if count < 0:
            # more items than a value has bytes, or a number that cannot be negated
            if count < -0x7FFFFFFF:
                return BAD_LENGTH
            count = -count
            status = read_long(cursor, &size)
            if status != OK:
                return status
            if size < 0 or size > remaining(cursor):
                return BAD_LENGTH
        # an item takes at least `a` bytes: an impossible count must not keep the loop busy
        if node.a > 0:
            if count > remaining(cursor) // node.a:
                return TOO_MANY_ITEMS
        else:
            n += count
            if count > MOST_EMPTY_ITEMS or n > MOST_EMPTY_ITEMS:
                return TOO_MANY_ITEMS
        for _ in range(count):
            for k in range(node.count):
                child = state.node_children[node.first + k]
                status = read_value(state, &state.nodes[child], cursor, depth + 1)
                if status != OK:
                    return status
            if items != NULL and node.op == MAP_OP:
                items.n += 1  # a map's entry is a struct without validity
    if column != NULL:
        if append_offset(&state.columns, column, items.n) != OK:
            return NO_MEMORY
        column.n += 1
        if state.has_bad_key:
            cut(&state.columns, node.column, column.n - 1)
            status = fault(state, node, NOT_UTF8)
            if status != OK:
                return status
    state.has_bad_key = had_bad_key
    return OK


cdef inline int read_leaf(State* state, const Node* node, Cursor* cursor) noexcept nogil:
    """Read a boolean, number, bytes or text; see `read_value`."""
    cdef Column* column = NULL
    cdef const uint8_t* begin = NULL
    cdef uint8_t* to
    cdef int64_t number = 0
    cdef int op = node.op
    cdef int status
    if node.column >= 0:
        column = &state.columns.all[node.column]
    if op == INT_OP or op == LONG_OP:
        status = read_long(cursor, &number)
        if status != OK:
            return status
        if op == INT_OP and (number < -0x80000000 or number > 0x7FFFFFFF):
            return BAD_INT
        if node.b and (number < 0 or number >= node.b * DAY_MS):
            return fault(state, node, BAD_TIME)
        if column != NULL:
            to = append_flat(&state.columns, column)
            if to == NULL:
                return NO_MEMORY
            if column.width == 8:
                (<int64_t*>to)[0] = number
            else:
                (<int32_t*>to)[0] = <int32_t>number
        return OK
    if op == STRING_OP or op == BYTES_OP:
        status = read_bytes(cursor, -1, &begin, &number)
        if status != OK:
            return status
        # also without a column: whether a value decodes must not depend on the selected columns
        if op == STRING_OP and not is_utf8(begin, number):
            return fault(state, node, NOT_UTF8)
        return OK if column == NULL else grown(append_text(&state.columns, column, begin, number))
    # FIXED_OP, BOOL_OP
    status = read_bytes(cursor, node.a, &begin, &number)
    if status != OK:
        return status
    if op == BOOL_OP and begin[0] > 1:
        return BAD_BOOL
    if column != NULL:
        to = append_flat(&state.columns, column)
        if to == NULL:
            return NO_MEMORY
        memcpy(to, begin, node.a)
    return OK


cdef inline bint passed(const Node* node, Cursor* cursor) noexcept nogil:
    """Skip a number, a fixed, bytes or short ASCII text; false if `read_value` must read it."""
    cdef const uint8_t* p = cursor.pointer
    cdef int64_t left = distance(p, cursor.end)
    cdef int64_t size = 0
    if left < 8:
        return False
    if node.op == LONG_OP or node.op == INT_OP:
        # a varint of four bytes fits an int; a time of day needs a range check
        size = varint_size(p)
        if not size or (node.op == INT_OP and size > 4) or node.b:
            return False
    elif node.op == FIXED_OP:
        size = node.a
    elif node.op == STRING_OP or node.op == BYTES_OP:
        # a length of one byte that is not negative
        size = 1 + (p[0] >> 1)
        if p[0] & 0x81 or size > left or (node.op == STRING_OP and not is_ascii(p + 1, size - 1)):
            return False
    else:
        return False
    if size > left:
        return False
    cursor.pointer += size
    return True


cdef inline int pass_field(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Skip a field that has no column."""
    cdef const Node* inner = node
    cdef uint8_t branch
    if node.op == NULLABLE_OP and cursor.pointer < cursor.end and depth < MOST_DEPTH:
        branch = cursor.pointer[0]
        if not branch & 0x81 and branch >> 1 < node.count:
            inner = &state.nodes[state.node_children[node.first + (branch >> 1)]]
            cursor.pointer += 1
            if inner.op == NULL_OP or passed(inner, cursor):
                return OK
            return read_value(state, inner, cursor, depth + 1)
    elif passed(node, cursor):
        return OK
    return read_value(state, node, cursor, depth)


cdef int read_value(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Read one value of a node's type. After a failure, columns may contain a part of it."""
    cdef Column* column = NULL
    cdef const uint8_t* begin = NULL
    cdef const Node* inner
    cdef int64_t number = 0
    cdef int64_t row
    cdef int32_t i, at
    cdef int op = node.op
    cdef int status
    if depth > MOST_DEPTH:
        return TOO_DEEP
    if node.column >= 0:
        column = &state.columns.all[node.column]
    if op <= STRING_OP and op != NULL_OP:
        return read_leaf(state, node, cursor)
    if op == NULLABLE_OP or op == UNION_OP:
        status = read_long(cursor, &number)
        if status != OK:
            return status
        if number < 0 or number >= node.count:
            return BAD_BRANCH
        if number == node.a:
            return OK if column == NULL else grown(append_null(&state.columns, node.column))
        # the other branches get a null, so that all columns stay as long as the union
        if op == UNION_OP and column != NULL:
            if column.nullable and append_validity(&state.columns, column, 1) != OK:
                return NO_MEMORY
            at = 0
            for i in range(node.count):
                if i == node.a:
                    continue
                if i != number:
                    if append_null(&state.columns, state.columns.children[column.first + at]) != OK:
                        return NO_MEMORY
                at += 1
            column.n += 1
        return read_value(state, &state.nodes[state.node_children[node.first + number]], cursor, depth + 1)
    if op == RECORD_OP:
        if column != NULL:
            if column.nullable and append_validity(&state.columns, column, 1) != OK:
                return NO_MEMORY
            column.n += 1
        for i in range(node.count):
            inner = &state.nodes[state.node_children[node.first + i]]
            if inner.column < 0:
                status = pass_field(state, inner, cursor, depth + 1)
            elif inner.op <= STRING_OP and inner.op != NULL_OP:  # most values: no recursive call
                status = read_leaf(state, inner, cursor)
            else:
                status = read_value(state, inner, cursor, depth + 1)
            if status != OK:
                return status
        return OK
    if op == ARRAY_OP or op == MAP_OP:
        return read_items(state, node, cursor, depth)
    if op == ENUM_OP:
        status = read_long(cursor, &number)
        if status != OK:
            return status
        if number < 0 or number >= node.b:
            return fault(state, node, BAD_ENUM)
        if column == NULL:
            return OK
        at = node.a + <int32_t>number
        return grown(append_text(&state.columns, column, state.symbols + state.symbol_offsets[at],
                                 state.symbol_offsets[at + 1] - state.symbol_offsets[at]))
    if op == DECIMAL_OP:
        status = read_bytes(cursor, node.a, &begin, &number)
        if status != OK:
            return status
        row = 0 if column == NULL else column.n
        status = read_decimal(state, column, begin, number, node.b)
        if status != BAD_DECIMAL:
            return status
        if column != NULL:
            cut(&state.columns, node.column, row)
        return fault(state, node, BAD_DECIMAL)
    if op == RAW_OP:
        begin = cursor.pointer
        state.hidden = OK
        status = read_value(state, &state.nodes[state.node_children[node.first]], cursor, depth + 1)
        if status != OK or column == NULL:
            return status
        if state.hidden != OK:
            return fault(state, node, state.hidden)
        return grown(append_text(&state.columns, column, begin, distance(begin, cursor.pointer)))
    # NULL_OP
    if column != NULL:
        column.n += 1
    return OK


cdef int read_whole(void* state, Cursor* value) noexcept nogil:
    """Read a value that must use all bytes."""
    cdef State* whole = <State*>state
    cdef int status
    whole.has_bad_key = False
    status = read_value(whole, &whole.nodes[0], value, 0)
    whole.faults.n_values += 1
    if status == OK and value.pointer < value.end:
        return TRAILING
    return status


def decode(const int32_t[:, ::1] nodes not None, const int32_t[::1] node_children not None,
           const int32_t[:, ::1] columns not None, const int32_t[::1] column_children not None,
           const int32_t[::1] symbol_offsets not None, const uint8_t[::1] symbols not None,
           const uint8_t[::1] data not None, const int64_t[::1] start not None, const int64_t[::1] stop not None,
           int64_t room, int32_t[::1] failures not None, int32_t[:, ::1] faults not None):
    """Decode values into columns of at most `room` bytes. Node 0 and column 0 belong to the whole value.

    `nodes` is int32[n, 6]: op, column, first child, number of children, a, b. `columns` is int32[m, 5]: kind, width,
    first child, number of children, nullable. `start` and `stop` are those of each value in `data`; a negative start is
    null. `failures` is set to one of `FAILURES` for each value that does not decode; the value becomes null. With rows,
    `faults` (int32[k, 3]) receives the fields that do not decode, which become null: value, column, failure. Returns
    for each column the number of values, and the buffers validity (a byte per value), offsets and data, or None.
    """
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t m = columns.shape[0]
    cdef State state
    if (
        stop.shape[0] != n or failures.shape[0] != n or not m
        or nodes.shape[1] != 6 or columns.shape[1] != 5 or faults.shape[1] != 3
    ):
        raise ValueError("a program of another shape")
    state.columns.all = NULL
    try:
        read_columns(&state.columns, columns, column_children, room, n)
        take_faults(&state.faults, faults)
        state.nodes = <const Node*>&nodes[0, 0]
        state.node_children = &node_children[0] if node_children.shape[0] else NULL
        state.symbol_offsets = &symbol_offsets[0] if symbol_offsets.shape[0] else NULL
        state.symbols = &symbols[0] if symbols.shape[0] else NULL
        return decode_values(&state.columns, m, 0, read_whole, &state, data, start, stop, BAD_LENGTH, failures)
    finally:
        release(&state.columns, m)
