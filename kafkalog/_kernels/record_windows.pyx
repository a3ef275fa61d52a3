"""Decodes the records of valid batches, one window per call, into columns in one block of memory.

A window becomes an Arrow record batch (through the C Data Interface) or NumPy arrays of the same block.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kafkalog._kernels.arrow_batches cimport ArrowArray, is_ascii, pack_bits
from kafkalog._kernels.buffer_pool cimport Block, dropped, populated
from kafkalog._kernels.fill cimport (
    ALL_DONE, ARENA_FULL, COLUMNS_FULL, KL_COPY, KL_PAD, KL_VIEW, Codecs, Filler, kl_binary,
    kl_columns,
)
from kafkalog._kernels.growing_columns cimport GrowingRecords, Room
from kafkalog._kernels.header_rows cimport HeaderRows
from kafkalog._kernels.header_walk cimport read_intact
from kafkalog._kernels.wire cimport load_be32, load_be64

cdef extern from "mapped_guard.h":
    int kl_guard(const void* bytes, size_t size) nogil
    int kl_unguard(int slot) nogil

cdef extern from "unistd.h":
    Py_ssize_t pread(int descriptor, void* buffer, size_t size, int64_t position) nogil

cdef enum:
    # memory is allocated for batches of at least this size
    LEAST_LARGEST = 16384
    LEAST_ROWS = 256
    MOST_ROWS = 65536
    MIN_RECORD_BYTES = 7
    SMALL_WINDOW = 65536
    ENVELOPE = 12
    MAGIC_AT = 16
    # memory to decompress into: fits a core's cache, and one per thread stays allocated
    ARENA_BYTES = 262144
    KEPT_ARENA = 4194304
    # arena size with views, which keep it alive
    VIEWED_ARENA = 6291456
    HUGE_PAGE = 2097152
    # windows have room for a multiple of this
    STEP = 131072
    # a block with more unused bytes than this is copied into a smaller one
    SPARE = 65536
    TIMESTAMP_TYPE_BIT = 0x08
    ONLY_V2 = 4
    CODEC_MASK = 0x07
    # larger string columns are split elsewhere
    MOST_COLUMN_BYTES = 67108864
    MOST_FIELDS = 16
    N_NESTED = 3

cdef enum Kind:
    # the source of a field of a schema
    OFFSET = 0
    TIMESTAMP = 1
    TIMESTAMP_TYPE = 2
    KEY = 3
    VALUE = 4
    HEADERS = 5
    TEXT = 6
    NUMBER = 7

KINDS = {"offset": OFFSET, "timestamp": TIMESTAMP, "timestamp_type": TIMESTAMP_TYPE, "key": KEY, "value": VALUE,
         "headers": HEADERS, "text": TEXT, "number": NUMBER}
FORMS = {"arrow": 0, "views": 1, "numpy": 2}


cdef struct Rates:
    # per decompressed byte, how much of each column the last call filled; and other statistics of that call
    double n_records
    double key
    double value
    double n_headers
    double header_key
    double header_value
    double n_batches
    # bytes in the file per decompressed byte
    double compressed
    int64_t largest
    bint is_compressed

cdef struct Strings:
    # start of each part of a byte string column in its block
    int64_t offsets
    int64_t bytes
    int64_t valid
    int64_t bits

cdef struct Layout:
    int64_t offset
    int64_t timestamp
    Strings key
    Strings value
    int64_t header_offsets
    Strings header_key
    Strings header_value
    int64_t sizes
    int64_t size

cdef struct Batch:
    # an Arrow batch, its children and the objects they keep alive, in one allocation
    ArrowArray child[MOST_FIELDS]
    ArrowArray* children[MOST_FIELDS]
    ArrowArray nested[N_NESTED]
    ArrowArray* of_list[1]
    ArrowArray* of_struct[2]
    const void* buffers[(MOST_FIELDS + N_NESTED + 1) * 6]
    PyObject* kept
    int n_alive

# the first estimate of a new object is that of the latest call; races are harmless
cdef Rates newest = Rates(1. / 128, 0.25, 1.0, 1. / 64, 1. / 16, 1. / 16, 1. / 4096, 1.0, 65536, False)


cdef int64_t aligned(int64_t size) noexcept nogil:
    return (size + 63) & ~<int64_t>63


cdef void follow(double* rate, double needed) noexcept nogil:
    """Adapt a rate to slightly more than was needed. Keep a rate that fits roughly, so that block sizes repeat."""
    if not needed <= rate[0] <= 1.1 * needed + 1. / 256:
        rate[0] = 1.04 * needed


cdef int64_t place(int64_t* end, int64_t size) noexcept nogil:
    """Reserve a part of a block. Return its start and move `end` past it."""
    cdef int64_t start = end[0]
    end[0] += aligned(size)
    return start


cdef void release_one(ArrowArray* array) noexcept with gil:
    forget(<Batch*>array.private_data)
    array.release = NULL


cdef void release_batch(ArrowArray* array) noexcept with gil:
    cdef ArrowArray* child
    cdef int64_t i
    for i in range(array.n_children):
        child = array.children[i]
        if child.release != NULL:
            child.release(child)
    forget(<Batch*>array.private_data)
    array.release = NULL


cdef void forget(Batch* batch) noexcept:
    batch.n_alive -= 1
    if batch.n_alive == 0:
        Py_DECREF(<object>batch.kept)
        free(batch)


@cython.final
cdef class RecordWindow:
    """Consecutive valid batches and their records.

    For the offsets and positions see `HeaderRows`; `next_offset` is None at the end of the file. It `is_plain` if no
    header needs further checks: no empty batch has bytes after its header, and the offset after the window increases.
    At the end of the file, the last batch continues the previous one without a gap. `rows` are the headers of the
    batches; None if there is a `batch` and it `is_plain`. `first_record_offset` is that of the first record, which no
    header of a compressed v0 or v1 message has, if offsets were asked for. `last_record_offset` is that of the last
    record; None if there is none, or if offsets were not asked for.

    `batch` is the record batch, if `RecordWindows` has a schema and the records allow it. Otherwise `block` is the
    memory of the columns, and `columns` has the place of each in it. An array is ``(dtype, size, start)``. Strings are
    ``(offsets, data, valid)``, views ``(views, valid)``, and headers ``(offsets, key, value)``. `valid` is None without
    nulls. Views point into `data`, bytes of the file, and `arena`, decompressed bytes; None if they were copied.

    If the records were appended to other columns, `batch` is their number, the offset of the first one (None if nobody
    asked for offsets), and the type of all timestamps.
    """

    cdef readonly int64_t n_batches
    cdef readonly int64_t n_records
    cdef readonly int64_t first_offset
    cdef readonly int64_t first_record_offset
    cdef readonly object last_record_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t last_position
    cdef readonly int64_t end_position
    cdef readonly object next_offset
    cdef readonly bint is_plain
    cdef readonly bint is_compressed
    cdef readonly object batch
    cdef readonly Block block
    cdef readonly object columns
    cdef readonly HeaderRows rows
    cdef readonly object data
    cdef readonly object arena


@cython.final
cdef class RecordWindows:
    """Memory and options for the windows of a segment, for one thread.

    `names` are those of offset, timestamp, key, value and headers to fill, with byte strings in `form`. A window has
    `window_bytes` decompressed bytes, or one larger batch. The `read_bytes` that are read at a time should stay in a
    core's cache until they are decoded. Batches above a limit, with offsets outside of the half-open range `offsets`,
    and v2 batches with any of the attribute bits `stop_at` end a window before them.

    `fields` are those of the schema, for record batches: a number of `KINDS`, and the value of a constant or None.
    ``import_batch(address, schema)`` makes a record batch. If the caller keeps all windows, `is_kept`, blocks consist
    of whole huge pages.
    """

    cdef Filler filler
    cdef HeaderRows rows
    cdef Block room
    cdef Block arena
    cdef Rates rates
    cdef int form
    cdef bint has_offset
    cdef bint has_timestamp
    cdef bint has_key
    cdef bint has_value
    cdef bint has_headers
    cdef int64_t window_bytes
    cdef int64_t read_bytes
    cdef int64_t max_batch_bytes
    cdef int64_t max_decompressed
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef bint check_crc
    cdef int stop_at
    cdef bint is_kept
    cdef int n_fields
    cdef Kind kinds[MOST_FIELDS]
    cdef list values
    cdef object schema
    cdef object import_batch
    # columns to append to, and what they have
    cdef GrowingRecords into
    cdef kl_columns before
    # rows of the constant arrays: zeros, ones, and one for each constant field
    cdef int64_t n_constants
    cdef Block zeros
    cdef Block ones
    cdef list constants

    def __init__(self, names, form, int64_t window_bytes, *, int64_t read_bytes, int64_t max_batch_bytes,
                 int64_t max_records, int64_t max_headers, int64_t max_batch_headers, int64_t max_decompressed,
                 bint check_crc, int stop_at, offsets, fields=(), schema=None, import_batch=None, bint is_kept=False):
        cdef int i
        if len(fields) > MOST_FIELDS or window_bytes < 1 or window_bytes > INT32_MAX // 4 or read_bytes < 1:
            raise ValueError("there are too many fields, or a size is out of range")
        self.form = FORMS[form]
        self.has_offset = "offset" in names
        self.has_timestamp = "timestamp" in names
        self.has_key = "key" in names
        self.has_value = "value" in names
        self.has_headers = "headers" in names
        self.window_bytes = window_bytes
        self.read_bytes = max(read_bytes, 1024)
        self.max_batch_bytes = max_batch_bytes
        self.max_decompressed = max_decompressed
        self.check_crc = check_crc
        self.stop_at = stop_at
        self.start_offset, self.end_offset = offsets
        self.filler = Filler(min(max_records, INT32_MAX), min(max_headers, INT32_MAX),
                             min(max_batch_headers, INT32_MAX), max_decompressed, self.form == 1)
        self.rates = newest
        self.is_kept = is_kept
        self.n_fields = len(fields)
        self.values = [value for _, value in fields]
        self.schema = schema
        self.import_batch = import_batch
        for i in range(self.n_fields):
            self.kinds[i] = fields[i][0]
        self.n_constants = -1

    def next(self, Codecs codecs not None, int descriptor, int64_t start, int64_t stop, int64_t size,
             int64_t previous_offset, data=None, bint is_mapped=False, GrowingRecords into=None):
        """Read the window at a batch boundary; None if the first batch needs the exact decoder.

        The records are appended to `into`, for its `take`. None also if that cannot be done with the first window:
        headers need further checks, batches are of older formats, or timestamps have several types.

        A batch that ends after `stop` is in no window. Offsets must be above `previous_offset`. Bytes come from the
        descriptor, or from `data`, which begins at `start`. If that `is_mapped`, a mapping of the file, its pages are
        populated here, and dropped after the copy; a cut of the file meanwhile gives None. `codecs` are those of the
        calling thread.
        """
        cdef int64_t wanted
        cdef bint is_there
        cdef int slot
        cdef int64_t n_bytes
        cdef int64_t room_bytes
        cdef int64_t n = 0
        cdef int ending = ALL_DONE
        cdef int64_t needed
        cdef const uint8_t[::1] there = data
        cdef const uint8_t[::1] piece = None
        cdef uint8_t[::1] read_into = None
        cdef Layout layout
        cdef Block block
        cdef int64_t available
        cdef uint8_t head[MAGIC_AT + 1]
        if start < 0 or stop < start or size < stop:
            raise ValueError("the range lies outside the file")
        if into is not None and (self.form != 2 or self.import_batch is not None):
            raise ValueError("only NumPy columns can be appended to")
        self.into = into
        available = stop - start if data is None else min(stop - start, there.shape[0])
        wanted = min(available, <int64_t>(self.rates.compressed * self.window_bytes) + 1)
        # avoid a small last window
        if available - wanted < wanted // 4:
            wanted = available
        n_bytes = max(<int64_t>(wanted / self.rates.compressed) + 1, 1024)
        # rounding lets blocks be reused
        if n_bytes > STEP:
            n_bytes = (n_bytes + STEP - 1) // STEP * STEP
        room_bytes = self.room.size if self.room is not None else self.read_bytes
        self.filler.codecs = codecs
        if self.form == 1:
            room_bytes = max(wanted, 1024)
        if into is not None and (not self.first_head(descriptor, start, data, head) or head[MAGIC_AT] != 2):
            return None
        while wanted > 0:
            if data is None and (self.room is None or self.room.size < room_bytes):
                self.room = Block(room_bytes)
            if data is None:
                read_into = self.room
            else:
                piece = there[:wanted]
                if is_mapped:
                    with nogil:
                        is_there = populated(&there[0], wanted)
                    if not is_there:
                        break
            if self.rows is None:
                self.rows = HeaderRows(self.n_rows_for(n_bytes))
            block = self.prepare(n_bytes, &layout, available / <double>wanted)
            slot = -1
            if is_mapped and self.form != 1:
                slot = kl_guard(&there[0], wanted)
                if slot < 0:
                    break
            try:
                got = read_intact(
                    descriptor, start, start + wanted, previous_offset, self.max_batch_bytes, self.check_crc,
                    self.stop_at, self.start_offset, self.end_offset, self.read_bytes, read_into, piece, self.filler,
                    self.rows)
            finally:
                is_there = slot < 0 or kl_unguard(slot)
            if not is_there:
                break  # another process cut the file, which reading it another way reports
            n = got[0]
            needed = got[1]
            ending = got[2]
            if n:
                break
            if ending == ARENA_FULL and self.grow_arena():
                n_bytes = max(n_bytes, self.arena_bytes())
            elif ending == COLUMNS_FULL and n_bytes < INT32_MAX // 4:
                n_bytes = max(2 * n_bytes, self.filler.used)
                self.rates.largest = n_bytes
                self.rows = None
            elif room_bytes < needed <= min(self.max_batch_bytes, available):
                room_bytes = wanted = needed
                n_bytes = max(n_bytes, needed)
            elif ending == ALL_DONE and wanted < (needed := self.first_size(descriptor, start, data)) <= min(
                    self.max_batch_bytes, available):
                wanted = needed
                n_bytes = max(n_bytes, needed)
                room_bytes = max(room_bytes, needed)
            else:
                break
        if is_mapped and self.form != 1:
            dropped(&there[0], self.rows.end_position - start if n else wanted)
        if not n:
            self.drop_large()
            return None
        if into is not None:
            return self.appended(descriptor, start, size, previous_offset, n, there)
        return self.window(block, &layout, descriptor, start, size, previous_offset, n, data, there)

    cdef int64_t n_rows_for(self, int64_t n_bytes) noexcept:
        return min(<int64_t>(1.25 * self.rates.n_batches * n_bytes) + LEAST_ROWS, <int64_t>MOST_ROWS)

    cdef bint first_head(self, int descriptor, int64_t start, data, uint8_t* head) except -1:
        """Copy the header of the first batch up to its magic; return whether it is there."""
        cdef const uint8_t[::1] there = data
        if descriptor >= 0:
            return pread(descriptor, head, MAGIC_AT + 1, start) == MAGIC_AT + 1
        if there.shape[0] <= MAGIC_AT:
            return False
        memcpy(head, &there[0], MAGIC_AT + 1)
        return True

    cdef int64_t first_size(self, int descriptor, int64_t start, data) except -1:
        """Size in bytes of the first batch, from its header; 0 if there is none."""
        cdef uint8_t head[MAGIC_AT + 1]
        if not self.first_head(descriptor, start, data, head):
            return 0
        return max(ENVELOPE + <int64_t><int32_t>load_be32(head + 8), <int64_t>0)

    # ------------------------------------------------------------------------------------------- memory

    cdef int64_t arena_bytes(self) noexcept:
        return self.arena.size if self.arena is not None else 0

    cdef bint grow_arena(self) except -1:
        """Make a larger arena. Return whether the limit allows it."""
        cdef int64_t most = self.max_decompressed + KL_PAD
        cdef int64_t size = self.arena_bytes()
        if size >= most:
            return False
        if not self.rates.is_compressed:
            self.rates.is_compressed = True
            size = max(size, <int64_t>VIEWED_ARENA // 2 if self.form == 1 else <int64_t>ARENA_BYTES // 2)
        self.arena = None
        self.arena = Block(min(2 * size, most) + KL_PAD)
        return True

    cdef void drop_large(self) noexcept:
        if self.arena_bytes() > KEPT_ARENA:
            self.arena = None

    cdef Block prepare(self, int64_t n_bytes, Layout* layout, double more):
        """Allocate a block for the columns of `n_bytes` decompressed bytes, and an arena.

        About `more` times as many follow in the file.
        """
        cdef kl_columns* c = &self.filler.columns
        cdef Rates* rates = &self.rates
        cdef int64_t largest = min(max(rates.largest, <int64_t>LEAST_LARGEST), n_bytes)
        cdef Room room
        cdef Block block = None
        # strings have 32-bit offsets
        room.n_rows = min(<int64_t>(rates.n_records * n_bytes), n_bytes // MIN_RECORD_BYTES) + largest // 64 + 1
        if n_bytes <= SMALL_WINDOW:  # room for the worst case, so that a tiny log is one window
            room.n_rows = n_bytes // MIN_RECORD_BYTES + 1
        room.key = room.value = room.n_headers = room.header_key = room.header_value = 0
        if self.form != 1:
            room.key = min(<int64_t>(rates.key * n_bytes) + largest, <int64_t>INT32_MAX // 2) + KL_PAD
            room.value = min(<int64_t>(rates.value * n_bytes) + largest, <int64_t>INT32_MAX // 2) + KL_PAD
        if self.has_headers:
            room.n_headers = <int64_t>(rates.n_headers * n_bytes) + largest // 2
            room.header_key = min(<int64_t>(rates.header_key * n_bytes) + largest, <int64_t>INT32_MAX // 2) + KL_PAD
            room.header_value = min(<int64_t>(rates.header_value * n_bytes) + largest,
                                    <int64_t>INT32_MAX // 2) + KL_PAD
        memset(&self.before, 0, sizeof(self.before))
        if self.into is not None:
            self.into.lend(c, &room, more)
            self.before = c[0]
        else:
            block = self.block_for(&room, layout)
        if self.arena is None and (self.form != 1 or rates.is_compressed):
            self.arena = Block((n_bytes + 2 * largest if self.form == 1 else <int64_t>ARENA_BYTES) + KL_PAD)
        self.filler.room = <uint8_t*>self.arena.pointer if self.arena is not None else NULL
        self.filler.room_size = self.arena.size - KL_PAD if self.arena is not None else 0
        self.filler.used = self.filler.filled = 0
        return block

    cdef Block block_for(self, const Room* room, Layout* layout):
        """Allocate a block, and let the filler write its columns there."""
        cdef kl_columns* c = &self.filler.columns
        cdef Block block
        cdef uint8_t* p
        self.lay_out(room, layout)
        if self.is_kept and layout.size > HUGE_PAGE // 2:
            block = Block((layout.size + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE)
        else:
            block = Block(layout.size)
        p = <uint8_t*>block.pointer
        memset(c, 0, sizeof(c[0]))
        c.capacity = room.n_rows
        if self.has_offset:
            c.offset = <int64_t*>(p + layout.offset)
        if self.has_timestamp:
            c.timestamp = <int64_t*>(p + layout.timestamp)
        if self.has_key:
            self.give(&c.key, p, &layout.key, room.key, self.form == 1)
        if self.has_value:
            self.give(&c.value, p, &layout.value, room.value, self.form == 1)
        if self.has_headers:
            c.with_headers = 1
            c.header_capacity = room.n_headers
            if self.form == 2:
                c.wide_header_offsets = <int64_t*>(p + layout.header_offsets)
                c.wide_header_offsets[0] = 0
            else:
                c.header_offsets = <int32_t*>(p + layout.header_offsets)
                c.header_offsets[0] = 0
            self.give(&c.header_key, p, &layout.header_key, room.header_key, False)
            self.give(&c.header_value, p, &layout.header_value, room.header_value, False)
        return block

    cdef void give(self, kl_binary* column, uint8_t* p, Strings* at, int64_t room, bint is_view) noexcept:
        column.valid = p + at.valid
        if is_view:
            column.mode = KL_VIEW
            column.views = p + at.offsets
            return
        column.mode = KL_COPY
        if self.form == 2:
            column.wide_offsets = <int64_t*>(p + at.offsets)
            column.wide_offsets[0] = 0
        else:
            column.offsets = <int32_t*>(p + at.offsets)
            column.offsets[0] = 0
        column.bytes = p + at.bytes
        column.room = room - KL_PAD

    cdef void lay_out(self, const Room* room, Layout* layout) noexcept:
        """Compute the start of each column in a block."""
        cdef int64_t end = 0
        cdef int64_t n = room.n_rows
        memset(layout, 0, sizeof(Layout))
        if self.has_offset:
            layout.offset = place(&end, 8 * n)
        if self.has_timestamp:
            layout.timestamp = place(&end, 8 * n)
        if self.has_key:
            self.lay_out_strings(&layout.key, &end, n, room.key, self.form == 1)
        if self.has_value:
            self.lay_out_strings(&layout.value, &end, n, room.value, self.form == 1)
        if self.has_headers:
            layout.header_offsets = place(&end, (8 if self.form == 2 else 4) * (n + 1))
            self.lay_out_strings(&layout.header_key, &end, room.n_headers, room.header_key, False)
            self.lay_out_strings(&layout.header_value, &end, room.n_headers, room.header_value, False)
        # sizes of the buffers that views point into
        layout.sizes = place(&end, 16)
        layout.size = end

    cdef void lay_out_strings(self, Strings* at, int64_t* end, int64_t n, int64_t room, bint is_view) noexcept:
        at.offsets = place(end, 16 * n if is_view else (8 if self.form == 2 else 4) * (n + 1))
        at.bytes = place(end, room)
        at.valid = place(end, n)
        at.bits = place(end, (n + 7) // 8)

    cdef Block shrunk(self, Block block, Layout* layout):
        """Return the block, or a smaller copy if much of it is unused."""
        cdef kl_columns* c = &self.filler.columns
        cdef Layout old = layout[0]
        cdef Room room
        cdef Block copy
        cdef int64_t n = c.n_records
        cdef int width = 8 if self.form == 2 else 4
        cdef uint8_t* p = <uint8_t*>block.pointer
        cdef uint8_t* to
        room.n_rows, room.key, room.value = n, c.key.used, c.value.used
        room.n_headers, room.header_key, room.header_value = c.n_headers, c.header_key.used, c.header_value.used
        self.lay_out(&room, layout)
        if layout.size + SPARE > block.size or layout.size > block.size // 4 * 3:
            layout[0] = old
            return block
        copy = Block(layout.size)
        to = <uint8_t*>copy.pointer
        if self.has_offset:
            memcpy(to + layout.offset, p + old.offset, 8 * n)
        if self.has_timestamp:
            memcpy(to + layout.timestamp, p + old.timestamp, 8 * n)
        if self.has_key:
            self.copy_strings(&c.key, to, &layout.key, p, &old.key, n)
        if self.has_value:
            self.copy_strings(&c.value, to, &layout.value, p, &old.value, n)
        if self.has_headers:
            memcpy(to + layout.header_offsets, p + old.header_offsets, width * (n + 1))
            self.copy_strings(&c.header_key, to, &layout.header_key, p, &old.header_key, c.n_headers)
            self.copy_strings(&c.header_value, to, &layout.header_value, p, &old.header_value, c.n_headers)
        return copy

    cdef void copy_strings(self, kl_binary* column, uint8_t* to, Strings* at, uint8_t* p, Strings* old,
                           int64_t n) noexcept:
        if column.views != NULL:
            memcpy(to + at.offsets, p + old.offsets, 16 * n)
        else:
            memcpy(to + at.offsets, p + old.offsets, (8 if self.form == 2 else 4) * (n + 1))
            memcpy(to + at.bytes, p + old.bytes, column.used)
        if column.n_null:
            memcpy(to + at.valid, p + old.valid, n)

    cdef void adapt(self, int64_t n_bytes, int64_t n_batches) noexcept:
        """Estimate the room for the next window: slightly more than this one took."""
        cdef kl_columns* c = &self.filler.columns
        cdef const kl_columns* b = &self.before
        cdef double filled = max(self.filler.filled, <int64_t>1)
        cdef Rates* rates = &self.rates
        global newest
        rates.largest = max(self.rows.largest, <int64_t>LEAST_LARGEST)
        rates.is_compressed = self.rows.attribute_bits & CODEC_MASK != 0
        rates.n_batches = n_batches / <double>n_bytes
        if self.filler.filled == 0:
            return
        rates.compressed = min(max(n_bytes / filled, 1. / 4096), 4.0)
        if rates.is_compressed:
            # decompressed size, assuming similar batches
            rates.largest = min(<int64_t>(1.5 * rates.largest / rates.compressed), <int64_t>INT32_MAX // 4)
        follow(&rates.n_records, (c.n_records - b.n_records) / filled)
        if self.has_key and self.form != 1:
            follow(&rates.key, (c.key.used - b.key.used) / filled)
        if self.has_value and self.form != 1:
            follow(&rates.value, (c.value.used - b.value.used) / filled)
        if self.has_headers:
            follow(&rates.n_headers, (c.n_headers - b.n_headers) / filled)
            follow(&rates.header_key, (c.header_key.used - b.header_key.used) / filled)
            follow(&rates.header_value, (c.header_value.used - b.header_value.used) / filled)
        newest = rates[0]

    # ------------------------------------------------------------------------------------------- results

    cdef RecordWindow described(self, int descriptor, int64_t start, int64_t size, int64_t previous_offset, int64_t n,
                                const uint8_t[::1] there):
        """Make a window of the headers, without records."""
        cdef RecordWindow window = RecordWindow.__new__(RecordWindow)
        cdef HeaderRows rows = self.rows
        cdef const int64_t* offset = self.filler.columns.offset
        cdef int64_t base
        cdef int64_t before
        cdef uint8_t head[8]
        cdef bint rises = True
        window.n_batches = n
        window.n_records = self.filler.columns.n_records - self.before.n_records
        window.is_compressed = rows.attribute_bits & CODEC_MASK != 0
        window.first_offset = window.first_record_offset = rows.first_offset
        if window.n_records and offset != NULL:
            window.last_record_offset = offset[self.filler.columns.n_records - 1]
            if rows.magics != ONLY_V2:
                window.first_record_offset = offset[self.before.n_records]
                rises = self.offsets_rise(window.n_records)
        window.last_offset = rows.last_offset
        window.last_position = rows.last_position
        window.end_position = rows.end_position
        window.next_offset = rows.next_offset
        if window.next_offset is None and rows.end_position + 8 <= size:
            if descriptor >= 0:
                if pread(descriptor, head, 8, rows.end_position) == 8:
                    window.next_offset = <int64_t>load_be64(head)
            elif rows.end_position - start + 8 <= there.shape[0]:
                window.next_offset = <int64_t>load_be64(&there[rows.end_position - start])
        if window.next_offset is not None:
            window.is_plain = window.next_offset > rows.last_offset
        elif rows.end_position + 8 > size:
            # a gap before the last batch of a file may be a wrong offset
            before = rows.at.last_offset[n - 2] if n > 1 else previous_offset
            base = rows.at.base_offset[n - 1] if rows.at.base_offset[n - 1] >= 0 else rows.at.last_offset[n - 1]
            window.is_plain = base <= before + 1
        window.is_plain = window.is_plain and rises
        return window

    cdef bint offsets_rise(self, int64_t n_records):
        """Return whether the offsets of the records rise, up to the last one of the headers at most."""
        cdef const int64_t* offset = self.filler.columns.offset + self.before.n_records
        cdef int64_t i
        for i in range(1, n_records):
            if offset[i] <= offset[i - 1]:
                return False
        return offset[n_records - 1] <= self.rows.last_offset

    cdef RecordWindow appended(self, int descriptor, int64_t start, int64_t size, int64_t previous_offset, int64_t n,
                               const uint8_t[::1] there):
        """Make the result of records that were appended to other columns; None if they cannot stay there."""
        cdef RecordWindow window = self.described(descriptor, start, size, previous_offset, n, there)
        cdef HeaderRows rows = self.rows
        cdef kl_columns* c = &self.filler.columns
        cdef int64_t first = self.before.n_records
        self.adapt(rows.end_position - start, n)
        if rows.capacity < n + n // 8 or rows.capacity > 4 * n + LEAST_ROWS:
            self.rows = None
        self.drop_large()
        if rows.magics != ONLY_V2 or not window.is_plain or (
                (rows.attribute_bits ^ rows.common_bits) & TIMESTAMP_TYPE_BIT):
            return None
        self.into.hold(c)
        self.into = None
        if window.n_records:
            window.batch = (window.n_records, c.offset[first] if c.offset != NULL else None,
                            1 if rows.common_bits & TIMESTAMP_TYPE_BIT else 0)
        return window

    cdef RecordWindow window(self, Block block, Layout* layout, int descriptor, int64_t start, int64_t size,
                             int64_t previous_offset, int64_t n, data, const uint8_t[::1] there):
        """Make the result from the filled columns."""
        cdef RecordWindow window = self.described(descriptor, start, size, previous_offset, n, there)
        cdef HeaderRows rows = self.rows
        cdef kl_columns* c = &self.filler.columns
        cdef int64_t used = self.filler.used
        cdef bint makes_batch
        # decide before the columns move
        makes_batch = c.n_records and window.is_plain and self.import_batch is not None and self.can_be_arrow()
        self.adapt(rows.end_position - start, n)
        if self.form == 1:
            if data is not None:
                window.data = data
            elif self.room is not None:
                window.data = self.room
                self.room = None
            if used:
                window.arena = self.arena
            if used or not self.rates.is_compressed:
                self.arena = None
        # before the columns are copied: memory never holds a large batch three times
        self.drop_large()
        if not self.is_kept or block.size < HUGE_PAGE:
            block = self.shrunk(block, layout)
        if makes_batch:
            window.batch = self.arrow_batch(block, layout, window, there, rows.end_position - start)
        elif c.n_records:
            window.block = block
            window.columns = self.places(layout)
        if self.import_batch is None or not (window.is_plain and (window.batch is not None or c.n_records == 0)):
            window.rows = rows
            self.rows = None
        elif rows.capacity < n + n // 8 or rows.capacity > 4 * n + LEAST_ROWS:
            self.rows = None
        return window

    cdef dict places(self, Layout* layout):
        """Places of the columns in a block."""
        cdef kl_columns* c = &self.filler.columns
        cdef int64_t n = c.n_records
        found = {}
        if self.has_offset:
            found["offset"] = "i8", n, layout.offset
        if self.has_timestamp:
            found["timestamp"] = "i8", n, layout.timestamp
        if self.has_key:
            found["key"] = self.strings_at(&layout.key, &c.key, n)
        if self.has_value:
            found["value"] = self.strings_at(&layout.value, &c.value, n)
        if self.has_headers:
            found["headers"] = (
                ("i8" if self.form == 2 else "i4", n + 1, layout.header_offsets),
                self.strings_at(&layout.header_key, &c.header_key, c.n_headers),
                self.strings_at(&layout.header_value, &c.header_value, c.n_headers))
        return found

    cdef tuple strings_at(self, Strings* at, kl_binary* column, int64_t n):
        valid = ("?", n, at.valid) if column.n_null else None
        if column.views != NULL:
            return ("u1", 16 * n, at.offsets), valid
        return ("i8" if self.form == 2 else "i4", n + 1, at.offsets), ("u1", column.used, at.bytes), valid

    # ------------------------------------------------------------------------------------------- Arrow

    cdef bint can_be_arrow(self) noexcept:
        """Whether the columns can become an Arrow batch without further conversion."""
        cdef kl_columns* c = &self.filler.columns
        cdef HeaderRows rows = self.rows
        cdef int i
        if c.key.used > MOST_COLUMN_BYTES or c.value.used > MOST_COLUMN_BYTES:
            return False
        for i in range(self.n_fields):
            # v0 has no timestamps, and timestamp types may differ
            if self.kinds[i] == TIMESTAMP and rows.magics & 1:
                return False
            if self.kinds[i] == TIMESTAMP_TYPE and (
                    rows.magics & 1 or (rows.attribute_bits ^ rows.common_bits) & TIMESTAMP_TYPE_BIT):
                return False
            if self.kinds[i] == HEADERS and c.n_headers and (
                    self.form != 0 or c.header_key.used > MOST_COLUMN_BYTES or c.header_value.used > MOST_COLUMN_BYTES
                    or not is_ascii(c.header_key.bytes, c.header_key.used)):
                return False
        return True

    cdef object arrow_batch(self, Block block, Layout* layout, RecordWindow window, const uint8_t[::1] there,
                            int64_t n_viewed):
        """Make the record batch of a schema; it keeps the block alive."""
        cdef kl_columns* c = &self.filler.columns
        cdef int64_t n = c.n_records
        cdef uint8_t* p = <uint8_t*>block.pointer
        cdef const uint8_t* viewed = NULL
        cdef const uint8_t* decompressed = NULL
        cdef int64_t* sizes = <int64_t*>(p + layout.sizes)
        cdef Batch* batch
        cdef ArrowArray top
        cdef ArrowArray* child
        cdef const void** buffers
        cdef int i
        if n > self.n_constants:
            self.make_constants(n)
        kept = (block, window.data, window.arena, self.zeros, self.ones, *self.constants)
        if self.form == 1:
            if isinstance(window.data, Block):
                viewed = <const uint8_t*>(<Block>window.data).pointer
            elif there.shape[0]:
                viewed = &there[0]
            sizes[0] = n_viewed
            if window.arena is not None:
                decompressed = <const uint8_t*>(<Block>window.arena).pointer
                sizes[1] = self.filler.used
        batch = <Batch*>calloc(1, sizeof(Batch))
        if batch == NULL:
            raise MemoryError
        memset(&top, 0, sizeof(top))
        top.length = n
        top.n_buffers = 1
        top.n_children = self.n_fields
        top.buffers = &batch.buffers[0]
        top.children = batch.children
        top.release = release_batch
        top.private_data = batch
        batch.n_alive = 1
        Py_INCREF(kept)
        batch.kept = <PyObject*>kept
        for i in range(self.n_fields):
            child = &batch.child[i]
            buffers = &batch.buffers[6 * (i + 1)]
            batch.children[i] = child
            self.begin(child, batch, buffers, n, 2)
            if self.kinds[i] == OFFSET:
                buffers[1] = p + layout.offset
            elif self.kinds[i] == TIMESTAMP:
                buffers[1] = p + layout.timestamp
            elif self.kinds[i] == TIMESTAMP_TYPE:
                buffers[1] = (self.ones if self.rows.common_bits & TIMESTAMP_TYPE_BIT else self.zeros).pointer
            elif self.kinds[i] == KEY:
                self.put_strings(child, p, &layout.key, &c.key, viewed, decompressed, sizes)
            elif self.kinds[i] == VALUE:
                self.put_strings(child, p, &layout.value, &c.value, viewed, decompressed, sizes)
            elif self.kinds[i] == HEADERS:
                self.put_headers(child, batch, p, layout)
            else:
                self.put_constant(child, i)
        return self.import_batch(<uintptr_t>&top, self.schema)

    cdef void begin(self, ArrowArray* array, Batch* batch, const void** buffers, int64_t n, int n_buffers) noexcept:
        array.length = n
        array.n_buffers = n_buffers
        array.buffers = buffers
        array.release = release_one
        array.private_data = batch
        batch.n_alive += 1

    cdef void put_strings(self, ArrowArray* array, uint8_t* p, Strings* at, kl_binary* column, const uint8_t* viewed,
                          const uint8_t* decompressed, int64_t* sizes) noexcept:
        array.null_count = column.n_null
        if column.n_null:
            pack_bits(p + at.valid, p + at.bits, array.length)
            array.buffers[0] = p + at.bits
        array.buffers[1] = p + at.offsets
        if column.views == NULL:
            array.n_buffers = 3
            array.buffers[2] = p + at.bytes
            return
        # the buffers that views point into, and their sizes
        array.buffers[2] = viewed
        if decompressed == NULL:
            array.n_buffers = 4
            array.buffers[3] = sizes
        else:
            array.n_buffers = 5
            array.buffers[3] = decompressed
            array.buffers[4] = sizes

    cdef void put_headers(self, ArrowArray* array, Batch* batch, uint8_t* p, Layout* layout) noexcept:
        """Make the headers column: a list of structs of key and value."""
        cdef kl_columns* c = &self.filler.columns
        cdef int64_t n = c.n_headers
        cdef int i
        array.buffers[1] = <const void*>(p + layout.header_offsets) if n else self.zeros.pointer
        array.n_children = 1
        array.children = batch.of_list
        batch.of_list[0] = &batch.nested[0]
        for i in range(N_NESTED):
            self.begin(&batch.nested[i], batch, &batch.buffers[6 * (MOST_FIELDS + 1 + i)], n, 3)
        batch.nested[0].n_buffers = 1
        batch.nested[0].n_children = 2
        batch.nested[0].children = batch.of_struct
        batch.nested[0].release = release_batch
        array.release = release_batch
        batch.of_struct[0] = &batch.nested[1]
        batch.of_struct[1] = &batch.nested[2]
        if n:
            self.put_strings(&batch.nested[1], p, &layout.header_key, &c.header_key, NULL, NULL, NULL)
            self.put_strings(&batch.nested[2], p, &layout.header_value, &c.header_value, NULL, NULL, NULL)
        else:
            # views have the buffers validity, views, and an empty list of sizes
            batch.nested[1].buffers[1] = batch.nested[2].buffers[1] = self.zeros.pointer
            batch.nested[1].buffers[2] = batch.nested[2].buffers[2] = self.zeros.pointer

    cdef void put_constant(self, ArrowArray* array, int i) noexcept:
        cdef int64_t n = self.n_constants
        cdef uint8_t* p
        if self.values[i] is None:
            array.null_count = array.length
            array.buffers[0] = array.buffers[1] = self.zeros.pointer
            if self.kinds[i] == TEXT:
                array.n_buffers = 3
                array.buffers[2] = self.zeros.pointer
            return
        p = <uint8_t*>(<Block>self.constants[i]).pointer
        array.buffers[1] = p
        if self.kinds[i] == TEXT:
            array.n_buffers = 3
            array.buffers[2] = p + aligned(4 * (n + 1))

    cdef int make_constants(self, int64_t needed) except -1:
        """Make constant columns of at least `needed` rows."""
        cdef int64_t n = 64
        cdef int64_t size, k
        cdef Block block
        cdef int32_t* numbers
        cdef const char* text
        cdef int32_t number
        cdef int i
        while n < needed:
            n *= 2
        self.zeros = Block(8 * (n + 1))
        memset(self.zeros.pointer, 0, 8 * (n + 1))
        self.ones = Block(n)
        memset(self.ones.pointer, 1, n)
        self.constants = []
        for i in range(self.n_fields):
            block = None
            if self.values[i] is not None and self.kinds[i] == NUMBER:
                block = Block(4 * n)
                numbers = <int32_t*>block.pointer
                number = self.values[i]
                for k in range(n):
                    numbers[k] = number
            elif self.values[i] is not None:
                value = self.values[i].encode()
                size, text = len(value), value
                if size * n > INT32_MAX:
                    raise MemoryError
                block = Block(aligned(4 * (n + 1)) + size * n)
                numbers = <int32_t*>block.pointer
                for k in range(n + 1):
                    numbers[k] = <int32_t>(k * size)
                for k in range(n):
                    memcpy(<char*>block.pointer + aligned(4 * (n + 1)) + k * size, text, size)
            self.constants.append(block)
        self.n_constants = n
        return 0
