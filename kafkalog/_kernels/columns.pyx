"""Copies byte strings of a column in another order, or converts them to objects. Every offset is checked."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


def gather(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, const int64_t[::1] rows not None,
           const int64_t[::1] to_offsets not None, uint8_t[::1] to not None):
    """Copy byte string `rows[i]` of a column to ``to[to_offsets[i]:to_offsets[i + 1]]``. Return the number copied.

    It stops at the first row that does not exist, or whose bytes or target are out of bounds or differ in size.
    """
    cdef Py_ssize_t n = rows.shape[0]
    cdef Py_ssize_t i = 0
    cdef int64_t n_rows = offsets.shape[0] - 1
    cdef int64_t size = data.shape[0]
    cdef int64_t to_size = to.shape[0]
    cdef int64_t row, start, length
    if to_offsets.shape[0] != n + 1:
        raise ValueError("columns differ in length")
    with nogil:
        while i < n:
            row = rows[i]
            if row < 0 or row >= n_rows:
                break
            start = offsets[row]
            if start < 0 or offsets[row + 1] < start or offsets[row + 1] > size:
                break
            length = offsets[row + 1] - start
            # both arrays of offsets come from Python: copy a string only if they agree on its size
            if to_offsets[i] < 0 or to_offsets[i] > to_size - length or to_offsets[i + 1] != to_offsets[i] + length:
                break
            if length:
                memcpy(&to[to_offsets[i]], &data[start], length)
            i += 1
    return i


def make_objects(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, const uint8_t[::1] valid,
                 object[::1] to not None):
    """Store every byte string of a column in `to` as `bytes`, or None where `valid` is 0. Return their number.

    It stops at the first string outside of `data`.
    """
    cdef Py_ssize_t n = to.shape[0]
    cdef Py_ssize_t i
    cdef int64_t start, stop
    cdef const char* origin = b""
    if offsets.shape[0] != n + 1 or (valid is not None and valid.shape[0] != n):
        raise ValueError("columns differ in length")
    if data.shape[0]:
        origin = <const char*>&data[0]
    for i in range(n):
        if valid is not None and not valid[i]:
            to[i] = None
            continue
        start = offsets[i]
        stop = offsets[i + 1]
        if start < 0 or stop < start or stop > data.shape[0]:
            return i
        to[i] = (origin + start)[:stop - start]
    return n
