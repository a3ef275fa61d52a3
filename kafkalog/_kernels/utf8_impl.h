/* UTF-8, as Java and Kafka read it. */
#ifndef KAFKALOG_UTF8_IMPL_H
#define KAFKALOG_UTF8_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* bytes of one well-formed character, or, negative, of one ill-formed stretch: what Java makes one U+FFFD of */
static inline int kl_character(const uint8_t *p, const uint8_t *end) {
    uint8_t lead = p[0];
    size_t left = (size_t)(end - p);
    uint8_t low = 0x80, high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return -1;
    if (lead < 0xe0)
        return left > 1 && (p[1] & 0xc0) == 0x80 ? 2 : -1;
    if (lead == 0xed && left > 1 && p[1] >= 0xa0 && p[1] <= 0xbf)
        return left > 2 && (p[2] & 0xc0) == 0x80 ? -3 : -2; /* a surrogate is one mistake, not three */
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (left < 2 || p[1] < low || p[1] > high)
        return -1;
    if (left < 3 || (p[2] & 0xc0) != 0x80)
        return -2;
    if (lead < 0xf0)
        return 3;
    return left > 3 && (p[3] & 0xc0) == 0x80 ? 4 : -3;
}

/* in words, of which the last may overlap the one before: texts are short */
static inline int kl_is_ascii(const uint8_t *p, int64_t n) {
    uint64_t bits = 0, word;
    uint32_t first, last;
    if (n >= 8) {
        for (int64_t i = 0; i + 8 < n; i += 8) {
            memcpy(&word, p + i, 8);
            bits |= word;
        }
        memcpy(&word, p + n - 8, 8);
        bits |= word;
    } else if (n >= 4) {
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        bits = first | last;
    } else {
        for (int64_t i = 0; i < n; i++)
            bits |= p[i];
    }
    return (bits & 0x8080808080808080u) == 0;
}

static inline int kl_is_utf8(const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    if (kl_is_ascii(p, n))
        return 1;
    while (p < end) {
        int size = kl_character(p, end);
        if (size < 0)
            return 0;
        p += size;
    }
    return 1;
}

#endif
