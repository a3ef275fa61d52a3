"""Keeps the last record of each key, for records that arrive in parts.

Keys get numbers in the order in which they first appear. A hash table, at most half full, maps the
hash of a key to its number; keys are compared as bytes. A key is stored next to its last value. A new value overwrites
the old one, so replaced values take no memory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

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
        /* keys differ at the end more often than at the start */
        if (kl_word(a + n - 8) != kl_word(b + n - 8)) return 0;
        for (; n > 16; a += 16, b += 16, n -= 16)
            if ((kl_word(a) ^ kl_word(b)) | (kl_word(a + 8) ^ kl_word(b + 8))) return 0;
        return n < 8 || kl_word(a) == kl_word(b);
    }
    /* most values are short, and a call costs more than the copy */
    static inline void kl_copy(uint8_t *to, const uint8_t *from, int64_t n) {
        if (n >= 16 && n <= 32) {
            uint8_t first[16], last[16];
            memcpy(first, from, 16);
            memcpy(last, from + n - 16, 16);
            memcpy(to, first, 16);
            memcpy(to + n - 16, last, 16);
        } else if (n > 0) memcpy(to, from, (size_t)n);
    }
    /* secret seeds, so that nobody can craft keys that all collide */
    static inline uint64_t kl_hash(const uint8_t *p, int64_t n, uint64_t seed, uint64_t other) {
        uint64_t h = seed ^ (uint64_t)n, last = 0;
        const uint8_t *end = p + n;
        if (n < 8) {
            while (n > 0) last = last << 8 | p[--n];
        } else {
            for (; n > 16; p += 16, n -= 16) h = kl_fold(kl_word(p) ^ other, kl_word(p + 8) ^ h);
            if (n > 8) h = kl_fold(kl_word(p) ^ other, h);
            last = kl_word(end - 8);
        }
        return kl_fold(last ^ other, h ^ seed);
    }
    """
    bint same "kl_same"(const uint8_t* a, const uint8_t* b, int64_t n) noexcept nogil
    void kl_prefetch(const void* p) noexcept nogil
    void copy_short "kl_copy"(uint8_t* to, const uint8_t* source, int64_t n) noexcept nogil
    uint64_t hashed "kl_hash"(const uint8_t* p, int64_t n, uint64_t seed, uint64_t other) noexcept nogil

cdef enum:
    GROUP = 128
    FIRST_PLACES = 16
    FIRST_KEYS = 8
    FIRST_BYTES = 512
    MAX_KEYS = 0x3FFFFFFF
    IN_CACHE = 0x40000  # up to this many bytes of keys and values stay in cache
    LEAST_WASTE = 0x10000
    VIEW = 16
    INLINE = 12

cdef struct Record:
    int64_t offset
    int64_t timestamp
    int64_t value  # start of the value in the bytes; the key follows this struct
    int32_t key_size
    int32_t value_size  # -1 for null
    int32_t room
    int32_t partition


cdef struct Place:
    uint32_t tag
    int32_t number


cdef struct Strings:
    const uint8_t* views
    const uint8_t* data[2]
    int64_t size[2]


cdef inline const uint8_t* string_at(const Strings* strings, int64_t row, int64_t* size) noexcept nogil:
    """The bytes of a view; NULL if it points out of its buffer."""
    cdef const uint8_t* view = strings.views + VIEW * row
    cdef int32_t words[4]
    memcpy(words, view, VIEW)
    size[0] = words[0]
    if 0 <= words[0] <= INLINE:
        return view + 4
    if words[0] < 0 or words[3] < 0 or not 0 <= words[2] <= 1 or words[0] > strings.size[words[2]] - words[3]:
        return NULL
    return strings.data[words[2]] + words[3]


cdef inline uint32_t size_at(const Strings* strings, int64_t row) noexcept nogil:
    cdef uint32_t size
    memcpy(&size, strings.views + VIEW * row, sizeof(size))
    return size


cdef inline const uint8_t* text_at(const Strings* strings, int64_t row, uint32_t size) noexcept nogil:
    """As `string_at`, for a size below 2 GiB."""
    cdef const uint8_t* view = strings.views + VIEW * row
    cdef uint32_t[2] where
    if size <= INLINE:
        return view + 4
    memcpy(where, view + 8, sizeof(where))
    if where[0] > 1 or <uint64_t>where[1] + size > <uint64_t>strings.size[where[0]]:
        return NULL
    return strings.data[where[0]] + where[1]


cdef inline int64_t rounded(int64_t size) noexcept nogil:
    return (size + 7) & ~<int64_t>7


cdef class LastRows:
    """The last record of each key, for records that arrive in parts; `seed` and `other` are random numbers of 64 bits.

    `n_keys`, `key_bytes` and `value_bytes` are totals of the last records.
    """

    cdef readonly int64_t n_keys
    cdef readonly int64_t key_bytes
    cdef readonly int64_t value_bytes
    cdef int64_t n_bytes
    cdef int64_t wasted
    cdef int64_t room
    cdef int64_t room_of_keys
    cdef int64_t known
    cdef bint in_order
    cdef uint64_t n_places
    cdef uint64_t seed
    cdef uint64_t other
    cdef uint8_t* bytes
    cdef int64_t* starts
    cdef Place* places

    def __cinit__(self, uint64_t seed, uint64_t other):
        self.bytes, self.starts, self.places = NULL, NULL, NULL
        self.n_keys, self.key_bytes, self.value_bytes, self.n_bytes, self.wasted = 0, 0, 0, 0, 0
        self.room, self.room_of_keys, self.n_places = FIRST_BYTES, FIRST_KEYS, FIRST_PLACES
        self.seed, self.other = seed, other
        self.known, self.in_order = -1, False
        self.bytes = <uint8_t*>malloc(self.room)
        self.starts = <int64_t*>malloc(self.room_of_keys * sizeof(int64_t))
        self.places = <Place*>calloc(self.n_places, sizeof(Place))
        if self.bytes == NULL or self.starts == NULL or self.places == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.bytes)
        free(self.starts)
        free(self.places)

    def feed(self, key not None, value not None, const int64_t[::1] offset not None,
             const int64_t[::1] timestamp not None, int32_t partition, const uint8_t[::1] wanted, bint only_newer):
        """Add the next records of a partition.

        Key and value are ``(views, buffers, valid)`` with one or two buffers; `valid` may be None. Records without a
        key are ignored. So are rows with 0 in `wanted` (None for all rows). With `only_newer`, a record is also ignored
        unless its offset is above that of the last record of its key.
        """
        cdef int64_t n = offset.shape[0]
        cdef const uint8_t[::1] key_valid = key[2]
        cdef const uint8_t[::1] value_valid = value[2]
        cdef Strings keys, values
        cdef uint64_t[GROUP] hashes
        cdef uint8_t[GROUP] is_hashed
        cdef const uint8_t* text
        cdef const uint8_t* content
        cdef const uint8_t* before
        cdef int64_t size, size_before, value_size, row, number
        cdef int64_t first = 0
        cdef Py_ssize_t i, n_group, n_in_order, n_following
        cdef bint is_far, outside = False, full = False
        cdef bint is_plain = wanted is None and key_valid is None and value_valid is None and not only_newer
        kept = set_strings(&keys, key, n), set_strings(&values, value, n)
        if (timestamp.shape[0] != n or (wanted is not None and wanted.shape[0] != n)
                or (key_valid is not None and key_valid.shape[0] != n)
                or (value_valid is not None and value_valid.shape[0] != n)):
            raise ValueError("columns differ in length")
        with nogil:
            while first < n and not outside and not full:
                n_group = <Py_ssize_t>(GROUP if n - first > GROUP else n - first)
                is_far = self.n_bytes > IN_CACHE
                memset(is_hashed, 0, sizeof(is_hashed))
                if is_far or not self.in_order:
                    # prefetch the places of all keys together, instead of one cache miss per key
                    before, size_before = NULL, 0
                    for i in range(n_group):
                        text = string_at(&keys, first + i, &size)
                        if text == NULL:
                            continue
                        # keys that arrive in a known order are adjacent in memory: they differ only in their last bytes
                        if not (self.in_order and size == size_before and size > 8 and same(text, before, size - 8)):
                            hashes[i] = hashed(text, size, self.seed, self.other)
                            is_hashed[i] = 1
                            kl_prefetch(self.places + (hashes[i] & (self.n_places - 1)))
                        before, size_before = text, size
                    # with many keys each step misses the cache: prefetch for the whole group
                    for i in range(n_group if is_far else 0):
                        if is_hashed[i]:
                            number = self.places[hashes[i] & (self.n_places - 1)].number
                            kl_prefetch(self.starts + (number - (number > 0)))
                    number = 0
                    for i in range(n_group if is_far else 0):
                        # in a known order, the next key has the next number
                        number = self.places[hashes[i] & (self.n_places - 1)].number if is_hashed[i] else number + 1
                        if 0 < number <= self.n_keys:
                            kl_prefetch(self.bytes + self.starts[number - 1])
                            kl_prefetch(self.bytes + self.starts[number - 1] + 64)
                n_in_order, i = 0, -1
                while True:
                    i += 1
                    if is_plain and self.in_order and i < n_group:
                        n_following = self.follow(&keys, &values, &offset[0], &timestamp[0], partition, first + i,
                                                  first + n_group)
                        n_in_order += n_following
                        i += n_following
                    if i >= n_group:
                        break
                    row = first + i
                    if (wanted is not None and wanted[row] == 0) or (key_valid is not None and key_valid[row] == 0):
                        continue
                    text = string_at(&keys, row, &size)
                    content = string_at(&values, row, &value_size)
                    if text == NULL or content == NULL:
                        outside = True
                        break
                    if value_valid is not None and value_valid[row] == 0:
                        value_size = -1
                    number = self.known + 1
                    if self.in_order and self.is_key(number, text, size):
                        n_in_order += 1
                    else:
                        if not is_hashed[i]:
                            hashes[i] = hashed(text, size, self.seed, self.other)
                        number = self.number_of(text, size, hashes[i])
                        n_in_order += number == self.known + 1
                    if number < 0:
                        number = self.add(text, size, value_size, hashes[i])
                    elif only_newer and self.of(number).offset >= offset[row]:
                        self.known = number
                        continue
                    if number < 0 or not self.put(number, content, value_size):
                        full = True
                        break
                    self.known = number
                    self.of(number).offset = offset[row]
                    self.of(number).timestamp = timestamp[row]
                    self.of(number).partition = partition
                # a consumer group that commits all its partitions writes the same keys in the same order each time
                self.in_order = 2 * n_in_order > n_group
                first += n_group
        del kept
        if outside:
            raise IndexError("a string lies outside its buffer")
        if full:
            raise MemoryError()

    def copy(self, int64_t[::1] key_offsets not None, uint8_t[::1] keys not None, int64_t[::1] value_offsets not None,
             uint8_t[::1] values not None, uint8_t[::1] valid not None, int64_t[::1] offset not None,
             int64_t[::1] timestamp not None, int32_t[::1] partition not None):
        """Copy the last records to columns, in the order of key numbers. Return the number of null values."""
        cdef int64_t number, key_at = 0, value_at = 0, n_null = 0
        cdef Record* record
        if (key_offsets.shape[0] != self.n_keys + 1 or keys.shape[0] != self.key_bytes
                or value_offsets.shape[0] != self.n_keys + 1 or values.shape[0] != self.value_bytes
                or valid.shape[0] != self.n_keys or offset.shape[0] != self.n_keys
                or timestamp.shape[0] != self.n_keys or partition.shape[0] != self.n_keys):
            raise ValueError("columns of another length")
        key_offsets[0] = value_offsets[0] = 0
        with nogil:
            for number in range(self.n_keys):
                record = self.of(number)
                if record.key_size > 0:
                    memcpy(&keys[key_at], record + 1, <size_t>record.key_size)
                    key_at += record.key_size
                if record.value_size > 0:
                    memcpy(&values[value_at], self.bytes + record.value, <size_t>record.value_size)
                    value_at += record.value_size
                key_offsets[number + 1], value_offsets[number + 1] = key_at, value_at
                valid[number] = record.value_size >= 0
                n_null += record.value_size < 0
                offset[number], timestamp[number] = record.offset, record.timestamp
                partition[number] = record.partition
        return n_null

    cdef Py_ssize_t follow(self, const Strings* keys, const Strings* values, const int64_t* offset,
                           const int64_t* timestamp, int32_t partition, int64_t row, int64_t stop) noexcept nogil:
        """Add rows while their keys follow the known order and their values fit. Return how many."""
        cdef int64_t first = row
        cdef int64_t number = self.known + 1
        cdef const int64_t* starts = self.starts
        cdef uint8_t* bytes = self.bytes
        cdef Record* record
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef uint32_t key_size, value_size
        if stop - row > self.n_keys - number:
            stop = row + self.n_keys - number
        while row < stop:
            record = <Record*>(bytes + starts[number])
            # as unsigned, negative sizes are the largest; `feed` handles unusual rows
            key_size = size_at(keys, row)
            value_size = size_at(values, row)
            if key_size != <uint32_t>record.key_size or value_size > <uint32_t>record.room:
                break
            key, value = text_at(keys, row, key_size), text_at(values, row, value_size)
            if key == NULL or value == NULL or not same(<uint8_t*>(record + 1), key, key_size):
                break
            copy_short(bytes + record.value, value, value_size)
            if value_size != <uint32_t>record.value_size:
                self.value_bytes += value_size - (record.value_size if record.value_size > 0 else 0)
                record.value_size = <int32_t>value_size
            record.offset, record.timestamp, record.partition = offset[row], timestamp[row], partition
            row += 1
            number += 1
        self.known = number - 1
        return row - first

    cdef inline Record* of(self, int64_t number) noexcept nogil:
        return <Record*>(self.bytes + self.starts[number])

    cdef inline bint is_key(self, int64_t number, const uint8_t* key, int64_t size) noexcept nogil:
        """Whether a key has this number."""
        cdef Record* record
        if number >= self.n_keys:
            return False
        record = self.of(number)
        return record.key_size == size and same(<uint8_t*>(record + 1), key, size)

    cdef inline int64_t number_of(self, const uint8_t* key, int64_t size, uint64_t h) noexcept nogil:
        """The number of a key; -1 if it is new."""
        cdef uint64_t at = h & (self.n_places - 1)
        while self.places[at].number != 0:
            # most keys with the same place differ in the tag, so that their bytes are not compared
            if self.places[at].tag == <uint32_t>(h >> 32):
                # numbers in places start at 1, so that memory from calloc is an empty table
                if self.is_key(self.places[at].number - 1, key, size):
                    return self.places[at].number - 1
            at = (at + 1) & (self.n_places - 1)
        return -1

    cdef inline bint put(self, int64_t number, const uint8_t* value, int64_t size) noexcept nogil:
        """Overwrite the value of a key. Return whether there is memory."""
        cdef Record* record = self.of(number)
        cdef int64_t more
        if size > record.room:
            # spare room, so that a growing value is moved only a few times
            more = rounded(size + size // 4)
            if not self.make_room(more):
                return False
            record = self.of(number)
            self.wasted += record.room
            record.value, record.room = self.n_bytes, <int32_t>more if more <= 0x7FFFFFFF else 0x7FFFFFFF
            self.n_bytes += more
        if size > 0:
            copy_short(self.bytes + record.value, value, size)
        self.value_bytes += (size if size > 0 else 0) - (record.value_size if record.value_size > 0 else 0)
        record.value_size = <int32_t>size
        return self.wasted <= LEAST_WASTE or 2 * self.wasted <= self.n_bytes or self.close_gaps()

    cdef int64_t add(self, const uint8_t* key, int64_t size, int64_t value_size, uint64_t h) noexcept nogil:
        """Add a new key with room for a value. Return its number, or -1 without memory."""
        cdef int64_t value_room = rounded(value_size) if value_size > 0 else 0
        cdef int64_t needed = <int64_t>sizeof(Record) + rounded(size)
        cdef Record* made
        cdef void* grown
        if value_room > 0x7FFFFFF8:
            value_room = 0
        if self.n_keys >= MAX_KEYS or not self.make_room(needed + value_room):
            return -1
        if self.n_keys == self.room_of_keys:
            grown = realloc(self.starts, 2 * self.room_of_keys * sizeof(int64_t))
            if grown == NULL:
                return -1
            self.starts = <int64_t*>grown
            self.room_of_keys *= 2
        # at most half full, so that a search for a new key ends after a few steps
        if <uint64_t>(2 * self.n_keys) >= self.n_places and not self.spread():
            return -1
        made = <Record*>(self.bytes + self.n_bytes)
        made.key_size, made.value_size, made.room = <int32_t>size, -1, <int32_t>value_room
        made.value = self.n_bytes + needed
        memcpy(made + 1, key, <size_t>size)
        self.starts[self.n_keys] = self.n_bytes
        self.n_bytes += needed + value_room
        self.key_bytes += size
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
        if size > self.room - self.n_bytes:
            more = 2 * self.room if size <= self.room else self.room + size
            grown = realloc(self.bytes, more)
            if grown == NULL:
                return False
            self.bytes = <uint8_t*>grown
            self.room = more
        return True

    cdef bint close_gaps(self) noexcept nogil:
        """Compact keys and values: drop the room of values that moved to a larger place."""
        cdef int64_t room = self.n_bytes - self.wasted
        cdef uint8_t* moved = <uint8_t*>malloc(room)
        cdef int64_t number, size, at = 0
        cdef Record* record
        cdef Record* made
        if moved == NULL:
            return False
        for number in range(self.n_keys):
            record = self.of(number)
            made = <Record*>(moved + at)
            size = <int64_t>sizeof(Record) + rounded(record.key_size)
            memcpy(made, record, <size_t>size)
            made.value = at + size
            if record.value_size > 0:
                memcpy(moved + made.value, self.bytes + record.value, <size_t>record.value_size)
            self.starts[number] = at
            at += size + record.room
        free(self.bytes)
        self.bytes, self.room, self.n_bytes, self.wasted = moved, room, at, 0
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
            h = hashed(<uint8_t*>(self.of(number) + 1), self.of(number).key_size, self.seed, self.other)
            self.take_place(places, n_places, h, number + 1)
        free(self.places)
        self.places, self.n_places = places, n_places
        return True


cdef object set_strings(Strings* strings, column, int64_t n):
    """Set the pointers to a column's strings. Return the objects that keep them alive."""
    cdef const uint8_t[::1] views = column[0]
    cdef const uint8_t[::1] data
    cdef int i
    kept = [views]
    if views.shape[0] != VIEW * n or len(column[1]) > 2:
        raise ValueError("columns differ in length")
    strings.views = &views[0] if n else NULL
    for i in range(2):
        strings.data[i], strings.size[i] = NULL, 0
    for i in range(len(column[1])):
        data = column[1][i]
        kept.append(data)
        if data.shape[0]:
            strings.data[i], strings.size[i] = &data[0], data.shape[0]
    return kept
