"""Writes the headers of v2 batches. Kafka: DefaultRecordBatch.writeHeader."""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kafkalog._kernels.crc cimport crc32c
from kafkalog._kernels.wire cimport wrap_sub

cdef extern from *:
    """
    #include <stdint.h>
    static inline void kl_put_be16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
    static inline void kl_put_be32(uint8_t *p, uint32_t v) {
        p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
    }
    static inline void kl_put_be64(uint8_t *p, uint64_t v) {
        kl_put_be32(p, (uint32_t)(v >> 32)); kl_put_be32(p + 4, (uint32_t)v);
    }
    """
    void put_be16 "kl_put_be16"(uint8_t* p, int v) noexcept nogil
    void put_be32 "kl_put_be32"(uint8_t* p, uint32_t v) noexcept nogil
    void put_be64 "kl_put_be64"(uint8_t* p, uint64_t v) noexcept nogil


cdef enum Field:
    BASE_OFFSET
    LAST_OFFSET
    LEADER_EPOCH
    MAX_TIMESTAMP
    # the largest timestamp of batches that have the type LogAppendTime
    APPEND_TIME
    PRODUCER_ID
    PRODUCER_EPOCH
    BASE_SEQUENCE
    DELETE_HORIZON
    # bits of the attributes
    CODEC
    TIMESTAMP_TYPE
    IS_TRANSACTIONAL
    IS_CONTROL

FIELDS = {
    "base_offset": BASE_OFFSET,
    "last_offset": LAST_OFFSET,
    "leader_epoch": LEADER_EPOCH,
    "max_timestamp": MAX_TIMESTAMP,
    "log_append_time": APPEND_TIME,
    "producer_id": PRODUCER_ID,
    "producer_epoch": PRODUCER_EPOCH,
    "base_sequence": BASE_SEQUENCE,
    "delete_horizon_ms": DELETE_HORIZON,
    "codec": CODEC,
    "timestamp_type": TIMESTAMP_TYPE,
    "is_transactional": IS_TRANSACTIONAL,
    "is_control": IS_CONTROL,
}

cdef enum:
    TIMESTAMP_TYPE_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40

cdef enum Contradiction:
    FINE = 0
    BOUNDARIES_FALL = 1
    # a batch without records, and without offsets of its own
    NO_RECORDS = 2
    BASE_OFFSET_NEGATIVE = 3
    LAST_OFFSET_LOW = 4
    LAST_OFFSET_FAR = 5
    OVERLAP = 6

CONTRADICTIONS = {
    "FINE": FINE,
    "BOUNDARIES_FALL": BOUNDARIES_FALL,
    "NO_RECORDS": NO_RECORDS,
    "BASE_OFFSET_NEGATIVE": BASE_OFFSET_NEGATIVE,
    "LAST_OFFSET_LOW": LAST_OFFSET_LOW,
    "LAST_OFFSET_FAR": LAST_OFFSET_FAR,
    "OVERLAP": OVERLAP,
}


cdef class Heads:
    """Header fields of v2 batches, a row per batch: filled field by field, then from the records.

    Until then, epochs, sequences, producers, the delete horizon and the largest timestamp are -1, and all else is 0.
    """

    def __cinit__(self, Py_ssize_t n):
        cdef Py_ssize_t i
        cdef Head* row
        if n < 0:
            raise ValueError("no number of batches is negative")
        self.rows = <Head*>calloc(n if n else 1, sizeof(Head))
        if self.rows == NULL:
            raise MemoryError()
        for i in range(n):
            row = &self.rows[i]
            row.max_timestamp = row.producer_id = row.delete_horizon = -1
            row.leader_epoch = row.base_sequence = -1
            row.producer_epoch = -1
        self.n = n

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.n

    def __getitem__(self, Py_ssize_t row):
        """Return base offset and last offset of a batch."""
        if not 0 <= row < self.n:
            raise IndexError(row)
        return self.rows[row].base_offset, self.rows[row].last_offset

    def fill(self, int field, value):
        """Set a field to a number, or to an int64 array with one number per batch. Bits are added, never removed."""
        cdef const int64_t[::1] values
        cdef int64_t number
        cdef Py_ssize_t i
        if isinstance(value, int):
            number = value
            for i in range(self.n):
                self.put(field, i, number)
            return
        values = value
        if values.shape[0] != self.n:
            raise ValueError("columns differ in length")
        for i in range(self.n):
            self.put(field, i, values[i])

    cdef void put(self, int field, Py_ssize_t i, int64_t number) noexcept nogil:
        cdef Head* row = &self.rows[i]
        if field == BASE_OFFSET:
            row.base_offset = number
        elif field == LAST_OFFSET:
            row.last_offset = number
        elif field == LEADER_EPOCH:
            row.leader_epoch = <int32_t>number
        elif field == MAX_TIMESTAMP:
            row.max_timestamp = number
        elif field == APPEND_TIME:
            if row.attributes & TIMESTAMP_TYPE_BIT:
                row.max_timestamp = number
        elif field == PRODUCER_ID:
            row.producer_id = number
        elif field == PRODUCER_EPOCH:
            row.producer_epoch = <int16_t>number
        elif field == BASE_SEQUENCE:
            row.base_sequence = <int32_t>number
        elif field == DELETE_HORIZON:
            row.delete_horizon = number
        elif field == CODEC:
            # Kafka stores no payload for a batch without records, and sets codec 0
            if row.records_count:
                row.attributes |= <int16_t>(number & 7)
        elif field == TIMESTAMP_TYPE:
            row.attributes |= TIMESTAMP_TYPE_BIT if number else 0
        elif field == IS_TRANSACTIONAL:
            row.attributes |= TRANSACTIONAL_BIT if number else 0
        elif field == IS_CONTROL:
            row.attributes |= CONTROL_BIT if number else 0

    def begin(self, const int64_t[::1] boundaries not None, const int64_t[::1] offset not None,
              const int64_t[::1] timestamp not None, bint has_base_offset, bint has_last_offset):
        """Take counts, offsets and base timestamps from the records. Return `(contradiction, batch)`."""
        cdef Py_ssize_t n_records = offset.shape[0]
        cdef Py_ssize_t i, start, stop
        cdef Head* row
        if boundaries.shape[0] != self.n + 1 or timestamp.shape[0] != n_records:
            raise ValueError("columns differ in length")
        for i in range(self.n):
            start, stop = boundaries[i], boundaries[i + 1]
            if start < 0 or stop < start or stop > n_records:
                return BOUNDARIES_FALL, i
        for i in range(self.n):
            start, stop = boundaries[i], boundaries[i + 1]
            row = &self.rows[i]
            row.records_count = <int32_t>min(stop - start, INT32_MAX)
            row.base_timestamp = -1
            if start == stop:
                if not has_base_offset or not has_last_offset:
                    return NO_RECORDS, i
                continue
            if not has_base_offset:
                row.base_offset = offset[start]
            if not has_last_offset:
                row.last_offset = offset[stop - 1]
            row.base_timestamp = timestamp[start]
            if row.delete_horizon >= 0:
                row.base_timestamp = row.delete_horizon
                row.attributes |= DELETE_HORIZON_BIT
        for i in range(self.n):
            if self.rows[i].base_offset < 0:
                return BASE_OFFSET_NEGATIVE, i
        return FINE, 0

    def check(self, const int64_t[::1] boundaries not None, const int64_t[::1] offset not None):
        """Compare offsets with the records and the neighbouring batches. Return `(contradiction, batch)`."""
        cdef Py_ssize_t i, stop
        cdef Head* row
        if boundaries.shape[0] != self.n + 1:
            raise ValueError("columns differ in length")
        for i in range(self.n):
            row, stop = &self.rows[i], boundaries[i + 1]
            if row.last_offset < row.base_offset or row.base_offset < 0:
                return LAST_OFFSET_LOW, i
            if 0 < stop <= offset.shape[0] and row.records_count and row.last_offset < offset[stop - 1]:
                return LAST_OFFSET_LOW, i
        for i in range(self.n):
            if self.rows[i].last_offset - self.rows[i].base_offset > INT32_MAX:
                return LAST_OFFSET_FAR, i
        for i in range(1, self.n):
            if self.rows[i].base_offset <= self.rows[i - 1].last_offset:
                return OVERLAP, i
        return FINE, 0

    def number_sequences(self, int64_t first):
        """Number the batches from a base sequence on. An offset that is left out takes a number, too."""
        cdef Py_ssize_t i
        cdef uint64_t at = <uint64_t>first
        for i in range(self.n):
            at &= 0x7FFFFFFF
            self.rows[i].base_sequence = <int32_t>at
            at += (<uint64_t>wrap_sub(self.rows[i].last_offset, self.rows[i].base_offset) & 0x7FFFFFFF) + 1

    cdef void write(self, Py_ssize_t row, uint8_t* p, int64_t size) noexcept nogil:
        """Write the header in front of its records; `size` includes both."""
        cdef Head* head = &self.rows[row]
        put_be64(p, <uint64_t>head.base_offset)
        put_be32(p + 8, <uint32_t>(size - 12))
        put_be32(p + 12, <uint32_t>head.leader_epoch)
        p[16] = 2
        put_be16(p + 21, head.attributes)
        put_be32(p + 23, <uint32_t><int32_t>wrap_sub(head.last_offset, head.base_offset))
        put_be64(p + 27, <uint64_t>head.base_timestamp)
        put_be64(p + 35, <uint64_t>head.max_timestamp)
        put_be64(p + 43, <uint64_t>head.producer_id)
        put_be16(p + 51, head.producer_epoch)
        put_be32(p + 53, <uint32_t>head.base_sequence)
        put_be32(p + 57, <uint32_t>head.records_count)
        # last, since it covers everything from byte 21 on, including the records
        put_be32(p + 17, crc32c(p + 21, size - 21))


def write_heads(Heads heads not None, Py_ssize_t first_batch, const int64_t[::1] position not None,
                const int64_t[::1] size not None, uint8_t[::1] out not None):
    """Write the headers of batches whose records are in `out`, 61 bytes after each position."""
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t i
    cdef int64_t room = out.shape[0]
    cdef bint outside = False
    if size.shape[0] != n or first_batch < 0 or first_batch > heads.n - n:
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(n):
            if not HEADER_BYTES <= size[i] <= INT32_MAX or position[i] < 0 or size[i] > room - position[i]:
                outside = True
                break
            heads.write(first_batch + i, &out[position[i]], size[i])
    if outside:
        raise ValueError("a batch lies outside the output")
