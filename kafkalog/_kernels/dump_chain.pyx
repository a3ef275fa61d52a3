"""Batches at positions, and from one to the next by their size fields, without looking at what is in them.

Kafka: FileLogInputStream.nextBatch, as DumpLogSegments uses it to compare indexes with the log.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._kernels.dump_walk cimport END, ENVELOPE, find_batch, read_last_offset
from kafkalog._kernels.wire cimport NEED_MORE, OK, OUTPUT_FULL


def find_last_offsets(const uint8_t[::1] window not None, int64_t window_start, int64_t file_size,
                      const int64_t[::1] position not None, int64_t max_bytes, int64_t[::1] last_offset not None):
    """The last offsets of the batches at positions, within `max_bytes` each; `(status, n_done)`.

    Stops at the first position where Kafka's tool stops: END where no batch starts. NEED_MORE: the window ends first.
    """
    cdef Py_ssize_t n = window.shape[0]
    cdef Py_ssize_t i = 0
    cdef int64_t at, left
    cdef int32_t size = 0
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    if last_offset.shape[0] != position.shape[0]:
        raise ValueError("columns differ in length")
    if n:
        origin = &window[0]
    with nogil:
        while i < position.shape[0]:
            if position[i] < 0 or position[i] > file_size:
                status = END
                break
            left = file_size - position[i]
            at = position[i] - window_start
            if at < 0:
                status = NEED_MORE
                break
            status = find_batch(origin, at, n, min(left, max_bytes), &size)
            if status == OK:
                status = read_last_offset(origin, at, n, left, &last_offset[i])
            if status != OK:
                break
            i += 1
    return status, i


def walk_chain(const uint8_t[::1] window not None, int64_t window_start, int64_t start, int64_t file_size,
               int64_t[::1] position not None, int64_t[::1] last_offset not None):
    """Follow size fields as FileLogInputStream does; `(status, n_rows, position)` of the batches on the way.

    END: the log ends at the position. NEED_MORE: the window does.
    """
    cdef Py_ssize_t n = window.shape[0]
    cdef Py_ssize_t row = 0
    cdef int64_t at = start
    cdef int32_t size = 0
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    if last_offset.shape[0] != position.shape[0] or start < window_start or start - window_start > n:
        raise ValueError("columns differ in length, or the start lies outside the window")
    if n:
        origin = &window[0]
    with nogil:
        while True:
            if row >= position.shape[0]:
                status = OUTPUT_FULL
                break
            status = find_batch(origin, at - window_start, n, file_size - at, &size)
            if status == OK:
                status = read_last_offset(origin, at - window_start, n, file_size - at, &last_offset[row])
            if status != OK:
                break
            position[row] = at
            row += 1
            at += <int64_t>size + ENVELOPE
    return status, row, at
