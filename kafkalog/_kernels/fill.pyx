"""Fills columns from valid batches: checks, decompresses, parses and copies each batch while it is in cache.

Kafka: DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from kafkalog._kernels.crc cimport xxh32

cdef enum:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    MIN_RECORD_BYTES = 7
    LINE = 64
    LEAST_ASKED = 32
    MOST_LINES = 4

PAD = KL_PAD
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


cdef class Filler:
    """Fills columns with the records of batches; holds the columns, the codecs and limits.

    Its owner sets `columns` and `room`. With `codecs`, compressed payloads are decompressed into `room`, after which
    there are `KL_PAD` more bytes. Without, all payloads are uncompressed. Views keep the room: they refer to buffer 0
    for uncompressed payloads, and to buffer 1, the room, for others. `used` counts bytes of the room, including a
    payload for which the columns had no room; `filled` counts the decompressed bytes of the payloads filled in.
    """

    def __cinit__(self, int32_t max_records, int32_t max_headers, int32_t max_batch_headers, int64_t max_decompressed,
                  bint views):
        if max_batch_headers < 0 or max_headers < 0:
            raise ValueError("a limit is negative")
        memset(&self.columns, 0, sizeof(kl_columns))
        self.room = NULL
        self.room_size = self.used = self.filled = 0
        self.max_records = max_records
        self.max_headers = max_headers
        self.max_batch_headers = max_batch_headers
        self.max_decompressed = max_decompressed
        self.is_in_memory = False
        self.views = views

    cdef int fill(self, const uint8_t* payload, int64_t size, const uint8_t* origin, const uint8_t* readable,
                  int64_t base_offset, int64_t base_timestamp, int64_t max_timestamp, int16_t attributes,
                  int32_t records_count) noexcept nogil:
        """Fill in all records of one batch or none. Return the status.

        Positions of views start at `origin`. Memory may be read up to `readable`.
        """
        cdef kl_columns* out = &self.columns
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
                                 self.room_size - self.used)
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
                          int magic, int16_t attributes, int64_t offset, int64_t timestamp, int64_t previous_offset,
                          int32_t* n_filled) noexcept nogil:
        """Fill in a v0 or v1 message like `fill`; `n_filled` is its number of records, several if it is compressed.

        A compressed message must hold messages of its own magic, whose offsets increase and are above
        `previous_offset`: the exact decoder's reader reports others.
        """
        cdef kl_columns* out = &self.columns
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
                             self.room_size - self.used)
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
        if kl_signed_64(value) + shift <= previous_offset:
            return IN_DOUBT
        if not kl_has_room_for_strings(out, size, n):
            return COLUMNS_FULL
        if not kl_walk_messages(out, value, size, value + size + KL_PAD, self.room, magic, shift,
                                attributes & LOG_APPEND_TIME_BIT != 0, timestamp):
            return IN_DOUBT
        n_filled[0] = <int32_t>n
        self.filled += size
        return ALL_DONE


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
