"""Columns of records that grow: kernels append to the end of them, so that the last one needs no copy of all.

What a kernel wrote counts once `take` is called. Rows may also be appended from Python, to the `Growing` bytes.
"""

from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memmove, memset

from kafkalog._kernels.buffer_pool cimport Growing
from kafkalog._kernels.fill cimport KL_COPY, KL_PAD, kl_binary, kl_columns


cdef class GrowingStrings:
    """Byte strings: an offset more than rows as int64, `data`, and `validity` (a byte per row) if `n_null` > 0."""

    def __cinit__(self, int64_t n_rows=0, int64_t n_bytes=0):
        cdef int64_t start
        self.offsets, self.data, self.validity = Growing(8 * n_rows), Growing(n_bytes), Growing(0)
        self.n_null = 0
        start = self.offsets.extend(8)
        memset(<uint8_t*>self.offsets.pointer + start, 0, 8)

    cdef int64_t n_rows(self) noexcept:
        return self.offsets.size // 8 - 1

    cdef int lend(self, kl_binary* to, int64_t n_rows, int64_t n_bytes, double more) except -1:
        """Let a kernel append at most `n_rows` strings of `n_bytes` in all, `KL_PAD` bytes of which it must not use."""
        cdef int64_t n = self.n_rows()
        self.offsets.reserve(8 * (n + n_rows + 1), more)
        self.data.reserve(self.data.size + n_bytes, more)
        self.validity.reserve(n + n_rows)
        to.mode = KL_COPY
        to.wide_offsets = <int64_t*>self.offsets.pointer
        to.bytes = <uint8_t*>self.data.pointer
        to.used = self.data.size
        to.room = self.data.size + n_bytes - KL_PAD
        to.valid = <uint8_t*>self.validity.pointer
        to.n_null = self.n_null
        to.nulls = self.n_null > 0
        return 0

    cdef int take(self, const kl_binary* filled, int64_t n) except -1:
        """Count what was appended; there are `n` strings now."""
        self.n_null = filled.n_null
        self.offsets.size = 8 * (n + 1)
        self.data.size = filled.used
        self.validity.size = n if filled.n_null else 0
        return 0


cdef class GrowingHeaders:
    """Headers of records. As long as there are none, `offsets` is empty."""

    def __cinit__(self, int64_t n_rows=0):
        self.offsets, self.key, self.value = Growing(8 * n_rows), GrowingStrings(), GrowingStrings()


cdef class GrowingRecords:
    """The columns of `n` records that kernels fill; None for those that are not asked for."""

    def __init__(self, Growing offset, Growing timestamp, GrowingStrings key, GrowingStrings value,
                 GrowingHeaders headers):
        self.offset, self.timestamp, self.key, self.value, self.headers = offset, timestamp, key, value, headers
        self.n = 0
        self.n_filled = -1

    cdef int lend(self, kl_columns* to, const Room* room, double more) except -1:
        """Let a kernel append as much as there is room for; probably `more` times as much comes in the end."""
        cdef int64_t n_rows = room.n_rows
        cdef GrowingHeaders headers = self.headers
        cdef int64_t before
        memset(to, 0, sizeof(to[0]))
        if self.n < 0 or n_rows < 0 or (self.key is not None and self.key.n_rows() != self.n) or (
                self.value is not None and self.value.n_rows() != self.n) or (
                headers is not None and headers.offsets.size not in (0, 8 * (self.n + 1))):
            raise ValueError("columns differ in length")
        self.n_filled = -1
        to.n_records = self.n
        to.capacity = self.n + n_rows
        if self.offset is not None:
            self.offset.reserve(8 * (self.n + n_rows), more)
            to.offset = <int64_t*>self.offset.pointer
        if self.timestamp is not None:
            self.timestamp.reserve(8 * (self.n + n_rows), more)
            to.timestamp = <int64_t*>self.timestamp.pointer
        if self.key is not None:
            self.key.lend(&to.key, n_rows, room.key, more)
        if self.value is not None:
            self.value.lend(&to.value, n_rows, room.value, more)
        if headers is not None:
            to.with_headers = 1
            to.n_headers = headers.key.n_rows()
            to.header_capacity = to.n_headers + room.n_headers
            headers.key.lend(&to.header_key, room.n_headers, room.header_key, more)
            headers.value.lend(&to.header_value, room.n_headers, room.header_value, more)
            headers.offsets.reserve(8 * (self.n + n_rows + 1), more)
            # without headers so far, the rows before have no offsets yet
            before = self.n if headers.offsets.size == 0 else 0
            to.wide_header_offsets = <int64_t*>(<uintptr_t>headers.offsets.pointer - <uintptr_t>(8 * before))
            to.wide_header_offsets[self.n] = to.n_headers
        return 0

    cdef void hold(self, const kl_columns* filled) noexcept:
        """Keep what a kernel filled for `take`."""
        self.filled = filled[0]
        self.n_before, self.n_filled = self.n, filled.n_records

    def take(self):
        """Count what a kernel appended last, once."""
        cdef kl_columns* filled = &self.filled
        cdef GrowingHeaders headers = self.headers
        cdef int64_t n = self.n_filled
        cdef int64_t before = self.n
        cdef int64_t* offsets
        if n < before or self.n_before != before:
            raise ValueError("nothing was appended, or rows were appended after it")
        self.n_filled = -1
        self.n = n
        if self.offset is not None:
            self.offset.size = 8 * n
        if self.timestamp is not None:
            self.timestamp.size = 8 * n
        if self.key is not None:
            self.key.take(&filled.key, n)
        if self.value is not None:
            self.value.take(&filled.value, n)
        if headers is not None:
            headers.key.take(&filled.header_key, filled.n_headers)
            headers.value.take(&filled.header_value, filled.n_headers)
            if headers.offsets.size:
                headers.offsets.size = 8 * (n + 1)
            elif filled.n_headers:
                offsets = <int64_t*>headers.offsets.pointer
                memmove(offsets + before, offsets, 8 * (n - before + 1))
                memset(offsets, 0, 8 * before)
                headers.offsets.size = 8 * (n + 1)
