from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    HEADER_BYTES = 61


cdef class Heads:
    cdef Py_ssize_t n
    cdef const int64_t[::1] base_offset
    cdef const int64_t[::1] last_offset
    cdef const int32_t[::1] leader_epoch
    cdef const int16_t[::1] attributes
    cdef const int64_t[::1] base_timestamp
    cdef const int64_t[::1] max_timestamp
    cdef const int64_t[::1] producer_id
    cdef const int16_t[::1] producer_epoch
    cdef const int32_t[::1] base_sequence
    cdef const int32_t[::1] records_count

    cdef void write(self, Py_ssize_t row, uint8_t* p, int64_t size) noexcept nogil
