# Columns that values are appended to. Their memory grows up to a limit; at the end, it is handed over.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kafkalog._kernels.buffer_pool cimport Block
from kafkalog._kernels.wire cimport OK, Cursor

cdef enum:
    FULL = 1
    FEW_BYTES = 8        # initial bytes per text
    COPIED_BYTES = 4096  # smaller buffers are copied into bytes objects

cdef enum Kind:
    FLAT = 0           # `width` bytes per value
    TEXT = 1           # offsets and bytes
    LIST = 2           # offsets; one child
    STRUCT = 3         # children of its own length
    EMPTY = 4          # only nulls


cdef struct Column:
    int32_t kind
    int32_t width
    int32_t first
    int32_t count
    int32_t nullable
    int32_t unused
    int64_t n
    int64_t size
    int64_t data_room
    int64_t valid_room
    int64_t offsets_room
    uint8_t* data
    uint8_t* valid
    int32_t* offsets


cdef struct Columns:
    Column* all
    const int32_t* children
    int64_t room_left


cdef struct Faults:
    # Fields that do not decode in values that do. Without rows, such a field fails its whole value.
    int32_t* rows        # int32[most, 3]: which value, column, failure
    int64_t n
    int64_t most
    int64_t n_values     # values before the current one


cdef inline void take_faults(Faults* faults, int32_t[:, ::1] rows) noexcept:
    faults.rows = &rows[0, 0] if rows.shape[0] else NULL
    faults.n, faults.most, faults.n_values = 0, rows.shape[0], 0


cdef inline void note_fault(Faults* faults, int32_t column, int status) noexcept nogil:
    cdef int32_t* row
    if faults.n < faults.most:
        row = faults.rows + 3 * faults.n
        row[0], row[1], row[2] = <int32_t>faults.n_values, column, status
        faults.n += 1


cdef inline int make_room(Columns* columns, void** memory, int64_t* room, int64_t need) noexcept nogil:
    """Grow a buffer to at least `need` bytes."""
    cdef int64_t more
    cdef void* moved
    if need <= room[0]:
        return 0
    more = need + need // 2 + 64 - room[0]
    if more > columns.room_left:
        more = need - room[0]
        if more > columns.room_left:
            return FULL
    moved = realloc(memory[0], room[0] + more)
    if moved == NULL:
        return FULL
    memory[0] = moved
    room[0] += more
    columns.room_left -= more
    return 0


cdef inline int append_validity(Columns* columns, Column* column, uint8_t valid) noexcept nogil:
    if column.n >= column.valid_room:
        if make_room(columns, <void**>&column.valid, &column.valid_room, column.n + 1) != 0:
            return FULL
    column.valid[column.n] = valid
    return 0


cdef inline int append_offset(Columns* columns, Column* column, int64_t stop) noexcept nogil:
    if stop > 0x7FFFFFFF:
        return FULL
    if 4 * (column.n + 2) > column.offsets_room:
        if make_room(columns, <void**>&column.offsets, &column.offsets_room, 4 * (column.n + 2)) != 0:
            return FULL
    if column.n == 0:
        column.offsets[0] = 0
    column.offsets[column.n + 1] = <int32_t>stop
    return 0


cdef inline uint8_t* append_data(Columns* columns, Column* column, int64_t size) noexcept nogil:
    """Reserve `size` more bytes. Return their address; NULL without memory."""
    if column.size + size > column.data_room:
        if make_room(columns, <void**>&column.data, &column.data_room, column.size + size) != 0:
            return NULL
    column.size += size
    return column.data + column.size - size


cdef inline int append_null(Columns* columns, int32_t number) noexcept nogil:
    """Append null; a column without nulls gets zeros, under the null of an enclosing struct."""
    cdef Column* column = &columns.all[number]
    cdef uint8_t* to
    cdef int32_t i
    cdef int status
    if column.nullable and append_validity(columns, column, 0) != 0:
        return FULL
    if column.kind == FLAT:
        to = append_data(columns, column, column.width)
        if to == NULL:
            return FULL
        memset(to, 0, column.width)
    elif column.kind == TEXT or column.kind == LIST:
        if append_offset(columns, column, column.offsets[column.n] if column.n else 0) != 0:
            return FULL
    elif column.kind == STRUCT:
        for i in range(column.count):
            status = append_null(columns, columns.children[column.first + i])
            if status != 0:
                return status
    column.n += 1
    return 0


cdef inline void cut(Columns* columns, int32_t number, int64_t n) noexcept nogil:
    """Drop the values of a column from index `n` on."""
    cdef Column* column = &columns.all[number]
    cdef int32_t i
    if column.kind == FLAT:
        column.size = n * column.width
    elif column.kind == TEXT:
        column.size = column.offsets[n] if n else 0
    elif column.kind == LIST:
        cut(columns, columns.children[column.first], column.offsets[n] if n else 0)
    elif column.kind == STRUCT:
        for i in range(column.count):
            cut(columns, columns.children[column.first + i], n)
    column.n = n


cdef inline int append_text(Columns* columns, Column* column, const uint8_t* source, int64_t size) noexcept nogil:
    cdef uint8_t* to
    if column.nullable and append_validity(columns, column, 1) != 0:
        return FULL
    if append_offset(columns, column, column.size + size) != 0:
        return FULL
    if size:
        to = append_data(columns, column, size)
        if to == NULL:
            return FULL
        memcpy(to, source, size)
    column.n += 1
    return 0


cdef inline uint8_t* append_flat(Columns* columns, Column* column) noexcept nogil:
    if column.nullable and append_validity(columns, column, 1) != 0:
        return NULL
    column.n += 1
    return append_data(columns, column, column.width)


cdef inline int read_columns(Columns* columns, const int32_t[:, ::1] table, const int32_t[::1] children,
                             int64_t room, int64_t n) except -1:
    """Make empty columns from a table of kind, width, first child, number of children, nullable.

    Each has memory for `n` values, unless that is a large part of the room.
    """
    cdef Py_ssize_t i
    cdef Column* column
    cdef int64_t width
    cdef int64_t most = room // (4 * table.shape[0] + 1)
    columns.all = <Column*>calloc(table.shape[0], sizeof(Column))
    if columns.all == NULL:
        raise MemoryError
    for i in range(table.shape[0]):
        column = &columns.all[i]
        column.kind, column.width, column.first = table[i, 0], table[i, 1], table[i, 2]
        column.count, column.nullable = table[i, 3], table[i, 4]
    columns.children = &children[0] if children.shape[0] else NULL
    columns.room_left = room
    for i in range(table.shape[0]):
        column = &columns.all[i]
        width = column.width if column.kind == FLAT else FEW_BYTES if column.kind == TEXT else 0
        if n < 1 or (width + 5) * (n + 2) > most:
            continue
        if column.nullable:
            reserve(columns, <void**>&column.valid, &column.valid_room, n)
        if column.kind == TEXT or column.kind == LIST:
            reserve(columns, <void**>&column.offsets, &column.offsets_room, 4 * (n + 2))
        if width:
            reserve(columns, <void**>&column.data, &column.data_room, width * n)
    return 0


cdef inline void reserve(Columns* columns, void** memory, int64_t* room, int64_t size) noexcept:
    memory[0] = malloc(size)
    if memory[0] != NULL:
        room[0] = size
        columns.room_left -= size


cdef inline void release(Columns* columns, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    if columns.all != NULL:
        for i in range(n):
            free(columns.all[i].data)
            free(columns.all[i].valid)
            free(columns.all[i].offsets)
        free(columns.all)


cdef inline object handed_over(Column* column):
    """Move a column's buffers to objects that own them."""
    valid = offsets = values = None
    if column.nullable:
        valid = owned(<void**>&column.valid, column.n)
    if column.kind == TEXT or column.kind == LIST:
        offsets = owned(<void**>&column.offsets, 4 * (column.n + 1)) if column.n else bytes(4)
    if column.kind == FLAT or column.kind == TEXT:
        values = owned(<void**>&column.data, column.size)
    return column.n, valid, offsets, values


cdef inline object owned(void** memory, int64_t size):
    cdef Block block
    cdef void* fitting
    if size < COPIED_BYTES:
        return (<const char*>memory[0])[:size] if size else b""
    fitting = realloc(memory[0], size)
    if fitting != NULL:
        memory[0] = fitting
    block = Block(0)  # a block of no capacity is freed, not reused
    free(block.pointer)
    block.pointer, block.size = memory[0], size
    memory[0] = NULL
    return block


ctypedef int (*ReadValue)(void* state, Cursor* value) noexcept nogil


cdef inline list decode_values(Columns* columns, Py_ssize_t n_columns, int32_t root, ReadValue read, void* state,
                               const uint8_t[::1] data, const int64_t[::1] start, const int64_t[::1] stop, int outside,
                               int32_t[::1] failures):
    """Append values to the column `root` (-1 only checks them), and hand over all columns.

    A value becomes null if `read` fails on it, or if it is not within `data` (failure `outside`).
    """
    cdef Py_ssize_t row, i
    cdef Cursor cursor
    cdef const uint8_t* origin = NULL
    cdef int status = OK
    cdef list all = []
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        for row in range(start.shape[0]):
            if start[row] >= 0:
                if stop[row] < start[row] or stop[row] > data.shape[0]:
                    status = outside
                else:
                    cursor.pointer = origin + start[row]
                    cursor.end = origin + stop[row]
                    status = read(state, &cursor)
                if status == OK:
                    continue
                failures[row] = status
                status = OK
                if root >= 0:
                    cut(columns, root, row)
            if root >= 0:
                status = append_null(columns, root)
                if status != OK:
                    break
    if status != OK:
        raise MemoryError
    for i in range(n_columns):
        all.append(handed_over(&columns.all[i]))
    return all
