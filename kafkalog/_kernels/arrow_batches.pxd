# Exports columns in one block of memory as an Arrow record batch, through the C Data Interface.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    /* Pack n bytes of 0 or 1 into bits. */
    static void kl_pack_bits(const uint8_t *bytes, uint8_t *bits, int64_t n) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            uint64_t eight;
            uint8_t packed = 0;
            memcpy(&eight, bytes + i, 8);
            /* byte k times 2 ** (56 - 7 k) puts its bit at bit 56 + k, and no other there */
            packed = (uint8_t)(eight * 0x0102040810204080ull >> 56);
            bits[i >> 3] = packed;
        }
        if (i < n) bits[i >> 3] = 0;
        for (; i < n; i++) bits[i >> 3] |= (uint8_t)(bytes[i] << (i & 7));
    }
    /* Whether all bytes are ASCII. */
    static int kl_is_ascii(const uint8_t *bytes, int64_t n) {
        uint8_t found = 0;
        for (int64_t i = 0; i < n; i++) found |= bytes[i];
        return found < 128;
    }
    """
    ctypedef struct ArrowArray "struct ArrowArray":
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept
        void* private_data
    void pack_bits "kl_pack_bits"(const uint8_t*, uint8_t*, int64_t) noexcept nogil
    int is_ascii "kl_is_ascii"(const uint8_t*, int64_t) noexcept nogil
