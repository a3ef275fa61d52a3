"""Encodes the records of v2 batches in two passes: one measures and checks, one writes.

The second pass checks every length again before it copies. If columns changed in between, it returns OUTPUT_FULL and
never writes out of bounds. Kafka: DefaultRecord.writeTo.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkalog._kernels.batch_spec cimport HEADER_BYTES, Heads
from kafkalog._kernels.wire cimport distance, wrap_sub

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t kl_zigzag64(int64_t v) { return (uint64_t)v << 1 ^ (0 - (uint64_t)(v < 0)); }
    /* Bytes of an unsigned varint; without a branch for small values. */
    static inline int kl_varint_size(uint64_t v) {
        int n = 1;
        if (v < 0x200000) return 1 + (v >= 0x80) + (v >= 0x4000);
        while (v >>= 7) n++;
        return n;
    }
    /* One or two bytes without a branch, since lengths around 64 defeat branch prediction. Writes two bytes. */
    static inline uint8_t *kl_put_varint(uint8_t *p, uint64_t v) {
        if (v < 0x4000) {
            uint8_t more = v >= 0x80;
            p[0] = (uint8_t)((v & 0x7F) | more << 7);
            p[1] = (uint8_t)(v >> 7);
            return p + 1 + more;
        }
        while (v >= 0x80) { *p++ = (uint8_t)(v | 0x80); v >>= 7; }
        *p++ = (uint8_t)v;
        return p;
    }
    /* Copy short strings in whole words if both sides have room, since a call costs more than the bytes. The caller
       guarantees that n + 64 bytes fit at `to`; bytes past n are overwritten later. */
    static inline void kl_copy(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *end) {
        if (n <= 64 && end - from >= 64) {
            memcpy(to, from, 16);
            if (n > 16) { memcpy(to + 16, from + 16, 16); memcpy(to + 32, from + 32, 32); }
        } else {
            memcpy(to, from, (size_t)n);
        }
    }
    """
    uint64_t zigzag64 "kl_zigzag64"(int64_t v) noexcept nogil
    int varint_size "kl_varint_size"(uint64_t v) noexcept nogil
    uint8_t* put_varint "kl_put_varint"(uint8_t* p, uint64_t v) noexcept nogil
    void copy "kl_copy"(uint8_t* to, const uint8_t* source, int64_t n, const uint8_t* end) noexcept nogil

cdef extern from "utf8_impl.h":
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil

cdef enum:
    OK = 0
    # an offset that does not increase, or is below the base offset
    OFFSET_ORDER = 1
    # an offset delta of more than 32 bits
    OFFSET_DELTA = 2
    # the offsets of a byte string column decrease, or point outside of its data
    COLUMN_OFFSETS = 3
    HEADER_KEY_NULL = 4
    HEADER_KEY_UTF8 = 5
    # more bytes than the size field can hold
    TOO_LARGE = 6
    OUTPUT_FULL = 7
    BOUNDARIES = 8

STATUSES = {
    "OK": OK,
    "OFFSET_ORDER": OFFSET_ORDER,
    "OFFSET_DELTA": OFFSET_DELTA,
    "COLUMN_OFFSETS": COLUMN_OFFSETS,
    "HEADER_KEY_NULL": HEADER_KEY_NULL,
    "HEADER_KEY_UTF8": HEADER_KEY_UTF8,
    "TOO_LARGE": TOO_LARGE,
    "OUTPUT_FULL": OUTPUT_FULL,
    "BOUNDARIES": BOUNDARIES,
}

cdef enum:
    # maximum size of the length, attributes and deltas of a record, as in Kafka's producer
    MAX_RECORD_OVERHEAD = 21
    # bytes past an output that may be overwritten, by whole words and by lengths that do not fit
    SLACK_BYTES = 128

SLACK = SLACK_BYTES


cdef struct Binary:
    # NULL if every value is null
    const int64_t* offsets
    const uint8_t* data
    const uint8_t* end
    # NULL if no value is null
    const uint8_t* valid
    int64_t n_bytes


cdef Binary binary_of(const int64_t[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, Py_ssize_t n):
    cdef Binary result
    result.offsets = NULL
    result.data = NULL
    result.end = NULL
    result.valid = NULL
    result.n_bytes = 0
    if offsets is None:
        return result
    if data is None or offsets.shape[0] != n + 1 or (valid is not None and valid.shape[0] != n):
        raise ValueError("a column of byte strings differs in length")
    result.offsets = &offsets[0]
    result.n_bytes = data.shape[0]
    if result.n_bytes:
        result.data = &data[0]
        result.end = &data[0] + result.n_bytes
    if valid is not None and n:
        result.valid = &valid[0]
    return result


cdef inline int span_of(Binary* column, Py_ssize_t i, const uint8_t** start, int64_t* size) noexcept nogil:
    """Find start and size of value `i` (size -1 for null); COLUMN_OFFSETS if it is out of bounds."""
    cdef int64_t from_, to
    size[0] = -1
    if column.offsets == NULL or (column.valid != NULL and not column.valid[i]):
        return OK
    from_ = column.offsets[i]
    to = column.offsets[i + 1]
    if from_ < 0 or to < from_ or to > column.n_bytes:
        return COLUMN_OFFSETS
    start[0] = column.data + from_
    size[0] = to - from_
    return OK


cdef inline int64_t sized(int64_t size) noexcept nogil:
    """Bytes of a length and its content; null has the length -1."""
    return varint_size(zigzag64(size)) + (size if size > 0 else 0)


cdef class Columns:
    """Columns of records to encode: one number per record, and byte strings (key, value, headers), None if all null."""

    cdef Py_ssize_t n
    cdef const int64_t* offset
    cdef const int64_t* timestamp
    cdef Binary key
    cdef Binary value
    # NULL if no record has headers
    cdef const int64_t* headers
    cdef Py_ssize_t n_headers
    cdef Binary header_key
    cdef Binary header_value
    cdef bint any_header_keys
    # the views keep the memory of the pointers alive
    cdef object held

    def __cinit__(self, const int64_t[::1] offset not None, const int64_t[::1] timestamp not None,
                  const int64_t[::1] key_offsets, const uint8_t[::1] key_data, const uint8_t[::1] key_valid,
                  const int64_t[::1] value_offsets, const uint8_t[::1] value_data, const uint8_t[::1] value_valid,
                  const int64_t[::1] headers_offsets, const int64_t[::1] header_key_offsets,
                  const uint8_t[::1] header_key_data, const uint8_t[::1] header_key_valid,
                  const int64_t[::1] header_value_offsets, const uint8_t[::1] header_value_data,
                  const uint8_t[::1] header_value_valid, bint any_header_keys=False):
        cdef Py_ssize_t n = offset.shape[0]
        if timestamp.shape[0] != n:
            raise ValueError("columns differ in length")
        self.n = n
        self.offset = &offset[0] if n else NULL
        self.timestamp = &timestamp[0] if n else NULL
        self.key = binary_of(key_offsets, key_data, key_valid, n)
        self.value = binary_of(value_offsets, value_data, value_valid, n)
        self.headers = NULL
        self.n_headers = 0
        self.any_header_keys = any_header_keys
        self.header_key = binary_of(None, None, None, 0)
        self.header_value = self.header_key
        if headers_offsets is not None:
            if headers_offsets.shape[0] != n + 1 or header_key_offsets is None or header_key_offsets.shape[0] < 1:
                raise ValueError("the headers differ in length")
            self.headers = &headers_offsets[0]
            self.n_headers = header_key_offsets.shape[0] - 1
            self.header_key = binary_of(header_key_offsets, header_key_data, header_key_valid, self.n_headers)
            self.header_value = binary_of(
                header_value_offsets, header_value_data, header_value_valid, self.n_headers
            )
        self.held = (offset, timestamp, key_offsets, key_data, key_valid, value_offsets, value_data, value_valid,
                     headers_offsets, header_key_offsets, header_key_data, header_key_valid, header_value_offsets,
                     header_value_data, header_value_valid)

    def __len__(self):
        return self.n

    cdef int measure_headers(self, Py_ssize_t i, int64_t* size) noexcept nogil:
        """Measure a record's header count and headers."""
        cdef int64_t first = 0
        cdef int64_t last = 0
        cdef int64_t j, length
        cdef const uint8_t* start = NULL
        cdef int status
        if self.headers != NULL:
            first = self.headers[i]
            last = self.headers[i + 1]
            if first < 0 or last < first or last > self.n_headers:
                return COLUMN_OFFSETS
        size[0] = varint_size(zigzag64(last - first))
        for j in range(first, last):
            status = span_of(&self.header_key, j, &start, &length)
            if status != OK:
                return status
            if length < 0:
                return HEADER_KEY_NULL
            if not self.any_header_keys and not is_utf8(start, length):
                return HEADER_KEY_UTF8
            size[0] += sized(length)
            status = span_of(&self.header_value, j, &start, &length)
            if status != OK:
                return status
            size[0] += sized(length)
        return OK

    cdef inline int measure(self, Binary* key, Binary* value, Py_ssize_t i, int64_t* size) noexcept nogil:
        """Measure a record's key, value and headers; the caller passes copies of the columns, in registers."""
        cdef const uint8_t* start = NULL
        cdef int64_t key_size = 0
        cdef int64_t value_size = 0
        cdef int status
        if span_of(key, i, &start, &key_size) != OK or span_of(value, i, &start, &value_size) != OK:
            return COLUMN_OFFSETS
        if self.headers == NULL or self.headers[i] == self.headers[i + 1]:
            size[0] = sized(key_size) + sized(value_size) + 1
            return OK
        status = self.measure_headers(i, size)
        size[0] += sized(key_size) + sized(value_size)
        return status

    cdef int write_headers(self, Py_ssize_t i, uint8_t** at, const uint8_t* end) noexcept nogil:
        """Write a record's header count and headers; OUTPUT_FULL if they do not fit before `end`."""
        cdef int64_t first = self.headers[i]
        cdef int64_t last = self.headers[i + 1]
        cdef int64_t j, key_size, value_size
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef uint8_t* p = at[0]
        if first < 0 or last < first or last > self.n_headers:
            return COLUMN_OFFSETS
        p = put_varint(p, zigzag64(last - first))
        for j in range(first, last):
            if span_of(&self.header_key, j, &key, &key_size) != OK or key_size < 0:
                return COLUMN_OFFSETS
            if span_of(&self.header_value, j, &value, &value_size) != OK:
                return COLUMN_OFFSETS
            if key_size + (value_size if value_size > 0 else 0) > distance(p, end):
                return OUTPUT_FULL
            p = put_varint(p, zigzag64(key_size))
            if key_size:
                copy(p, key, key_size, self.header_key.end)
                p += key_size
            p = put_varint(p, zigzag64(value_size))
            if value_size > 0:
                copy(p, value, value_size, self.header_value.end)
                p += value_size
        at[0] = p
        return OK

    cdef int write(self, Py_ssize_t start, Py_ssize_t stop, int64_t base_offset, int64_t base_timestamp,
                   const int32_t* body_size, uint8_t** at, const uint8_t* end) noexcept nogil:
        """Write the records of a batch; SLACK bytes past `end` may be overwritten."""
        cdef Py_ssize_t i
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int64_t key_size = 0
        cdef int64_t value_size = 0
        cdef int64_t n
        cdef uint8_t* p = at[0]
        cdef uint8_t* after = NULL
        cdef int status = OK
        # local copies: the compiler must assume that a written byte may alias any object but these
        cdef Binary keys = self.key
        cdef Binary values = self.value
        cdef const int64_t* headers = self.headers
        cdef const int64_t* timestamp = self.timestamp
        cdef const int64_t* offset = self.offset
        for i in range(start, stop):
            if span_of(&keys, i, &key, &key_size) != OK or span_of(&values, i, &value, &value_size) != OK:
                return COLUMN_OFFSETS
            n = (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
            if n > distance(p, end):
                return OUTPUT_FULL
            p = put_varint(p, zigzag64(body_size[i - start]))
            # attributes of the record: unused by Kafka
            p[0] = 0
            p = put_varint(p + 1, zigzag64(wrap_sub(timestamp[i], base_timestamp)))
            # measure_batches checked that it fits in 32 bits
            p = put_varint(p, zigzag64(<int32_t>wrap_sub(offset[i], base_offset)))
            p = put_varint(p, zigzag64(key_size))
            if key_size > 0:
                copy(p, key, key_size, keys.end)
                p += key_size
            p = put_varint(p, zigzag64(value_size))
            if value_size > 0:
                copy(p, value, value_size, values.end)
                p += value_size
            if headers == NULL or headers[i] == headers[i + 1]:
                p[0] = 0
                p += 1
            else:
                # taking the address of p would force it out of its register
                after = p
                status = self.write_headers(i, &after, end)
                if status != OK:
                    return status
                p = after
        at[0] = p
        return OK


def write_varints(const int64_t[::1] values not None, bint zigzag, uint8_t[::1] out not None):
    """Write varints one after another. Return the number of bytes; `out` has room for ten bytes a varint."""
    cdef Py_ssize_t i
    cdef uint8_t* start = &out[0] if out.shape[0] else NULL
    cdef uint8_t* p = start
    if out.shape[0] // 10 < values.shape[0]:
        raise ValueError("the output is too small")
    with nogil:
        for i in range(values.shape[0]):
            p = put_varint(p, zigzag64(values[i]) if zigzag else <uint64_t>values[i])
    return distance(start, p)


def cut_batches(Columns columns not None, int64_t batch_size, int64_t max_records, int64_t[::1] boundaries not None):
    """Find the batch boundaries that a producer would choose. Return `(status, row, n_batches)`.

    `boundaries` has one element more than there are records.
    """
    cdef Py_ssize_t n = columns.n
    cdef Py_ssize_t i
    cdef Py_ssize_t row = 0
    cdef int64_t n_batches = 0
    cdef int64_t in_batch = 0
    cdef int64_t used = 0
    cdef int64_t limit = batch_size
    cdef int64_t base_offset = 0
    cdef int64_t base_timestamp = 0
    cdef int64_t previous = -1
    cdef int64_t content = 0
    cdef int64_t body, delta, size
    cdef Binary key = columns.key
    cdef Binary value = columns.value
    cdef int status = OK
    if boundaries.shape[0] != n + 1:
        raise ValueError("boundaries differ in length")
    with nogil:
        boundaries[0] = 0
        for i in range(n):
            row = i
            if columns.offset[i] <= previous:
                status = OFFSET_ORDER
                break
            previous = columns.offset[i]
            status = columns.measure(&key, &value, i, &content)
            if status != OK:
                break
            if content > INT32_MAX:
                status = TOO_LARGE
                break
            if in_batch:
                delta = previous - base_offset
                body = 1 + content + varint_size(zigzag64(delta)) + varint_size(
                    zigzag64(wrap_sub(columns.timestamp[i], base_timestamp)))
                size = body + varint_size(zigzag64(body))
                # as MemoryRecordsBuilder.hasRoomFor: the first record that does not fit closes the batch
                if in_batch == max_records or delta > INT32_MAX or used >= limit or size > limit - used:
                    n_batches += 1
                    boundaries[n_batches] = i
                    in_batch = 0
            if not in_batch:
                base_offset = previous
                base_timestamp = columns.timestamp[i]
                # attributes and both deltas: one byte each, since the deltas of the first record are 0
                body = 3 + content
                size = body + varint_size(zigzag64(body))
                # the buffer holds at least the first record at its maximum size, so slightly more may fit
                limit = max(batch_size, HEADER_BYTES + MAX_RECORD_OVERHEAD + content)
                used = HEADER_BYTES
                if size > INT32_MAX - HEADER_BYTES:
                    status = TOO_LARGE
                    break
            used += size
            in_batch += 1
        if n and status == OK:
            n_batches += 1
            boundaries[n_batches] = n
    return status, row, n_batches


def measure_batches(Columns columns not None, const int64_t[::1] boundaries not None, Heads heads not None,
                    int32_t[::1] body_size not None, int64_t[::1] payload_size not None):
    """Check and measure the records of batches. Return `(status, row, n_done)`.

    `body_size` receives the length field of each record, from the first boundary on, and `payload_size` the bytes of
    each batch. `heads` receives the largest timestamps, -1 for none.
    """
    cdef Py_ssize_t n_batches = boundaries.shape[0] - 1
    cdef Py_ssize_t batch, i, start, stop, first
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t done = 0
    cdef int64_t total, newest, base, origin, previous, delta, body
    cdef int64_t content = 0
    cdef Binary key = columns.key
    cdef Binary value = columns.value
    cdef int status = OK
    if n_batches < 0 or heads.n != n_batches or payload_size.shape[0] != n_batches:
        raise ValueError("boundaries differ in length")
    with nogil:
        first = boundaries[0]
        for batch in range(n_batches):
            start, stop = boundaries[batch], boundaries[batch + 1]
            if start < 0 or stop < start or stop > columns.n or stop - first > body_size.shape[0]:
                status = BOUNDARIES
                row = batch
                break
            total = 0
            newest = -1
            base = heads.rows[batch].base_offset
            origin = heads.rows[batch].base_timestamp
            previous = wrap_sub(base, 1)
            for i in range(start, stop):
                row = i
                if columns.offset[i] <= previous:
                    status = OFFSET_ORDER
                    break
                previous = columns.offset[i]
                delta = wrap_sub(previous, base)
                if delta < 0 or delta > INT32_MAX:
                    status = OFFSET_DELTA
                    break
                status = columns.measure(&key, &value, i, &content)
                if status != OK:
                    break
                body = 1 + content + varint_size(zigzag64(delta)) + varint_size(
                    zigzag64(wrap_sub(columns.timestamp[i], origin)))
                if body > INT32_MAX:
                    status = TOO_LARGE
                    break
                body_size[i - first] = <int32_t>body
                total += body + varint_size(zigzag64(body))
                if total > INT32_MAX - HEADER_BYTES:
                    status = TOO_LARGE
                    break
                if columns.timestamp[i] > newest:
                    newest = columns.timestamp[i]
            if status != OK:
                break
            payload_size[batch] = total
            heads.rows[batch].max_timestamp = newest
            done += 1
    return status, row, done


def write_batches(Columns columns not None, const int64_t[::1] boundaries not None, Heads heads not None,
                  const int32_t[::1] body_size not None, const int64_t[::1] payload_size not None,
                  Py_ssize_t first_batch, Py_ssize_t stop_batch, bint framed, uint8_t[::1] out not None):
    """Write some of the measured batches one after another. Return `(status, n_bytes)`.

    `framed` adds the headers of batches. `out` needs SLACK bytes of additional room.
    """
    cdef Py_ssize_t n_batches = boundaries.shape[0] - 1
    cdef Py_ssize_t batch, start, stop, first
    cdef int64_t room = out.shape[0]
    cdef int64_t head = HEADER_BYTES if framed else 0
    cdef uint8_t* origin = NULL
    cdef uint8_t* batch_start = NULL
    cdef uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef int status = OK
    if heads.n != n_batches or payload_size.shape[0] != n_batches or not 0 <= first_batch <= stop_batch <= n_batches:
        raise ValueError("boundaries differ in length")
    if room < SLACK_BYTES:
        raise ValueError("the output is too small")
    first = boundaries[0]
    origin = &out[0]
    p = origin
    with nogil:
        for batch in range(first_batch, stop_batch):
            start, stop = boundaries[batch], boundaries[batch + 1]
            if start < first or stop < start or stop > columns.n or stop - first > body_size.shape[0]:
                status = BOUNDARIES
                break
            batch_start = p
            if payload_size[batch] < 0 or payload_size[batch] > room - SLACK_BYTES - head - distance(origin, p):
                status = OUTPUT_FULL
                break
            # key and value must stay within the records of their batch; the other fields take less than SLACK
            end = p + head + payload_size[batch]
            p += head
            if stop > start:
                status = columns.write(
                    start, stop, heads.rows[batch].base_offset, heads.rows[batch].base_timestamp,
                    &body_size[start - first], &p, end)
                if status == OK and p != end:
                    status = OUTPUT_FULL
                if status != OK:
                    break
            if framed:
                heads.write(batch, batch_start, distance(batch_start, p))
    return status, distance(origin, p)
