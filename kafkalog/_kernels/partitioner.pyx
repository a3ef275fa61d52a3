"""Hashes keys as Kafka's producers do, to spread records over partitions.

Kafka: Utils.murmur2, Utils.toPositive, BuiltInPartitioner.partitionForKey.
librdkafka: rd_crc32, rd_fnv1a.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    /* 32-bit MurmurHash2 with Kafka's seed; words are little-endian on every machine */
    static inline uint32_t kl_murmur2(const uint8_t *p, int64_t n) {
        const uint32_t m = 0x5bd1e995u;
        uint32_t h = 0x9747b28cu ^ (uint32_t)n;
        for (; n >= 4; p += 4, n -= 4) {
            uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
            k *= m;
            k ^= k >> 24;
            h = h * m ^ k * m;
        }
        if (n == 3) h ^= (uint32_t)p[2] << 16;
        if (n >= 2) h ^= (uint32_t)p[1] << 8;
        if (n >= 1) h = (h ^ p[0]) * m;
        h ^= h >> 13;
        h *= m;
        return h ^ h >> 15;
    }
    static inline uint32_t kl_fnv1a(const uint8_t *p, int64_t n) {
        uint32_t h = 0x811c9dc5u;
        for (; n > 0; p++, n--) h = (h ^ *p) * 0x01000193u;
        return h;
    }
    /* CRC-32 of Ethernet and zlib: half a byte at a time */
    static inline uint32_t kl_crc32(const uint8_t *p, int64_t n) {
        static const uint32_t table[16] = {
            0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
            0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
        uint32_t h = 0xffffffffu;
        for (; n > 0; p++, n--) {
            h ^= *p;
            h = h >> 4 ^ table[h & 15];
            h = h >> 4 ^ table[h & 15];
        }
        return ~h;
    }
    """
    uint32_t murmur2 "kl_murmur2"(const uint8_t* p, int64_t n) noexcept nogil
    uint32_t fnv1a "kl_fnv1a"(const uint8_t* p, int64_t n) noexcept nogil
    uint32_t crc32 "kl_crc32"(const uint8_t* p, int64_t n) noexcept nogil

HASHES = {"murmur2": 0, "fnv1a": 1, "crc32": 2}


def hash_keys(const int64_t[::1] offsets not None, const uint8_t[::1] data not None, int32_t[::1] hashes not None,
              int kind=0):
    """Hash each byte string ``data[offsets[i]:offsets[i + 1]]`` with one of `HASHES`. Return the number hashed.

    It stops at the first string outside of the data.
    """
    cdef Py_ssize_t n = offsets.shape[0] - 1
    cdef Py_ssize_t row = 0
    cdef int64_t size = data.shape[0]
    cdef int64_t length
    cdef const uint8_t* p = NULL
    cdef uint8_t nothing = 0
    if n < 0 or hashes.shape[0] < n:
        raise ValueError("columns differ in length")
    if n == 0:
        return 0
    p = &data[0] if size else &nothing
    with nogil:
        while row < n:
            if offsets[row] < 0 or offsets[row + 1] < offsets[row] or offsets[row + 1] > size:
                break
            # a Java array, and so a key in Kafka, has at most 2^31 - 1 bytes
            if offsets[row + 1] - offsets[row] > INT32_MAX:
                break
            length = offsets[row + 1] - offsets[row]
            if kind == 0:
                hashes[row] = <int32_t>murmur2(p + offsets[row], length)
            elif kind == 1:
                hashes[row] = <int32_t>fnv1a(p + offsets[row], length)
            else:
                hashes[row] = <int32_t>crc32(p + offsets[row], length)
            row += 1
    return row
