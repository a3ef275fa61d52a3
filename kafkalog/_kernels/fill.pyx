"""Fills columns from valid batches: checks, decompresses, parses and copies each batch while it is in cache.

Kafka: DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memcpy, memset

from kafkalog._kernels.crc cimport crc32c, xxh32

cdef enum:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    MIN_RECORD_BYTES = 7
    CRC_START = 21
    OVERHEAD = 61
    LINE = 64
    LEAST_ASKED = 32
    MOST_LINES = 4

PAD = KL_PAD
ENDINGS = {"done": ALL_DONE, "in doubt": IN_DOUBT, "columns full": COLUMNS_FULL, "arena full": ARENA_FULL}
LEVELS = ("portable", "avx2", "pext")


def use_level(int level):
    """Select the code of a level of `LEVELS`, or the best lower one the CPU can run. Return its name. For tests."""
    return LEVELS[kl_walk_setup(level)]


implementation = use_level(2)


cdef class Codecs:
    """Decompressors of one thread.

    The addresses are those of functions in libzstd and libdeflate. Codecs without an address are not supported.
    """

    def __cinit__(self, zstd=None, deflate=None, libraries=None):
        cdef uintptr_t address[7]
        cdef int i
        memset(&self.codecs, 0, sizeof(kl_codecs))
        self.codecs.xxh32 = xxh32
        # must not be unloaded while their functions are in use
        self.libraries = libraries
        for i in range(7):
            address[i] = 0
        if zstd is not None:
            for i in range(4):
                address[i] = zstd[i]
        if deflate is not None:
            for i in range(3):
                address[4 + i] = deflate[i]
        memcpy(&self.codecs.of, address, sizeof(address))

    def __dealloc__(self):
        if self.codecs.zstd != NULL:
            self.codecs.of.zstd_free(self.codecs.zstd)
        if self.codecs.deflate != NULL:
            self.codecs.of.deflate_free(self.codecs.deflate)

    def knows(self, int codec):
        """Whether this can decompress payloads of a codec."""
        return bool(kl_knows(&self.codecs, codec))

    def decompress(self, int codec, const uint8_t[::1] data not None, uint8_t[::1] to not None):
        """Decompress one payload. Return its size, -1 if the exact decoder must examine it, or -2 without room.

        The last `PAD` bytes of `to` do not count as room.
        """
        cdef const uint8_t* source = b""
        cdef int64_t n
        if to.shape[0] < KL_PAD:
            raise ValueError("no room for the padding")
        if data.shape[0]:
            source = &data[0]
        with nogil:
            n = kl_decompress(&self.codecs, codec, source, data.shape[0], &to[0], to.shape[0] - KL_PAD)
        return n


cdef class Columns:
    """Columns under construction; None for columns that are not selected.

    A column of byte strings is ``(offsets, data, valid)``: int32 or int64 offsets with one element more than
    rows, and data whose last `PAD` bytes do not count as room. Or it has views: ``(views, valid)``. Headers are
    ``(offsets, key, value)``, where key and value are such columns.

    Attributes
    ----------
    n_records, n_headers : int
        Filled so far.
    """

    def __cinit__(self, int64_t capacity, int64_t[::1] offset, int64_t[::1] timestamp, key, value, headers):
        cdef kl_columns* columns = &self.columns
        memset(columns, 0, sizeof(kl_columns))
        self.kept = [offset, timestamp]
        columns.capacity = capacity
        if capacity < 0:
            raise ValueError("capacity must not be negative")
        if offset is not None and capacity:
            if offset.shape[0] < capacity:
                raise ValueError("there are fewer offsets than rows")
            columns.offset = &offset[0]
        if timestamp is not None and capacity:
            if timestamp.shape[0] < capacity:
                raise ValueError("there are fewer timestamps than rows")
            columns.timestamp = &timestamp[0]
        self.take(&columns.key, key, capacity)
        self.take(&columns.value, value, capacity)
        # the modes are 0, 1 and 2: only one copy and one view give this sum
        if columns.key.mode + columns.value.mode == KL_COPY + KL_VIEW:
            raise ValueError("keys and values are both copied, or both viewed")
        if headers is not None:
            columns.with_headers = 1
            self.take_offsets(headers[0], capacity, &columns.header_offsets, &columns.wide_header_offsets)
            columns.header_capacity = headers[1][0].shape[0] - 1
            self.take(&columns.header_key, headers[1], columns.header_capacity)
            self.take(&columns.header_value, headers[2], columns.header_capacity)
            if columns.header_key.mode != KL_COPY or columns.header_value.mode != KL_COPY:
                raise ValueError("headers are copied")

    cdef int take_offsets(self, offsets, int64_t capacity, int32_t** narrow, int64_t** wide) except -1:
        cdef int32_t[::1] narrow_offsets
        cdef int64_t[::1] wide_offsets
        if offsets.dtype.itemsize == 4:
            narrow_offsets = offsets
            self.kept.append(narrow_offsets)
            if narrow_offsets.shape[0] <= capacity:
                raise ValueError("there are fewer offsets than rows and one")
            narrow[0] = &narrow_offsets[0]
            narrow_offsets[0] = 0
        else:
            wide_offsets = offsets
            self.kept.append(wide_offsets)
            if wide_offsets.shape[0] <= capacity:
                raise ValueError("there are fewer offsets than rows and one")
            wide[0] = &wide_offsets[0]
            wide_offsets[0] = 0
        return 0

    cdef int take(self, kl_binary* column, arrays, int64_t capacity) except -1:
        cdef uint8_t[::1] data
        cdef uint8_t[::1] valid
        column.mode = KL_SKIP
        if arrays is None:
            return 0
        data = arrays[len(arrays) - 2]
        valid = arrays[len(arrays) - 1]
        self.kept += [data, valid]
        if valid.shape[0] < capacity:
            raise ValueError("there is less validity than rows")
        column.valid = &valid[0] if capacity else NULL
        if len(arrays) == 2:
            if data.shape[0] // 16 < capacity:
                raise ValueError("there are fewer views than rows")
            column.mode = KL_VIEW
            column.views = &data[0] if capacity else NULL
            return 0
        column.mode = KL_COPY
        self.take_offsets(arrays[0], capacity, &column.offsets, &column.wide_offsets)
        # views have 32 bits for a position
        if data.shape[0] < KL_PAD or data.shape[0] > 0x7FFFFFFF:
            raise ValueError("no room for the padding, or 2 GiB and more")
        column.bytes = &data[0]
        column.room = data.shape[0] - KL_PAD
        return 0

    @property
    def n_records(self):
        return self.columns.n_records

    @property
    def n_headers(self):
        return self.columns.n_headers

    def sizes(self):
        """``(bytes, nulls)`` of key, value, header key and header value."""
        cdef kl_columns* c = &self.columns
        return ((c.key.used, c.key.n_null), (c.value.used, c.value.n_null),
                (c.header_key.used, c.header_key.n_null), (c.header_value.used, c.header_value.n_null))


cdef class Filler:
    """Fills columns with the records of batches; holds the columns, the codecs and limits.

    With `codecs`, compressed payloads are decompressed into `arena`, whose last `PAD` bytes do not count as room.
    Without, all payloads are uncompressed. Views keep the arena: they refer to buffer 0 for uncompressed payloads, and
    to buffer 1, the arena, for others.

    Attributes
    ----------
    arena_used : int
        Bytes of the arena in use, including a payload for which the columns had no room.
    n_bytes : int
        Decompressed bytes of the payloads filled in.
    """

    def __cinit__(self, Columns columns not None, Codecs codecs, uint8_t[::1] arena, int32_t max_records,
                  int32_t max_headers, int32_t max_batch_headers, int64_t max_decompressed):
        if max_batch_headers < 0 or max_headers < 0:
            raise ValueError("a limit is negative")
        self.columns = columns
        self.codecs = codecs
        self.arena = arena
        self.room = NULL
        self.arena_room = self.used = self.filled = 0
        self.max_records = max_records
        self.max_headers = max_headers
        self.max_batch_headers = max_batch_headers
        self.max_decompressed = max_decompressed
        self.is_in_memory = False
        self.views = columns.columns.key.mode == KL_VIEW or columns.columns.value.mode == KL_VIEW
        if codecs is not None:
            if arena is None or not KL_PAD <= arena.shape[0] <= 0x7FFFFFFF:
                raise ValueError("there is no arena, or one of 2 GiB or more")
            self.room = &arena[0]
            self.arena_room = arena.shape[0] - KL_PAD

    @property
    def arena_used(self):
        return self.used

    @property
    def n_bytes(self):
        return self.filled

    cdef int fill(self, const uint8_t* payload, int64_t size, const uint8_t* origin, const uint8_t* readable,
                  int64_t base_offset, int64_t base_timestamp, int64_t max_timestamp, int16_t attributes,
                  int32_t records_count) noexcept nogil:
        """Fill in all records of one batch or none. Return the status.

        Positions of views start at `origin`. Memory may be read up to `readable`.
        """
        cdef kl_columns* out = &self.columns.columns
        cdef int codec = attributes & CODEC_MASK if self.codecs is not None else 0
        cdef kl_batch batch
        if records_count < 0 or records_count > self.max_records or codec > KL_ZSTD:
            return IN_DOUBT
        if records_count == 0:
            return ALL_DONE
        batch.payload = payload
        batch.end = payload + size
        batch.readable = readable
        batch.origin = origin
        if codec:
            # without views, the arena is needed only while one batch is parsed
            if not self.views:
                self.used = 0
            size = kl_decompress(&self.codecs.codecs, codec, payload, size, self.room + self.used,
                                 self.arena_room - self.used)
            if size == KL_NO_ROOM:
                return ARENA_FULL
            # the exact decoder repeats this, and tells a damaged stream from one above the limit
            if size < 0 or size > self.max_decompressed:
                return IN_DOUBT
            batch.payload = self.room + self.used
            batch.end = batch.payload + size
            batch.readable = batch.end + KL_PAD
            batch.origin = self.room
            self.used += size
        # a record has at least 7 bytes: an impossible count must not size a column
        if records_count > size // MIN_RECORD_BYTES:
            return IN_DOUBT
        if not kl_has_room(out, size, records_count):
            return COLUMNS_FULL
        batch.base_offset = base_offset
        batch.base_timestamp = base_timestamp
        batch.append_time = max_timestamp
        batch.count = records_count
        batch.appended = attributes & LOG_APPEND_TIME_BIT != 0
        batch.max_headers = self.max_headers
        batch.max_batch_headers = self.max_batch_headers
        # decompressed bytes are in cache already; for tiny or very large records, prefetching does not pay
        batch.lines_ahead = 0
        if self.is_in_memory and codec == 0 and size >= LEAST_ASKED * <int64_t>records_count:
            batch.lines_ahead = min(size // (LINE * <int64_t>records_count) + 1, MOST_LINES)
        out.key.buffer = codec != 0
        out.value.buffer = out.key.buffer
        if not kl_walk_batch(&batch, out):
            return IN_DOUBT
        self.filled += size
        return ALL_DONE

    cdef int fill_message(self, const uint8_t* message, int64_t size, const uint8_t* origin, const uint8_t* readable,
                          int magic, int16_t attributes, int64_t offset, int64_t timestamp,
                          int32_t* n_filled) noexcept nogil:
        """Fill in a v0 or v1 message like `fill`; `n_filled` is its number of records, several if it is compressed.

        A compressed message must hold messages of its own magic.
        """
        cdef kl_columns* out = &self.columns.columns
        cdef int codec = attributes & CODEC_MASK
        cdef const uint8_t* value = NULL
        cdef const uint8_t* key = NULL
        cdef int32_t key_size = 0
        cdef int32_t value_size = 0
        cdef int64_t last = 0
        cdef int64_t shift = 0
        cdef int64_t n = 1
        n_filled[0] = 0
        out.key.buffer = codec != 0
        out.value.buffer = out.key.buffer
        if codec == 0:
            if n > self.max_records:
                return IN_DOUBT
            if not kl_has_room_for_strings(out, size, 1):
                return COLUMNS_FULL
            if not kl_put_message(out, message, message + size, readable, origin, magic, offset, timestamp):
                return IN_DOUBT
            n_filled[0] = 1
            self.filled += size
            return ALL_DONE
        value = kl_message_value(message, message + size, magic, &key, &key_size, &value_size)
        # zstd exists from v2 on; LZ4 frames in v0 have a different header checksum
        if codec >= KL_ZSTD or (codec == KL_LZ4 and magic == 0):
            return IN_DOUBT
        if self.codecs is None or value == NULL or value_size < 0:
            return IN_DOUBT
        if not self.views:
            self.used = 0
        size = kl_decompress(&self.codecs.codecs, codec, value, value_size, self.room + self.used,
                             self.arena_room - self.used)
        if size == KL_NO_ROOM:
            return ARENA_FULL
        if size < 0 or size > self.max_decompressed:
            return IN_DOUBT
        value = self.room + self.used
        self.used += size
        n = kl_count_messages(value, size, magic, &last)
        if n == 0 or n > self.max_records:
            return IN_DOUBT
        # relative offsets; if the wrapper's offset is 0, as librdkafka writes it, the base is 0
        if magic != 0 and offset != 0:
            if offset < last or last < 0:
                return IN_DOUBT
            shift = offset - last
        if not kl_has_room_for_strings(out, size, n):
            return COLUMNS_FULL
        if not kl_walk_messages(out, value, size, value + size + KL_PAD, self.room, magic, shift,
                                attributes & LOG_APPEND_TIME_BIT != 0, timestamp):
            return IN_DOUBT
        n_filled[0] = <int32_t>n
        self.filled += size
        return ALL_DONE


def fill_columns(const uint8_t[::1] data not None, const int64_t[::1] payload_start not None,
                 const int64_t[::1] payload_end not None, const int64_t[::1] base_offset not None,
                 const int64_t[::1] base_timestamp not None, const int64_t[::1] max_timestamp not None,
                 const int16_t[::1] attributes not None, const int32_t[::1] records_count not None,
                 const uint32_t[::1] crc not None, bint check_crc, Filler filler not None):
    """Fill columns with the records of batches whose payloads lie in `data`, up to the first invalid batch.

    With `check_crc`, the header of a batch must lie right before its payload, and its checksum is compared. The call
    ends before a batch that needs the exact decoder (`IN_DOUBT`), and before one that does not fit into columns or
    arena.

    Returns
    -------
    (ending, n_batches)
    """
    cdef Py_ssize_t n_batches = payload_start.shape[0]
    cdef Py_ssize_t row
    cdef Py_ssize_t done = 0
    cdef int64_t start, size
    cdef int ending = ALL_DONE
    cdef const uint8_t* origin = b""
    cdef const uint8_t* line
    if (payload_end.shape[0] != n_batches or base_offset.shape[0] != n_batches or base_timestamp.shape[0] != n_batches
            or max_timestamp.shape[0] != n_batches or attributes.shape[0] != n_batches
            or records_count.shape[0] != n_batches or crc.shape[0] != n_batches):
        raise ValueError("batch columns differ in length")
    if data.shape[0] > 0x7FFFFFFF:
        raise ValueError("data is 2 GiB or more")
    for row in range(n_batches):
        if payload_start[row] < (OVERHEAD if check_crc else 0) or payload_end[row] < payload_start[row] or \
                payload_end[row] > data.shape[0]:
            raise ValueError("a payload lies outside data")
    if data.shape[0]:
        origin = &data[0]
    filler.is_in_memory = check_crc
    with nogil:
        for row in range(n_batches):
            start = payload_start[row]
            size = payload_end[row] - start
            if check_crc:
                if crc32c(origin + start - (OVERHEAD - CRC_START), size + (OVERHEAD - CRC_START)) != crc[row]:
                    ending = IN_DOUBT
                    break
            elif filler.codecs is None or attributes[row] & CODEC_MASK == 0:
                # parsing is bound by latency: prefetch the batch
                line = origin + start
                while line < origin + start + size:
                    kl_prefetch(line)
                    line += 64
            ending = filler.fill(origin + start, size, origin, origin + data.shape[0], base_offset[row],
                                 base_timestamp[row], max_timestamp[row], attributes[row], records_count[row])
            if ending != ALL_DONE:
                break
            done += 1
    return ending, done


def decompress_payloads(const uint8_t[::1] data not None, const int64_t[::1] payload_start not None,
                        const int64_t[::1] payload_end not None, const int16_t[::1] attributes not None,
                        const int32_t[::1] records_count not None, int32_t max_records, int64_t max_decompressed,
                        Codecs codecs not None, uint8_t[::1] arena not None, int64_t used, int64_t stop_at,
                        int64_t[::1] ends not None):
    """Decompress payloads one after another into `arena`, from `used` on. Return their number.

    Uncompressed payloads are copied, and batches without records are skipped. `ends` receives the end of each payload.
    The call ends once `stop_at` bytes are used, and before a batch that is invalid, needs the exact decoder, or does
    not fit.
    """
    cdef Py_ssize_t n = payload_start.shape[0]
    cdef Py_ssize_t row
    cdef Py_ssize_t done = 0
    cdef int64_t size
    cdef int64_t room = arena.shape[0] - KL_PAD
    cdef int codec
    cdef const uint8_t* origin = b""
    if (payload_end.shape[0] != n or attributes.shape[0] != n or records_count.shape[0] != n or ends.shape[0] != n):
        raise ValueError("batch columns differ in length")
    for row in range(n):
        if payload_start[row] < 0 or payload_end[row] < payload_start[row] or payload_end[row] > data.shape[0]:
            raise ValueError("a payload lies outside data")
    if used < 0:
        raise ValueError("the place lies outside the arena")
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        for row in range(n):
            codec = attributes[row] & CODEC_MASK
            if used >= stop_at or used > room or records_count[row] > max_records or codec > KL_ZSTD:
                break
            size = 0
            if records_count[row] != 0:
                size = payload_end[row] - payload_start[row]
                if codec:
                    size = kl_decompress(&codecs.codecs, codec, origin + payload_start[row], size, &arena[0] + used,
                                         room - used)
                    if size < 0 or size > max_decompressed:
                        break
                else:
                    if size > room - used:
                        break
                    memcpy(&arena[0] + used, origin + payload_start[row], size)
            used += size
            ends[row] = used
            done += 1
    return done


def view_strings(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, uint8_t[::1] views not None):
    """Write an Arrow view of 16 bytes for each byte string of a column.

    It has the size, then up to 12 bytes, or the first four bytes and the position of the string.

    Raises
    ------
    ValueError
        A string is not in the first 2 GiB of the column.
    """
    cdef Py_ssize_t n = offsets.shape[0] - 1
    cdef Py_ssize_t i
    cdef int64_t start, stop, size
    cdef int32_t word[4]
    cdef bint outside = False
    cdef const uint8_t* origin = b""
    if n < 0 or views.shape[0] != 16 * n:
        raise ValueError("there are not as many views as strings")
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        for i in range(n):
            start = offsets[i]
            stop = offsets[i + 1]
            if start < 0 or start > 0x7FFFFFFF or stop < start or stop > data.shape[0] or stop - start > 0x7FFFFFFF:
                outside = True
                break
            size = stop - start
            word[0] = <int32_t>size
            word[1] = 0
            word[2] = 0
            word[3] = 0
            if size <= 12:
                memcpy(&word[1], origin + start, size)
            else:
                memcpy(&word[1], origin + start, 4)
                word[3] = <int32_t>start
            memcpy(&views[16 * i], word, 16)
    if outside:
        raise ValueError("a string lies outside its column, or after its first 2 GiB")
