/* What JSON needs below its grammar: where strings end, what escapes stand for, the double next to a decimal number. */
#ifndef KAFKALOG_JSON_IMPL_H
#define KAFKALOG_JSON_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KL_EACH(b) (0x0101010101010101u * (uint64_t)(b))

/* Where a string may end: a quote, a backslash or a control character, or `end`. `bits` collects the bytes. */
static inline const uint8_t *kl_plain(const uint8_t *p, const uint8_t *end, uint8_t *bits) {
    uint64_t all = 0;
    while (end - p >= 8) {
        uint64_t w, quote, slash;
        memcpy(&w, p, 8);
        quote = w ^ KL_EACH('"');
        slash = w ^ KL_EACH('\\');
        /* the highest bit of each byte that is 0, or below 0x20; of a byte after one of these it may be wrong */
        if ((((quote - KL_EACH(1)) & ~quote) | ((slash - KL_EACH(1)) & ~slash) | ((w - KL_EACH(0x20)) & ~w))
            & KL_EACH(0x80))
            break;
        all |= w;
        p += 8;
    }
    if (all & KL_EACH(0x80))
        *bits |= 0x80;
    for (; p < end && *p != '"' && *p != '\\' && *p >= 0x20; p++)
        *bits |= *p;
    return p;
}

static inline int kl_hex(const uint8_t *p, const uint8_t *end) {
    int value = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i];
        uint8_t letter = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* Write what a string with escapes stands for, which is never longer, unless `to` is NULL. Its size; -1 where an escape
   is none, or half of a surrogate pair. */
static inline int64_t kl_unescape(const uint8_t *p, int64_t n, uint8_t *to) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t *end = p + n;
    int64_t size = 0;
    while (p < end) {
        const char *letter;
        uint8_t text[4];
        int64_t n_text;
        uint32_t c;
        if (*p != '\\') {
            if (to != NULL)
                to[size] = *p;
            size++;
            p++;
            continue;
        }
        if (end - p < 2)
            return -1;
        if (p[1] != 'u') {
            letter = p[1] ? strchr(letters, p[1]) : NULL;
            if (letter == NULL)
                return -1;
            if (to != NULL)
                to[size] = (uint8_t)meant[letter - letters];
            size++;
            p += 2;
            continue;
        }
        int unit = kl_hex(p + 2, end);
        if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
            return -1;
        p += 6;
        c = (uint32_t)unit;
        if (unit >= 0xd800 && unit <= 0xdbff) {
            int other = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? kl_hex(p + 2, end) : -1;
            if (other < 0xdc00 || other > 0xdfff)
                return -1;
            c = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)other - 0xdc00);
            p += 6;
        }
        if (c < 0x80) {
            text[0] = (uint8_t)c;
            n_text = 1;
        } else if (c < 0x800) {
            text[0] = (uint8_t)(0xc0 | c >> 6);
            text[1] = (uint8_t)(0x80 | (c & 0x3f));
            n_text = 2;
        } else if (c < 0x10000) {
            text[0] = (uint8_t)(0xe0 | c >> 12);
            text[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
            text[2] = (uint8_t)(0x80 | (c & 0x3f));
            n_text = 3;
        } else {
            text[0] = (uint8_t)(0xf0 | c >> 18);
            text[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
            text[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
            text[3] = (uint8_t)(0x80 | (c & 0x3f));
            n_text = 4;
        }
        if (to != NULL)
            memcpy(to + size, text, (size_t)n_text);
        size += n_text;
    }
    return size;
}

static inline int kl_leading_zeros(uint64_t m) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_clzll(m);
#else
    int n = 0;
    for (; !(m >> 63); m <<= 1) n++;
    return n;
#endif
}

static inline uint64_t kl_product(uint64_t a, uint64_t b, uint64_t *low) {
#if defined(__SIZEOF_INT128__)
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
    uint64_t middle = a1 * b0 + ((a0 * b0) >> 32), other = a0 * b1 + (middle & 0xFFFFFFFFu);
    *low = a * b;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* The double next to digits * 10^exponent; 0 where 128 bits of the power do not tell, or it is not a normal one.
   `power` has these bits, the higher 64 first, rounded up for negative exponents: so what is exact in binary comes out
   exactly. Eisel and Lemire: Number Parsing at a Gigabyte per Second, 2021. */
static inline int kl_double(uint64_t digits, int64_t exponent, const uint64_t *power, double *to) {
    int zeros = kl_leading_zeros(digits);
    uint64_t m = digits << zeros, low, high, bits;
    int64_t scale;
    int top;
    high = kl_product(m, power[0], &low);
    if ((high & 0x1FF) == 0x1FF && low + m < m) {
        /* what the other 64 bits add may carry into the bits that count */
        uint64_t low_of_rest, rest = kl_product(m, power[1], &low_of_rest), sum = low + rest;
        high += sum < low;
        if ((high & 0x1FF) == 0x1FF && sum + 1 == 0 && low_of_rest + m < m)
            return 0;
        low = sum;
    }
    top = (int)(high >> 63);
    bits = high >> (top + 9); /* 54 of them */
    /* in the middle between two doubles */
    if (low == 0 && (high & 0x1FF) == 0 && (bits & 3) == 1)
        return 0;
    /* 217706 / 2^16 is log2(10) */
    scale = (exponent * 217706 - (exponent < 0 ? 65535 : 0)) / 65536 + 1086 - zeros + top;
    bits = (bits + (bits & 1)) >> 1;
    if (bits >> 53) {
        bits >>= 1;
        scale++;
    }
    if (scale < 1 || scale > 2046)
        return 0;
    bits = (uint64_t)scale << 52 | (bits & 0xFFFFFFFFFFFFFu);
    memcpy(to, &bits, 8);
    return 1;
}

/* no overflow check: ten times less than 10^18, and a digit */
static inline uint64_t kl_one_more(uint64_t digits, uint8_t digit) { return digits * 10 + (uint64_t)(digit - '0'); }

static inline int64_t kl_signed(uint64_t digits, int negative) {
    return (int64_t)(negative ? 0 - digits : digits);
}

#endif
