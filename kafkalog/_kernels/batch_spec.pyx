"""Writes the headers of v2 batches. Kafka: DefaultRecordBatch.writeHeader."""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

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


cdef class Heads:
    """Header fields of v2 batches, one row per batch."""

    def __cinit__(self, const int64_t[::1] base_offset not None, const int64_t[::1] last_offset not None,
                  const int32_t[::1] leader_epoch not None, const int16_t[::1] attributes not None,
                  const int64_t[::1] base_timestamp not None, const int64_t[::1] max_timestamp not None,
                  const int64_t[::1] producer_id not None, const int16_t[::1] producer_epoch not None,
                  const int32_t[::1] base_sequence not None, const int32_t[::1] records_count not None):
        cdef Py_ssize_t n = base_offset.shape[0]
        if (last_offset.shape[0] != n or leader_epoch.shape[0] != n or attributes.shape[0] != n
                or base_timestamp.shape[0] != n or max_timestamp.shape[0] != n or producer_id.shape[0] != n
                or producer_epoch.shape[0] != n or base_sequence.shape[0] != n or records_count.shape[0] != n):
            raise ValueError("columns differ in length")
        self.n = n
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.leader_epoch = leader_epoch
        self.attributes = attributes
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.records_count = records_count

    def __len__(self):
        return self.n

    cdef void write(self, Py_ssize_t row, uint8_t* p, int64_t size) noexcept nogil:
        """Write the header in front of its records; `size` includes both."""
        put_be64(p, <uint64_t>self.base_offset[row])
        put_be32(p + 8, <uint32_t>(size - 12))
        put_be32(p + 12, <uint32_t>self.leader_epoch[row])
        p[16] = 2
        put_be16(p + 21, self.attributes[row])
        put_be32(p + 23, <uint32_t><int32_t>wrap_sub(self.last_offset[row], self.base_offset[row]))
        put_be64(p + 27, <uint64_t>self.base_timestamp[row])
        put_be64(p + 35, <uint64_t>self.max_timestamp[row])
        put_be64(p + 43, <uint64_t>self.producer_id[row])
        put_be16(p + 51, self.producer_epoch[row])
        put_be32(p + 53, <uint32_t>self.base_sequence[row])
        put_be32(p + 57, <uint32_t>self.records_count[row])
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
