# Bytes that own their memory, for kernels that do not know the size of their results in advance.

cimport cython
from libc.stdint cimport int64_t, uint8_t


@cython.final
cdef class Block:
    cdef void* pointer
    cdef int64_t size
    cdef int64_t capacity
    cdef bint is_cut_out


@cython.final
cdef class Growing:
    cdef void* pointer
    cdef int64_t size
    cdef int64_t capacity
    cdef int n_views
    cdef bint is_huge

    cdef int reserve(self, int64_t size, double more=*) except -1
    cdef bint renewed(self) noexcept
    cdef int resize(self, int64_t wanted, int64_t least) except -1


cdef bint populated(const uint8_t* pointer, int64_t size) noexcept nogil
cdef void dropped(const uint8_t* pointer, int64_t size) noexcept nogil
