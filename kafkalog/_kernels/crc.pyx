"""CRC-32C and CRC-32 of bytes, and the check of many batches in one call."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._kernels.wire cimport CRC_MISMATCH, OK, wrap_sub

cdef extern from "crc_impl.h":
    uint32_t (*kl_crc32c_best)(const uint8_t*, size_t) noexcept nogil
    uint32_t (*kl_crc32_best)(const uint8_t*, size_t) noexcept nogil
    uint32_t kl_xxh32(const uint8_t*, size_t) noexcept nogil
    int kl_crc_setup(int level) noexcept nogil

cdef extern from "crc_shift.h":
    void gf_setup "kl_gf_setup"() noexcept nogil
    uint32_t gf_shift "kl_gf_shift"(uint32_t crc, uint32_t n, int which) noexcept nogil

gf_setup()

LEVELS = ("portable", "pclmul", "vpclmul", "avx512")


def use_level(int level):
    """Select the code of a level of `LEVELS`, or the best lower one the CPU can run. Return its name. For tests."""
    return LEVELS[kl_crc_setup(level)]


implementation = use_level(3)


cdef uint32_t crc32c(const uint8_t* pointer, size_t size) noexcept nogil:
    return kl_crc32c_best(pointer, size)


cdef uint32_t crc32(const uint8_t* pointer, size_t size) noexcept nogil:
    return kl_crc32_best(pointer, size)


cdef uint32_t xxh32(const uint8_t* pointer, size_t size) noexcept nogil:
    return kl_xxh32(pointer, size)


ctypedef uint32_t (*Checksum)(const uint8_t*, size_t) noexcept nogil


cdef uint32_t checksum(Checksum of, const uint8_t[::1] data):
    cdef size_t n = data.shape[0]
    cdef const uint8_t* pointer = &data[0] if n else NULL
    with nogil:
        return of(pointer, n)


def checksum_crc32c(const uint8_t[::1] data not None):
    """CRC-32C (Castagnoli) of `data`."""
    return checksum(crc32c, data)


def joined_crc32c(uint32_t first, uint32_t second, uint64_t n):
    """CRC-32C of bytes with the checksum `first` and the `n` bytes after them, which have the checksum `second`."""
    cdef uint32_t most = 0xFFFFFFFFu
    while n > most:
        first = gf_shift(first, most, 0)
        n -= most
    return gf_shift(first, <uint32_t>n, 0) ^ second


def checksum_crc32(const uint8_t[::1] data not None):
    """CRC-32 (IEEE, as zlib's) of `data`."""
    return checksum(crc32, data)


def checksum_xxh32(const uint8_t[::1] data not None):
    """XXH32 of `data` with seed 0."""
    return checksum(xxh32, data)


def check_crcs(const uint8_t[::1] window not None, int64_t window_start, const int64_t[::1] position not None,
               const int32_t[::1] size_in_bytes not None, const int8_t[::1] magic not None,
               const uint32_t[::1] crc not None, uint8_t[::1] valid not None):
    """Check the checksum of every batch of a window, and set `valid` to 0 or 1. Return `(status, n_done, position)`.

    The status is OK if all match. Otherwise it is CRC_MISMATCH, with the position of the first mismatch.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t row, start
    cdef int status = OK
    cdef int64_t where = window_start
    cdef uint32_t computed
    if size_in_bytes.shape[0] != n or magic.shape[0] != n or crc.shape[0] != n or valid.shape[0] != n:
        raise ValueError("columns differ in length")
    with nogil:
        for row in range(n):
            start = wrap_sub(position[row], window_start)
            if start < 0 or size_in_bytes[row] < 26 or size_in_bytes[row] > window.shape[0] - start:
                with gil:
                    raise ValueError("a batch lies outside the window")
            # v2: from the attributes on, so that a broker can set offset and leader epoch without a new checksum
            if magic[row] >= 2:
                computed = crc32c(&window[start] + 21, size_in_bytes[row] - 21)
            else:
                computed = crc32(&window[start] + 16, size_in_bytes[row] - 16)
            valid[row] = computed == crc[row]
            if not valid[row] and status == OK:
                status = CRC_MISMATCH
                where = position[row]
    return status, n, where
