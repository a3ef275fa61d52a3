# Decides whether the bytes at a position are an intact batch, or a damaged one with a credible size field. `resync`
# tests every byte, so the checksums of long candidates are combined from those of blocks, computed once.

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
    SHORT = 4096  # up to this size, computing a checksum is cheaper than combining block sums
    LARGE = 1048576  # brokers take larger batches only if they are told to
    LEAST_RECORD = 7
    MAX_LINKS = 16  # limits how many damaged batches one call follows, which keeps long runs of them linear
    OFFSETS_PER_BYTE = 64  # a larger jump of offsets over lost bytes does not indicate the same log


cdef struct View:
    const uint8_t* bytes
    Py_ssize_t size
    int64_t left_behind  # bytes of the file after the view
    int64_t max_batch_bytes
    uint32_t* sums[2]  # checksums of the first 0, 1, 2 ... blocks: CRC-32C, CRC-32
    int64_t* n_sums
    int64_t credit
    int64_t headers_left  # header bytes that may still be examined without success


cdef inline int64_t plausible_size(View* view, Py_ssize_t at, bint any_magic) noexcept nogil:
    """Size of the batch, from the 17 bytes at `at`; 0 if they cannot start a batch."""
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


cdef struct Damaged:
    # A damaged v0 or v1 message where a batch is expected. If it is compressed, its value holds messages
    # whose offsets no checksum covers, and which are relative in v1.
    bint is_message
    bint is_compressed  # its key must also be null, as in every compressed message
    int64_t offset
    int64_t by_size  # its size by the size field; 0 if impossible
    int64_t by_lengths  # its size by the lengths of key and value; 0 if impossible


cdef inline Damaged damaged_message(View* view, Py_ssize_t at) noexcept nogil:
    """Parse the header of a damaged v0 or v1 message; `is_message` is false if it is not one."""
    cdef const uint8_t* p = view.bytes + at
    cdef Damaged one
    cdef int64_t fields
    cdef int32_t key, value
    one.is_message = view.size - at > MAGIC_END and p[16] < 2 and p[17] & 0xF0 == 0 and p[17] & CODEC_MASK <= 3
    one.is_compressed = False
    one.offset = 0
    one.by_size = 0
    one.by_lengths = 0
    if not one.is_message:
        return one
    one.offset = <int64_t>load_be64(p)
    if one.offset < 0:
        one.offset = INT64_MAX  # an impossible offset: no batch comes after it
    if <int32_t>load_be32(p + 8) >= MIN_SIZE_ANY:
        one.by_size = ENVELOPE + <int64_t><int32_t>load_be32(p + 8)
    fields = 18 if p[16] == 0 else 26
    if view.size - at < fields + 8:
        return one
    key = <int32_t>load_be32(p + fields)
    fields += 4
    if key < -1 or key > view.size - at - fields - 4:
        return one
    if key > 0:
        fields += key
    value = <int32_t>load_be32(p + fields)
    if value >= 0:
        one.by_lengths = fields + 4 + value
    one.is_compressed = p[17] & CODEC_MASK != 0 and (key == -1 or one.by_size == one.by_lengths)
    return one


cdef inline int64_t extent_of(Damaged* one) noexcept nogil:
    """Bytes that may belong to a damaged message whose size field does not lead to a batch; 0 if unknown."""
    if one.is_message and (one.is_compressed or one.by_size == one.by_lengths):
        return one.by_size if one.by_size > one.by_lengths else one.by_lengths
    return 0


cdef inline bint is_plain(const uint8_t* p) noexcept nogil:
    """Whether a batch header is that of an uncompressed v0 or v1 message."""
    return p[16] < 2 and p[17] & CODEC_MASK == 0


cdef inline bint comes_after(const uint8_t* p, int64_t offset, int64_t n_bytes) noexcept nogil:
    """Whether an intact batch continues the log after a damaged message with a known offset.

    `n_bytes` is the distance from the damaged message to the end of the batch. An uncompressed v0 or v1 message may be
    part of the damaged one, so it must have exactly the next offset. Other batches are credible if their offset is
    near.
    """
    cdef int64_t first = <int64_t>load_be64(p)
    if first <= offset:
        return False
    if is_plain(p):
        return first == offset + 1
    return (first - offset) // OFFSETS_PER_BYTE <= n_bytes


cdef inline uint32_t prefix_sum(View* view, Py_ssize_t end, int which) noexcept nogil:
    """Checksum of the view's first `end` bytes. CRC is linear, so two of these give that of any range."""
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
    """Whether the checksum of the batch of `total` bytes at `at` matches; the view must hold all of it."""
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


cdef inline bint may_be_read(const uint8_t* p, int64_t total, int64_t there) noexcept nogil:
    """Whether records may be read from a v2 batch: not if it claims more than offsets or bytes allow.

    Random bytes are often headers of large batches, and a checksum of so many bytes takes long.
    """
    cdef int64_t n = <int64_t>load_be32(p + 57)
    cdef uint32_t begin
    cdef int codec = p[22] & CODEC_MASK
    # compaction removes records, but no offsets
    if n - 1 > <int64_t>load_be32(p + 23):
        return False
    if codec == 0:
        return n * LEAST_RECORD <= total - V2_OVERHEAD
    if there < V2_OVERHEAD + 4:
        return True
    begin = load_be32(p + V2_OVERHEAD)
    if codec == 1:
        return begin >> 16 == 0x1F8B  # gzip
    if codec == 3:
        return begin == 0x04224D18  # LZ4
    # snappy may have no frame
    return codec == 2 or begin == 0x28B52FFD  # zstd


cdef inline bint looks_like_batch(const uint8_t* p, int64_t total, int64_t there) noexcept nogil:
    """Whether the fields that the checksum covers look like a batch, as far as `there` bytes allow.

    Used for batches that no size field leads to.
    """
    cdef int64_t at
    cdef int32_t length
    if p[16] == 2:
        return there < V2_OVERHEAD or (p[21] == 0 and p[22] & 0x80 == 0 and p[22] & CODEC_MASK <= 4
                                       and p[23] & 0x80 == 0 and p[57] & 0x80 == 0
                                       and (total <= LARGE or may_be_read(p, total, there)))
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
    """OK for an intact batch at `at`, NEED_MORE if it leaves the view, OUTPUT_FULL if there is none."""
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

    More damaged batches may lie in between. `total` is the size of the batch at `at`.
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


cdef inline int link(View* view, Py_ssize_t at, Damaged* one, int64_t* total, int64_t* needed) noexcept nogil:
    """As `follow`, also if the size field of a compressed message contradicts its lengths.

    Either is proved if it leads to a batch that continues the log, which a message inside the damaged one does not.
    Without proof, the lengths win if they lead to a batch with a higher offset.
    """
    cdef int64_t left = view.size - at
    cdef int64_t size = 0
    cdef int64_t second_best = 0
    cdef int64_t claim
    cdef int i, status
    if not one.is_compressed:
        return follow(view, at, total, needed)
    if one.by_size == one.by_lengths:
        status = follow(view, at, total, needed)
        # if bytes were lost, the size leads into the next message
        if status == OK and total[0] < left - MAGIC_END and is_plain(view.bytes + at + total[0]):
            if not comes_after(view.bytes + at + total[0], one.offset, 0):
                return OUTPUT_FULL
        return status
    for i in range(2):
        claim = one.by_size if i else one.by_lengths
        if claim < ENVELOPE + MIN_SIZE_ANY or claim > left + view.left_behind or claim > view.max_batch_bytes:
            continue
        total[0] = claim
        if claim == left + view.left_behind:
            return OK
        if left - claim < V2_OVERHEAD and view.left_behind > 0:
            needed[0] = claim + V2_OVERHEAD
            return NEED_MORE
        if claim > left - MAGIC_END:
            continue
        status = judge(view, at + <Py_ssize_t>claim, True, &size)
        if status == NEED_MORE:
            needed[0] = claim + size
            return NEED_MORE
        if status == OK and comes_after(view.bytes + at + claim, one.offset, claim + size):
            return OK
        if status == OK and not second_best and <int64_t>load_be64(view.bytes + at + claim) > one.offset:
            if i == 0 or one.by_lengths == 0:
                second_best = claim
    total[0] = second_best
    return OK if second_best else OUTPUT_FULL


cdef inline int64_t proven_end(View* view, Py_ssize_t at, int64_t total) noexcept nogil:
    """End of the batch at `at` if its size field is wrong and skips other batches; 0 without proof.

    The proof is its own checksum: it matches the bytes up to an intact batch inside the declared size.
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
