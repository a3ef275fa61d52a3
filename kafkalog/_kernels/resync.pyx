"""Finds every intact batch in damaged bytes, in linear time, and chooses among contradicting batches.

`candidates.pxd` decides whether a batch is intact. This module tries all positions, and decides whether a batch belongs
to the log or lies in the value of a record. Kafka has no equivalent: FileLogInputStream ends at a batch that does not
parse.
"""

from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from kafkalog._kernels.candidates cimport (
    BLOCK, ENVELOPE, MAGIC_END, V2_OVERHEAD, Damaged, View, comes_after, damaged_message, extent_of, gf_setup, is_plain,
    judge, link, plausible_size, proven_end,
)
from kafkalog._kernels.wire cimport (
    NEED_MORE, OK, OUTPUT_FULL, Cursor, load_be32, load_be64, read_varint, read_varlong, remaining,
)

cdef extern from "utf8_impl.h":
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil

cdef extern from "candidate_search.h":
    int SEARCH_LEVELS "KL_SEARCH_LEVELS"
    Py_ssize_t next_candidate "kl_next_candidate"(const uint8_t* bytes, Py_ssize_t at, Py_ssize_t stop, uint8_t top,
                                                  int level) noexcept nogil

gf_setup()

cdef enum:
    HEADER_CREDIT = 8  # header bytes that may be examined per byte of the file
    CREDIT = 1048576  # bytes to checksum without success where batches are expected, besides those of intact ones
    LOOK_BACK = 160  # an enclosing record begins at most this many bytes before a batch
    # kinds of rows
    CHAINED = 1
    SEARCHED = 2
    INSIDE = 3
    LINKED = 4
    PLAIN = 5
    WRAPPED = 6
    N_STATES = 7

KINDS = {
    "CHAINED": CHAINED, "SEARCHED": SEARCHED, "INSIDE": INSIDE, "LINKED": LINKED, "PLAIN": PLAIN, "WRAPPED": WRAPPED,
}
BLOCK_BYTES = BLOCK
EXPECTED = 1
LOOK_INSIDE = 2


cdef bint message_ends(View* view, int64_t end) noexcept nogil:
    """Whether the file ends at `end`, or a v0 or v1 message seems to begin there."""
    if end >= view.size - MAGIC_END:
        return end == view.size + view.left_behind
    # real offsets fit in 48 bits
    return ((load_be32(view.bytes + end) >> 16) == 0 and view.bytes[end + 16] < 2
            and plausible_size(view, <Py_ssize_t>end, False) > 0)


cdef bint is_text(View* view, const uint8_t* key, int32_t length) noexcept nogil:
    """Whether bytes may be a header key: text without control characters."""
    cdef int32_t i
    view.headers_left -= 1 + length
    for i in range(length):
        if key[i] < 0x20:
            return False
    return is_utf8(key, length)


cdef bint read_headers(View* view, Cursor* cursor) noexcept nogil:
    """Whether a header count and that many headers come next; moves the cursor past them.

    After many failed attempts, as in hostile bytes, headers are accepted without reading them.
    """
    cdef int32_t _i, n = 0, length = 0
    if read_varint(cursor, &n) != OK or n < 0 or n > remaining(cursor):
        return False
    for _i in range(n):
        if view.headers_left < 0:
            cursor.pointer = cursor.end
            return True
        if read_varint(cursor, &length) != OK or length < 0 or length > remaining(cursor):
            return False
        if not is_text(view, cursor.pointer, length):
            return False
        cursor.pointer += length
        if read_varint(cursor, &length) != OK or length > remaining(cursor):
            return False
        if length > 0:
            cursor.pointer += length
    return True


cdef int64_t record_around(View* view, Py_ssize_t lowest, Py_ssize_t at, int64_t total) noexcept nogil:
    """End index of the record whose value contains the batch at `at`; 0 if no record encloses it."""
    cdef Py_ssize_t start = at - 6
    cdef Py_ssize_t floor = at - LOOK_BACK
    cdef Cursor cursor
    cdef int32_t body = 0, length = 0, key = 0
    cdef int64_t delta = 0
    cdef Py_ssize_t inside
    if floor < lowest:
        floor = lowest
    while start >= floor:
        cursor.pointer = view.bytes + start
        cursor.end = view.bytes + at
        start -= 1
        if read_varint(&cursor, &body) != OK or body < total + 6 or remaining(&cursor) < 5 or cursor.pointer[0] != 0:
            continue
        inside = at - remaining(&cursor)
        if body - (at - inside) > view.size - at + view.left_behind:
            continue
        cursor.pointer += 1
        if read_varlong(&cursor, &delta) != OK or read_varint(&cursor, &length) != OK or length < 0:
            continue
        if read_varint(&cursor, &key) != OK or key < -1:
            continue
        if key > 0:
            if key > remaining(&cursor):
                continue
            cursor.pointer += key
        if read_varint(&cursor, &length) != OK or remaining(&cursor) != 0 or length < total:
            continue
        # a value and its headers
        if <int64_t>inside + body < <int64_t>at + length + 1:
            continue
        if <int64_t>inside + body <= view.size:
            cursor.pointer = view.bytes + at + length
            cursor.end = view.bytes + inside + body
            if not read_headers(view, &cursor) or remaining(&cursor) != 0:
                continue
        return <int64_t>inside + body
    # a v0 or v1 message ends with its value, which follows its size: there the next batch begins, or the damaged
    # batch ends by its own size field
    if at - 4 >= floor:
        length = <int32_t>load_be32(view.bytes + at - 4)
        if length >= total and length <= view.size - at + view.left_behind:
            if (message_ends(view, <int64_t>at + length)
                    or lowest + plausible_size(view, lowest, True) == <int64_t>at + length):
                return <int64_t>at + length
    return 0


cdef bint records_follow(View* view, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Whether the bytes are the end of a v2 record after its value, followed by whole records.

    The first record of a batch (offset delta 0) never follows another one. This excludes the end of a duplicated batch,
    which looks similar but does not enclose that batch.
    """
    cdef Cursor cursor
    cdef const uint8_t* record = NULL
    cdef int32_t length = 0, before = 0, offset_delta = 0
    cdef int64_t timestamp_delta = 0
    if stop <= start:
        return False
    if start >= stop - start and memcmp(view.bytes + (2 * start - stop), view.bytes + start, stop - start) == 0:
        return False
    cursor.pointer = view.bytes + start
    cursor.end = view.bytes + stop
    # a header count of 0 at the end of a batch is one zero byte, which proves nothing
    if not read_headers(view, &cursor) or (remaining(&cursor) == 0 and stop - start < 3):
        return False
    while remaining(&cursor) > 0:
        if read_varint(&cursor, &length) != OK or length < 6 or length > remaining(&cursor) or cursor.pointer[0] != 0:
            return False
        record = cursor.pointer
        cursor.pointer += 1
        if (read_varlong(&cursor, &timestamp_delta) != OK or read_varint(&cursor, &offset_delta) != OK
                or offset_delta <= before):
            return False
        before = offset_delta
        cursor.pointer = record + length
    return True


cdef inline int8_t kind_of(const uint8_t* p) noexcept nogil:
    """The kind of an intact batch that was found by searching."""
    return PLAIN if is_plain(p) else SEARCHED


cdef inline bint is_searched_kind(int8_t kind) noexcept nogil:
    return kind == SEARCHED or kind == PLAIN


cdef inline bint is_inside_kind(int8_t kind) noexcept nogil:
    return kind == INSIDE or kind == WRAPPED


cdef bint is_outside(const uint8_t* p, int64_t at, int64_t total, const int64_t[::1] state) noexcept nogil:
    """Whether a batch within the extent of a damaged message is not part of it, so that its size is wrong."""
    if state[4] < 0:
        return False
    return at + total > state[1] or comes_after(p, state[5], at + total - state[4])


cdef bint ends_the_file(View* view, Py_ssize_t first, Py_ssize_t left, const int64_t[::1] state) noexcept nogil:
    """Whether batches within the extent of a damaged message are not part of it, since the file ends with them.

    A file truncated within a message rarely ends with a whole batch in its value. It may end between two messages
    inside a compressed one.
    """
    if left or state[4] < 0 or <int64_t>load_be64(view.bytes + first) <= state[5]:
        return False
    return not state[6] or not is_plain(view.bytes + first)


def first_candidate(const uint8_t[::1] data not None, Py_ssize_t at, uint8_t top, int level):
    """The first position from `at` on where a batch may begin, by its first 17 bytes; else 17 less than the size.

    `top` is the largest first byte of a size. `level` is 0 for portable code, then 1, 2 for what processors can do.
    """
    cdef Py_ssize_t stop = data.shape[0] - MAGIC_END
    if at < 0 or at > stop:
        raise ValueError("no header has room there")
    return next_candidate(&data[0], at, stop, top, level)


def scan_window(const uint8_t[::1] window not None, Py_ssize_t start, int64_t window_start, int64_t file_size,
                int64_t max_batch_bytes, uint32_t[::1] sums not None, uint32_t[::1] legacy_sums not None,
                int64_t[::1] n_sums not None, int64_t[::1] state not None, int64_t[::1] position not None,
                int32_t[::1] size_in_bytes not None, int64_t[::1] first_offset not None,
                int64_t[::1] last_offset not None, int32_t[::1] leader_epoch not None, int8_t[::1] kind not None):
    """Find intact batches from `window[start]` on, one row each. Return `(status, n_rows, index, needed)`.

    Kinds of rows:

    - CHAINED begins at the end of the previous batch.
    - SEARCHED was found by testing every byte, or follows such a batch.
    - PLAIN is a SEARCHED, uncompressed v0 or v1 message after no other batch. It may come from a compressed message
      whose header is lost.
    - INSIDE lies in the value of an enclosing record or message, WRAPPED in a compressed message.
    - LINKED is a damaged batch whose size field leads to an intact one or to the end of the file, possibly over more
      damaged ones. Its inside is not searched.

    The scan stops at `index`. The status is OK at the end of the file, OUTPUT_FULL if there is no room for rows, and
    NEED_MORE if the window must hold `needed` bytes from there on. `sums` has room for one checksum per `BLOCK_BYTES`
    and one more; `n_sums` (two, 1 for a new window) counts the computed ones.

    `state` is carried from call to call:

    - 1 if a batch is expected here, 2 if a damaged batch to search begins here,
    - the end position of an enclosing record or message,
    - the end position of the last row,
    - the kind of its run,
    - for an enclosing damaged message: its position or -1, its offset, and whether it is compressed.
    """
    cdef View view
    cdef Py_ssize_t at = start
    cdef Py_ssize_t capacity = position.shape[0]
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t run_row = 0  # first row of the searched run that ends with the last row
    cdef Py_ssize_t end = window.shape[0]
    cdef Py_ssize_t searched = start  # header credit is granted up to here
    cdef Py_ssize_t lowest, i
    cdef int64_t size, around, total = 0, needed = 0
    cdef Damaged damaged
    cdef const uint8_t* p = NULL
    cdef int found, status = OK
    cdef uint8_t top = 0  # of the first bytes of sizes
    cdef bint is_searched = state[0] == 2  # a damaged batch to search begins here
    cdef int8_t what, is_expected = state[0] != 0, run_kind = <int8_t>state[3]
    if max_batch_bytes > ENVELOPE:
        top = <uint8_t>min((max_batch_bytes - ENVELOPE) >> 24, 0x7F)
    if start < 0 or start > end:
        raise ValueError("start lies outside the window")
    if window_start < 0 or file_size < end or window_start > file_size - end:
        raise ValueError("the window lies outside the file")
    if sums.shape[0] < end // BLOCK + 2 or legacy_sums.shape[0] < end // BLOCK + 2 or n_sums.shape[0] != 2:
        raise ValueError("no room for checksums")
    if n_sums[0] < 1 or n_sums[1] < 1 or n_sums[0] > sums.shape[0] or n_sums[1] > sums.shape[0]:
        raise ValueError("the number of checksums is wrong")
    if state.shape[0] != N_STATES:
        raise ValueError("the state has seven numbers")
    if state[4] > window_start + end:
        raise ValueError("the enclosing message lies past the window")
    if (size_in_bytes.shape[0] != capacity or first_offset.shape[0] != capacity or last_offset.shape[0] != capacity
            or leader_epoch.shape[0] != capacity or kind.shape[0] != capacity):
        raise ValueError("columns differ in length")
    if end == 0:
        return OK, 0, 0, 0
    view.bytes = &window[0]
    view.size = end
    view.left_behind = file_size - window_start - end
    view.max_batch_bytes = max_batch_bytes
    view.sums[0] = &sums[0]
    view.sums[1] = &legacy_sums[0]
    view.n_sums = &n_sums[0]
    view.credit = CREDIT
    view.headers_left = CREDIT
    sums[0] = 0
    legacy_sums[0] = 0
    with nogil:
        while True:
            if end - at <= MAGIC_END or (is_expected and end - at < V2_OVERHEAD and view.left_behind > 0):
                # at the end of the file no batch is this short
                if view.left_behind > 0:
                    status = NEED_MORE
                    needed = MAGIC_END + V2_OVERHEAD
                elif is_expected and row and is_inside_kind(kind[row - 1]) and ends_the_file(
                        &view, <Py_ssize_t>(position[run_row] - window_start), end - at, state):
                    for i in range(run_row, row):
                        kind[i] = kind_of(view.bytes + (position[i] - window_start))
                elif row and is_searched_kind(kind[row - 1]) and records_follow(
                        &view, <Py_ssize_t>(state[2] - window_start), end):
                    for i in range(run_row, row):
                        kind[i] = INSIDE
                break
            if row >= capacity:
                status = OUTPUT_FULL
                break
            if not is_expected:
                at = next_candidate(view.bytes, at, end - MAGIC_END, top, SEARCH_LEVELS)
                if at == end - MAGIC_END:
                    continue
            p = view.bytes + at
            found = OUTPUT_FULL if is_searched else judge(&view, at, is_expected, &total)
            if found == NEED_MORE:
                status = NEED_MORE
                needed = total
                break
            if found != OK and is_expected and window_start + at < state[1]:
                is_expected = False  # inside a record or message, batches do not form a chain
                at += 1
                continue
            if found != OK and is_expected:
                damaged = damaged_message(&view, at)
                found = OUTPUT_FULL if is_searched else link(&view, at, &damaged, &total, &needed)
                if found == NEED_MORE:
                    status = NEED_MORE
                    break
                if found != OK:
                    if extent_of(&damaged) > 0:
                        state[1] = window_start + at + extent_of(&damaged)
                        state[4] = window_start + at
                        state[5] = damaged.offset
                        state[6] = damaged.is_compressed
                    is_searched = False
                    is_expected = False
                    at += 1
                    continue
                if total <= end - at:
                    size = proven_end(&view, at, total)
                    if size:
                        total = size
                position[row] = window_start + at
                size_in_bytes[row] = <int32_t>total
                first_offset[row] = <int64_t>load_be64(p)
                last_offset[row] = first_offset[row]
                if p[16] == 2 and end - at >= V2_OVERHEAD and p[23] & 0x80 == 0:
                    if first_offset[row] <= INT64_MAX - <int32_t>load_be32(p + 23):
                        last_offset[row] = first_offset[row] + <int32_t>load_be32(p + 23)
                leader_epoch[row] = -1
                kind[row] = LINKED
                row += 1
                run_kind = CHAINED
                state[2] = window_start + at + total
                if total >= end - at:
                    at = end  # the end of the file: done
                    if view.left_behind > 0:
                        view.left_behind = 0
                    break
                at += <Py_ssize_t>total
                continue
            if found != OK:
                at += 1
                continue
            what = run_kind if is_expected else kind_of(p)
            if what == PLAIN:
                what = kind_of(p)  # batches after an independent one are independent as well
            if not is_expected:
                # the rows found so far may lie inside a record that ends here
                if row and is_searched_kind(kind[row - 1]) and records_follow(
                        &view, <Py_ssize_t>(state[2] - window_start), at):
                    for i in range(run_row, row):
                        kind[i] = INSIDE
                run_row = row
                view.headers_left += HEADER_CREDIT * (at - searched)
                searched = at
                if window_start + at < state[1] and not is_outside(p, window_start + at, total, state):
                    what = WRAPPED if state[4] >= 0 and state[6] else INSIDE
                elif window_start + at < state[1]:
                    state[1] = 0
                else:
                    lowest = <Py_ssize_t>(state[2] - window_start) if state[2] > window_start else 0
                    around = record_around(&view, lowest, at, total)
                    if around:
                        state[1] = window_start + around
                        state[4] = -1
                        what = INSIDE
            elif is_inside_kind(what) and window_start + at >= state[1]:
                what = CHAINED
            elif is_inside_kind(what) and window_start + at + total > state[1]:
                # a value does not end within an intact batch: the enclosing record was not real
                for i in range(run_row, row):
                    kind[i] = kind_of(view.bytes + (position[i] - window_start))
                what = kind_of(p)
                state[1] = 0
            elif is_inside_kind(what) and is_outside(p, window_start + at, total, state):
                run_row = row
                what = kind_of(p)
                state[1] = 0
            run_kind = what
            position[row] = window_start + at
            size_in_bytes[row] = <int32_t>total
            first_offset[row] = <int64_t>load_be64(p)
            if p[16] == 2:
                last_offset[row] = first_offset[row] + <int32_t>load_be32(p + 23)
                leader_epoch[row] = <int32_t>load_be32(p + 12)
            else:
                last_offset[row] = first_offset[row]
                leader_epoch[row] = -1
            kind[row] = what
            row += 1
            at += <Py_ssize_t>total
            state[2] = window_start + at
            is_expected = True
    state[0] = 2 if is_searched else is_expected
    state[3] = run_kind
    return status, row, at, needed


def choose_rising(const int64_t[::1] weight not None, const int64_t[::1] rank_first not None,
                  const int64_t[::1] rank_last not None, int64_t[::1] tree not None, int32_t[::1] tree_row not None,
                  int32_t[::1] before not None, uint8_t[::1] chosen not None):
    """Choose rows with the largest total weight, in order, such that each begins after the end of the previous one.

    `rank_first[i]` is the number of rows that end before row i begins. `rank_last[i]` is the number of rows that end at
    or before its end. `tree` and `tree_row` have one element more than rows.
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
        # a Fenwick tree of maxima: finds the best of all rows that end before a row begins, in log n steps
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
                # with equal weights the first row stays, so that the choice does not depend on later rows
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
