"""Walks the headers of record batches, in a window of a segment or straight from its file.

Kafka: FileLogInputStream.nextBatch.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memmove

from kafkalog._kernels.crc cimport crc32, crc32c
from kafkalog._kernels.fill cimport ALL_DONE, Filler, kl_ask_for, kl_touch
from kafkalog._kernels.header_rows cimport HeaderRows, Rows
from kafkalog._kernels.headers cimport CONTROL_BIT, ENVELOPE, MAGIC_END, MIN_SIZE_ANY, walk_headers
from kafkalog._kernels.wire cimport NEED_MORE, OUTPUT_FULL, load_be32, load_be64, wrap_add, wrap_sub

cdef extern from "unistd.h":
    Py_ssize_t pread(int descriptor, void* buffer, size_t size, int64_t position) nogil

cdef extern from "cached_reads.h":
    Py_ssize_t kl_read_cached(int descriptor, void* to, size_t size, int64_t position) noexcept nogil

cdef enum:
    V2_OVERHEAD = 61
    MIN_RECORD_BYTES = 7
    LARGE = 4096
    MANY_SMALL = 32
    # bytes to read of a large batch: a header and a control record; of small batches, many at once
    HEAD = 128
    HEADS = 8192
    AHEAD = 0x4000  # bytes; half of a core's L1 cache


def walk_batches(const uint8_t[::1] window not None, Py_ssize_t start, int64_t window_start, int64_t previous_offset,
                 int64_t[::1] position not None, int32_t[::1] size_in_bytes not None, int64_t[::1] base_offset not None,
                 int64_t[::1] last_offset not None, int32_t[::1] leader_epoch not None, int8_t[::1] magic not None,
                 uint32_t[::1] crc not None, int16_t[::1] attributes not None, int64_t[::1] base_timestamp not None,
                 int64_t[::1] max_timestamp not None, int64_t[::1] producer_id not None,
                 int16_t[::1] producer_epoch not None, int32_t[::1] base_sequence not None,
                 int32_t[::1] records_count not None, int16_t[::1] control_type not None):
    """Walk headers from `window[start]` on, one row per batch. Return `(status, n_rows, position, needed)`.

    `window_start` is the position of `window[0]` in the file. Offsets must increase from `previous_offset` (-1
    for any), else the status is OFFSET_ORDER. The walk stops before a batch that it cannot take. `position` is its
    start in the file, and `needed` its size in bytes, 0 if unknown. NEED_MORE means that the window ends inside a batch
    or at `position`.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t end = window.shape[0]
    cdef Py_ssize_t at = start
    cdef Py_ssize_t n_rows = 0
    cdef int64_t needed = 0
    cdef const uint8_t* data = b""
    cdef Rows rows
    cdef int status
    if (size_in_bytes.shape[0] != n or base_offset.shape[0] != n or last_offset.shape[0] != n
            or leader_epoch.shape[0] != n or magic.shape[0] != n or crc.shape[0] != n or attributes.shape[0] != n
            or base_timestamp.shape[0] != n or max_timestamp.shape[0] != n or producer_id.shape[0] != n
            or producer_epoch.shape[0] != n or base_sequence.shape[0] != n or records_count.shape[0] != n
            or control_type.shape[0] != n):
        raise ValueError("columns differ in length")
    if start < 0 or start > end:
        raise ValueError("start lies outside the window")
    if window_start < 0 or window_start > INT64_MAX - end:
        raise ValueError("the window lies outside any file")
    if end:
        data = &window[0]
    if n:
        rows = Rows(&position[0], &size_in_bytes[0], &base_offset[0], &last_offset[0], &leader_epoch[0], &magic[0],
                    &crc[0], &attributes[0], &base_timestamp[0], &max_timestamp[0], &producer_id[0],
                    &producer_epoch[0], &base_sequence[0], &records_count[0], &control_type[0])
    with nogil:
        status = walk_headers(
            data, &at, end, window_start, &previous_offset, &n_rows, n, &needed, &rows)
    return status, n_rows, window_start + at, needed


cdef struct ImageRow:
    # a batch of an image; see kafkalog.undeleting.images.BATCH
    int64_t position
    int64_t first_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t image
    int32_t size
    int32_t leader_epoch
    uint32_t crc
    int32_t base_sequence
    int32_t n_records
    int16_t attributes
    int16_t producer_epoch
    int16_t control_type
    int16_t magic


def read_at(const uint8_t[::1] window not None, int64_t window_start, const int64_t[::1] position not None,
            int32_t image, ImageRow[::1] rows not None):
    """Fill a row with the header of each of these batches, in any order of their offsets; all lie in the window."""
    cdef Py_ssize_t i, at, n_rows
    cdef Py_ssize_t n = position.shape[0]
    cdef int64_t before, needed = 0
    cdef ImageRow row
    cdef int8_t magic
    cdef Rows fields = Rows(
        &row.position, &row.size, &row.first_offset, &row.last_offset, &row.leader_epoch, &magic, &row.crc,
        &row.attributes, &row.base_timestamp, &row.max_timestamp, &row.producer_id, &row.producer_epoch,
        &row.base_sequence, &row.n_records, &row.control_type)
    if rows.shape[0] != n:
        raise ValueError("columns differ in length")
    if window_start < 0 or (n and not window.shape[0]):
        raise ValueError("the window lies outside any file")
    with nogil:
        for i in range(n):
            if position[i] < window_start or position[i] - window_start > window.shape[0]:
                with gil:
                    raise ValueError("a batch lies outside the window")
            at = <Py_ssize_t>(position[i] - window_start)
            n_rows = 0
            before = -1
            walk_headers(&window[0], &at, window.shape[0], window_start, &before, &n_rows, 1, &needed, &fields)
            if n_rows != 1:
                with gil:
                    raise ValueError("there is no batch")
            # of a compressed message of v0 or v1 only the last offset is known
            if row.first_offset < 0:
                row.first_offset = row.last_offset
            row.image = image
            row.magic = magic
            rows[i] = row


def find_headers(const uint8_t[::1] window not None, int64_t window_start, Py_ssize_t first, Py_ssize_t step,
                 int64_t max_batch_bytes, int32_t image, ImageRow[::1] rows not None):
    """Find headers of v2 batches with records at `window[first]` and each `step` bytes after it; return their number.

    A row has position, offsets, checksum and the size as a negative number. No field contradicts that it is a header,
    which random bytes rarely are.
    """
    cdef Py_ssize_t at = first
    cdef Py_ssize_t n = 0
    cdef int64_t offset
    cdef int32_t size, delta, count
    cdef const uint8_t* p
    if (first < 0 or step < 1 or step > INT32_MAX or window_start < 0
            or window_start > INT64_MAX - window.shape[0]):
        raise ValueError("the window lies outside any file")
    with nogil:
        while at <= window.shape[0] - V2_OVERHEAD and n < rows.shape[0]:
            p = &window[at]
            at += step
            # attributes have five bits and the codec
            if p[16] != 2 or p[21] or p[22] & 0x80:
                continue
            offset = <int64_t>load_be64(p)
            size = <int32_t>load_be32(p + 8)
            delta = <int32_t>load_be32(p + 23)
            count = <int32_t>load_be32(p + 57)
            if offset < 0 or count < 1 or count - 1 > delta or delta > INT64_MAX - offset:
                continue
            if size <= V2_OVERHEAD - ENVELOPE or size > max_batch_bytes - ENVELOPE:
                continue
            rows[n].image = image
            rows[n].position = window_start + (p - &window[0])
            rows[n].first_offset = offset
            rows[n].last_offset = offset + delta
            rows[n].size = -size - ENVELOPE
            rows[n].crc = load_be32(p + 17)
            rows[n].magic = 2
            n += 1
    return n


def find_starts(const ImageRow[::1] rows not None, const int64_t[::1] blocks not None, uint8_t[::1] is_new not None):
    """Set `is_new` for the batches that another file may begin with; `blocks` has the block size of each image.

    All others lie directly after the one before, with a higher offset and no lower epoch. At the start of a block they
    have the next offset, too, and no sequence of a producer that contradicts.
    """
    cdef Py_ssize_t i
    cdef const ImageRow* a
    cdef const ImageRow* b
    cdef bint goes_on
    cdef int64_t expected
    if is_new.shape[0] != rows.shape[0]:
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(rows.shape[0]):
            b = &rows[i]
            if b.image < 0 or b.image >= blocks.shape[0] or blocks[b.image] < 1:
                with gil:
                    raise ValueError("there is no such image")
            is_new[i] = True
            if i == 0:
                continue
            a = &rows[i - 1]
            if (a.size <= 0 or b.size <= 0 or a.image != b.image or wrap_sub(b.position, a.position) != a.size
                    or b.first_offset <= a.last_offset or (b.leader_epoch < a.leader_epoch and b.leader_epoch >= 0)):
                continue
            if b.position % blocks[b.image] == 0:
                goes_on = b.first_offset == a.last_offset + 1
                # after the largest sequence comes 0. Source: DefaultRecordBatch.incrementSequence, Kafka 4.3
                if (a.producer_id == b.producer_id and a.producer_epoch == b.producer_epoch and a.base_sequence >= 0
                        and b.base_sequence >= 0):
                    expected = wrap_add(a.base_sequence, wrap_sub(a.last_offset, a.first_offset)) & 0x7FFFFFFF
                    goes_on = goes_on and wrap_add(expected, 1) & 0x7FFFFFFF == b.base_sequence
                if not goes_on:
                    continue
            is_new[i] = False


cpdef tuple read_intact(int descriptor, int64_t start, int64_t stop, int64_t previous_offset, int64_t max_batch_bytes,
                        bint check_crc, int stop_at, int64_t start_offset, int64_t end_offset, Py_ssize_t read_bytes,
                        uint8_t[::1] room, const uint8_t[::1] data, Filler filler, HeaderRows rows):
    """Read valid batches of a file, starting at a batch boundary.

    Returns ``(n_rows, needed, ending)``; `rows` is overwritten with the headers.

    Bytes are read into `room`, at most `read_bytes` at a time to stay in cache, or come from `data`, which begins at
    `start`. `room` is reused for the next bytes, unless views of a `filler` point into it: then the call ends when it
    is full. A `filler` fills in the records, except those of control batches.

    The call ends:

    - before a batch with a wrong checksum or header, or an offset that does not increase,
    - before a batch outside of `start_offset` and `end_offset`, or above `max_batch_bytes`,
    - before a v2 batch with any of the attribute bits `stop_at`,
    - before a batch that cannot be filled in (`ending` has the reason),
    - before a batch larger than `room` (`needed` is its size, else 0),
    - at `stop`, when the columns are full, and where the file ends or cannot be read.

    It does not return which of these applied: the caller reads that batch with `walk_batches`.
    """
    cdef Py_ssize_t n_rows = 0
    cdef Py_ssize_t capacity = rows.capacity
    cdef Rows to = rows.at
    cdef int32_t* n_filled = rows.n_filled
    cdef Py_ssize_t row
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t filled = 0
    cdef Py_ssize_t wanted, n_read
    cdef int64_t needed = 0
    cdef int64_t before = previous_offset
    cdef int64_t room_start = start
    cdef int64_t total = LARGE
    cdef int64_t largest = 0
    cdef int64_t next_offset = 0
    cdef int magics = 0
    cdef int bits = 0
    cdef int common_bits = -1
    cdef const uint8_t* p = NULL
    cdef int status = NEED_MORE
    cdef int ending = ALL_DONE
    cdef bint good = True
    cdef bint has_next = False
    cdef bint is_there = data is not None
    cdef bint is_kept = is_there or (filler is not None and filler.views)
    cdef const uint8_t* window = b""
    cdef Py_ssize_t length = 0
    if rows is None:
        raise TypeError("there are no rows to write headers to")
    rows.n = 0
    if is_there:
        length = data.shape[0]
        window = &data[0] if length else window
    elif room is not None:
        length = room.shape[0]
        window = <const uint8_t*>&room[0] if length else window
    else:
        raise ValueError("there are neither bytes nor room for them")
    if start < 0 or stop < start or stop > INT64_MAX - length:
        raise ValueError("the range lies outside any file")
    if length < (0 if is_there else V2_OVERHEAD) or length > INT32_MAX or read_bytes < 1:
        raise ValueError("there is no room for a batch, or 2 GiB and more")
    if filler is not None:
        filler.is_in_memory = is_there
    with nogil:
        while good and status == NEED_MORE:
            # the start of a batch that the last read truncated
            if at and not is_kept:
                if at < filled:
                    memmove(&room[0], &room[at], filled - at)
                room_start += at
                filled -= at
                at = 0
            wanted = length - filled
            if wanted > read_bytes:
                wanted = read_bytes
            if wanted > stop - room_start - filled:
                wanted = <Py_ssize_t>(stop - room_start - filled)
            if wanted <= 0:
                break
            n_read = wanted
            if room is not None and not is_there:
                n_read = pread(descriptor, &room[filled], wanted, room_start + filled)
                if n_read <= 0:
                    break
            elif filled == 0 and n_read > MAGIC_END and window[16] < 2:
                kl_touch(window, min(n_read, AHEAD))
            filled += n_read
            status = OUTPUT_FULL
            while good and status == OUTPUT_FULL and n_rows < capacity:
                # parse large batches' headers one by one, as they get into cache; of small batches many at once
                row = n_rows
                status = walk_headers(
                    window, &at, filled, room_start, &previous_offset, &n_rows,
                    min(row + (1 if total >= LARGE else MANY_SMALL), capacity), &needed, &to)
                while row < n_rows:
                    total = to.size_in_bytes[row]
                    p = window + <Py_ssize_t>(to.position[row] - room_start)
                    # cheap checks first: a batch out of range costs no checksum
                    if (total > max_batch_bytes or to.base_offset[row] < start_offset
                            or to.last_offset[row] >= end_offset
                            # librdkafka's wrappers have offset 0: the last offset is inside
                            or (to.last_offset[row] == 0 and to.base_offset[row] < 0 and end_offset != INT64_MAX)
                            or (to.attributes[row] & stop_at and to.magic[row] >= 2)):
                        good = False
                    elif not check_crc:
                        pass
                    elif to.magic[row] >= 2:
                        good = crc32c(p + 21, total - 21) == to.crc[row]
                    else:
                        # messages are short: prefetch, or the walk waits for each size field
                        if filler is not None and filler.is_in_memory:
                            kl_ask_for(p + AHEAD, total)
                        good = crc32(p + 16, total - 16) == to.crc[row]
                    if to.magic[row] >= 2 and to.attributes[row] & CONTROL_BIT:
                        if filler is not None:
                            n_filled[row] = 0
                    elif good and filler is not None:
                        if to.magic[row] >= 2:
                            ending = filler.fill(p + V2_OVERHEAD, total - V2_OVERHEAD, window, window + filled,
                                                 to.base_offset[row], to.base_timestamp[row], to.max_timestamp[row],
                                                 to.attributes[row], to.records_count[row])
                            n_filled[row] = to.records_count[row]
                        else:
                            ending = filler.fill_message(p, total, window, window + filled, to.magic[row],
                                                         to.attributes[row], to.last_offset[row], to.max_timestamp[row],
                                                         to.last_offset[row - 1] if row else before, &n_filled[row])
                        good = ending == ALL_DONE
                    # drop the rows after an invalid batch as well: a wrong size field may have led to them
                    if good:
                        magics |= 1 << (to.magic[row] & 7)
                        bits |= to.attributes[row]
                        common_bits &= to.attributes[row]
                        if total > largest:
                            largest = total
                    else:
                        n_rows = row
                    row += 1
        if n_rows:
            at = <Py_ssize_t>(to.position[n_rows - 1] + to.size_in_bytes[n_rows - 1] - room_start)
            has_next = at + 8 <= filled
            if has_next:
                next_offset = <int64_t>load_be64(window + at)
    if not good or status != NEED_MORE or at or filled < length:
        needed = 0
    rows.n = n_rows
    rows.magics = magics
    rows.attribute_bits = bits
    rows.largest = largest
    rows.common_bits = common_bits
    rows.next_offset = next_offset if has_next else None
    if n_rows:
        rows.first_offset = to.base_offset[0] if to.base_offset[0] >= 0 else to.last_offset[0]
        rows.last_offset = to.last_offset[n_rows - 1]
        rows.last_position = to.position[n_rows - 1]
        rows.end_position = rows.last_position + to.size_in_bytes[n_rows - 1]
    return n_rows, needed, ending


def read_headers(int descriptor, int64_t start, int64_t stop, int64_t previous_offset, int64_t max_batch_bytes,
                 int stop_at, HeaderRows rows not None, const uint8_t[::1] data=None):
    """Read only the headers of valid batches, starting at a batch boundary. Return `n_rows`.

    Bytes are read from a descriptor, or come from `data`, which begins at `start`. -1 instead of 0 means that the
    system cannot read this file so. `rows` is overwritten with the headers and the offset after them, without a
    summary. Checksums are not compared. Only bytes in the page cache are read: from a disk, larger reads are faster.

    The call ends before a batch with a wrong header, an offset that does not increase, more than `max_batch_bytes`, or
    any of the v2 attribute bits `stop_at`. It also ends at `stop`, when the columns are full, and where bytes are not
    in memory or cannot be read. It does not return which of these applied.
    """
    cdef uint8_t room[HEADS]
    cdef const uint8_t* p
    cdef Py_ssize_t n_rows = 0
    cdef Py_ssize_t capacity = rows.capacity
    cdef Py_ssize_t before = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t filled = 0
    cdef Py_ssize_t wanted = HEADS
    cdef Py_ssize_t n_needed
    cdef int64_t room_start = start
    cdef int64_t position = start
    cdef int64_t left, total, needed
    cdef bint is_refused = False
    cdef const uint8_t* there = room
    cdef Rows to = rows.at
    rows.n = 0
    if data is not None:
        filled = data.shape[0]
        if filled:
            there = &data[0]
    if start < 0 or stop < start or stop > INT64_MAX - INT32_MAX:
        raise ValueError("the range lies outside any file")
    with nogil:
        while n_rows < capacity and position < stop:
            left = min(stop - position, <int64_t>INT32_MAX)
            n_needed = <Py_ssize_t>min(left, <int64_t>HEAD)
            at = <Py_ssize_t>(position - room_start)
            if at > filled - n_needed:
                if data is not None:
                    break
                filled = kl_read_cached(descriptor, room, <size_t>min(left, <int64_t>wanted), position)
                is_refused = filled < -1
                room_start = position
                at = 0
                if filled < n_needed:
                    break
            # only the header and possibly a control record are in memory
            p = there + at
            if n_needed == HEAD and p[16] == 2 and p[22] & CONTROL_BIT:
                if ENVELOPE + <int64_t>load_be32(p + 8) > filled - at:
                    break
            before = n_rows
            walk_headers(there, &at, at + <Py_ssize_t>left, room_start, &previous_offset, &n_rows, n_rows + 1, &needed,
                         &to)
            if n_rows == before:
                break
            total = to.size_in_bytes[before]
            if total > max_batch_bytes or (to.attributes[before] & stop_at and to.magic[before] >= 2):
                n_rows = before
                break
            position += total
            wanted = HEAD if total >= LARGE else HEADS
    rows.n = n_rows
    rows.next_offset = None
    at = <Py_ssize_t>(position - room_start)
    if n_rows and 0 <= at and at + 8 <= filled:
        rows.next_offset = <int64_t>load_be64(there + at)
    return n_rows if n_rows or not is_refused else -1


def find_boundary(of, int64_t start, int64_t stop, int64_t n_bytes):
    """Position of the first batch that begins at least `n_bytes` after the one at `start`; `stop` if there is none.

    `of` is a descriptor, or the bytes from `start` on. This follows size fields and checks nothing else, so the result
    is a guess.
    """
    cdef uint8_t room[4096]
    cdef const uint8_t* there = room
    cdef const uint8_t[::1] data = None
    cdef int descriptor = -1
    cdef int64_t at = start
    cdef int64_t room_start = start
    cdef int64_t wanted = sizeof(room)
    cdef Py_ssize_t filled = 0
    cdef int32_t size
    if start < 0 or stop < start:
        raise ValueError("the range lies outside any file")
    if isinstance(of, int):
        descriptor = of
    else:
        data = of
        filled = data.shape[0]
        if filled:
            there = &data[0]
    with nogil:
        while at < stop and at - start < n_bytes:
            if at - room_start + ENVELOPE > filled:
                if data is not None:
                    break
                filled = pread(descriptor, room, wanted, at)
                room_start = at
                if filled < ENVELOPE:
                    break
            size = <int32_t>load_be32(there + (at - room_start + 8))
            if size < MIN_SIZE_ANY:
                break
            at += ENVELOPE + <int64_t>size
            # read only the size field of large batches, and many small batches at once
            wanted = sizeof(room) if size < <int32_t>sizeof(room) else ENVELOPE
    return at if start < at <= stop else stop


def survey_batches(const int64_t[::1] position not None, const int32_t[::1] size_in_bytes not None,
                   const int8_t[::1] magic not None, const int16_t[::1] attributes not None,
                   const int32_t[::1] records_count not None, int64_t window_start,
                   int64_t[::1] payload_start not None, int64_t[::1] payload_end not None):
    """Summarise headers for a decoder. Return `(magics, attribute_bits, n_records)`.

    `magics` has bit m set for each magic m, and `attribute_bits` has the bits of any batch. Payloads are those of v2
    batches, as positions in the window. `n_records` is the sum of their counts, each limited to the number that
    fits its payload.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t row
    cdef int64_t start, end, room
    cdef int64_t n_records = 0
    cdef int magics = 0
    cdef int bits = 0
    if (size_in_bytes.shape[0] != n or magic.shape[0] != n or attributes.shape[0] != n or records_count.shape[0] != n
            or payload_start.shape[0] != n or payload_end.shape[0] != n):
        raise ValueError("columns differ in length")
    if window_start < 0:
        raise ValueError("the window lies outside any file")
    with nogil:
        for row in range(n):
            # magics come from the caller's table, and a shift by more bits than an int has is undefined in C
            magics |= 1 << (magic[row] & 7)
            bits |= attributes[row]
            if position[row] < window_start or size_in_bytes[row] < V2_OVERHEAD:
                payload_start[row] = 0
                payload_end[row] = 0
                continue
            start = position[row] - window_start
            # so do positions and sizes: their sum must not overflow
            if start > INT64_MAX - size_in_bytes[row]:
                start = INT64_MAX - size_in_bytes[row]
            end = start + size_in_bytes[row]
            start += V2_OVERHEAD
            payload_start[row] = start
            payload_end[row] = end
            room = (end - start) // MIN_RECORD_BYTES
            # the sum sizes columns, so the count in a damaged header must not exceed the payload
            if records_count[row] > 0:
                n_records += records_count[row] if records_count[row] < room else room
    return magics, bits, n_records
