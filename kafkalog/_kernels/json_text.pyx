"""Decodes JSON of a known type: runs a program over the bytes of many values and appends to columns.

A program is a table of nodes, one for each type. A node has an operation, the column to append to (-1 only checks the
value) and consecutive child nodes. A value of another type, or an unusual one, is left to a slower parser. So each
value accepted here is valid JSON, has no duplicate name and no unknown field.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kafkalog._kernels.json_wire cimport (
    LEAST_POWER, MOST_EXACT, MOST_POWER, OTHER, Number, is_kept, next_byte, read_number, read_string, read_word,
    signed_number, to_double, unescape,
)
from kafkalog._kernels.value_columns cimport (
    EMPTY, FLAT, LIST, STRUCT, TEXT, Column, Columns, append_data, append_flat, append_null, append_offset,
    append_text, append_validity, decode_values, read_columns, release,
)
from kafkalog._kernels.wire cimport OK, Cursor, distance

cdef enum Op:
    NULL_OP = 0        # only null
    BOOL_OP = 1
    LONG_OP = 2
    DOUBLE_OP = 3
    STRING_OP = 4
    LIST_OP = 5
    STRUCT_OP = 6
    RAW_OP = 7         # the text of any value
    SMALL_OP = 8       # a whole number that a double holds exactly
    WHOLE_OP = 9       # the text of a whole number that a decimal of 38 digits holds
    OPEN_OP = 10       # a struct that may have other fields, which are skipped

cdef enum:
    NO_MEMORY = 201
    UNKNOWN_NAME = 202

OPS = {
    "null": NULL_OP, "boolean": BOOL_OP, "long": LONG_OP, "double": DOUBLE_OP, "string": STRING_OP,
    "list": LIST_OP, "struct": STRUCT_OP, "raw": RAW_OP, "small": SMALL_OP, "whole": WHOLE_OP,
    "open": OPEN_OP,
}
KINDS = {"flat": FLAT, "text": TEXT, "list": LIST, "struct": STRUCT, "empty": EMPTY}
FAILURES = {OTHER: "not of the known type", NO_MEMORY: "the value takes too much memory"}

cdef enum:
    MOST_DEPTH = 64
    MOST_NAMES = 32       # in an object that is read as text
    NAME_BYTES = 256      # in a name with escapes
    MOST_DIGITS = 38


cdef struct Node:
    int32_t op
    int32_t column
    int32_t first
    int32_t count
    int32_t name
    int32_t required


cdef struct State:
    const Node* nodes
    Columns columns
    const int32_t* symbol_offsets
    const uint8_t* symbols
    const uint64_t* powers
    int64_t* seen         # per node: the last object that contained its name
    int64_t n_objects


cdef inline int grown(int status) noexcept nogil:
    if status != 0:
        return NO_MEMORY
    return OK


cdef inline int found(bint is_there) noexcept nogil:
    if is_there:
        return OK
    return OTHER


cdef int pass_over(Cursor* cursor, int depth) noexcept nogil:
    """Skip a value of any type, and check it."""
    cdef const uint8_t* names[MOST_NAMES]
    cdef int64_t[MOST_NAMES] sizes
    cdef const uint8_t* begin = NULL
    cdef int64_t size = 0
    cdef int n_names = 0
    cdef int i
    cdef bint escaped = False
    cdef bint is_object
    cdef Number number
    cdef uint8_t byte = next_byte(cursor)
    if byte == 0x22:
        if read_string(cursor, &begin, &size, &escaped) != OK:
            return OTHER
        return found(not escaped or unescape(begin, size, NULL) >= 0)
    if byte == 0x6E:
        return read_word(cursor, "null", 4)
    if byte == 0x74:
        return read_word(cursor, "true", 4)
    if byte == 0x66:
        return read_word(cursor, "false", 5)
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        return read_number(cursor, &number)
    is_object = byte == 0x7B
    if depth >= MOST_DEPTH or not (is_object or byte == 0x5B):
        return OTHER
    cursor.pointer += 1
    if next_byte(cursor) == (0x7D if is_object else 0x5D):
        cursor.pointer += 1
        return OK
    while True:
        if is_object:
            if next_byte(cursor) != 0x22 or read_string(cursor, &begin, &size, &escaped) != OK:
                return OTHER
            # escapes can write the same name in two ways
            if escaped or n_names == MOST_NAMES:
                return OTHER
            for i in range(n_names):
                if sizes[i] == size and memcmp(names[i], begin, size) == 0:
                    return OTHER
            names[n_names], sizes[n_names] = begin, size
            n_names += 1
            if next_byte(cursor) != 0x3A:
                return OTHER
            cursor.pointer += 1
        if pass_over(cursor, depth + 1) != OK:
            return OTHER
        byte = next_byte(cursor)
        if byte != 0x2C:
            break
        cursor.pointer += 1
    if byte != (0x7D if is_object else 0x5D):
        return OTHER
    cursor.pointer += 1
    return OK


cdef inline bint is_name(State* state, const Node* node, const uint8_t* begin, int64_t size) noexcept nogil:
    cdef int32_t start = state.symbol_offsets[node.name]
    return (state.symbol_offsets[node.name + 1] - start == size
            and memcmp(state.symbols + start, begin, size) == 0)


cdef inline int read_name(State* state, const Node* node, Cursor* cursor, int32_t* at) noexcept nogil:
    """Read a name and find its field of a struct; usually the one at `at`."""
    cdef uint8_t[NAME_BYTES] text
    cdef const uint8_t* begin = NULL
    cdef int64_t size = 0
    cdef bint escaped = False
    cdef int32_t _
    if next_byte(cursor) != 0x22 or read_string(cursor, &begin, &size, &escaped) != OK:
        return OTHER
    if escaped:
        if size > NAME_BYTES:
            return OTHER
        size = unescape(begin, size, text)
        begin = text
        if size < 0:
            return OTHER
    for _ in range(node.count):
        if is_name(state, &state.nodes[node.first + at[0]], begin, size):
            return OK
        at[0] = at[0] + 1 if at[0] + 1 < node.count else 0
    return UNKNOWN_NAME


cdef int read_struct(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    cdef Column* column = NULL
    cdef const Node* inner
    cdef int32_t at = 0
    cdef int32_t n_seen = 0
    cdef int64_t number
    cdef int status
    cdef bint is_known
    cdef uint8_t byte
    state.n_objects += 1
    number = state.n_objects
    if node.column >= 0:
        column = &state.columns.all[node.column]
        if append_validity(&state.columns, column, 1) != OK:
            return NO_MEMORY
        column.n += 1
    cursor.pointer += 1
    if next_byte(cursor) == 0x7D:
        cursor.pointer += 1
    else:
        while True:
            if at >= node.count:
                at = 0
            status = read_name(state, node, cursor, &at)
            is_known = status == OK
            if not is_known and (status != UNKNOWN_NAME or node.op != OPEN_OP):
                return OTHER
            if is_known:
                if state.seen[node.first + at] == number:
                    return OTHER
                state.seen[node.first + at] = number
                n_seen += 1
            if next_byte(cursor) != 0x3A:
                return OTHER
            cursor.pointer += 1
            if is_known:
                status = read_value(state, &state.nodes[node.first + at], cursor, depth + 1)
                at += 1
            else:
                status = pass_over(cursor, depth + 1)
            if status != OK:
                return status
            byte = next_byte(cursor)
            if byte != 0x2C:
                break
            cursor.pointer += 1
        if byte != 0x7D:
            return OTHER
        cursor.pointer += 1
    if n_seen < node.count:
        for at in range(node.count):
            inner = &state.nodes[node.first + at]
            if state.seen[node.first + at] != number:
                if inner.required:
                    return OTHER
                if inner.column >= 0 and append_null(&state.columns, inner.column) != OK:
                    return NO_MEMORY
    return OK


cdef int read_list(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    cdef Column* column = NULL
    cdef uint8_t byte
    cdef int status
    if node.column >= 0:
        column = &state.columns.all[node.column]
        if append_validity(&state.columns, column, 1) != OK:
            return NO_MEMORY
    cursor.pointer += 1
    if next_byte(cursor) == 0x5D:
        cursor.pointer += 1
    else:
        while True:
            status = read_value(state, &state.nodes[node.first], cursor, depth + 1)
            if status != OK:
                return status
            byte = next_byte(cursor)
            if byte != 0x2C:
                break
            cursor.pointer += 1
        if byte != 0x5D:
            return OTHER
        cursor.pointer += 1
    if column != NULL:
        if append_offset(&state.columns, column,
                         state.columns.all[state.columns.children[column.first]].n) != OK:
            return NO_MEMORY
        column.n += 1
    return OK


cdef inline int read_text(State* state, const Node* node, Cursor* cursor) noexcept nogil:
    cdef Column* column
    cdef const uint8_t* begin = NULL
    cdef int64_t size = 0
    cdef int64_t n
    cdef bint escaped = False
    cdef uint8_t* to
    if read_string(cursor, &begin, &size, &escaped) != OK:
        return OTHER
    if node.column < 0:
        return found(not escaped or unescape(begin, size, NULL) >= 0)
    column = &state.columns.all[node.column]
    if not escaped:
        return grown(append_text(&state.columns, column, begin, size))
    if append_validity(&state.columns, column, 1) != OK:
        return NO_MEMORY
    to = append_data(&state.columns, column, size)  # an escape is longer than its character
    if to == NULL:
        return NO_MEMORY
    n = unescape(begin, size, to)
    if n < 0:
        return OTHER
    column.size -= size - n
    if append_offset(&state.columns, column, column.size) != OK:
        return NO_MEMORY
    column.n += 1
    return OK


cdef int read_value(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Read one value of a node's type. After a failure, columns may contain a part of it."""
    cdef uint8_t byte = next_byte(cursor)
    cdef Number number
    cdef double real = 0
    cdef int64_t whole = 0
    cdef const uint8_t* begin
    cdef uint8_t* to
    if byte == 0x6E:
        if node.required or read_word(cursor, "null", 4) != OK:
            return OTHER
        return OK if node.column < 0 else grown(append_null(&state.columns, node.column))
    if node.op == STRING_OP:
        return read_text(state, node, cursor) if byte == 0x22 else OTHER
    if node.op == LONG_OP or node.op == DOUBLE_OP or node.op == SMALL_OP:
        if (byte != 0x2D and not 0x30 <= byte <= 0x39) or read_number(cursor, &number) != OK:
            return OTHER
        if node.op == DOUBLE_OP:
            if to_double(&number, state.powers, &real) != OK or not is_kept(&number):
                return OTHER
        else:
            if not number.integer or number.exponent or number.digits > 0x7FFFFFFFFFFFFFFFULL + number.negative:
                return OTHER
            if node.op == SMALL_OP and number.digits > MOST_EXACT:
                return OTHER
            whole = signed_number(number.digits, number.negative)
        if node.column < 0:
            return OK
        to = append_flat(&state.columns, &state.columns.all[node.column])
        if to == NULL:
            return NO_MEMORY
        if node.op == DOUBLE_OP:
            memcpy(to, &real, 8)
        else:
            memcpy(to, &whole, 8)
        return OK
    if node.op == STRUCT_OP or node.op == OPEN_OP:
        return read_struct(state, node, cursor, depth) if byte == 0x7B and depth < MOST_DEPTH else OTHER
    if node.op == LIST_OP:
        return read_list(state, node, cursor, depth) if byte == 0x5B and depth < MOST_DEPTH else OTHER
    if node.op == BOOL_OP:
        if byte != 0x74 and byte != 0x66:
            return OTHER
        if (read_word(cursor, "true", 4) if byte == 0x74 else read_word(cursor, "false", 5)) != OK:
            return OTHER
        if node.column < 0:
            return OK
        to = append_flat(&state.columns, &state.columns.all[node.column])
        if to == NULL:
            return NO_MEMORY
        to[0] = byte == 0x74
        return OK
    if node.op == WHOLE_OP:
        begin = cursor.pointer
        if (byte != 0x2D and not 0x30 <= byte <= 0x39) or read_number(cursor, &number) != OK or not number.integer:
            return OTHER
        if distance(begin, cursor.pointer) > MOST_DIGITS:
            return OTHER
        return OK if node.column < 0 else grown(append_text(&state.columns, &state.columns.all[node.column], begin,
                                                            distance(begin, cursor.pointer)))
    if node.op == RAW_OP:
        begin = cursor.pointer
        if pass_over(cursor, depth) != OK:
            return OTHER
        return OK if node.column < 0 else grown(append_text(&state.columns, &state.columns.all[node.column], begin,
                                                            distance(begin, cursor.pointer)))
    return OTHER  # NULL_OP


cdef int read_whole(void* state, Cursor* value) noexcept nogil:
    """Read a value with only whitespace after it."""
    cdef State* whole = <State*>state
    cdef int status = read_value(whole, &whole.nodes[0], value, 0)
    # next_byte returns 0 both at the end and for a byte of value 0
    if status == OK and (next_byte(value) or value.pointer < value.end):
        return OTHER
    return status


def decode(const int32_t[:, ::1] nodes not None, const int32_t[:, ::1] columns not None,
           const int32_t[::1] column_children not None, const int32_t[::1] symbol_offsets not None,
           const uint8_t[::1] symbols not None, const uint64_t[:, ::1] powers not None,
           const uint8_t[::1] data not None, const int64_t[::1] start not None, const int64_t[::1] stop not None,
           int64_t room, int32_t[::1] failures not None):
    """Decode values into columns, as `kafkalog._kernels.avro.decode` does.

    `nodes` is int32[n, 6]: op, column, first child, number of children, name, whether it is required. `powers` is
    uint64[651, 2]: the first 128 bits of 10**-342 to 10**308, rounded up below 1, down above.
    """
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t m = columns.shape[0]
    cdef State state
    if (stop.shape[0] != n or failures.shape[0] != n or nodes.shape[1] != 6 or columns.shape[1] != 5 or not m
            or not nodes.shape[0] or powers.shape[0] != MOST_POWER - LEAST_POWER + 1 or powers.shape[1] != 2):
        raise ValueError("a program of another shape")
    state.columns.all = NULL
    state.n_objects = 0
    state.seen = <int64_t*>calloc(nodes.shape[0], sizeof(int64_t))
    if state.seen == NULL:
        raise MemoryError
    try:
        read_columns(&state.columns, columns, column_children, room, n)
        state.nodes = <const Node*>&nodes[0, 0]
        state.powers = &powers[0, 0]
        state.symbol_offsets = &symbol_offsets[0] if symbol_offsets.shape[0] else NULL
        state.symbols = &symbols[0] if symbols.shape[0] else NULL
        return decode_values(&state.columns, m, state.nodes[0].column, read_whole, &state, data, start, stop, OTHER,
                             failures)
    finally:
        free(state.seen)
        release(&state.columns, m)
