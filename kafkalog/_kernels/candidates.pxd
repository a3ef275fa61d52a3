# Whether bytes at a position are an intact batch, or a damaged one whose size field can be believed. `resync` asks at
# every byte, so checksums of long candidates are combined from those of blocks, which are computed once.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._kernels.crc cimport crc32, crc32c
from kafkalog._kernels.wire cimport NEED_MORE, OK, OUTPUT_FULL, load_be32, load_be64

cdef extern from "crc_shift.h":
    void gf_setup "kl_gf_setup"()
    uint32_t gf_shift "kl_gf_shift"(uint32_t crc, uint32_t n, int which) noexcept nogil

cdef enum:
    ENVELOPE = 12
    MAGIC_END = 17
    MIN_SIZE_ANY = 14
    MIN_SIZE_V1 = 22
    MIN_SIZE_V2 = 49
    V2_OVERHEAD = 61
    CODEC_MASK = 0x07
    BLOCK = 256
    SHORT = 4096  # to checksum a batch this short is cheaper than to combine prefix sums
    MAX_LINKS = 16  # damaged batches to follow: in a long run of them each would follow all the others


cdef struct View:
    const uint8_t* bytes
    Py_ssize_t size
    int64_t left_behind  # bytes of the file after the view
    int64_t max_batch_bytes
    uint32_t* sums[2]  # checksums of the first 0, 1, 2 ... blocks: CRC-32C, CRC-32
    int64_t* n_sums
    int64_t credit
    int64_t headers_left  # bytes of headers to look at in vain


cdef inline int64_t plausible_size(View* view, Py_ssize_t at, bint any_magic) noexcept nogil:
    """Size of the batch that the 17 bytes at `at` announce, 0 if there can be none."""
    cdef const uint8_t* p = view.bytes + at
    cdef int32_t size
    cdef uint8_t magic
    if view.size - at < MAGIC_END:
        return 0
    size = <int32_t>load_be32(p + 8)
    if size < MIN_SIZE_ANY:
        return 0
    magic = p[16]
    if not any_magic:
        if magic > 2 or (magic == 1 and size < MIN_SIZE_V1) or (magic == 2 and size < MIN_SIZE_V2):
            return 0
    if <int64_t>size + ENVELOPE > view.size - at + view.left_behind:
        return 0
    if <int64_t>size + ENVELOPE > view.max_batch_bytes:
        return 0
    return <int64_t>size + ENVELOPE


cdef inline uint32_t prefix_sum(View* view, Py_ssize_t end, int which) noexcept nogil:
    """The checksum of the view's first `end` bytes. CRC is linear: that of any range follows from two of these."""
    cdef Py_ssize_t block = end // BLOCK
    cdef Py_ssize_t rest = end - block * BLOCK
    cdef Py_ssize_t n = <Py_ssize_t>view.n_sums[which]
    cdef uint32_t result
    cdef const uint8_t* p
    while n <= block:
        p = view.bytes + (n - 1) * BLOCK
        view.sums[which][n] = gf_shift(view.sums[which][n - 1], BLOCK, which) ^ (
            crc32(p, BLOCK) if which else crc32c(p, BLOCK))
        n += 1
    if n > view.n_sums[which]:
        view.n_sums[which] = n
    result = view.sums[which][block]
    if rest:
        p = view.bytes + block * BLOCK
        result = gf_shift(result, <uint32_t>rest, which) ^ (crc32(p, rest) if which else crc32c(p, rest))
    return result


cdef inline bint sums_match(View* view, Py_ssize_t at, int64_t total, bint is_expected) noexcept nogil:
    """Whether the checksum of the batch of `total` bytes at `at` is right; the view holds all of it."""
    cdef const uint8_t* p = view.bytes + at
    cdef int which = 0 if p[16] == 2 else 1
    cdef Py_ssize_t start = 16 if which else 21
    cdef uint32_t stored = load_be32(p + 12) if which else load_be32(p + 17)
    cdef Py_ssize_t n = <Py_ssize_t>total - start
    cdef bint is_right
    if total <= SHORT or (is_expected and total <= view.credit):
        is_right = (crc32(p + start, n) if which else crc32c(p + start, n)) == stored
        if is_expected:
            view.credit += total if is_right else -total
        return is_right
    return (prefix_sum(view, at + <Py_ssize_t>total, which)
            ^ gf_shift(prefix_sum(view, at + start, which), <uint32_t>n, which)) == stored


cdef inline bint looks_like_batch(const uint8_t* p, int64_t total, int64_t there) noexcept nogil:
    """Signs in what the checksum covers that these are not just any bytes, as far as `there` bytes can tell.

    For batches that nothing leads to.
    """
    cdef int64_t at
    cdef int32_t length
    if p[16] == 2:
        return there < V2_OVERHEAD or (p[21] == 0 and p[22] & 0x80 == 0 and p[22] & CODEC_MASK <= 4
                                       and p[23] & 0x80 == 0 and p[57] & 0x80 == 0)
    at = 18 if p[16] == 0 else 26
    if there < at + 4:
        return True
    length = <int32_t>load_be32(p + at)
    at += 4
    if p[17] & 0xF0 or length < -1 or length > total - at - 4:
        return False
    if length > 0:
        at += length
    if there < at + 4:
        return True
    length = <int32_t>load_be32(p + at)
    return length >= -1 and at + 4 + (length if length > 0 else 0) == total


cdef inline int judge(View* view, Py_ssize_t at, bint is_expected, int64_t* total) noexcept nogil:
    """OK for an intact batch at `at`, NEED_MORE for one that leaves the view, OUTPUT_FULL for none."""
    cdef const uint8_t* p = view.bytes + at
    cdef int64_t first
    total[0] = plausible_size(view, at, False)
    if total[0] == 0:
        return OUTPUT_FULL
    first = <int64_t>load_be64(p)
    if first < 0:
        return OUTPUT_FULL
    if p[16] == 2 and view.size - at >= V2_OVERHEAD:
        if p[23] & 0x80 or first > INT64_MAX - <int32_t>load_be32(p + 23):
            return OUTPUT_FULL
    if not is_expected and not looks_like_batch(p, total[0], view.size - at):
        return OUTPUT_FULL
    if total[0] > view.size - at:
        return NEED_MORE
    return OK if sums_match(view, at, total[0], is_expected) else OUTPUT_FULL


cdef inline int follow(View* view, Py_ssize_t at, int64_t* total, int64_t* needed) noexcept nogil:
    """OK if the size field of the damaged batch at `at` leads to an intact batch or to the end of the file.

    It may lead there over more damaged batches. `total` is the size of the batch at `at`.
    """
    cdef int64_t size = 0
    cdef Py_ssize_t there = at
    cdef int links, status
    total[0] = plausible_size(view, at, True)
    needed[0] = 0
    for links in range(MAX_LINKS):
        size = plausible_size(view, there, links == 0)
        if size == 0:
            return OUTPUT_FULL
        if size > view.size - there:
            if size == view.size - there + view.left_behind:
                return OK  # ends where the file ends
            needed[0] = there - at + size + V2_OVERHEAD
            return NEED_MORE if needed[0] <= view.max_batch_bytes else OUTPUT_FULL
        there += <Py_ssize_t>size
        if there == view.size and view.left_behind == 0:
            return OK
        if view.size - there < V2_OVERHEAD and view.left_behind > 0:
            needed[0] = there - at + V2_OVERHEAD
            return NEED_MORE
        status = judge(view, there, True, &size)
        if status == OK:
            return OK
        if status == NEED_MORE:
            needed[0] = there - at + size
            return NEED_MORE
    return OUTPUT_FULL


cdef inline int64_t proven_end(View* view, Py_ssize_t at, int64_t total) noexcept nogil:
    """Where the batch at `at` ends, if its size field is wrong and leads over batches; 0 if that is not proved.

    It is proved by its own checksum: that of the bytes up to an intact batch inside is the one in the batch.
    """
    cdef const uint8_t* p = view.bytes + at
    cdef int which = 0 if p[16] == 2 else 1
    cdef Py_ssize_t start = 16 if which else 21
    cdef uint32_t stored, before
    cdef Py_ssize_t there, end
    cdef int64_t size = 0
    if p[16] > 2 or total <= 2 * (MIN_SIZE_ANY + ENVELOPE) or view.size - at < V2_OVERHEAD:
        return 0
    stored = load_be32(p + 12) if which else load_be32(p + 17)
    before = prefix_sum(view, at + start, which)
    there = at + MIN_SIZE_ANY + ENVELOPE
    end = at + <Py_ssize_t>total - MIN_SIZE_ANY - ENVELOPE
    while there < end:
        if judge(view, there, False, &size) == OK:
            if prefix_sum(view, there, which) ^ gf_shift(before, <uint32_t>(there - at - start), which) == stored:
                return there - at
        there += 1
    return 0
