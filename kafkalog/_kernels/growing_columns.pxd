# Columns of records that grow while kernels append to them.

from libc.stdint cimport int64_t

from kafkalog._kernels.buffer_pool cimport Growing
from kafkalog._kernels.fill cimport kl_binary, kl_columns


cdef struct Room:
    # available room
    int64_t n_rows
    int64_t key
    int64_t value
    int64_t n_headers
    int64_t header_key
    int64_t header_value


cdef class GrowingStrings:
    cdef readonly Growing offsets
    cdef readonly Growing data
    cdef readonly Growing validity
    cdef public int64_t n_null

    cdef int64_t n_rows(self) noexcept
    cdef int lend(self, kl_binary* to, int64_t n_rows, int64_t n_bytes, double more) except -1
    cdef int take(self, const kl_binary* filled, int64_t n) except -1


cdef class GrowingHeaders:
    cdef readonly Growing offsets
    cdef readonly GrowingStrings key
    cdef readonly GrowingStrings value


cdef class GrowingRecords:
    cdef readonly Growing offset
    cdef readonly Growing timestamp
    cdef readonly GrowingStrings key
    cdef readonly GrowingStrings value
    cdef readonly GrowingHeaders headers
    cdef public int64_t n
    cdef kl_columns filled
    cdef int64_t n_before
    cdef int64_t n_filled

    cdef int lend(self, kl_columns* to, const Room* room, double more) except -1
    cdef void hold(self, const kl_columns* filled) noexcept
