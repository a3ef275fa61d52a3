/* Where the next batch may begin in bytes that nothing is known of: the test of every position, many at a time. */
#ifndef KAFKALOG_CANDIDATE_SEARCH_H
#define KAFKALOG_CANDIDATE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define KL_SEARCH_X86
#include <immintrin.h>
#endif
#ifdef __GNUC__
#define KL_SEARCH_INLINE static inline __attribute__((always_inline))
#else
#define KL_SEARCH_INLINE static inline
#endif

enum { KL_POSITIONS = 128, KL_LEAST_SIZE = 14 };

/* 0 where a batch cannot begin: its offset is not negative, its size at least 14 with a first byte up to `top`, its
   magic at most 2. Without branches, so that compilers test many positions at once. */
KL_SEARCH_INLINE uint8_t kl_may_begin(const uint8_t *p, uint8_t top) {
    uint8_t size = (uint8_t)(p[9] | p[10] | (p[8] | (p[11] >= KL_LEAST_SIZE)));
    return (uint8_t)((p[16] <= 2) & (p[8] <= top) & (p[0] < 0x80) & (size != 0));
}

/* The first position from `at` on, below `stop`, where a batch may begin; else `stop`. At `stop`, 17 bytes are there.
   Most bytes end with the first loop. Zeros pass it, and end with the second one. */
KL_SEARCH_INLINE ptrdiff_t kl_search(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top) {
    while (stop - at >= KL_POSITIONS) {
        const uint8_t *p = bytes + at;
        uint8_t any = 0;
        for (int i = 0; i < KL_POSITIONS; i++)
            any |= (uint8_t)((p[i + 16] <= 2) & (p[i + 8] <= top));
        if (any) {
            any = 0;
            for (int i = 0; i < KL_POSITIONS; i++)
                any |= kl_may_begin(p + i, top);
        }
        if (any)
            break;
        at += KL_POSITIONS;
    }
    while (at < stop && !kl_may_begin(bytes + at, top))
        at++;
    return at;
}

#ifdef KL_SEARCH_X86
__attribute__((target("avx2")))
static ptrdiff_t kl_search_avx2(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top) {
    return kl_search(bytes, at, stop, top);
}

enum { KL_ZEROS = 256 };

__attribute__((target("avx512bw")))
static inline int kl_are_zeros(const uint8_t *p) {
    __m512i any = _mm512_loadu_si512(p);
    for (int i = 64; i < KL_ZEROS; i += 64)
        any = _mm512_or_si512(any, _mm512_loadu_si512(p + i));
    return !_mm512_test_epi8_mask(any, any);
}

/* The same, 64 positions at a time: a bit for each where a batch may begin. */
__attribute__((target("avx512bw")))
static ptrdiff_t kl_search_avx512(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top) {
    const __m512i most = _mm512_set1_epi8((char)top), two = _mm512_set1_epi8(2);
    const __m512i least = _mm512_set1_epi8(KL_LEAST_SIZE);
    for (; stop - at >= 64; at += 64) {
        const uint8_t *p = bytes + at;
        const __m512i size = _mm512_loadu_si512(p + 8);
        __mmask64 may = _mm512_cmple_epu8_mask(size, most) & _mm512_cmple_epu8_mask(_mm512_loadu_si512(p + 16), two);
        if (!may)
            continue;
        if (stop - at >= KL_ZEROS && kl_are_zeros(p + 8)) {
            at += KL_ZEROS - 3 - 64; /* sizes of zeros, which no batch has */
            continue;
        }
        const __m512i middle = _mm512_or_si512(_mm512_loadu_si512(p + 9), _mm512_loadu_si512(p + 10));
        const __m512i larger = _mm512_or_si512(size, middle), last = _mm512_loadu_si512(p + 11);
        may &= _mm512_test_epi8_mask(larger, larger) | _mm512_cmpge_epu8_mask(last, least);
        may &= ~_mm512_movepi8_mask(_mm512_loadu_si512(p));
        if (may)
            return at + __builtin_ctzll(may);
    }
    return kl_search(bytes, at, stop, top);
}
#endif

enum { KL_SEARCH_LEVELS = 3 };

/* The first position where a batch may begin, with the code of a level that the processor can run, at most. */
static inline ptrdiff_t kl_next_candidate(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top, int level) {
#ifdef KL_SEARCH_X86
    if (level > 1 && __builtin_cpu_supports("avx512bw"))
        return kl_search_avx512(bytes, at, stop, top);
    if (level > 0 && __builtin_cpu_supports("avx2"))
        return kl_search_avx2(bytes, at, stop, top);
#endif
    (void)level;
    return kl_search(bytes, at, stop, top);
}

#endif
