"""Reuses memory: blocks for windows and columns are kept for the next ones when no array uses them any more.

A fresh page costs more than filling it, and allocators give large blocks back to the system as soon as they are free.
Here a bounded number of bytes is kept.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t
from libc.stdlib cimport free

cdef extern from "stdlib.h":
    int posix_memalign(void** pointer, size_t alignment, size_t size) noexcept nogil

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #define KL_REMAPS 1
    #else
    #include <stdlib.h>
    #define KL_REMAPS 0
    #endif
    /* Memory of another size with the same content, NULL if there is none. On Linux pages move, without a copy. */
    static void *kl_resize(void *pointer, size_t size, size_t wanted) {
    #if KL_REMAPS
        void *moved = pointer ? mremap(pointer, size, wanted, MREMAP_MAYMOVE)
            : mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return moved == MAP_FAILED ? NULL : moved;
    #else
        (void)size;
        return realloc(pointer, wanted);
    #endif
    }
    static void kl_release(void *pointer, size_t size) {
    #if KL_REMAPS
        if (pointer) (void)munmap(pointer, size);
    #else
        (void)size;
        free(pointer);
    #endif
    }
    /* Faults of 2 MiB cost a fraction of those of 4 KiB. */
    static void kl_advise_huge(void *pointer, size_t size) {
    #if KL_REMAPS && defined(MADV_HUGEPAGE)
        (void)madvise(pointer, size, MADV_HUGEPAGE);
    #else
        (void)pointer; (void)size;
    #endif
    }
    """
    enum:
        KL_REMAPS
    void* resized "kl_resize"(void* pointer, size_t size, size_t wanted) noexcept nogil
    void release "kl_release"(void* pointer, size_t size) noexcept nogil
    void advise_huge "kl_advise_huge"(void* pointer, size_t size) noexcept nogil

cdef enum:
    # from here on, huge pages pay
    HUGE = 1048576
    # addresses, no memory: so much may come without another place for what is there
    RESERVED = 67108864
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

# in blocks of the pool's sizes that are in use
cdef int64_t used_bytes = 0


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

    def __cinit__(self, int64_t size):
        global used_bytes
        cdef int i
        cdef int chosen = -1
        self.pointer = NULL
        if size < 0:
            raise ValueError("size must not be negative")
        if size > (<int64_t>1 << 62):
            raise MemoryError()
        self.size = size
        self.capacity = rounded(size) if size <= LARGEST else size
        with lock:
            # from the newest on: what was used just now is still in cache; a little more than is needed is better than
            # fresh pages
            i = pool.n - 1
            while i >= 0:
                if pool.size[i] == self.capacity:
                    chosen = i
                    break
                if chosen < 0 and self.capacity < pool.size[i] <= self.capacity + self.capacity // 4:
                    chosen = i
                i -= 1
            if chosen >= 0:
                self.pointer = pool.pointer[chosen]
                self.capacity = pool.size[chosen]
                remove(chosen)
                used_bytes += self.capacity
                return
            if SMALLEST <= self.capacity <= LARGEST:
                used_bytes += self.capacity
                # blocks of other sizes make room: what is kept and what is used together have one bound
                while pool.n and pool.n_bytes + used_bytes > KEPT_BYTES:
                    free(pool.pointer[0])
                    remove(0)
        if posix_memalign(&self.pointer, ALIGNMENT, self.capacity if self.capacity else 1):
            self.pointer = NULL
            raise MemoryError()

    def __dealloc__(self):
        global used_bytes
        # small blocks are cheap to allocate, and one large block would take the place of all others
        if not SMALLEST <= self.capacity <= LARGEST:
            free(self.pointer)
            return
        with lock:
            used_bytes -= self.capacity
            if self.pointer == NULL:
                return
            # the oldest go first: they have left the caches
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


@cython.final
cdef class Growing:
    """Writable bytes to which more are added, on Linux without copying those that are there.

    While a view of them exists they do not move: a call that would have to move them raises BufferError. If many are
    `expected`, they are kept in huge pages from the first one on.
    """

    cdef void* pointer
    cdef int64_t size
    cdef int64_t capacity
    cdef int n_views
    cdef bint is_huge

    def __cinit__(self, int64_t expected=0):
        self.is_huge = expected >= HUGE
        self.pointer = NULL
        self.size = self.capacity = 0
        self.n_views = 0

    def __dealloc__(self):
        release(self.pointer, self.capacity)

    def extend(self, int64_t n):
        """Make room for `n` more bytes, which are not initialised; where they begin."""
        cdef int64_t start = self.size
        cdef int64_t wanted
        if n < 0 or n > (<int64_t>1 << 60) - start:
            raise ValueError("the size is negative, or larger than any memory")
        if start + n > self.capacity:
            wanted = start + n + start // 2
            if KL_REMAPS:
                wanted = max(2 * (start + n), RESERVED)
            self.resize(wanted, start + n)
        if not self.is_huge and start + n >= HUGE:
            self.is_huge = True
            advise_huge(self.pointer, self.capacity)
        self.size = start + n
        return start

    def trim(self):
        """Give back the room that is not used."""
        self.resize(self.size, self.size)

    cdef int resize(self, int64_t wanted, int64_t least) except -1:
        cdef void* pointer
        if self.n_views:
            raise BufferError("there are views of these bytes")
        wanted = max((wanted + ALIGNMENT - 1) // ALIGNMENT, 1) * ALIGNMENT
        least = max((least + ALIGNMENT - 1) // ALIGNMENT, 1) * ALIGNMENT
        pointer = resized(self.pointer, self.capacity, wanted)
        # without overcommit, or near a limit of memory, the reserve is refused: then only what is needed
        if pointer == NULL and least < wanted:
            wanted = least
            pointer = resized(self.pointer, self.capacity, wanted)
        if pointer == NULL:
            raise MemoryError()
        self.pointer = pointer
        self.capacity = wanted
        if self.is_huge:
            advise_huge(pointer, wanted)
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.pointer, self.size, 0, flags)
        self.n_views += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.n_views -= 1

    def __len__(self):
        return self.size


def kept_bytes():
    """How many bytes wait to be used again."""
    return pool.n_bytes
