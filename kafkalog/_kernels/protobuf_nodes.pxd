# The program that decodes Protobuf, and its scalar fields: numbers, enums, text and bytes.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkalog._kernels.protobuf_wire cimport (
    BAD_PACKED, DELIMITED, EIGHT_BYTES, NO_MEMORY, NOT_UTF8, TRUNCATED, VARINT, read_number, read_span,
)
from kafkalog._kernels.value_columns cimport (
    Column, Columns, Faults, append_data, append_flat, append_text, append_validity,
)
from kafkalog._kernels.wire cimport OK, Cursor, remaining, unzigzag64

cdef extern from "utf8_impl.h":
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil

cdef enum Op:
    BOOL_OP = 0
    INT32_OP = 1        # also uint32
    INT64_OP = 2        # also uint64
    SINT32_OP = 3
    SINT64_OP = 4
    ENUM_OP = 5         # a, b: first symbol and number of symbols
    FIXED32_OP = 6
    FIXED64_OP = 7
    STRING_OP = 8
    BYTES_OP = 9
    MESSAGE_OP = 10     # a, b: first oneof and number of oneofs; children: the fields
    RAW_OP = 11         # the bytes of a message; child: the node that checks them
    WRAPPER_OP = 12     # a message with one field, which is the value; child: the message
    TIMESTAMP_OP = 13
    SKIP_OP = 14        # a member of a oneof that is not selected

cdef enum Label:
    NULL_IF_ABSENT = 0
    ZERO_IF_ABSENT = 1
    REPEATED = 2

cdef struct Node:
    int32_t op
    int32_t wire
    int32_t column
    int32_t list        # the column of a repeated field; `column` is that of its items
    int32_t first
    int32_t count
    int32_t a
    int32_t b
    int32_t number
    int32_t label
    int32_t oneof       # -1 for none
    int32_t closed      # a closed enum: unknown numbers do not count; 2: nor does the entry of a map


cdef struct State:
    const Node* nodes
    const int32_t* node_children
    Columns columns
    const int32_t* symbol_offsets
    const uint8_t* symbols
    const int32_t* numbers
    uint8_t* seen       # per node: whether the message had its field
    int32_t* oneofs     # the member that is set in each oneof, -1 for none
    int64_t n_cut       # times with a fraction of a microsecond
    Faults faults
    int hidden          # the failure of a field without a column
    bint is_dropped     # whether the current entry of a map does not count


cdef inline int grown(int status) noexcept nogil:
    if status != OK:
        return NO_MEMORY
    return OK


cdef inline int32_t find_symbol(State* state, const Node* node, int32_t number) noexcept nogil:
    """Index of the name of an enum's number; -1 if it has none."""
    cdef int32_t low = 0
    cdef int32_t high = node.b - 1
    cdef int32_t middle
    if 0 <= number <= high and state.numbers[node.a + number] == number:
        return node.a + number
    while low <= high:
        middle = (low + high) // 2
        if state.numbers[node.a + middle] == number:
            return node.a + middle
        if state.numbers[node.a + middle] < number:
            low = middle + 1
        else:
            high = middle - 1
    return -1


cdef inline int append_enum(State* state, const Node* node, int32_t number) noexcept nogil:
    """Append the name of a number, or the number as text."""
    cdef Column* column = &state.columns.all[node.column]
    cdef int32_t at = find_symbol(state, node, number)
    cdef uint8_t[12] digits
    cdef int32_t left = 12
    cdef int64_t rest = number
    if at >= 0:
        return append_text(&state.columns, column, state.symbols + state.symbol_offsets[at],
                           state.symbol_offsets[at + 1] - state.symbol_offsets[at])
    if rest < 0:
        rest = -rest
    while left == 12 or rest > 0:
        left -= 1
        digits[left] = <uint8_t>(48 + rest % 10)
        rest = rest // 10
    if number < 0:
        left -= 1
        digits[left] = 45  # the sign
    return append_text(&state.columns, column, &digits[left], 12 - left)


cdef inline bint counts(State* state, const Node* node, Cursor cursor) noexcept nogil:
    """Whether a field of the right type counts; unknown numbers of a closed enum do not."""
    cdef uint64_t number = 0
    if node.op != ENUM_OP or not node.closed or read_number(&cursor, &number) != OK:
        return True
    return find_symbol(state, node, <int32_t>number) >= 0


cdef inline int append_number(State* state, const Node* node, uint64_t number) noexcept nogil:
    """Append a varint as a value of the node's type."""
    cdef uint8_t* to
    if node.op == ENUM_OP:
        return append_enum(state, node, <int32_t>number)
    to = append_flat(&state.columns, &state.columns.all[node.column])
    if to == NULL:
        return NO_MEMORY
    if node.op == INT64_OP:
        (<uint64_t*>to)[0] = number
    elif node.op == INT32_OP:
        (<uint32_t*>to)[0] = <uint32_t>number
    elif node.op == BOOL_OP:
        to[0] = number != 0
    elif node.op == SINT64_OP:
        (<int64_t*>to)[0] = unzigzag64(number)
    else:
        (<int32_t*>to)[0] = <int32_t>unzigzag64(<uint32_t>number)
    return OK


cdef inline int read_scalar(State* state, const Node* node, Cursor* cursor) noexcept nogil:
    """Read a value that is not a message."""
    cdef uint64_t number = 0
    cdef Cursor inside
    cdef uint8_t* to
    cdef int32_t width
    cdef int status
    if node.wire == VARINT:
        status = read_number(cursor, &number)
        if status != OK or node.column < 0:
            return status
        return grown(append_number(state, node, number))
    if node.wire == DELIMITED:
        status = read_span(cursor, &inside)
        if status != OK:
            return status
        if node.op == STRING_OP and not is_utf8(inside.pointer, remaining(&inside)):
            return NOT_UTF8
        if node.column < 0:
            return OK
        status = append_text(&state.columns, &state.columns.all[node.column], inside.pointer, remaining(&inside))
        return grown(status)
    width = 8 if node.wire == EIGHT_BYTES else 4
    if remaining(cursor) < width:
        return TRUNCATED
    if node.column >= 0:
        to = append_flat(&state.columns, &state.columns.all[node.column])
        if to == NULL:
            return NO_MEMORY
        memcpy(to, cursor.pointer, width)
    cursor.pointer += width
    return OK


cdef inline int read_packed(State* state, const Node* node, Cursor* inside) noexcept nogil:
    """Read packed numbers, which must use all bytes."""
    cdef uint64_t number = 0
    cdef Column* column
    cdef uint8_t* to
    cdef int64_t size, _
    cdef int32_t width = 8 if node.wire == EIGHT_BYTES else 4
    cdef int status
    if node.wire != VARINT:
        size = remaining(inside)
        if size % width:
            return BAD_PACKED
        if node.column >= 0 and size:
            column = &state.columns.all[node.column]
            to = append_data(&state.columns, column, size)
            if to == NULL:
                return NO_MEMORY
            memcpy(to, inside.pointer, size)
            if not column.nullable:
                column.n += size // width
            else:
                for _ in range(size // width):
                    if append_validity(&state.columns, column, 1) != OK:
                        return NO_MEMORY
                    column.n += 1
        return OK
    while inside.pointer < inside.end:
        if not node.closed or counts(state, node, inside[0]):
            status = read_scalar(state, node, inside)
        else:
            status = read_number(inside, &number)
        if status != OK:
            return status
    return OK
