/* Reads the varints of records: one at a time, safely; or several, in code without branches, from bytes with room
 * after them. */
#ifndef KAFKALOG_VARINTS_H
#define KAFKALOG_VARINTS_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define KL_LIKELY(x) __builtin_expect(!!(x), 1)
#define KL_INLINE static inline __attribute__((always_inline))
#define KL_API static __attribute__((unused)) /* kernels that fill columns through others do not call it */
#define kl_prefetch(p) __builtin_prefetch(p)
#define kl_prefetch_soon(p) __builtin_prefetch(p, 0, 2) /* not as near as the bytes at work */
#else
#define KL_LIKELY(x) (x)
#define KL_INLINE static inline
#define KL_API static
#define kl_prefetch(p) ((void)(p))
#define kl_prefetch_soon(p) ((void)(p))
#endif

KL_INLINE uint32_t kl_le16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

KL_INLINE uint32_t kl_le32_at(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
#else
    return kl_le16(p) | kl_le16(p + 2) << 16;
#endif
}

KL_INLINE uint64_t kl_le64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
#else
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | p[i];
    return word;
#endif
}

/* Read a varint of at most `most` bytes: a pointer after it, NULL if it does not end in time. */
KL_INLINE const uint8_t *kl_slow_varint(const uint8_t *p, const uint8_t *end, int most, uint64_t *value) {
    uint64_t result = 0;
    for (int i = 0; i < most && p < end; i++) {
        uint8_t byte = *p++;
        result |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            *value = result;
            return p;
        }
    }
    return NULL;
}

KL_INLINE const uint8_t *kl_int(const uint8_t *p, const uint8_t *end, int32_t *value) {
    uint64_t raw = 0;
    if (p < end && *p < 0x80) {
        *value = (int32_t)(*p >> 1) ^ -(int32_t)(*p & 1);
        return p + 1;
    }
    p = kl_slow_varint(p, end, 5, &raw);
    uint32_t low = (uint32_t)raw; /* the excess bits of a fifth byte are dropped, as in Kafka */
    *value = (int32_t)((low >> 1) ^ (0u - (low & 1)));
    return p;
}

/* How varints are separated: by shifts, or by what the `pext` instruction picks out by masks from a table. */
enum { KL_SHIFTS = 0, KL_PEXT = 1 };

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KL_HAS_PEXT 1

/* By which of the first seven bytes go on: the bits of the first three varints, and their bytes (0: they do not end).
 */
typedef struct { uint64_t bits[3], width; } kl_three;
static kl_three kl_threes[128];
static uint32_t kl_ones[16][2]; /* of one, by four bytes */

KL_INLINE uint64_t kl_pext(uint64_t word, uint64_t mask) { /* without its target, which callers would need, too */
    uint64_t result;
    __asm__("pextq %2, %1, %0" : "=r"(result) : "r"(word), "rm"(mask));
    return result;
}

static void kl_fill_threes(void) {
    memset(kl_threes, 0, sizeof(kl_threes));
    memset(kl_ones, 0, sizeof(kl_ones));
    for (int goes_on = 0; goes_on < 128; goes_on++) {
        kl_three *three = &kl_threes[goes_on];
        for (int byte = 0, n = 0; byte < 7 && n < 3; byte++) {
            three->bits[n] |= 0x7Full << 8 * byte;
            if (!(goes_on >> byte & 1) && ++n == 3) three->width = (uint64_t)byte + 1;
        }
    }
    for (int goes_on = 0; goes_on < 15; goes_on++) {
        uint32_t *one = kl_ones[goes_on];
        do one[0] = one[0] << 8 | 0x7F;
        while (goes_on >> one[1]++ & 1);
    }
}
#else
#define KL_HAS_PEXT 0
#endif

/* Read one varint of at most four bytes (two, by shifts); its width, 0 for others. */
KL_INLINE uint32_t kl_one_varint(const uint8_t *p, uint32_t *raw, const int way) {
#if KL_HAS_PEXT
    if (way == KL_PEXT) {
        uint32_t four = kl_le32_at(p);
        const uint32_t *one = kl_ones[kl_pext(four, 0x80808080u)];
        *raw = (uint32_t)kl_pext(four, one[0]);
        return one[1];
    }
#endif
    uint32_t two = kl_le16(p), more = two >> 7 & 1;
    *raw = (two & 0x7F) | (two >> 1 & 0x3F80 & (0u - more));
    return (two & 0x8080) == 0x8080 ? 0 : 1 + more;
}

/* The same, sooner, for what the place of the next record depends on. */
KL_INLINE uint32_t kl_first_varint(const uint8_t *p, uint32_t *raw, const int way) {
#if KL_HAS_PEXT
    if (way == KL_PEXT) {
        uint32_t four = kl_le32_at(p), ends = ~four & 0x80808080u;
        *raw = (uint32_t)kl_pext(four, (ends ^ (ends - 1)) & 0x7F7F7F7F);
        return ends ? 1 + ((uint32_t)__builtin_ctz(ends) >> 3) : 0;
    }
#endif
    return kl_one_varint(p, raw, way);
}

/* Read three varints of at most seven bytes together (three, two and two, by shifts); their width, 0 for others. */
KL_INLINE uint64_t kl_three_varints(const uint8_t *p, uint64_t raw[3], const int way) {
    uint64_t word = kl_le64(p);
#if KL_HAS_PEXT
    if (way == KL_PEXT) {
        const kl_three *three = &kl_threes[kl_pext(word, 0x0080808080808080ull)];
        for (int i = 0; i < 3; i++) raw[i] = kl_pext(word, three->bits[i]);
        return three->width;
    }
#endif
    uint64_t more_1 = word >> 7 & 1, more_2 = more_1 & word >> 15;
    uint64_t doubt = more_2 & word >> 23, width = 1 + more_1 + more_2;
    raw[0] = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_1)) | (word >> 2 & 0x1FC000 & (0ull - more_2));
    word >>= 8 * width;
    more_1 = word >> 7 & 1;
    doubt |= more_1 & word >> 15;
    raw[1] = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_1));
    width += 1 + more_1;
    word >>= 8 + 8 * more_1;
    more_1 = word >> 7 & 1;
    doubt |= more_1 & word >> 15;
    raw[2] = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_1));
    return doubt & 1 ? 0 : width + 1 + more_1;
}

#endif
