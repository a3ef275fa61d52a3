"""Picks index entries out of the columns of a batch table, a window after the other.

Kafka: LogSegment.recover, OffsetIndex.append, TimeIndex.maybeAppend.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kafkalog._kernels.wire cimport OFFSET_ORDER, OK

cdef enum:
    # what is carried from window to window
    FIRST_POSITION = 0
    LAST_ENTRY_POSITION = 1
    LAST_ENTRY_OFFSET = 2
    MAX_TIMESTAMP = 3
    MAX_TIMESTAMP_OFFSET = 4
    LAST_TIME_ENTRY = 5
    LAST_TIME_ENTRY_OFFSET = 6
    N_CARRIED = 7


def build_entries(const int64_t[::1] position not None, const int64_t[::1] last_offset not None,
                  const int64_t[::1] max_timestamp not None, int64_t base_offset, int64_t interval,
                  int64_t[::1] carried not None, int32_t[::1] indexed_offset not None,
                  int32_t[::1] indexed_position not None, int64_t[::1] indexed_timestamp not None,
                  int32_t[::1] timestamp_offset not None):
    """Entries of both indexes for batches that follow on those before; `(status, n_rows, n_offset, n_time)`.

    `carried` is what the batches before left: the position of the first, position and offset of the last offset entry,
    the largest timestamp and its offset, timestamp and offset of the last time entry; -1 where there is none. Offsets
    come out relative to `base_offset`. The outputs have to have room for an entry a batch. OK with fewer rows than
    there are: the offset of the next one cannot be told relative to `base_offset`, or its position not in 31 bits.
    OFFSET_ORDER: an entry would not lie behind the one before.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t n_offset = 0
    cdef Py_ssize_t n_time = 0
    cdef int64_t first, last_entry, last_entry_offset, largest, largest_offset, last_time, last_time_offset
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
        first = carried[FIRST_POSITION]
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
            if first < 0:
                first = here
                last_entry = here
            if max_timestamp[row] > largest:
                largest = max_timestamp[row]
                largest_offset = offset
            # positions of a walk rise from 0 on; 31 bits leave room for any difference
            if last_entry >= 0 and last_entry <= INT32_MAX and here - last_entry > interval:
                if offset <= last_entry_offset or largest_offset < last_time_offset:
                    status = OFFSET_ORDER
                    break
                indexed_offset[n_offset] = <int32_t>(offset - base_offset)
                indexed_position[n_offset] = <int32_t>here
                n_offset += 1
                last_entry = here
                last_entry_offset = offset
                if largest > last_time:
                    indexed_timestamp[n_time] = largest
                    timestamp_offset[n_time] = <int32_t>(largest_offset - base_offset)
                    n_time += 1
                    last_time = largest
                    last_time_offset = largest_offset
            row += 1
        carried[FIRST_POSITION] = first
        carried[LAST_ENTRY_POSITION] = last_entry
        carried[LAST_ENTRY_OFFSET] = last_entry_offset
        carried[MAX_TIMESTAMP] = largest
        carried[MAX_TIMESTAMP_OFFSET] = largest_offset
        carried[LAST_TIME_ENTRY] = last_time
        carried[LAST_TIME_ENTRY_OFFSET] = last_time_offset
    return status, row, n_offset, n_time
