/* Checksums of parts, out of those of what comes before and after: polynomials over GF(2), reflected as in the CRCs,
   bit 31 is x^0. crc(AB) = crc(A) * x^(8 len B) + crc(B). */
#ifndef KAFKALOG_CRC_SHIFT_H
#define KAFKALOG_CRC_SHIFT_H

#include <stdint.h>

static inline uint32_t kl_gf_multiply(uint32_t a, uint32_t b, uint32_t poly) {
    uint32_t product = 0;
    while (a) {
        product ^= b & (uint32_t)((int32_t)a >> 31);
        b = (b >> 1) ^ (poly & (uint32_t)-(int32_t)(b & 1));
        a <<= 1;
    }
    return product;
}
static uint32_t kl_gf_powers[2][4][256]; /* x^(8 n 256^k), constant once the module is imported */
static const uint32_t kl_gf_poly[2] = {0x82f63b78u, 0xedb88320u};
static void kl_gf_setup(void) {
    for (int which = 0; which < 2; which++) {
        uint32_t step = 0x00800000u;
        for (int k = 0; k < 4; k++) {
            uint32_t *row = kl_gf_powers[which][k];
            row[0] = 0x80000000u;
            for (int d = 1; d < 256; d++) row[d] = kl_gf_multiply(row[d - 1], step, kl_gf_poly[which]);
            step = kl_gf_multiply(row[255], step, kl_gf_poly[which]);
        }
    }
}
/* the checksum of bytes, as it changes when n more follow, without what these contribute themselves */
static inline uint32_t kl_gf_shift(uint32_t crc, uint32_t n, int which) {
    for (int k = 0; n; k++, n >>= 8)
        if (n & 255) crc = kl_gf_multiply(kl_gf_powers[which][k][n & 255], crc, kl_gf_poly[which]);
    return crc;
}

#endif
