"""Counts how many batches a segment takes before it is rolled.

Kafka: LogSegment.shouldRoll, LogSegment.append.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kafkalog._kernels.wire cimport wrap_sub

cdef enum:
    # what is carried from call to call
    SIZE = 0
    FIRST_TIMESTAMP = 1
    BYTES_SINCE_LAST_ENTRY = 2
    N_OFFSET_ENTRIES = 3
    N_TIME_ENTRIES = 4
    MAX_TIMESTAMP = 5
    LAST_TIME_ENTRY = 6
    N_CARRIED = 7


def count_until_roll(const int32_t[::1] size_in_bytes not None, const int64_t[::1] last_offset not None,
                     const int64_t[::1] max_timestamp not None, int64_t base_offset, int64_t segment_bytes,
                     int64_t roll_ms, int64_t interval, int64_t max_offset_entries, int64_t max_time_entries,
                     int64_t[::1] carried not None):
    """How many of these batches go into the segment; all of them if nothing rolls it.

    `carried` is what the batches before left: bytes, the first batch's timestamp, bytes since the last index entry, the
    entries of both indexes, the largest timestamp, that of the last time entry (-1 for none). A batch that an empty
    segment does not take is refused only where its offset is too far from `base_offset`.
    """
    cdef Py_ssize_t n = size_in_bytes.shape[0]
    cdef Py_ssize_t row = 0
    cdef int64_t size, first, since, n_offset, n_time, largest, last_time, waited
    if last_offset.shape[0] != n or max_timestamp.shape[0] != n:
        raise ValueError("columns differ in length")
    if carried.shape[0] != N_CARRIED:
        raise ValueError("what is carried has another length")
    if n == 0:
        return 0
    with nogil:
        size = carried[SIZE]
        first = carried[FIRST_TIMESTAMP]
        since = carried[BYTES_SINCE_LAST_ENTRY]
        n_offset = carried[N_OFFSET_ENTRIES]
        n_time = carried[N_TIME_ENTRIES]
        largest = carried[MAX_TIMESTAMP]
        last_time = carried[LAST_TIME_ENTRY]
        while row < n:
            # both lie between 0 and 2^63 - 1, so their difference fits
            if last_offset[row] < base_offset or last_offset[row] - base_offset > INT32_MAX:
                break
            if size > 0:
                if size > segment_bytes - size_in_bytes[row]:
                    break
                # a first batch without a timestamp has waited by the clock: no time at all. Java's long wraps
                waited = wrap_sub(max_timestamp[row], first)
                if first >= 0 and waited > roll_ms:
                    break
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
        carried[SIZE] = size
        carried[FIRST_TIMESTAMP] = first
        carried[BYTES_SINCE_LAST_ENTRY] = since
        carried[N_OFFSET_ENTRIES] = n_offset
        carried[N_TIME_ENTRIES] = n_time
        carried[MAX_TIMESTAMP] = largest
        carried[LAST_TIME_ENTRY] = last_time
    return row
