"""Computes index entries from a batch table, one window after another, and looks up many queries in entries.

Also counts entries, to decide when a segment rolls.

Kafka: LogSegment.recover, LogSegment.append, LogSegment.shouldRoll, OffsetIndex.append, TimeIndex.maybeAppend,
AbstractIndex.largestLowerBoundSlotFor.
"""

from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t

from kafkalog._kernels.wire cimport OFFSET_ORDER, OK, wrap_sub

cdef enum:
    # state carried from window to window
    LAST_ENTRY_POSITION = 0
    LAST_ENTRY_OFFSET = 1
    MAX_TIMESTAMP = 2
    MAX_TIMESTAMP_OFFSET = 3
    LAST_TIME_ENTRY = 4
    LAST_TIME_ENTRY_OFFSET = 5
    N_CARRIED = 6

cdef enum:
    # the state of `count_until_roll`
    ROLL_SIZE = 0
    ROLL_FIRST_TIMESTAMP = 1
    ROLL_BYTES_SINCE_LAST_ENTRY = 2
    ROLL_N_OFFSET_ENTRIES = 3
    ROLL_N_TIME_ENTRIES = 4
    ROLL_MAX_TIMESTAMP = 5
    ROLL_LAST_TIME_ENTRY = 6
    ROLL_N_CARRIED = 7

cdef enum:
    # queries searched at the same time, to overlap their cache misses
    LANES = 16
    # keys to test one by one before the steps grow
    NEAR = 4


def build_entries(const int64_t[::1] position not None, const int64_t[::1] last_offset not None,
                  const int64_t[::1] max_timestamp not None, int64_t base_offset, int64_t interval,
                  int64_t[::1] carried not None, int32_t[::1] indexed_offset not None,
                  int32_t[::1] indexed_position not None, int64_t[::1] indexed_timestamp not None,
                  int32_t[::1] timestamp_offset not None):
    """Compute the entries of both indexes for the next batches. Return `(status, n_rows, n_offset, n_time)`.

    `carried` is the state after the previous batches: position and offset of the last offset entry, largest timestamp
    and its offset, timestamp and offset of the last time entry; -1 for none, but position 0. Offsets in entries are
    relative to `base_offset`. Outputs need room for one entry per batch. OK with fewer rows means that the next
    relative offset or position does not fit. OFFSET_ORDER means that an entry would not increase.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t n_offset = 0
    cdef Py_ssize_t n_time = 0
    cdef int64_t last_entry, last_entry_offset, largest, largest_offset, last_time, last_time_offset
    cdef int64_t offset, here
    cdef int status = OK
    if (last_offset.shape[0] != n or max_timestamp.shape[0] != n or indexed_offset.shape[0] < n
            or indexed_position.shape[0] < n or indexed_timestamp.shape[0] < n or timestamp_offset.shape[0] < n):
        raise ValueError("columns differ in length")
    if carried.shape[0] != N_CARRIED:
        raise ValueError("what is carried has another length")
    if base_offset < 0:
        raise ValueError("base_offset is negative")
    if n == 0:
        return OK, 0, 0, 0
    with nogil:
        last_entry = carried[LAST_ENTRY_POSITION]
        last_entry_offset = carried[LAST_ENTRY_OFFSET]
        largest = carried[MAX_TIMESTAMP]
        largest_offset = carried[MAX_TIMESTAMP_OFFSET]
        last_time = carried[LAST_TIME_ENTRY]
        last_time_offset = carried[LAST_TIME_ENTRY_OFFSET]
        while row < n:
            offset = last_offset[row]
            here = position[row]
            if offset < base_offset or offset - base_offset > INT32_MAX or here < 0 or here > INT32_MAX:
                break
            # with equal timestamps, the first batch stays, as in LogSegment.append
            if max_timestamp[row] > largest:
                largest = max_timestamp[row]
                largest_offset = offset
            # LogSegment adds the bytes of a batch after it tests for an entry: the first batch gets none.
            # Positions increase from 0, and 31 bits leave room for any difference
            if last_entry >= 0 and last_entry <= INT32_MAX and here - last_entry > interval:
                if offset <= last_entry_offset or largest_offset < last_time_offset:
                    status = OFFSET_ORDER
                    break
                indexed_offset[n_offset] = <int32_t>(offset - base_offset)
                indexed_position[n_offset] = <int32_t>here
                n_offset += 1
                last_entry = here
                last_entry_offset = offset
                # TimeIndex.maybeAppend skips timestamps that are not above its last entry
                if largest > last_time:
                    indexed_timestamp[n_time] = largest
                    timestamp_offset[n_time] = <int32_t>(largest_offset - base_offset)
                    n_time += 1
                    last_time = largest
                    last_time_offset = largest_offset
            row += 1
        carried[LAST_ENTRY_POSITION] = last_entry
        carried[LAST_ENTRY_OFFSET] = last_entry_offset
        carried[MAX_TIMESTAMP] = largest
        carried[MAX_TIMESTAMP_OFFSET] = largest_offset
        carried[LAST_TIME_ENTRY] = last_time
        carried[LAST_TIME_ENTRY_OFFSET] = last_time_offset
    return status, row, n_offset, n_time


def count_until_roll(const int32_t[::1] size_in_bytes not None, const int64_t[::1] last_offset not None,
                     const int64_t[::1] max_timestamp not None, int64_t base_offset, int64_t segment_bytes,
                     int64_t roll_ms, int64_t interval, int64_t max_offset_entries, int64_t max_time_entries,
                     int64_t[::1] carried not None):
    """Count the batches that go into the segment before it rolls.

    `carried` is the state after the previous batches: bytes, the first batch's timestamp, bytes since the last index
    entry, the number of entries in both indexes, the largest timestamp, and that of the last time entry (-1 for none).
    An empty segment accepts any batch, unless its offset is too far from `base_offset`.
    """
    cdef Py_ssize_t n = size_in_bytes.shape[0]
    cdef Py_ssize_t row = 0
    cdef int64_t size, first, since, n_offset, n_time, largest, last_time, waited
    if last_offset.shape[0] != n or max_timestamp.shape[0] != n:
        raise ValueError("columns differ in length")
    if carried.shape[0] != ROLL_N_CARRIED:
        raise ValueError("what is carried has another length")
    if n == 0:
        return 0
    with nogil:
        size = carried[ROLL_SIZE]
        first = carried[ROLL_FIRST_TIMESTAMP]
        since = carried[ROLL_BYTES_SINCE_LAST_ENTRY]
        n_offset = carried[ROLL_N_OFFSET_ENTRIES]
        n_time = carried[ROLL_N_TIME_ENTRIES]
        largest = carried[ROLL_MAX_TIMESTAMP]
        last_time = carried[ROLL_LAST_TIME_ENTRY]
        while row < n:
            # both lie between 0 and 2^63 - 1, so their difference fits
            if last_offset[row] < base_offset or last_offset[row] - base_offset > INT32_MAX:
                break
            if size > 0:
                if size > segment_bytes - size_in_bytes[row]:
                    break
                # without a timestamp in the first batch, a broker uses the clock: no time passed. Java's long wraps
                waited = wrap_sub(max_timestamp[row], first)
                if first >= 0 and waited > roll_ms:
                    break
                # the last slot of a time index is reserved for the entry of a roll or close (AbstractIndex.isFull)
                if n_offset >= max_offset_entries or n_time >= max_time_entries - 1:
                    break
            else:
                first = max_timestamp[row]
            if max_timestamp[row] > largest:
                largest = max_timestamp[row]
            if since > interval:
                n_offset += 1
                since = 0
                if largest > last_time:
                    n_time += 1
                    last_time = largest
            since += size_in_bytes[row]
            size += size_in_bytes[row]
            row += 1
        carried[ROLL_SIZE] = size
        carried[ROLL_FIRST_TIMESTAMP] = first
        carried[ROLL_BYTES_SINCE_LAST_ENTRY] = since
        carried[ROLL_N_OFFSET_ENTRIES] = n_offset
        carried[ROLL_N_TIME_ENTRIES] = n_time
        carried[ROLL_MAX_TIMESTAMP] = largest
        carried[ROLL_LAST_TIME_ENTRY] = last_time
    return row


cdef inline Py_ssize_t count_from(const int64_t* key, Py_ssize_t n, Py_ssize_t at, int64_t query) noexcept nogil:
    """Count keys at or below a query, if the first `at` keys are: fast for a query that is near."""
    cdef Py_ssize_t step = 1
    cdef Py_ssize_t low, half
    for _ in range(NEAR):
        if at >= n or key[at] > query:
            return at
        at += 1
    low = at
    while step < n - low and key[low + step] <= query:
        low += step
        step *= 2
    # up to `step` of the next keys may also be at or below it
    half = n - low if step > n - low else step
    while half > 0:
        step = half // 2
        if key[low + step] <= query:
            low += step + 1
            half -= step + 1
        else:
            half = step
    return low


def look_up(const int64_t[::1] key not None, const int64_t[::1] value not None, bint is_sorted,
            const int64_t[::1] query not None, int64_t[::1] found not None):
    """Find the value of the last key at or below each query, or `value[0]` if there is none.

    `value` has one element more than `key`: the first is for no key. Queries may be in any order; with sorted keys,
    increasing queries are faster. With unsorted keys, each result depends on its query only.
    """
    cdef Py_ssize_t n = key.shape[0]
    cdef Py_ssize_t m = query.shape[0]
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t left, half
    cdef Py_ssize_t count[LANES]
    cdef int64_t asked[LANES]
    cdef int lane
    cdef int width = LANES
    cdef bint rises
    cdef const int64_t* keys
    cdef const int64_t* block
    cdef int64_t previous = INT64_MIN
    if value.shape[0] != n + 1 or found.shape[0] != m:
        raise ValueError("columns differ in length")
    if m == 0:
        return
    if n == 0:
        found[:] = value[0]
        return
    keys = &key[0]
    with nogil:
        while row < m:
            if m - row < LANES:
                width = <int>(m - row)
            block = &query[row]
            rises = is_sorted and block[0] >= previous
            for lane in range(1, width):
                rises &= block[lane] >= block[lane - 1]
            previous = block[width - 1]
            if rises:
                for lane in range(width):
                    at = count_from(keys, n, at, block[lane])
                    found[row + lane] = value[at]
            else:
                for lane in range(LANES):
                    count[lane] = 0
                    asked[lane] = block[lane] if lane < width else 0
                left = n
                while left > 1:
                    half = left // 2
                    for lane in range(LANES):
                        # no branch, since the direction cannot be predicted
                        count[lane] += half & -<Py_ssize_t>(keys[count[lane] + half - 1] <= asked[lane])
                    left -= half
                for lane in range(width):
                    count[lane] += keys[count[lane]] <= asked[lane]
                    found[row + lane] = value[count[lane]]
                at = count[width - 1]
            row += width
