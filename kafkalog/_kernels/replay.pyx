"""The last row of each key, of records that come part by part.

Keys get numbers in the order in which they first appear. A table of places, of which at most half are taken, leads
from the hash of a key to its number; keys are compared as bytes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) || defined(__clang__)
    #define kl_prefetch(p) __builtin_prefetch(p)
    #else
    #define kl_prefetch(p) ((void)0)
    #endif
    static inline uint64_t kl_word(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return w; }
    static inline uint64_t kl_fold(uint64_t a, uint64_t b) {
    #if defined(__SIZEOF_INT128__)
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    #else
        uint64_t low = (a & 0xFFFFFFFFu) * (b >> 32), high = (a >> 32) * (b & 0xFFFFFFFFu);
        return a * b ^ (a >> 32) * (b >> 32) ^ (low << 32 | low >> 32) ^ (high << 32 | high >> 32);
    #endif
    }
    static inline int kl_same(const uint8_t *a, const uint8_t *b, int64_t n) {
        if (n < 8) {
            while (n > 0) { n--; if (a[n] != b[n]) return 0; }
            return 1;
        }
        /* keys differ at their ends more often than at their starts */
        if (kl_word(a + n - 8) != kl_word(b + n - 8)) return 0;
        for (; n > 8; a += 8, b += 8, n -= 8) if (kl_word(a) != kl_word(b)) return 0;
        return 1;
    }
    /* the seeds are secret, or keys could be made that all lie in one place */
    static inline uint64_t kl_hash(const uint8_t *p, int64_t n, uint64_t seed, uint64_t other) {
        uint64_t h = seed ^ (uint64_t)n, last = 0;
        for (; n >= 16; p += 16, n -= 16) h = kl_fold(kl_word(p) ^ other, kl_word(p + 8) ^ h);
        if (n >= 8) { h = kl_fold(kl_word(p) ^ other, h); p += 8; n -= 8; }
        while (n > 0) last = last << 8 | p[--n];
        return kl_fold(last ^ other, h ^ seed);
    }
    """
    bint same "kl_same"(const uint8_t* a, const uint8_t* b, int64_t n) noexcept nogil
    void kl_prefetch(const void* p) noexcept nogil
    uint64_t hashed "kl_hash"(const uint8_t* p, int64_t n, uint64_t seed, uint64_t other) noexcept nogil

cdef enum:
    GROUP = 32
    FIRST_PLACES = 1024
    FIRST_KEYS = 256
    MAX_KEYS = 0x3FFFFFFF

cdef struct Key:
    int64_t start
    int64_t size
    int64_t part
    int64_t at


cdef struct Place:
    uint32_t tag
    int32_t number


cdef class LastRows:
    """Numbers the keys of records that come part by part, and finds the last row of each key in a part.

    Parameters
    ----------
    seed, other : int
        Random numbers of 64 bits.

    Attributes
    ----------
    n_keys, n_bytes : int
    """

    cdef readonly int64_t n_keys
    cdef int64_t n_parts
    cdef readonly int64_t n_bytes
    cdef int64_t room
    cdef int64_t room_of_keys
    cdef int64_t known
    cdef bint in_order
    cdef uint64_t n_places
    cdef uint64_t seed
    cdef uint64_t other
    cdef uint8_t* bytes
    cdef Key* table
    cdef Place* places

    def __cinit__(self, uint64_t seed, uint64_t other):
        self.bytes, self.table, self.places = NULL, NULL, NULL
        self.n_keys, self.n_parts, self.n_bytes = 0, 0, 0
        self.room, self.room_of_keys, self.n_places = FIRST_KEYS * 16, FIRST_KEYS, FIRST_PLACES
        self.seed, self.other = seed, other
        self.known, self.in_order = -1, False
        self.bytes = <uint8_t*>malloc(self.room)
        self.table = <Key*>malloc(self.room_of_keys * sizeof(Key))
        self.places = <Place*>calloc(self.n_places, sizeof(Place))
        if self.bytes == NULL or self.table == NULL or self.places == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.bytes)
        free(self.table)
        free(self.places)

    def feed(self, const int64_t[::1] offsets not None, const uint8_t[::1] data not None,
             const uint8_t[::1] wanted, int64_t[::1] numbers not None, int64_t[::1] rows not None):
        """Take the next part; returns how many different keys it has: `numbers` and `rows` have an element for each.

        Key `i` is ``data[offsets[i]:offsets[i + 1]]``. Rows that are 0 in `wanted` do not count; None for all.
        """
        cdef int64_t n = offsets.shape[0] - 1
        cdef int64_t size = data.shape[0]
        cdef int64_t row, first, n_in_order, n_found = 0
        cdef int64_t number = 0
        cdef uint64_t[GROUP] hashes
        cdef Py_ssize_t i, n_group
        cdef uint8_t nothing = 0
        cdef const uint8_t* origin = &nothing
        if n < 0 or numbers.shape[0] < n or rows.shape[0] < n or (wanted is not None and wanted.shape[0] != n):
            raise ValueError("columns differ in length")
        if n == 0:
            return 0
        if size:
            origin = &data[0]
        for row in range(n):
            if offsets[row] < 0 or offsets[row + 1] < offsets[row] or offsets[row + 1] > size:
                raise IndexError("a key lies outside data")
        self.n_parts += 1
        with nogil:
            first = 0
            while first < n and number >= 0:
                n_group = <Py_ssize_t>(GROUP if n - first > GROUP else n - first)
                if not self.in_order:
                    # their places are fetched into cache together, instead of one wait for memory a key
                    for i in range(n_group):
                        row = first + i
                        hashes[i] = hashed(origin + offsets[row], offsets[row + 1] - offsets[row], self.seed,
                                           self.other)
                        kl_prefetch(self.places + (hashes[i] & (self.n_places - 1)))
                    # of many keys each step misses the cache: all in a group do it together
                    for i in range(n_group):
                        number = self.places[hashes[i] & (self.n_places - 1)].number
                        kl_prefetch(self.table + (number - (number > 0)))
                    for i in range(n_group):
                        number = self.places[hashes[i] & (self.n_places - 1)].number
                        if number > 0:
                            kl_prefetch(self.bytes + self.table[number - 1].start)
                number = 0
                n_in_order = 0
                for i in range(n_group):
                    row = first + i
                    if wanted is not None and wanted[row] == 0:
                        continue
                    if self.in_order and self.is_key(self.known + 1, origin + offsets[row],
                                                     offsets[row + 1] - offsets[row]):
                        number = self.known + 1
                    else:
                        if self.in_order:
                            hashes[i] = hashed(origin + offsets[row], offsets[row + 1] - offsets[row], self.seed,
                                               self.other)
                        number = self.number_of(origin + offsets[row], offsets[row + 1] - offsets[row], hashes[i])
                    if number < 0:
                        number = self.add(origin + offsets[row], offsets[row + 1] - offsets[row], hashes[i])
                        if number < 0:
                            break
                    n_in_order += number == self.known + 1
                    self.known = number
                    # marked with the number of the part, so that no mark has to be cleared between parts
                    if self.table[number].part != self.n_parts:
                        self.table[number].part = self.n_parts
                        self.table[number].at = n_found
                        numbers[n_found] = number
                        n_found += 1
                    rows[self.table[number].at] = row
                # a group that commits all its partitions writes the same keys each time, one behind the other
                self.in_order = 2 * n_in_order > n_group
                first += n_group
        if number < 0:
            raise MemoryError()
        return n_found

    def copy_keys(self, int64_t[::1] offsets not None, uint8_t[::1] data not None):
        """Copy the bytes of all keys, one after the other, and the offset of each in them."""
        cdef int64_t number
        if offsets.shape[0] != self.n_keys + 1 or data.shape[0] != self.n_bytes:
            raise ValueError("columns of another length")
        for number in range(self.n_keys):
            offsets[number] = self.table[number].start
        offsets[self.n_keys] = self.n_bytes
        if self.n_bytes:
            memcpy(&data[0], self.bytes, <size_t>self.n_bytes)

    def key(self, int64_t number):
        """The bytes of a key."""
        if not 0 <= number < self.n_keys:
            raise IndexError("there is no such key")
        return (<const char*>self.bytes + self.table[number].start)[:self.table[number].size]

    cdef inline bint is_key(self, int64_t number, const uint8_t* key, int64_t size) noexcept nogil:
        """Whether a number is that of a key."""
        return (number < self.n_keys and self.table[number].size == size
                and same(self.bytes + self.table[number].start, key, size))

    cdef inline int64_t number_of(self, const uint8_t* key, int64_t size, uint64_t h) noexcept nogil:
        """The number of a key; -1 if it is new."""
        cdef uint64_t at = h & (self.n_places - 1)
        cdef Key* known
        while self.places[at].number != 0:
            # keys that share a place mostly differ in the tag, and are told apart without a look at their bytes
            if self.places[at].tag == <uint32_t>(h >> 32):
                # numbers in places begin with 1, so that memory from calloc is a table without keys
                known = self.table + (self.places[at].number - 1)
                if known.size == size and same(self.bytes + known.start, key, size):
                    return self.places[at].number - 1
            at = (at + 1) & (self.n_places - 1)
        return -1

    cdef int64_t add(self, const uint8_t* key, int64_t size, uint64_t h) noexcept nogil:
        """Add a key that is new; its number, -1 if there is no memory."""
        cdef Key* made
        # half of the places stay free, so that a search for a new key ends after a few steps
        if not self.make_room(size) or (<uint64_t>(2 * self.n_keys) >= self.n_places and not self.spread()):
            return -1
        made = self.table + self.n_keys
        made.start, made.size, made.part, made.at = self.n_bytes, size, 0, 0
        memcpy(self.bytes + self.n_bytes, key, <size_t>size)
        self.n_bytes += size
        self.n_keys += 1
        self.take_place(self.places, self.n_places, h, self.n_keys)
        return self.n_keys - 1

    cdef void take_place(self, Place* places, uint64_t n_places, uint64_t h, int64_t number) noexcept nogil:
        cdef uint64_t at = h & (n_places - 1)
        while places[at].number != 0:
            at = (at + 1) & (n_places - 1)
        places[at].tag = <uint32_t>(h >> 32)
        places[at].number = <int32_t>number

    cdef bint make_room(self, int64_t size) noexcept nogil:
        cdef int64_t more
        cdef void* grown
        if self.n_keys >= MAX_KEYS:
            return False
        if self.n_keys == self.room_of_keys:
            grown = realloc(self.table, 2 * self.room_of_keys * sizeof(Key))
            if grown == NULL:
                return False
            self.table = <Key*>grown
            self.room_of_keys *= 2
        if size > self.room - self.n_bytes:
            more = 2 * self.room if size <= self.room else self.room + size
            grown = realloc(self.bytes, more)
            if grown == NULL:
                return False
            self.bytes = <uint8_t*>grown
            self.room = more
        return True

    cdef bint spread(self) noexcept nogil:
        """Double the number of places."""
        cdef uint64_t n_places = 2 * self.n_places
        cdef Place* places = <Place*>calloc(n_places, sizeof(Place))
        cdef int64_t number
        cdef uint64_t h
        if places == NULL:
            return False
        for number in range(self.n_keys):
            h = hashed(self.bytes + self.table[number].start, self.table[number].size, self.seed, self.other)
            self.take_place(places, n_places, h, number + 1)
        free(self.places)
        self.places, self.n_places = places, n_places
        return True
