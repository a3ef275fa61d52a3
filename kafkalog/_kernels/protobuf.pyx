"""Decodes Protobuf: runs a program over the bytes of many values and appends to columns.

A program is a table of nodes, one for each field. A node has an operation and the columns to append to (-1 checks the
value only). The nodes of a message's fields are in the order of their numbers. Fields without a node are skipped. If a
field occurs twice, the last one counts. A nested message in several parts, which no known writer makes, is an error.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkalog._kernels.protobuf_nodes cimport (
    BOOL_OP, BYTES_OP, ENUM_OP, FIXED32_OP, FIXED64_OP, INT32_OP, INT64_OP, MESSAGE_OP, NULL_IF_ABSENT, RAW_OP,
    REPEATED, SINT32_OP, SINT64_OP, SKIP_OP, STRING_OP, TIMESTAMP_OP, WRAPPER_OP, ZERO_IF_ABSENT, Node, State,
    append_enum, counts, grown, read_packed, read_scalar,
)
from kafkalog._kernels.protobuf_wire cimport (
    BAD_GROUP, BAD_LENGTH, BAD_PACKED, BAD_TAG, BAD_TIMESTAMP, DELIMITED, MOST_DEPTH, NOT_UTF8, NO_MEMORY,
    OVERLONG, SEVERAL_PARTS, TOO_DEEP, TRUNCATED, VARINT, read_content, read_number, read_span, read_tag, skip_value,
)
from kafkalog._kernels.value_columns cimport (
    EMPTY, FLAT, LIST, STRUCT, TEXT, Column, append_flat, append_null, append_offset,
    append_text, append_validity, cut, decode_values, note_fault, read_columns, release, take_faults,
)
from kafkalog._kernels.wire cimport OK, Cursor, remaining

OPS = {
    "bool": BOOL_OP, "int32": INT32_OP, "int64": INT64_OP, "sint32": SINT32_OP, "sint64": SINT64_OP, "enum": ENUM_OP,
    "fixed32": FIXED32_OP, "fixed64": FIXED64_OP, "string": STRING_OP, "bytes": BYTES_OP, "message": MESSAGE_OP,
    "raw": RAW_OP, "wrapper": WRAPPER_OP, "timestamp": TIMESTAMP_OP, "skip": SKIP_OP,
}
LABELS = {"null": NULL_IF_ABSENT, "zero": ZERO_IF_ABSENT, "repeated": REPEATED}
KINDS = {"flat": FLAT, "text": TEXT, "list": LIST, "struct": STRUCT, "empty": EMPTY}
FAILURES = {
    TRUNCATED: "the bytes end inside the value",
    OVERLONG: "a variable-length integer is too long",
    BAD_TAG: "a field has no number, or a type that does not exist",
    BAD_LENGTH: "a length is larger than what is left",
    BAD_GROUP: "a group ends that has not begun",
    TOO_DEEP: "the value is nested too deeply",
    NOT_UTF8: "a string is not UTF-8",
    BAD_PACKED: "the numbers of a list do not fill its bytes",
    BAD_TIMESTAMP: "a timestamp is not within the years 1 to 9999, or its nanoseconds are not 0 to 999999999",
    SEVERAL_PARTS: "a message is written in several parts",
    NO_MEMORY: "the value takes too much memory",
}

FAULTS = frozenset(FAILURES.keys() - {NO_MEMORY})
"""Failures that may be those of a single field, whose bytes have a known length."""

cdef enum:
    LOST = 2             # in `seen`: a field that does not decode
    NODE_SIZE = 12
    NANOS = 1000000000
    MICROS = 1000000


cdef int64_t LEAST_SECONDS = -62135596800  # start of the years that Protobuf allows
cdef int64_t MOST_SECONDS = 253402300799


cdef int append_zero(State* state, const Node* node, int depth) noexcept nogil:
    """Append the value of an absent field."""
    cdef Column* column = &state.columns.all[node.column]
    cdef Cursor nothing
    cdef uint8_t* to
    # the default of a closed enum is its first number, which may not be 0
    if node.op == ENUM_OP:
        return append_enum(state, node, state.numbers[node.a + node.b])
    if node.op == STRING_OP or node.op == BYTES_OP:
        return append_text(&state.columns, column, NULL, 0)
    if node.op >= MESSAGE_OP:
        nothing.pointer = nothing.end = state.symbols
        return read_message(state, node, &nothing, depth)
    to = append_flat(&state.columns, column)
    if to == NULL:
        return NO_MEMORY
    memset(to, 0, column.width)
    return OK


cdef int read_timestamp(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Read seconds and nanoseconds as microseconds."""
    cdef uint64_t value
    cdef int64_t seconds = 0
    cdef int32_t nanos = 0
    cdef int32_t number = 0
    cdef int32_t wire = 0
    cdef uint8_t* to
    cdef int status
    while cursor.pointer < cursor.end:
        status = read_tag(cursor, &number, &wire)
        if status == OK and wire == VARINT and number <= 2:
            status = read_number(cursor, &value)
            if number == 1:
                seconds = <int64_t>value
            else:
                nanos = <int32_t>value
        elif status == OK:
            status = skip_value(cursor, number, wire, depth)
        if status != OK:
            return status
    if nanos < 0 or nanos >= NANOS or seconds > MOST_SECONDS or seconds < LEAST_SECONDS:
        return BAD_TIMESTAMP
    if node.column >= 0:
        to = append_flat(&state.columns, &state.columns.all[node.column])
        if to == NULL:
            return NO_MEMORY
        (<int64_t*>to)[0] = seconds * MICROS + nanos // 1000
        state.n_cut += nanos % 1000 != 0
    return OK


cdef int read_message(State* state, const Node* node, Cursor* cursor, int depth) noexcept nogil:
    """Read a message from its bytes, as one value."""
    cdef Column* column = NULL
    cdef const uint8_t* begin = cursor.pointer
    cdef int64_t size = remaining(cursor)
    cdef int64_t row = 0
    cdef int status
    if depth > MOST_DEPTH:
        return TOO_DEEP
    if node.op == TIMESTAMP_OP:
        return read_timestamp(state, node, cursor, depth)
    if node.column >= 0:
        column = &state.columns.all[node.column]
        row = column.n
    if node.op == RAW_OP:
        if column != NULL:
            state.hidden = OK
        status = read_message(state, &state.nodes[state.node_children[node.first]], cursor, depth)
        if status != OK or column == NULL:
            return status
        if state.hidden != OK:
            return state.hidden
        return grown(append_text(&state.columns, column, begin, size))
    if node.op == WRAPPER_OP:
        node = &state.nodes[state.node_children[node.first]]
    elif column != NULL:
        if column.nullable and append_validity(&state.columns, column, 1) != 0:
            return NO_MEMORY
        column.n += 1
    return read_fields(state, node, cursor, row, depth)


cdef int refuse(State* state, int32_t at, int64_t row, int64_t n_items, int status) noexcept nogil:
    """Make a field null whose bytes do not decode; without `faults`, the whole value fails.

    `at` is its node, `row` the number of values before, and `n_items` that of items in a list.
    """
    cdef const Node* child = &state.nodes[at]
    if state.faults.rows == NULL or status == NO_MEMORY:
        return status
    if child.column < 0:
        state.hidden = status
        return OK
    if child.label == REPEATED:
        cut(&state.columns, child.column, n_items)
        if child.op >= STRING_OP and state.columns.all[child.column].nullable:
            note_fault(&state.faults, child.column, status)
            return grown(append_null(&state.columns, child.column))
        # some of packed numbers, or an entry of a map: the whole field is null
        if state.seen[at] != LOST:
            note_fault(&state.faults, child.list, status)
        state.seen[at] = LOST
        return OK
    if not state.columns.all[child.column].nullable:
        return status  # the key of a map: its entry does not decode
    cut(&state.columns, child.column, row)
    if state.seen[at] != LOST:
        note_fault(&state.faults, child.column, status)
    state.seen[at] = LOST
    return OK


cdef inline int64_t n_values(State* state, const Node* node) noexcept nogil:
    return state.columns.all[node.column].n if node.column >= 0 else 0


cdef int read_numbers(State* state, int32_t at, Cursor* cursor) noexcept nogil:
    """Read packed numbers of the node `at`."""
    cdef int64_t n_items = n_values(state, &state.nodes[at])
    cdef Cursor inside
    cdef int status = read_span(cursor, &inside)
    if status != OK:
        return status
    status = read_packed(state, &state.nodes[at], &inside)
    return OK if status == OK else refuse(state, at, 0, n_items, status)


cdef inline int read_part(State* state, int32_t at, Cursor* cursor, int32_t number, int32_t wire, int64_t row,
                          int depth) noexcept nogil:
    """Read a message in a field, whose node is `at`."""
    cdef const Node* child = &state.nodes[at]
    cdef int64_t n_items = n_values(state, child)
    cdef Cursor inside
    cdef bint is_dropped
    cdef int status = read_content(cursor, &inside, number, wire, depth)
    if status != OK:
        return status
    status = read_message(state, child, &inside, depth)
    is_dropped, state.is_dropped = state.is_dropped, False  # also after an error: what encloses this is another message
    if status != OK:
        return refuse(state, at, row, n_items, status)
    if is_dropped and child.column >= 0:
        cut(&state.columns, child.column, n_items)
    return OK


cdef int read_fields(State* state, const Node* node, Cursor* cursor, int64_t row, int depth) noexcept nogil:
    """Read the fields of a message; `row` is the number of values before it."""
    cdef const int32_t* children = state.node_children + node.first
    cdef bint has_columns = node.column >= 0
    cdef const Node* child
    cdef Column* list_column
    cdef int32_t number = 0
    cdef int32_t wire = 0
    cdef int32_t at = 0
    cdef int32_t other
    cdef int32_t i
    cdef int status = OK
    if has_columns:
        for i in range(node.count):
            state.seen[children[i]] = 0
        for i in range(node.b):
            state.oneofs[node.a + i] = -1
    while cursor.pointer < cursor.end:
        status = read_tag(cursor, &number, &wire)
        if status != OK:
            return status
        at = find_field(state, node, number, at)
        child = NULL
        if at < node.count:
            child = &state.nodes[children[at]]
        if child == NULL or child.number != number:
            status = skip_value(cursor, number, wire, depth)
        elif wire != child.wire:
            # writers may pack a list's numbers or not, despite the schema: readers must accept both
            if wire == DELIMITED and child.label == REPEATED and child.op <= FIXED64_OP:
                status = read_numbers(state, children[at], cursor)
            else:
                status = skip_value(cursor, number, wire, depth)
        # in a closed enum (proto2), an unknown number counts as an unknown field
        elif child.closed and not counts(state, child, cursor[0]):
            state.is_dropped = child.closed == 2
            status = skip_value(cursor, number, wire, depth)
        else:
            if has_columns and child.label != REPEATED:
                # the last member of a oneof counts: remove the value of an earlier one
                if child.oneof >= 0:
                    other = state.oneofs[child.oneof]
                    if other >= 0 and other != children[at]:
                        if state.nodes[other].column >= 0:
                            cut(&state.columns, state.nodes[other].column, row)
                        state.seen[other] = 0
                    state.oneofs[child.oneof] = children[at]
                # a repeated occurrence: the last number or text counts; libraries would merge messages
                if state.seen[children[at]] and child.column >= 0:
                    if child.op >= MESSAGE_OP:
                        status = refuse(state, children[at], row, 0, SEVERAL_PARTS)
                        if status == OK:
                            status = skip_value(cursor, number, wire, depth)
                        if status != OK:
                            return status
                        continue
                    cut(&state.columns, child.column, row)
                state.seen[children[at]] = 1
            if child.op < MESSAGE_OP:
                status = read_scalar(state, child, cursor)
                if status == NOT_UTF8:
                    status = refuse(state, children[at], row, n_values(state, child), status)
            elif child.op == SKIP_OP:
                status = skip_value(cursor, number, wire, depth)
            else:
                status = read_part(state, children[at], cursor, number, wire, row, depth + 1)
        if status != OK:
            return status
    if not has_columns:
        return OK
    for i in range(node.count):
        child = &state.nodes[children[i]]
        if child.label == REPEATED:
            list_column = &state.columns.all[child.list]
            if state.seen[children[i]] == LOST:
                cut(&state.columns, child.column, list_column.offsets[list_column.n] if list_column.n else 0)
                if append_null(&state.columns, child.list) != OK:
                    return NO_MEMORY
                continue
            if list_column.nullable and append_validity(&state.columns, list_column, 1) != OK:
                return NO_MEMORY
            if append_offset(&state.columns, list_column, state.columns.all[child.column].n) != 0:
                return NO_MEMORY
            list_column.n += 1
        elif child.column >= 0 and state.seen[children[i]] != 1:
            if child.label == ZERO_IF_ABSENT and not state.seen[children[i]]:
                status = append_zero(state, child, depth + 1)
            else:
                status = append_null(&state.columns, child.column)
            if status != OK:
                return NO_MEMORY if status == 1 else status
    return OK


cdef inline int32_t find_field(State* state, const Node* node, int32_t number, int32_t at) noexcept nogil:
    """Find the child with a number, else return any. Starts at `at`, since most fields are in order."""
    cdef const int32_t* children = state.node_children + node.first
    cdef int32_t low = 0
    cdef int32_t high = node.count
    if at < high and state.nodes[children[at]].number == number:
        return at
    if at + 1 < high and state.nodes[children[at + 1]].number == number:
        return at + 1
    while low < high:
        at = (low + high) // 2
        if state.nodes[children[at]].number < number:
            low = at + 1
        else:
            high = at
    return low


cdef int read_whole(void* state, Cursor* value) noexcept nogil:
    """Read a message that must use all bytes."""
    cdef State* whole = <State*>state
    cdef int status = read_message(whole, &whole.nodes[0], value, 0)
    whole.faults.n_values += 1
    return status


def decode(const int32_t[:, ::1] nodes not None, const int32_t[::1] node_children not None,
           const int32_t[:, ::1] columns not None, const int32_t[::1] column_children not None,
           const int32_t[::1] symbol_offsets not None, const uint8_t[::1] symbols not None,
           const int32_t[::1] numbers not None, Py_ssize_t n_oneofs,
           const uint8_t[::1] data not None, const int64_t[::1] start not None, const int64_t[::1] stop not None,
           int64_t room, int32_t[::1] failures not None, int32_t[:, ::1] faults not None,
           int64_t[::1] n_cut not None):
    """Decode values into columns, as `kafkalog._kernels.avro.decode` does.

    `nodes` is int32[n, 12]: the attributes of `Node`. `numbers` has those of symbols, sorted within each enum, then the
    enum's default. `n_cut[0]` is increased by the number of times with a fraction of a microsecond.
    """
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t m = columns.shape[0]
    cdef State state
    state.n_cut = 0
    state.hidden = OK
    state.is_dropped = False
    if stop.shape[0] != n or failures.shape[0] != n or nodes.shape[1] != NODE_SIZE or columns.shape[1] != 5 or not m \
            or faults.shape[1] != 3:
        raise ValueError("a program of another shape")
    state.columns.all = NULL
    state.seen = <uint8_t*>calloc(nodes.shape[0], 1)
    state.oneofs = <int32_t*>calloc(n_oneofs + 1, sizeof(int32_t))
    try:
        read_columns(&state.columns, columns, column_children, room, n)
        take_faults(&state.faults, faults)
        if state.seen == NULL or state.oneofs == NULL:
            raise MemoryError
        state.nodes = <const Node*>&nodes[0, 0]
        state.node_children = &node_children[0] if node_children.shape[0] else NULL
        state.symbol_offsets = &symbol_offsets[0] if symbol_offsets.shape[0] else NULL
        state.symbols = &symbols[0] if symbols.shape[0] else NULL
        state.numbers = &numbers[0] if numbers.shape[0] else NULL
        found = decode_values(&state.columns, m, 0, read_whole, &state, data, start, stop, BAD_LENGTH, failures)
        n_cut[0] += state.n_cut
        return found
    finally:
        release(&state.columns, m)
        free(state.seen)
        free(state.oneofs)
