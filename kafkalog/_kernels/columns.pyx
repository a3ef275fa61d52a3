"""Gathers byte strings of a column in another order, or makes objects of them; trusts no offset."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    /* without branches, so that compilers take many bytes at a time */
    static int64_t kl_count_open(const uint8_t *p, int64_t n, int *has) {
        int64_t total = 0;
        uint8_t newline = 0, letter = 0;
        while (n > 0) {
            int m = n < 128 ? (int)n : 128;
            uint8_t count = 0;
            for (int i = 0; i < m; i++) {
                count += (uint8_t)((p[i] == '{') | (p[i] == '['));
                newline |= (uint8_t)(p[i] == 10);
                letter |= (uint8_t)((p[i] == 'N') | (p[i] == 'I'));
            }
            total += count;
            p += m;
            n -= m;
        }
        *has |= newline | letter << 1;
        return total;
    }
    """
    int64_t count_open "kl_count_open"(const uint8_t* p, int64_t n, int* has) noexcept nogil


def gather(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, const int64_t[::1] rows not None,
           const int64_t[::1] to_offsets not None, uint8_t[::1] to not None):
    """Copy byte string `rows[i]` of a column to ``to[to_offsets[i]:to_offsets[i + 1]]``; the number copied.

    It is less than there are where a row, its bytes, or their new place is not there, or the places differ in size.
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
            if to_offsets[i] < 0 or to_offsets[i] > to_size - length or to_offsets[i + 1] != to_offsets[i] + length:
                break
            if length:
                memcpy(&to[to_offsets[i]], &data[start], length)
            i += 1
    return i


def join_lines(const int64_t[::1] start not None, const int64_t[::1] stop not None, const uint8_t[::1] data not None,
               uint8_t[::1] to not None):
    """Copy byte strings ``data[start[i]:stop[i]]`` to `to`, each with a newline behind it; `to` has just their size.

    Returns the number copied, which is less than there are where one does not lie within `data` or has no room; the
    most opening brackets and braces that one of them has; whether any has a newline; whether any has `I` or `N`.
    """
    cdef Py_ssize_t n = start.shape[0]
    cdef Py_ssize_t i = 0
    cdef int64_t size, room, n_open
    cdef int64_t most_open = 0
    cdef int64_t at = 0
    cdef int has = 0
    if stop.shape[0] != n:
        raise ValueError("columns differ in length")
    with nogil:
        while i < n:
            size = stop[i] - start[i]
            room = to.shape[0] - at
            if start[i] < 0 or size < 0 or stop[i] > data.shape[0] or size >= room:
                break
            if size:
                memcpy(&to[at], &data[start[i]], size)
                n_open = count_open(&data[start[i]], size, &has)
                most_open = n_open if n_open > most_open else most_open
            at += size
            to[at] = 10
            at += 1
            i += 1
    return i, most_open, bool(has & 1), bool(has & 2)


def make_objects(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, const uint8_t[::1] valid,
                 object[::1] to not None):
    """Put every byte string of a column into `to` as `bytes`, and None where `valid` is 0; the number of them.

    It is less than there are where one does not lie within `data`.
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
