"""Memory that comes back: blocks for windows and columns, kept for the next when the last array on them is gone.

A fresh page costs more than filling it does, and allocators give large blocks back to the system as soon as they are
free. Here a bounded number of bytes stays.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t
from libc.stdlib cimport free

cdef extern from "stdlib.h":
    int posix_memalign(void** pointer, size_t alignment, size_t size) noexcept nogil

cdef enum:
    SLOTS = 64
    SMALLEST = 65536
    LARGEST = 16777216
    # of a cache line and a page: behind malloc's own header, copies out of the page cache take a third longer
    ALIGNMENT = 4096

cdef int64_t KEPT_BYTES = 3 * LARGEST // 2

cdef struct Pool:
    void* pointer[SLOTS]
    int64_t size[SLOTS]
    int n
    int64_t n_bytes

cdef Pool pool
cdef cython.pymutex lock
pool.n = 0
pool.n_bytes = 0


cdef int64_t rounded(int64_t size) noexcept:
    """Sizes in steps of an eighth, so that windows of nearly the same content get the same block."""
    cdef int64_t step = SMALLEST
    while step * 16 <= size:
        step *= 2
    return (size + step - 1) // step * step


cdef void remove(int i) noexcept:
    pool.n -= 1
    pool.n_bytes -= pool.size[i]
    while i < pool.n:
        pool.pointer[i] = pool.pointer[i + 1]
        pool.size[i] = pool.size[i + 1]
        i += 1


@cython.final
cdef class Block:
    """Writable bytes, not initialised. Views keep it alive; when none is left, the memory may serve another block."""

    cdef void* pointer
    cdef int64_t size
    cdef int64_t capacity

    def __cinit__(self, int64_t size):
        cdef int i
        self.pointer = NULL
        if size < 0:
            raise ValueError("size must not be negative")
        if size > (<int64_t>1 << 62):
            raise MemoryError()
        self.size = size
        self.capacity = rounded(size) if size <= LARGEST else size
        with lock:
            # from the newest on: what was used just now is still in cache
            i = pool.n - 1
            while i >= 0:
                if pool.size[i] == self.capacity:
                    self.pointer = pool.pointer[i]
                    remove(i)
                    return
                i -= 1
        if posix_memalign(&self.pointer, ALIGNMENT, self.capacity if self.capacity else 1):
            self.pointer = NULL
            raise MemoryError()

    def __dealloc__(self):
        if self.pointer == NULL:
            return
        if not SMALLEST <= self.capacity <= LARGEST:
            free(self.pointer)
            return
        with lock:
            while pool.n and (pool.n == SLOTS or pool.n_bytes + self.capacity > KEPT_BYTES):
                free(pool.pointer[0])
                remove(0)
            pool.pointer[pool.n] = self.pointer
            pool.size[pool.n] = self.capacity
            pool.n += 1
            pool.n_bytes += self.capacity

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.pointer, self.size, 0, flags)

    def __len__(self):
        return self.size


def kept_bytes():
    """How many bytes wait to be used again."""
    return pool.n_bytes
