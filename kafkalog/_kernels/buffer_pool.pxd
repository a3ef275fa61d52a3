# Bytes that own their memory, for kernels that do not know the size of their results in advance.

cimport cython
from libc.stdint cimport int64_t, uint8_t


@cython.final
cdef class Block:
    cdef void* pointer
    cdef int64_t size
    cdef int64_t capacity
    cdef bint is_cut_out


cdef bint populated(const uint8_t* pointer, int64_t size) noexcept nogil
cdef void dropped(const uint8_t* pointer, int64_t size) noexcept nogil
