"""Chooses, among rows that contradict each other, the heaviest that do not."""

from libc.stdint cimport int32_t, int64_t, uint8_t


def choose_rising(const int64_t[::1] weight not None, const int64_t[::1] rank_first not None,
                  const int64_t[::1] rank_last not None, int64_t[::1] tree not None, int32_t[::1] tree_row not None,
                  int32_t[::1] before not None, uint8_t[::1] chosen not None):
    """Choose the heaviest rows, in order, of which each begins above the end of the one before.

    `rank_first[i]` is the number of rows, of all, that end below the beginning of row i; `rank_last[i]` the number of
    those that end at or below its end. `tree` and `tree_row` have a place more than there are rows.
    """
    cdef Py_ssize_t n = weight.shape[0]
    cdef Py_ssize_t i, k
    cdef int64_t best, total
    cdef int32_t row
    cdef int64_t most = 0
    cdef int32_t top = -1
    if (rank_first.shape[0] != n or rank_last.shape[0] != n or before.shape[0] != n or chosen.shape[0] != n
            or tree.shape[0] != n + 1 or tree_row.shape[0] != n + 1):
        raise ValueError("columns differ in length")
    with nogil:
        for i in range(n + 1):
            tree[i] = 0
            tree_row[i] = -1
        for i in range(n):
            chosen[i] = 0
            best = 0
            row = -1
            k = <Py_ssize_t>rank_first[i]
            if k < 0 or k > n or rank_last[i] < 1 or rank_last[i] > n:
                with gil:
                    raise ValueError("a rank is out of range")
            while k > 0:
                if tree[k] > best:
                    best = tree[k]
                    row = tree_row[k]
                k -= k & -k
            total = best + weight[i]
            before[i] = row
            if total > most:
                most = total
                top = <int32_t>i
            k = <Py_ssize_t>rank_last[i]
            while k <= n:
                if total > tree[k]:
                    tree[k] = total
                    tree_row[k] = <int32_t>i
                k += k & -k
        row = top
        while row >= 0:
            chosen[row] = 1
            row = before[row]
