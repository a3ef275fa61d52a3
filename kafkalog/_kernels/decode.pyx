"""Decodes v2 records in bulk: finds the spans of their fields, then fills columns.

Kafka: DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkalog._kernels.crc cimport crc32c
from kafkalog._kernels.wire cimport (
    CRC_MISMATCH, HEADER_COUNT, HEADER_KEY_NULL, HEADER_LENGTH, KEY_LENGTH, OK, OUTPUT_FULL, RECORD_COUNT,
    RECORD_LENGTH, RECORD_TRAILING_BYTES, TOO_MANY_HEADERS, VALUE_LENGTH, VARINT_TRUNCATED, Cursor, distance,
    read_varint, read_varlong, remaining, wrap_add,
)

cdef enum:
    LOG_APPEND_TIME_BIT = 0x08
    MIN_RECORD_BYTES = 7
    CRC_START = 21
    OVERHEAD = 61


cdef inline int skip_headers(Cursor* cursor, int32_t count) noexcept nogil:
    cdef int32_t _i, size = 0
    cdef int status
    for _i in range(count):
        status = read_varint(cursor, &size)
        if status != OK:
            return status
        if size < 0:
            return HEADER_KEY_NULL
        if size > remaining(cursor):
            return HEADER_LENGTH
        cursor.pointer += size
        status = read_varint(cursor, &size)
        if status != OK:
            return status
        if size > 0:
            if size > remaining(cursor):
                return HEADER_LENGTH
            cursor.pointer += size
    return OK


def walk_records(const uint8_t[::1] data not None, const int64_t[::1] payload_start not None,
                 const int64_t[::1] payload_end not None, const int64_t[::1] base_offset not None,
                 const int64_t[::1] base_timestamp not None, const int64_t[::1] max_timestamp not None,
                 const int16_t[::1] attributes not None, const int32_t[::1] records_count not None,
                 const uint32_t[::1] crc not None, bint check_crc, int32_t max_headers, int32_t max_batch_headers,
                 int64_t[::1] offset not None, int64_t[::1] timestamp not None,
                 int32_t[::1] key_start not None, int32_t[::1] key_size not None, int32_t[::1] value_start not None,
                 int32_t[::1] value_size not None, int32_t[::1] headers_start, int32_t[::1] headers_count):
    """Find the spans of all fields of batches whose payloads lie in `data`, and diagnose bad batches.

    A span is a start in `data` and a size, -1 for null. With `check_crc`, the header of a batch must lie right before
    its payload; the checksum is compared while the bytes are in cache. Header spans are optional (None). On any status
    but OK, the counts cover the batches before the bad one, and `position` is the place of the error in `data`.

    Returns
    -------
    (status, n_batches, n_records, position, n_headers)
    """
    cdef Py_ssize_t n_batches = payload_start.shape[0]
    cdef Py_ssize_t capacity = offset.shape[0]
    cdef Py_ssize_t row, i
    cdef Py_ssize_t n = 0
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t where = 0
    cdef int64_t start, stop
    cdef int64_t delta64 = 0
    cdef int64_t first_offset, first_timestamp, append_time
    cdef int32_t length = 0
    cdef int32_t delta = 0
    cdef int32_t size = 0
    cdef int32_t count
    cdef bint appended
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    cdef Cursor cursor
    cdef Cursor record
    cdef bint heads = headers_start is not None
    cdef int64_t batch_headers
    cdef int64_t headers = 0
    if (payload_end.shape[0] != n_batches or base_offset.shape[0] != n_batches or base_timestamp.shape[0] != n_batches
            or max_timestamp.shape[0] != n_batches or attributes.shape[0] != n_batches
            or records_count.shape[0] != n_batches or crc.shape[0] != n_batches):
        raise ValueError("batch columns differ in length")
    if data.shape[0] > 0x7FFFFFFF:
        raise ValueError("data is 2 GiB or more")
    for row in range(n_batches):
        if payload_start[row] < (OVERHEAD if check_crc else 0) or payload_end[row] < payload_start[row] or \
                payload_end[row] > data.shape[0]:
            raise ValueError("a payload lies outside data")
    if (timestamp.shape[0] != capacity or key_start.shape[0] != capacity or key_size.shape[0] != capacity
            or value_start.shape[0] != capacity or value_size.shape[0] != capacity):
        raise ValueError("record columns differ in length")
    if heads and (headers_count is None or headers_start.shape[0] != capacity or headers_count.shape[0] != capacity):
        raise ValueError("header spans differ in length")
    if data.shape[0]:
        origin = &data[0]
    with nogil:
        for row in range(n_batches):
            start = payload_start[row]
            stop = payload_end[row]
            count = records_count[row]
            where = start
            if check_crc:
                if crc32c(origin + start - (OVERHEAD - CRC_START), stop - start + (OVERHEAD - CRC_START)) != crc[row]:
                    status = CRC_MISMATCH
                    where = start - OVERHEAD
                    break
            if count < 0:
                status = RECORD_COUNT
                break
            if count == 0:
                done += 1
                continue
            # a record has at least 7 bytes: an impossible count must not size a column
            if count > (stop - start) // MIN_RECORD_BYTES:
                status = RECORD_COUNT
                break
            if count > capacity - n:
                status = OUTPUT_FULL
                break
            batch_headers = 0
            first_offset = base_offset[row]
            first_timestamp = base_timestamp[row]
            appended = attributes[row] & LOG_APPEND_TIME_BIT != 0
            append_time = max_timestamp[row]
            cursor.pointer = origin + start
            cursor.end = origin + stop
            for i in range(n, n + count):
                where = distance(origin, cursor.pointer)
                status = read_varint(&cursor, &length)
                if status != OK:
                    break
                if length < 0 or length > remaining(&cursor):
                    status = RECORD_LENGTH
                    break
                record.pointer = cursor.pointer
                record.end = cursor.pointer + length
                cursor.pointer = record.end
                if length == 0:
                    status = RECORD_LENGTH
                    break
                # attributes of the record: Kafka writes 0 and ignores them
                record.pointer += 1
                status = read_varlong(&record, &delta64)
                if status != OK:
                    break
                status = read_varint(&record, &delta)
                if status != OK:
                    break
                offset[i] = wrap_add(first_offset, delta)
                # wraps as in Java: deltas from a delete horizon may be huge
                timestamp[i] = append_time if appended else wrap_add(first_timestamp, delta64)
                status = read_varint(&record, &size)
                if status != OK:
                    break
                if size < 0:
                    size = -1
                elif size > remaining(&record):
                    status = KEY_LENGTH
                    break
                key_start[i] = <int32_t>distance(origin, record.pointer)
                key_size[i] = size
                if size > 0:
                    record.pointer += size
                status = read_varint(&record, &size)
                if status != OK:
                    break
                if size < 0:
                    size = -1
                elif size > remaining(&record):
                    status = VALUE_LENGTH
                    break
                value_start[i] = <int32_t>distance(origin, record.pointer)
                value_size[i] = size
                if size > 0:
                    record.pointer += size
                status = read_varint(&record, &size)
                if status != OK:
                    break
                # Kafka's bound (DefaultRecord.readFrom) is the remaining bytes, although a header takes two
                if size < 0 or size > remaining(&record):
                    status = HEADER_COUNT
                    break
                if heads:
                    headers_start[i] = <int32_t>distance(origin, record.pointer)
                    headers_count[i] = size
                if size:
                    if size > max_headers:
                        status = TOO_MANY_HEADERS
                        break
                    # also per batch: empty headers compress a thousandfold, and each takes about 50 bytes in columns
                    batch_headers += size
                    if batch_headers > max_batch_headers:
                        status = TOO_MANY_HEADERS
                        break
                    status = skip_headers(&record, size)
                    if status != OK:
                        break
                if record.pointer != record.end:
                    status = RECORD_LENGTH
                    break
            if status != OK:
                break
            if cursor.pointer != cursor.end:
                status = RECORD_TRAILING_BYTES
                where = distance(origin, cursor.pointer)
                break
            headers += batch_headers
            n += count
            done += 1
    return status, done, n, where, headers


def measure_binary(const int32_t[::1] size not None, const int64_t[::1] rows):
    """Return `(n_bytes, n_null)` of a column of spans, or of its `rows`."""
    cdef Py_ssize_t n = size.shape[0] if rows is None else rows.shape[0]
    cdef Py_ssize_t i, row
    cdef int64_t total = 0
    cdef int64_t nulls = 0
    cdef bint outside = False
    with nogil:
        for i in range(n):
            row = i if rows is None else rows[i]
            if row < 0 or row >= size.shape[0]:
                outside = True
                break
            total += size[row] if size[row] > 0 else 0
            nulls += size[row] < 0
    if outside:
        raise IndexError("a row lies outside the column")
    return total, nulls


def fill_binary(const uint8_t[::1] data not None, const int32_t[::1] start not None, const int32_t[::1] size not None,
                const int64_t[::1] rows, int64_t[::1] out_offsets not None, uint8_t[::1] out_data not None,
                uint8_t[::1] out_validity):
    """Copy the bytes of spans one after another. Return the number of bytes.

    `out_offsets` has one element more than there are rows; `out_validity` may be None if there is no null.
    """
    cdef Py_ssize_t n = start.shape[0] if rows is None else rows.shape[0]
    cdef Py_ssize_t room = out_data.shape[0]
    cdef Py_ssize_t limit = data.shape[0]
    cdef Py_ssize_t i, row
    cdef int64_t at = 0
    cdef int32_t bytes_
    cdef int32_t from_
    cdef bint outside = False
    cdef const uint8_t* origin = NULL
    cdef uint8_t* target = NULL
    if size.shape[0] != start.shape[0] or out_offsets.shape[0] != n + 1:
        raise ValueError("columns differ in length")
    if out_validity is not None and out_validity.shape[0] != n:
        raise ValueError("validity differs in length")
    if limit:
        origin = &data[0]
    if room:
        target = &out_data[0]
    with nogil:
        out_offsets[0] = 0
        for i in range(n):
            row = i if rows is None else rows[i]
            if row < 0 or row >= start.shape[0]:
                outside = True
                break
            bytes_ = size[row]
            if bytes_ > 0:
                from_ = start[row]
                if from_ < 0 or bytes_ > limit - from_ or bytes_ > room - at:
                    outside = True
                    break
                memcpy(target + at, origin + from_, bytes_)
                at += bytes_
            if out_validity is not None:
                out_validity[i] = bytes_ >= 0
            out_offsets[i + 1] = at
    if outside:
        raise IndexError("a span lies outside data")
    return at


def walk_headers(const uint8_t[::1] data not None, const int32_t[::1] headers_start not None,
                 const int32_t[::1] headers_count not None, const int64_t[::1] rows, int64_t[::1] out_offsets not None,
                 int32_t[::1] key_start not None, int32_t[::1] key_size not None, int32_t[::1] value_start not None,
                 int32_t[::1] value_size not None):
    """Find the spans of the headers of accepted records. Return `(status, n_headers)`.

    `out_offsets` has one element more than there are rows: the index of each record's first header.
    """
    cdef Py_ssize_t n = headers_start.shape[0] if rows is None else rows.shape[0]
    cdef Py_ssize_t capacity = key_start.shape[0]
    cdef Py_ssize_t limit = data.shape[0]
    cdef Py_ssize_t i, row
    cdef int64_t at = 0
    cdef int32_t _j, count, from_
    cdef int32_t length = 0
    cdef int status = OK
    cdef Cursor cursor
    cdef const uint8_t* origin = NULL
    if headers_count.shape[0] != headers_start.shape[0] or out_offsets.shape[0] != n + 1:
        raise ValueError("columns differ in length")
    if key_size.shape[0] != capacity or value_start.shape[0] != capacity or value_size.shape[0] != capacity:
        raise ValueError("header columns differ in length")
    if limit:
        origin = &data[0]
    with nogil:
        out_offsets[0] = 0
        for i in range(n):
            row = i if rows is None else rows[i]
            # walk_records checked the spans, but Python code has held the arrays since: check again
            if row < 0 or row >= headers_start.shape[0]:
                status = VARINT_TRUNCATED
                break
            count = headers_count[row]
            from_ = headers_start[row]
            if count > 0:
                if count > capacity - at:
                    status = OUTPUT_FULL
                    break
                if from_ < 0 or from_ > limit:
                    status = VARINT_TRUNCATED
                    break
                cursor.pointer = origin + from_
                cursor.end = origin + limit
                for _j in range(count):
                    status = read_varint(&cursor, &length)
                    if status != OK:
                        break
                    if length < 0 or length > remaining(&cursor):
                        status = HEADER_LENGTH
                        break
                    key_start[at] = <int32_t>distance(origin, cursor.pointer)
                    key_size[at] = length
                    cursor.pointer += length
                    status = read_varint(&cursor, &length)
                    if status != OK:
                        break
                    value_start[at] = <int32_t>distance(origin, cursor.pointer)
                    if length < 0:
                        value_size[at] = -1
                    else:
                        if length > remaining(&cursor):
                            status = HEADER_LENGTH
                            break
                        value_size[at] = length
                        cursor.pointer += length
                    at += 1
                if status != OK:
                    break
            out_offsets[i + 1] = at
    return status, at
