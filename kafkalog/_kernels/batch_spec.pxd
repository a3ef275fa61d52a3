from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    HEADER_BYTES = 61


cdef struct Head:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int64_t delete_horizon
    int32_t leader_epoch
    int32_t base_sequence
    int32_t records_count
    int16_t attributes
    int16_t producer_epoch


cdef class Heads:
    cdef Py_ssize_t n
    cdef Head* rows

    cdef void put(self, int field, Py_ssize_t i, int64_t number) noexcept nogil
    cdef void write(self, Py_ssize_t row, uint8_t* p, int64_t size) noexcept nogil
