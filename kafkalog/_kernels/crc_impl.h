/* CRC-32C (v2 batches) and CRC-32 (v0 and v1 messages) over a run of bytes.
 *
 * Portable code works through sixteen bytes a step with tables ("slicing"). On x86-64 with SSE4.2 and PCLMULQDQ,
 * looked up once when the module is imported, CRC-32C runs three crc32 instruction streams side by side (the
 * instruction has a latency of three cycles and a throughput of one) and joins them by a carry-less multiplication
 * with x^(8n-33) mod P, which advances a CRC over n zero bytes. All constants are computed at import.
 */
#ifndef KAFKALOG_CRC_IMPL_H
#define KAFKALOG_CRC_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KL_POLY_CRC32C 0x82F63B78u
#define KL_POLY_CRC32 0xEDB88320u

static uint32_t kl_crc32c_table[16][256];
static uint32_t kl_crc32_table[16][256];

static void kl_fill_table(uint32_t table[16][256], uint32_t poly) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? poly : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 16; k++)
            table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
}

static uint32_t kl_crc_sliced(uint32_t table[16][256], const uint8_t *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    while (n >= 16) {
        uint32_t first = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[15][first & 255] ^ table[14][(first >> 8) & 255] ^ table[13][(first >> 16) & 255]
            ^ table[12][first >> 24] ^ table[11][p[4]] ^ table[10][p[5]] ^ table[9][p[6]] ^ table[8][p[7]]
            ^ table[7][p[8]] ^ table[6][p[9]] ^ table[5][p[10]] ^ table[4][p[11]]
            ^ table[3][p[12]] ^ table[2][p[13]] ^ table[1][p[14]] ^ table[0][p[15]];
        p += 16;
        n -= 16;
    }
    while (n--) crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}

static uint32_t kl_crc32_portable(const uint8_t *p, size_t n) { return kl_crc_sliced(kl_crc32_table, p, n); }
static uint32_t kl_crc32c_portable(const uint8_t *p, size_t n) { return kl_crc_sliced(kl_crc32c_table, p, n); }

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define KL_X86 1

/* Two stream lengths: three of the longer fill a 4 KiB page, so a 16 KiB batch is four rounds and a short rest. */
#define KL_LONG 1360
#define KL_SHORT 128
static uint32_t kl_long_1, kl_long_2, kl_short_1, kl_short_2;

/* x^n mod P, bit-reflected */
static uint32_t kl_x_pow(uint32_t n) {
    uint32_t value = 0x80000000u;
    while (n--) value = (value >> 1) ^ ((value & 1) ? KL_POLY_CRC32C : 0);
    return value;
}

__attribute__((target("sse4.2,pclmul")))
static inline uint64_t kl_times(uint32_t crc, uint32_t constant) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)constant), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

__attribute__((target("sse4.2,pclmul")))
static inline uint64_t kl_load(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

#define KL_THREE_STREAMS(LENGTH, SHIFT_1, SHIFT_2)                                              \
    while (n >= 3 * (LENGTH)) {                                                                 \
        uint64_t b = 0, c = 0;                                                                  \
        const uint8_t *stop = p + (LENGTH);                                                     \
        do {                                                                                    \
            a = _mm_crc32_u64(a, kl_load(p));                                                   \
            b = _mm_crc32_u64(b, kl_load(p + (LENGTH)));                                        \
            c = _mm_crc32_u64(c, kl_load(p + 2 * (LENGTH)));                                    \
            p += 8;                                                                             \
        } while (p < stop);                                                                     \
        a = c ^ _mm_crc32_u64(0, kl_times((uint32_t)a, SHIFT_2) ^ kl_times((uint32_t)b, SHIFT_1)); \
        p += 2 * (LENGTH);                                                                      \
        n -= 3 * (LENGTH);                                                                      \
    }

__attribute__((target("sse4.2,pclmul")))
static uint32_t kl_crc32c_sse42(const uint8_t *p, size_t n) {
    uint64_t a = 0xFFFFFFFFu;
    KL_THREE_STREAMS(KL_LONG, kl_long_1, kl_long_2)
    KL_THREE_STREAMS(KL_SHORT, kl_short_1, kl_short_2)
    while (n >= 8) {
        a = _mm_crc32_u64(a, kl_load(p));
        p += 8;
        n -= 8;
    }
    while (n--) a = _mm_crc32_u8((uint32_t)a, *p++);
    return ~(uint32_t)a;
}
#endif

typedef uint32_t (*kl_crc_function)(const uint8_t *, size_t);
static kl_crc_function kl_crc32c_best = kl_crc32c_portable;
static const char *kl_crc32c_name = "sliced";

static void kl_crc_setup(void) {
    kl_fill_table(kl_crc32c_table, KL_POLY_CRC32C);
    kl_fill_table(kl_crc32_table, KL_POLY_CRC32);
#ifdef KL_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        kl_long_1 = kl_x_pow(8 * KL_LONG - 33);
        kl_long_2 = kl_x_pow(16 * KL_LONG - 33);
        kl_short_1 = kl_x_pow(8 * KL_SHORT - 33);
        kl_short_2 = kl_x_pow(16 * KL_SHORT - 33);
        kl_crc32c_best = kl_crc32c_sse42;
        kl_crc32c_name = "sse4.2";
    }
#endif
}

#endif
