/* CRC-32C (v2 batches) and CRC-32 (v0 and v1 messages) over a run of bytes; XXH32, which guards LZ4 frames.
 *
 * Portable code works through sixteen bytes a step with tables ("slicing"). On x86-64 what the machine has is looked
 * up once, when the module is imported:
 *   AVX-512      The bytes are folded, 256 a step, by carry-less multiplication ("Fast CRC Computation for Generic
 *                Polynomials Using PCLMULQDQ Instruction", Intel 2009) down to sixteen, whose CRC is taken. It reads
 *                one byte after the other, so the machine reads ahead by itself.
 *   VPCLMULQDQ   CRC-32, and CRC-32C of less than 2 KiB: folded, 64 a step. CRC-32C: the same next to three streams of
 *                the crc32 instruction.
 *   PCLMULQDQ    CRC-32: folded, 64 a step. CRC-32C: three streams of the crc32 instruction side by side (latency
 *                three cycles, throughput one), joined by a multiplication with x^(8n-33) mod P, which advances a CRC
 *                over n zero bytes.
 * On 64-bit ARM: three streams of the crc32c or crc32 instruction, joined by a carry-less multiplication.
 * All constants are computed at import.
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

/* goes on from `crc`, which is not inverted */
static uint32_t kl_crc_more(uint32_t table[16][256], uint32_t crc, const uint8_t *p, size_t n) {
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
    return crc;
}

static uint32_t kl_crc32_portable(const uint8_t *p, size_t n) {
    return ~kl_crc_more(kl_crc32_table, 0xFFFFFFFFu, p, n);
}

static uint32_t kl_crc32c_portable(const uint8_t *p, size_t n) {
    return ~kl_crc_more(kl_crc32c_table, 0xFFFFFFFFu, p, n);
}

#if defined(__GNUC__) || defined(__clang__)
#if defined(__x86_64__)
#define KL_X86 1
#elif defined(__aarch64__) && defined(__AARCH64EL__) && (defined(__linux__) || defined(__APPLE__))
#define KL_ARM 1
#endif
#endif

#if defined(KL_X86) || defined(KL_ARM)
/* Two stream lengths: three of the longer fill a 4 KiB page, so a 16 KiB batch is four rounds and a short rest. */
#define KL_LONG 1360
#define KL_SHORT 128

/* x^n mod P, bit-reflected */
static uint32_t kl_x_pow(uint32_t n, uint32_t poly) {
    uint32_t value = 0x80000000u;
    while (n--) value = (value >> 1) ^ ((value & 1) ? poly : 0);
    return value;
}

/* What joins three streams: advances a CRC over one and over two of them. */
typedef struct { uint32_t long_1, long_2, short_1, short_2; } kl_joins;

static kl_joins kl_joins_of(uint32_t poly) {
    kl_joins joins = {kl_x_pow(8 * KL_LONG - 33, poly), kl_x_pow(16 * KL_LONG - 33, poly),
                      kl_x_pow(8 * KL_SHORT - 33, poly), kl_x_pow(16 * KL_SHORT - 33, poly)};
    return joins;
}

static kl_joins kl_joins_crc32c;

static inline uint64_t kl_load(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}
#endif

#ifdef KL_ARM
#include <arm_acle.h>
#include <arm_neon.h>
#ifndef __APPLE__
#include <sys/auxv.h>
#endif
#ifdef __clang__
/* its headers hide what the whole file is not compiled for, even in functions that are */
#define KL_ARM_TARGET __attribute__((target("crc,aes")))
#define KL_CRC32CD __builtin_arm_crc32cd
#define KL_CRC32CB __builtin_arm_crc32cb
#define KL_CRC32D __builtin_arm_crc32d
#define KL_CRC32B __builtin_arm_crc32b
#define KL_MULTIPLY(a, b) __builtin_neon_vmull_p64((poly64_t)(a), (poly64_t)(b))
#else
#define KL_ARM_TARGET __attribute__((target("+crc+crypto")))
#define KL_CRC32CD __crc32cd
#define KL_CRC32CB __crc32cb
#define KL_CRC32D __crc32d
#define KL_CRC32B __crc32b
#define KL_MULTIPLY(a, b) vmull_p64((poly64_t)(a), (poly64_t)(b))
#endif

static kl_joins kl_joins_crc32;

/* A product of 63 bits, low bits first, as the instructions take it. */
KL_ARM_TARGET static inline uint64_t kl_times(uint32_t crc, uint32_t constant) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(KL_MULTIPLY(crc, constant)), 0);
}

/* Three streams side by side, joined by a multiplication; INSTRUCTION takes eight bytes, LAST one. */
#define KL_ARM_STREAMS(INSTRUCTION, LENGTH, BY_1, BY_2)                                               \
    while (n >= 3 * (LENGTH)) {                                                                       \
        uint32_t b = 0, c = 0;                                                                        \
        const uint8_t *stop = p + (LENGTH);                                                           \
        do {                                                                                          \
            a = INSTRUCTION(a, kl_load(p));                                                           \
            b = INSTRUCTION(b, kl_load(p + (LENGTH)));                                                \
            c = INSTRUCTION(c, kl_load(p + 2 * (LENGTH)));                                            \
            p += 8;                                                                                   \
        } while (p < stop);                                                                           \
        a = c ^ INSTRUCTION(0, kl_times(a, BY_2) ^ kl_times(b, BY_1));                                \
        p += 2 * (LENGTH);                                                                            \
        n -= 3 * (LENGTH);                                                                            \
    }
#define KL_ARM_CRC(NAME, INSTRUCTION, LAST, JOINS)                                                    \
    KL_ARM_TARGET static uint32_t NAME(const uint8_t *p, size_t n) {                                  \
        uint32_t a = 0xFFFFFFFFu;                                                                     \
        KL_ARM_STREAMS(INSTRUCTION, KL_LONG, JOINS.long_1, JOINS.long_2)                              \
        KL_ARM_STREAMS(INSTRUCTION, KL_SHORT, JOINS.short_1, JOINS.short_2)                           \
        for (; n >= 8; p += 8, n -= 8) a = INSTRUCTION(a, kl_load(p));                                \
        while (n--) a = LAST(a, *p++);                                                                \
        return ~a;                                                                                    \
    }

KL_ARM_CRC(kl_crc32c_arm, KL_CRC32CD, KL_CRC32CB, kl_joins_crc32c)
KL_ARM_CRC(kl_crc32_arm, KL_CRC32D, KL_CRC32B, kl_joins_crc32)

static int kl_arm_has_crc(void) {
#ifdef __APPLE__
    return 1; /* every Mac with such a processor */
#else
    const unsigned long has_pmull = 1ul << 4, has_crc32 = 1ul << 7; /* HWCAP_PMULL, HWCAP_CRC32 */
    return (getauxval(AT_HWCAP) & (has_pmull | has_crc32)) == (has_pmull | has_crc32);
#endif
}
#endif

#ifdef KL_X86
#include <immintrin.h>

/* What folds a 128-bit word over a distance of so many bits: for its first and its second eight bytes. */
typedef struct { uint64_t first, second; } kl_fold;
typedef struct { kl_fold by_96, by_128, by_256, by_512, by_1024, by_2048; } kl_folds;
static kl_folds kl_folds_crc32c, kl_folds_crc32;
/* Of CRC-32, as 33 bits: P, and the quotient of x^64 by P. */
static uint64_t kl_poly_crc32, kl_quotient_crc32;

static kl_fold kl_fold_by(uint32_t bits, uint32_t poly) {
    kl_fold fold = {(uint64_t)kl_x_pow(bits + 32, poly) << 1, (uint64_t)kl_x_pow(bits - 32, poly) << 1};
    return fold;
}

static kl_folds kl_folds_of(uint32_t poly) {
    kl_folds folds = {kl_fold_by(96, poly),  kl_fold_by(128, poly),  kl_fold_by(256, poly),
                      kl_fold_by(512, poly), kl_fold_by(1024, poly), kl_fold_by(2048, poly)};
    return folds;
}

/* The quotient of x^64 by P. */
static uint64_t kl_quotient(uint32_t poly) {
    uint64_t quotient = 0;
    uint32_t value = 1;
    for (int i = 0; i < 33; i++) {
        quotient |= (uint64_t)(value & 1) << i;
        value = (value >> 1) ^ ((value & 1) ? poly : 0);
    }
    return quotient;
}

__attribute__((target("sse4.2,pclmul")))
static inline __m128i kl_fold_128(__m128i word, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(word, by, 0x00), high = _mm_clmulepi64_si128(word, by, 0x11);
    return _mm_xor_si128(next, _mm_xor_si128(low, high));
}

/* Fold the first n / 64 * 64 bytes (n >= 64) down to sixteen with the same remainder, the CRC's start included. */
__attribute__((target("sse4.2,pclmul")))
static size_t kl_fold_sse(const uint8_t *p, size_t n, const kl_folds *folds, uint8_t out[16]) {
    const uint8_t *start = p;
    __m128i by = _mm_set_epi64x((long long)folds->by_512.second, (long long)folds->by_512.first);
    __m128i a = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128(-1));
    __m128i b = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(p + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(p + 48));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = kl_fold_128(a, by, _mm_loadu_si128((const __m128i *)p));
        b = kl_fold_128(b, by, _mm_loadu_si128((const __m128i *)(p + 16)));
        c = kl_fold_128(c, by, _mm_loadu_si128((const __m128i *)(p + 32)));
        d = kl_fold_128(d, by, _mm_loadu_si128((const __m128i *)(p + 48)));
    }
    by = _mm_set_epi64x((long long)folds->by_128.second, (long long)folds->by_128.first);
    _mm_storeu_si128((__m128i *)out, kl_fold_128(kl_fold_128(kl_fold_128(a, by, b), by, c), by, d));
    return (size_t)(p - start);
}

__attribute__((target("avx2,vpclmulqdq,sse4.2,pclmul")))
static inline __m256i kl_fold_256(__m256i words, __m256i by, __m256i next) {
    return _mm256_xor_si256(
        next, _mm256_xor_si256(_mm256_clmulepi64_epi128(words, by, 0x00), _mm256_clmulepi64_epi128(words, by, 0x11)));
}

#define KL_AVX512 __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))

KL_AVX512 static inline __m512i kl_by_avx512(kl_fold fold) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)fold.second, (long long)fold.first));
}

KL_AVX512 static inline __m512i kl_fold_avx512_step(__m512i words, __m512i by, __m512i next) {
    enum { XOR_OF_THREE = 0x96 }; /* an immediate: neither clang nor gcc -O0 takes a variable */
    return _mm512_ternarylogic_epi64(
        next, _mm512_clmulepi64_epi128(words, by, 0x00), _mm512_clmulepi64_epi128(words, by, 0x11), XOR_OF_THREE);
}

/* The same for n / 64 * 64 bytes (n >= 64). */
KL_AVX512 static inline size_t kl_fold_avx512(const uint8_t *p, size_t n, const kl_folds *folds, uint8_t out[16]) {
    const uint8_t *start = p;
    __m512i by = kl_by_avx512(folds->by_512);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
    p += 64;
    n -= 64;
    if (n >= 192) {
        __m512i far = kl_by_avx512(folds->by_2048);
        __m512i b = _mm512_loadu_si512(p), c = _mm512_loadu_si512(p + 64), d = _mm512_loadu_si512(p + 128);
        for (p += 192, n -= 192; n >= 256; p += 256, n -= 256) {
            a = kl_fold_avx512_step(a, far, _mm512_loadu_si512(p));
            b = kl_fold_avx512_step(b, far, _mm512_loadu_si512(p + 64));
            c = kl_fold_avx512_step(c, far, _mm512_loadu_si512(p + 128));
            d = kl_fold_avx512_step(d, far, _mm512_loadu_si512(p + 192));
        }
        a = kl_fold_avx512_step(kl_fold_avx512_step(kl_fold_avx512_step(a, by, b), by, c), by, d);
    }
    for (; n >= 64; p += 64, n -= 64) a = kl_fold_avx512_step(a, by, _mm512_loadu_si512(p));
    __m128i narrow = _mm_set_epi64x((long long)folds->by_128.second, (long long)folds->by_128.first);
    __m128i word = _mm512_castsi512_si128(a);
    word = kl_fold_128(word, narrow, _mm512_extracti32x4_epi32(a, 1));
    word = kl_fold_128(word, narrow, _mm512_extracti32x4_epi32(a, 2));
    _mm_storeu_si128((__m128i *)out, kl_fold_128(word, narrow, _mm512_extracti32x4_epi32(a, 3)));
    _mm256_zeroupper(); /* GCC 12 forgets it before some returns: the next code waits for the upper halves then */
    return (size_t)(p - start);
}

/* The CRC-32 that sixteen folded bytes have: down to eight bytes, to four, then Barrett's reduction. */
__attribute__((target("sse4.2,pclmul")))
static inline uint32_t kl_crc32_end(__m128i word) {
    const kl_folds *folds = &kl_folds_crc32;
    __m128i low = _mm_cvtsi32_si128(-1);
    __m128i by = _mm_set_epi64x((long long)folds->by_96.second, (long long)folds->by_128.second);
    __m128i barrett = _mm_set_epi64x((long long)kl_poly_crc32, (long long)kl_quotient_crc32);
    word = _mm_xor_si128(_mm_srli_si128(word, 8), _mm_clmulepi64_si128(word, by, 0x00));
    word = _mm_xor_si128(_mm_srli_si128(word, 4), _mm_clmulepi64_si128(_mm_and_si128(word, low), by, 0x10));
    __m128i times = _mm_clmulepi64_si128(_mm_and_si128(word, low), barrett, 0x00);
    times = _mm_clmulepi64_si128(_mm_and_si128(times, low), barrett, 0x10);
    return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(word, times), 1);
}

/* Masks: at n, to move the bytes of a word up by 16 - n; at 16 + n, down by n. The other bytes become zero. */
enum { KL_ZERO = 0x80 };
#define KL_ZEROS KL_ZERO, KL_ZERO, KL_ZERO, KL_ZERO, KL_ZERO, KL_ZERO, KL_ZERO, KL_ZERO
static const uint8_t kl_slide[48] = {
    KL_ZEROS, KL_ZEROS, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, KL_ZEROS, KL_ZEROS};

/* CRC-32 of sixteen folded bytes and n more; at least sixteen lie before p. The last ones are folded, too: the word
 * moves up by as many bytes as there are, and what leaves it is folded into what it is now. */
__attribute__((target("sse4.2,pclmul")))
static inline uint32_t kl_crc32_rest(__m128i word, const uint8_t *p, size_t n) {
    const kl_folds *folds = &kl_folds_crc32;
    __m128i by = _mm_set_epi64x((long long)folds->by_128.second, (long long)folds->by_128.first);
    for (; n >= 16; p += 16, n -= 16) word = kl_fold_128(word, by, _mm_loadu_si128((const __m128i *)p));
    if (n) {
        __m128i up = _mm_loadu_si128((const __m128i *)(kl_slide + n));
        __m128i down = _mm_loadu_si128((const __m128i *)(kl_slide + 16 + n));
        __m128i last = _mm_loadu_si128((const __m128i *)(p + n - 16));
        last = _mm_andnot_si128(_mm_cmplt_epi8(up, _mm_setzero_si128()), last);
        word = kl_fold_128(_mm_shuffle_epi8(word, up), by, _mm_or_si128(_mm_shuffle_epi8(word, down), last));
    }
    return kl_crc32_end(word);
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t kl_crc32_pclmul(const uint8_t *p, size_t n) {
    uint8_t folded[16];
    if (n < 16) return kl_crc32_portable(p, n);
    size_t done = 16;
    __m128i word = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128(-1));
    if (n >= 64) {
        done = kl_fold_sse(p, n, &kl_folds_crc32, folded);
        word = _mm_loadu_si128((const __m128i *)folded);
    }
    return kl_crc32_rest(word, p + done, n - done);
}

/* Fold n >= 64 bytes down to sixteen, going on from `crc`. Messages and small batches have a few hundred bytes, so this
 * is a matter of steps that wait for each other, and of branches: zeros in front, which do not count, make it whole
 * words of 32 bytes, of which two are folded at a time. The CRC belongs to the first four bytes, wherever these come to
 * lie. */
__attribute__((target("avx2,vpclmulqdq,sse4.2,pclmul"), always_inline))
static inline __m128i kl_fold_short(uint32_t crc, const uint8_t *p, size_t n, const kl_folds *folds) {
    __m128i narrow = _mm_set_epi64x((long long)folds->by_256.second, (long long)folds->by_256.first);
    __m256i by_256 = _mm256_broadcastsi128_si256(narrow);
    narrow = _mm_set_epi64x((long long)folds->by_512.second, (long long)folds->by_512.first);
    __m256i by_512 = _mm256_broadcastsi128_si256(narrow);
    narrow = _mm_set_epi64x((long long)folds->by_128.second, (long long)folds->by_128.first);
    __m128i start = _mm_cvtsi32_si128((int)crc);
    /* of the first word's bytes, 1 to 32, those in its lower and its upper half */
    const uint8_t *const end = p + n;
    size_t size = ((n - 1) & 31) + 1, lower = size > 16 ? size - 16 : 0, upper = size - lower;
    __m128i low = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), start);
    low = _mm_shuffle_epi8(low, _mm_loadu_si128((const __m128i *)(kl_slide + lower)));
    __m128i high = _mm_shuffle_epi8(start, _mm_loadu_si128((const __m128i *)(kl_slide + 16 + lower)));
    high = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(p + lower)), high);
    high = _mm_shuffle_epi8(high, _mm_loadu_si128((const __m128i *)(kl_slide + upper)));
    start = _mm_shuffle_epi8(start, _mm_loadu_si128((const __m128i *)(kl_slide + 16 + upper)));
    __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    p += size;
    __m256i b = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_zextsi128_si256(start));
    p += 32;
    if ((end - p) & 32) {
        a = kl_fold_256(a, by_256, b);
        b = _mm256_loadu_si256((const __m256i *)p);
        p += 32;
    }
    for (; p < end; p += 64) {
        a = kl_fold_256(a, by_512, _mm256_loadu_si256((const __m256i *)p));
        b = kl_fold_256(b, by_512, _mm256_loadu_si256((const __m256i *)(p + 32)));
    }
    b = kl_fold_256(a, by_256, b);
    __m128i word = kl_fold_128(_mm256_castsi256_si128(b), narrow, _mm256_extracti128_si256(b, 1));
    _mm256_zeroupper(); /* see kl_fold_avx512 */
    return word;
}

__attribute__((target("avx2,vpclmulqdq,sse4.2,pclmul")))
static uint32_t kl_crc32_vpclmul(const uint8_t *p, size_t n) {
    if (n < 64) return kl_crc32_pclmul(p, n);
    return kl_crc32_end(kl_fold_short(0xFFFFFFFFu, p, n, &kl_folds_crc32));
}

KL_AVX512 static uint32_t kl_crc32_avx512(const uint8_t *p, size_t n) {
    uint8_t folded[16];
    if (n < 256) return kl_crc32_vpclmul(p, n);
    size_t done = kl_fold_avx512(p, n, &kl_folds_crc32, folded);
    return kl_crc32_rest(_mm_loadu_si128((const __m128i *)folded), p + done, n - done);
}

__attribute__((target("sse4.2,pclmul")))
static inline uint64_t kl_times(uint32_t crc, uint32_t constant) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)constant), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
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

__attribute__((target("sse4.2")))
static inline uint64_t kl_crc32c_more(uint64_t a, const uint8_t *p, size_t n) {
    while (n >= 8) {
        a = _mm_crc32_u64(a, kl_load(p));
        p += 8;
        n -= 8;
    }
    while (n--) a = _mm_crc32_u8((uint32_t)a, *p++);
    return a;
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t kl_crc32c_sse42(const uint8_t *p, size_t n) {
    uint64_t a = 0xFFFFFFFFu;
    KL_THREE_STREAMS(KL_LONG, kl_joins_crc32c.long_1, kl_joins_crc32c.long_2)
    KL_THREE_STREAMS(KL_SHORT, kl_joins_crc32c.short_1, kl_joins_crc32c.short_2)
    return ~(uint32_t)kl_crc32c_more(a, p, n);
}

/* Multiplier and crc32 instruction are units of their own: a block is a run that is folded and three streams, all four
 * at once, about as many bytes for the one as for the other. Large blocks for large batches, small ones for the rest.
 */
#define KL_BLOCK(steps) (128 * (steps) + 3 * 40 * (steps))
#define KL_MANY 32
#define KL_FEW 8
typedef struct { uint32_t by_1, by_2, by_3; } kl_shifts; /* over one, two and three streams */
static kl_shifts kl_many, kl_few;

static kl_shifts kl_shifts_of(uint32_t steps) {
    const uint32_t bits = 8 * 40 * steps;
    kl_shifts shifts = {kl_x_pow(bits - 33, KL_POLY_CRC32C), kl_x_pow(2 * bits - 33, KL_POLY_CRC32C),
                        kl_x_pow(3 * bits - 33, KL_POLY_CRC32C)};
    return shifts;
}

/* Four places at once are more than what the machine reads ahead by itself can follow, so the next block is asked for
 * meanwhile: 256 bytes a step. Asking for memory that is not there does nothing. */
#define KL_READ_AHEAD(p)                                                         \
    for (int k = 0; k < 4; k++) _mm_prefetch((const char *)((p) + 64 * k), _MM_HINT_T0);

#define KL_STREAM_STEP(words)                                                    \
    for (int k = 0; k < 5; k++) {                                                \
        b = _mm_crc32_u64(b, kl_load((words) + 8 * k));                          \
        c = _mm_crc32_u64(c, kl_load((words) + 40 * steps + 8 * k));             \
        d = _mm_crc32_u64(d, kl_load((words) + 80 * steps + 8 * k));             \
    }

__attribute__((target("avx2,vpclmulqdq,sse4.2,pclmul"), always_inline))
static inline uint32_t kl_crc32c_block(uint32_t crc, const uint8_t *p, const int steps, const kl_shifts *shifts) {
    const kl_folds *folds = &kl_folds_crc32c;
    __m128i narrow = _mm_set_epi64x((long long)folds->by_1024.second, (long long)folds->by_1024.first);
    __m256i by = _mm256_broadcastsi128_si256(narrow);
    __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc));
    __m256i w = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p), start);
    __m256i x = _mm256_loadu_si256((const __m256i *)(p + 32));
    __m256i y = _mm256_loadu_si256((const __m256i *)(p + 64));
    __m256i z = _mm256_loadu_si256((const __m256i *)(p + 96));
    const uint8_t *stream = p + 128 * steps;
    uint64_t b = 0, c = 0, d = 0;
    uint8_t folded[16];
    KL_STREAM_STEP(stream)
    for (int step = 1; step < steps; step++) {
        const uint8_t *q = p + 128 * step;
        stream += 40;
        if (steps == KL_MANY) {
            KL_READ_AHEAD(p + KL_BLOCK(steps) + 256 * (step - 1))
        }
        w = kl_fold_256(w, by, _mm256_loadu_si256((const __m256i *)q));
        x = kl_fold_256(x, by, _mm256_loadu_si256((const __m256i *)(q + 32)));
        KL_STREAM_STEP(stream)
        y = kl_fold_256(y, by, _mm256_loadu_si256((const __m256i *)(q + 64)));
        z = kl_fold_256(z, by, _mm256_loadu_si256((const __m256i *)(q + 96)));
    }
    narrow = _mm_set_epi64x((long long)folds->by_128.second, (long long)folds->by_128.first);
    __m128i word = _mm256_castsi256_si128(w);
    word = kl_fold_128(word, narrow, _mm256_extracti128_si256(w, 1));
    word = kl_fold_128(word, narrow, _mm256_castsi256_si128(x));
    word = kl_fold_128(word, narrow, _mm256_extracti128_si256(x, 1));
    word = kl_fold_128(word, narrow, _mm256_castsi256_si128(y));
    word = kl_fold_128(word, narrow, _mm256_extracti128_si256(y, 1));
    word = kl_fold_128(word, narrow, _mm256_castsi256_si128(z));
    word = kl_fold_128(word, narrow, _mm256_extracti128_si256(z, 1));
    _mm256_zeroupper();
    _mm_storeu_si128((__m128i *)folded, word);
    uint32_t a = (uint32_t)kl_crc32c_more(0, folded, 16);
    return (uint32_t)d ^ (uint32_t)_mm_crc32_u64(0, kl_times(a, shifts->by_3) ^ kl_times((uint32_t)b, shifts->by_2)
                                                         ^ kl_times((uint32_t)c, shifts->by_1));
}

__attribute__((target("avx2,vpclmulqdq,sse4.2,pclmul")))
static uint32_t kl_crc32c_vpclmul(const uint8_t *p, size_t n) {
    uint64_t a = 0xFFFFFFFFu;
    for (; n >= KL_BLOCK(KL_MANY); p += KL_BLOCK(KL_MANY), n -= KL_BLOCK(KL_MANY))
        a = kl_crc32c_block((uint32_t)a, p, KL_MANY, &kl_many);
    for (; n >= KL_BLOCK(KL_FEW); p += KL_BLOCK(KL_FEW), n -= KL_BLOCK(KL_FEW))
        a = kl_crc32c_block((uint32_t)a, p, KL_FEW, &kl_few);
    if (n < 64) return ~(uint32_t)kl_crc32c_more(a, p, n);
    uint8_t folded[16];
    _mm_storeu_si128((__m128i *)folded, kl_fold_short((uint32_t)a, p, n, &kl_folds_crc32c));
    return ~(uint32_t)kl_crc32c_more(0, folded, 16);
}

KL_AVX512 static uint32_t kl_crc32c_avx512(const uint8_t *p, size_t n) {
    uint8_t folded[16];
    if (n < 256) return kl_crc32c_vpclmul(p, n);
    size_t done = kl_fold_avx512(p, n, &kl_folds_crc32c, folded);
    return ~(uint32_t)kl_crc32c_more(kl_crc32c_more(0, folded, 16), p + done, n - done);
}
#endif

static inline uint32_t kl_rotate(uint32_t value, int by) { return value << by | value >> (32 - by); }

static inline uint32_t kl_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* XXH32 with seed 0 */
static uint32_t kl_xxh32(const uint8_t *p, size_t n) {
    const uint32_t p1 = 2654435761u, p2 = 2246822519u, p3 = 3266489917u, p4 = 668265263u, p5 = 374761393u;
    uint32_t value = p5;
    size_t left = n;
    if (left >= 16) {
        uint32_t lanes[4] = {p1 + p2, p2, 0, 0u - p1};
        for (; left >= 16; p += 16, left -= 16)
            for (int i = 0; i < 4; i++) lanes[i] = kl_rotate(lanes[i] + kl_le32(p + 4 * i) * p2, 13) * p1;
        value = kl_rotate(lanes[0], 1) + kl_rotate(lanes[1], 7) + kl_rotate(lanes[2], 12) + kl_rotate(lanes[3], 18);
    }
    value += (uint32_t)n;
    for (; left >= 4; p += 4, left -= 4) value = kl_rotate(value + kl_le32(p) * p3, 17) * p4;
    while (left--) value = kl_rotate(value + *p++ * p5, 11) * p1;
    value = (value ^ value >> 15) * p2;
    value = (value ^ value >> 13) * p3;
    return value ^ value >> 16;
}

typedef uint32_t (*kl_crc_function)(const uint8_t *, size_t);
static kl_crc_function kl_crc32c_best = kl_crc32c_portable;
static kl_crc_function kl_crc32_best = kl_crc32_portable;

enum { KL_PORTABLE = 0, KL_PCLMUL = 1, KL_VPCLMUL = 2, KL_VPCLMUL_512 = 3 };

/* Fill the tables and take the best code up to `level` that the machine can run; the level taken. */
static int kl_crc_setup(int level) {
    kl_fill_table(kl_crc32c_table, KL_POLY_CRC32C);
    kl_fill_table(kl_crc32_table, KL_POLY_CRC32);
    kl_crc32c_best = kl_crc32c_portable;
    kl_crc32_best = kl_crc32_portable;
#ifdef KL_X86
    __builtin_cpu_init();
    kl_joins_crc32c = kl_joins_of(KL_POLY_CRC32C);
    kl_many = kl_shifts_of(KL_MANY);
    kl_few = kl_shifts_of(KL_FEW);
    kl_folds_crc32c = kl_folds_of(KL_POLY_CRC32C);
    kl_folds_crc32 = kl_folds_of(KL_POLY_CRC32);
    kl_poly_crc32 = (uint64_t)KL_POLY_CRC32 << 1 | 1;
    kl_quotient_crc32 = kl_quotient(KL_POLY_CRC32);
    if (level >= KL_PCLMUL && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        kl_crc32c_best = kl_crc32c_sse42;
        kl_crc32_best = kl_crc32_pclmul;
        if (level >= KL_VPCLMUL && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq")) {
            kl_crc32c_best = kl_crc32c_vpclmul;
            kl_crc32_best = kl_crc32_vpclmul;
            if (level < KL_VPCLMUL_512 || !__builtin_cpu_supports("avx512f")) return KL_VPCLMUL;
            kl_crc32c_best = kl_crc32c_avx512;
            kl_crc32_best = kl_crc32_avx512;
            return KL_VPCLMUL_512;
        }
        return KL_PCLMUL;
    }
#endif
#ifdef KL_ARM
    kl_joins_crc32c = kl_joins_of(KL_POLY_CRC32C);
    kl_joins_crc32 = kl_joins_of(KL_POLY_CRC32);
    if (level >= KL_PCLMUL && kl_arm_has_crc()) {
        kl_crc32c_best = kl_crc32c_arm;
        kl_crc32_best = kl_crc32_arm;
        return KL_PCLMUL;
    }
#endif
    return KL_PORTABLE;
}

#endif
