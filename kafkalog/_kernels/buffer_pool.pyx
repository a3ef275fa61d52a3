"""Reuses memory blocks of windows and columns that no array refers to any more.

A page fault costs more than filling the page, and allocators return large free blocks to the system at once. The pool
keeps a bounded number of bytes: one region, from which blocks are allocated, and separate blocks that did not fit.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

cdef extern from "stdlib.h":
    int posix_memalign(void** pointer, size_t alignment, size_t size) noexcept nogil

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <unistd.h>
    #define KL_REMAPS 1
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22 /* Linux 5.14 */
    #endif
    #else
    #include <stdlib.h>
    #define KL_REMAPS 0
    #endif
    /* Resize memory, or return NULL. On Linux, pages move without a copy. */
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
    /* One fault per 2 MiB is much cheaper than one per 4 KiB. */
    static void kl_advise_huge(void *pointer, size_t size) {
    #if KL_REMAPS && defined(MADV_HUGEPAGE)
        (void)madvise(pointer, size, MADV_HUGEPAGE);
    #else
        (void)pointer; (void)size;
    #endif
    }
    /* Touching a page after the end of a file that was cut ends the process; this returns an error there. */
    static int kl_populate(const void *pointer, size_t size) {
    #if KL_REMAPS
        uintptr_t before = (uintptr_t)pointer & (uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
        return madvise((char *)pointer - before, size + before, MADV_POPULATE_READ);
    #else
        (void)pointer; (void)size;
        return -1;
    #endif
    }
    /* Whole pages: the others may belong to what is still in use. */
    static void kl_drop(const void *pointer, size_t size) {
    #if KL_REMAPS
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)pointer, end = start + size;
        start = (start + page - 1) / page * page, end = end / page * page;
        if (start < end) (void)madvise((void *)start, end - start, MADV_DONTNEED);
    #else
        (void)pointer; (void)size;
    #endif
    }
    """
    enum:
        KL_REMAPS
    int kl_populate(const void* pointer, size_t size) noexcept nogil
    void kl_drop(const void* pointer, size_t size) noexcept nogil
    void* resized "kl_resize"(void* pointer, size_t size, size_t wanted) noexcept nogil
    void release "kl_release"(void* pointer, size_t size) noexcept nogil
    void advise_huge "kl_advise_huge"(void* pointer, size_t size) noexcept nogil

cdef enum:
    # huge pages pay from this size on
    HUGE = 1048576
    HUGE_PAGE = 2097152
    # reserved addresses, not memory: a buffer grows this far without moving
    RESERVED = 67108864
    SMALLEST = 65536
    LARGEST = 16777216
    REGION_BYTES = 25165824
    MOST_BLOCKS = 384  # if all have the smallest size
    WAITING_BYTES = 12582912
    SLOTS = 64
    # whole pages: copies from the page cache to an address after malloc's header take a third longer
    ALIGNMENT = 4096

cdef struct Region:
    # blocks are allocated here while they fit. It uses huge pages if the system has them, since columns are written
    # page by page, and each 4 KiB page costs a lookup in the page tables
    uint8_t* start
    # start of each block in use, by address
    int64_t begin[MOST_BLOCKS]
    int64_t end[MOST_BLOCKS]
    int n
    int64_t used
    # highest address used so far: the memory after it has never been touched
    int64_t touched

cdef struct Waiting:
    # blocks that did not fit into the region; the newest are last
    void* pointer[SLOTS]
    int64_t size[SLOTS]
    int n
    int64_t n_bytes

cdef cython.pymutex lock
cdef Region region
cdef Waiting waiting
region.start = NULL
region.n = waiting.n = 0
region.used = region.touched = waiting.n_bytes = 0


cdef void* new_memory(int64_t size) noexcept:
    """Allocate memory from the system; NULL on failure."""
    cdef void* pointer
    if posix_memalign(&pointer, HUGE_PAGE if size >= HUGE else ALIGNMENT, size if size else 1):
        return NULL
    if size >= HUGE:
        advise_huge(pointer, size)
    return pointer


cdef void* cut_out(int64_t size) noexcept:
    """Allocate the first gap of the region that is large enough; NULL if none is."""
    cdef int64_t begin = 0
    cdef int i = 0
    cdef int k
    if region.start == NULL:
        region.start = <uint8_t*>new_memory(REGION_BYTES)
        if region.start == NULL:
            return NULL
    while i < region.n and region.begin[i] - begin < size:
        begin = region.end[i]
        i += 1
    if begin + size > REGION_BYTES:
        return NULL
    k = region.n
    while k > i:
        region.begin[k] = region.begin[k - 1]
        region.end[k] = region.end[k - 1]
        k -= 1
    region.begin[i] = begin
    region.end[i] = begin + size
    region.n += 1
    region.used += size
    region.touched = max(region.touched, begin + size)
    return region.start + begin


cdef void give_back(int64_t begin) noexcept:
    cdef int i = 0
    while region.begin[i] != begin:
        i += 1
    region.used -= region.end[i] - begin
    region.n -= 1
    while i < region.n:
        region.begin[i] = region.begin[i + 1]
        region.end[i] = region.end[i + 1]
        i += 1


cdef void* waiting_block(int64_t* size) noexcept:
    """Take a kept block of this size or slightly more, and set `size` to its size; NULL if there is none."""
    cdef int i = waiting.n - 1
    cdef int chosen = -1
    cdef void* pointer
    while i >= 0:
        if waiting.size[i] == size[0]:
            chosen = i
            break
        # a slightly larger block is cheaper than new pages
        if chosen < 0 and size[0] < waiting.size[i] <= size[0] + size[0] // 4:
            chosen = i
        i -= 1
    if chosen < 0:
        return NULL
    pointer = waiting.pointer[chosen]
    size[0] = waiting.size[chosen]
    remove(chosen)
    return pointer


cdef void remove(int i) noexcept:
    waiting.n -= 1
    waiting.n_bytes -= waiting.size[i]
    while i < waiting.n:
        waiting.pointer[i] = waiting.pointer[i + 1]
        waiting.size[i] = waiting.size[i + 1]
        i += 1


cdef int64_t most_waiting() noexcept:
    """Bytes of separate blocks that may be kept: the bound less the free bytes of the region."""
    return min(<int64_t>WAITING_BYTES, REGION_BYTES - (region.touched - region.used))


cdef void free_oldest(int64_t size) noexcept:
    """Free the oldest kept blocks, to make room for one of this size."""
    while waiting.n and (waiting.n == SLOTS or waiting.n_bytes + size > most_waiting()):
        free(waiting.pointer[0])
        remove(0)


cdef int keep(void* pointer, int64_t size) noexcept:
    """Keep a block for reuse, and free the oldest ones if needed. Return whether it is kept."""
    if size > most_waiting():
        return False
    free_oldest(size)
    waiting.pointer[waiting.n] = pointer
    waiting.size[waiting.n] = size
    waiting.n += 1
    waiting.n_bytes += size
    return True


@cython.final
cdef class Block:
    """Writable bytes, not initialised. Views keep it alive; after the last one, the memory is reused."""

    def __cinit__(self, int64_t size):
        cdef int64_t step = SMALLEST
        self.pointer = NULL
        self.is_cut_out = False
        if size < 0:
            raise ValueError("size must not be negative")
        if size > (<int64_t>1 << 62):
            raise MemoryError()
        self.size = self.capacity = size
        # small blocks are cheap to allocate, and a large one would displace all others
        if SMALLEST <= size <= LARGEST:
            with lock:
                self.capacity = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
                self.pointer = cut_out(self.capacity)
                self.is_cut_out = self.pointer != NULL
                if self.pointer == NULL:
                    # rounded up to an eighth, so that windows of similar size share a block
                    while step * 16 <= size:
                        step *= 2
                    self.capacity = (size + step - 1) // step * step
                    self.pointer = waiting_block(&self.capacity)
        elif size > LARGEST:
            # from the system: an allocator keeps tens of megabytes of such blocks after they are freed
            self.capacity = (size + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
            self.pointer = resized(NULL, 0, self.capacity)
            if self.pointer != NULL:
                advise_huge(self.pointer, self.capacity)
        if self.pointer == NULL and self.capacity <= LARGEST:
            self.pointer = new_memory(self.capacity)
        if self.pointer == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef bint is_kept = False
        # by its capacity: a block that took over other memory has none, and is freed
        if SMALLEST <= self.capacity <= LARGEST and self.pointer != NULL:
            with lock:
                if self.is_cut_out:
                    give_back(<uint8_t*>self.pointer - region.start)
                    free_oldest(0)
                is_kept = self.is_cut_out or keep(self.pointer, self.capacity)
        if self.capacity > LARGEST:
            release(self.pointer, self.capacity)
        elif not is_kept:
            free(self.pointer)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.pointer, self.size, 0, flags)

    def __len__(self):
        return self.size


@cython.final
cdef class Growing:
    """Writable bytes that can grow, on Linux without a copy.

    They do not move while a view of them exists: a call that needs to move them raises BufferError. If many bytes are
    `expected`, they use huge pages from the start.
    """

    def __cinit__(self, int64_t expected=0):
        self.is_huge = expected >= HUGE
        self.pointer = NULL
        self.size = self.capacity = 0
        self.n_views = 0

    def __dealloc__(self):
        release(self.pointer, self.capacity)

    def extend(self, int64_t n):
        """Make room for `n` more bytes, not initialised. Return their start."""
        cdef int64_t start = self.size
        if n < 0 or n > (<int64_t>1 << 60) - start:
            raise ValueError("the size is negative, or larger than any memory")
        self.reserve(start + n)
        self.size = start + n
        return start

    cdef int reserve(self, int64_t size, double more=1) except -1:
        """Make room for `size` bytes in all, without using it; probably `more` times as many are needed in the end."""
        cdef int64_t wanted
        if size > self.capacity:
            wanted = size + self.size // 2
            if KL_REMAPS:
                wanted = max(2 * size, RESERVED)
            self.resize(wanted, size)
        if not self.is_huge and size * more >= HUGE:
            self.is_huge = True
            if not self.size or self.size >= HUGE or self.n_views or not self.renewed():
                advise_huge(self.pointer, self.capacity)
        return 0

    cdef bint renewed(self) noexcept:
        """Copy what there is to new memory of huge pages: one with a small page in it stays one of small pages."""
        cdef void* pointer = resized(NULL, 0, self.capacity) if KL_REMAPS else NULL
        if pointer == NULL:
            return False
        advise_huge(pointer, self.capacity)
        memcpy(pointer, self.pointer, self.size)
        release(self.pointer, self.capacity)
        self.pointer = pointer
        return True

    def trim(self):
        """Return unused room to the system."""
        self.resize(self.size, self.size)

    cdef int resize(self, int64_t wanted, int64_t least) except -1:
        cdef void* pointer
        if self.n_views:
            raise BufferError("there are views of these bytes")
        wanted = max((wanted + ALIGNMENT - 1) // ALIGNMENT, 1) * ALIGNMENT
        least = max((least + ALIGNMENT - 1) // ALIGNMENT, 1) * ALIGNMENT
        pointer = resized(self.pointer, self.capacity, wanted)
        # without overcommit, or near a memory limit, the reservation fails: then allocate only what is needed
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
    """Number of bytes kept for reuse."""
    return waiting.n_bytes + region.touched - region.used


cdef bint populated(const uint8_t* pointer, int64_t size) noexcept nogil:
    """Bring bytes of a mapped file into memory; whether that succeeded."""
    return kl_populate(pointer, size) == 0


cdef void dropped(const uint8_t* pointer, int64_t size) noexcept nogil:
    """Let pages of a mapped file leave this process."""
    kl_drop(pointer, size)


def populate(const uint8_t[::1] data not None):
    """Bring bytes of a mapped file into memory; False if the system cannot do that, or not with these."""
    cdef bint is_there
    if not data.shape[0]:
        return True
    with nogil:
        is_there = kl_populate(&data[0], data.shape[0]) == 0
    return is_there
