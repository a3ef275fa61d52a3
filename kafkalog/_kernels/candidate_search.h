/* Where the next batch may begin in bytes that nothing is known of: the test of every position, many at a time. */
#ifndef KAFKALOG_CANDIDATE_SEARCH_H
#define KAFKALOG_CANDIDATE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define KL_SEARCH_AVX2
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

#ifdef KL_SEARCH_AVX2
__attribute__((target("avx2")))
static ptrdiff_t kl_search_avx2(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top) {
    return kl_search(bytes, at, stop, top);
}
#endif

static inline ptrdiff_t kl_next_candidate(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t stop, uint8_t top) {
#ifdef KL_SEARCH_AVX2
    if (__builtin_cpu_supports("avx2"))
        return kl_search_avx2(bytes, at, stop, top);
#endif
    return kl_search(bytes, at, stop, top);
}

#endif
