/* Walks the records of good v2 batches and writes their columns. Kafka: DefaultRecord.readFrom.
 *
 * For speed: lengths of one and two bytes are decoded without a branch on their width, and short byte strings are copied
 * in moves of fixed size. Both touch up to KL_PAD bytes more than they need, so records that end less than KL_PAD bytes
 * before the end of readable memory are walked byte by byte, as are records with longer varints. Outputs have KL_PAD
 * bytes more than their room. A batch with anything wrong is left alone, without naming what it is: the exact walk in
 * decode.pyx does that. Every length is compared with what is left before it is used.
 */
#ifndef KAFKALOG_BATCH_WALK_H
#define KAFKALOG_BATCH_WALK_H

#include <stdint.h>
#include <string.h>

#define KL_PAD 64

#if defined(__GNUC__) || defined(__clang__)
#define KL_LIKELY(x) __builtin_expect(!!(x), 1)
#define KL_INLINE static inline __attribute__((always_inline))
#define KL_API static __attribute__((unused)) /* kernels that fill columns through others do not call it */
#define kl_prefetch(p) __builtin_prefetch(p)
#else
#define KL_LIKELY(x) (x)
#define KL_INLINE static inline
#define KL_API static
#define kl_prefetch(p) ((void)(p))
#endif

enum { KL_SKIP = 0, KL_COPY = 1, KL_VIEW = 2 };

/* A column of byte strings that is being written. */
typedef struct {
    int mode;
    int32_t *offsets;  /* KL_COPY: one of the two, with a place more than there are rows */
    int64_t *wide_offsets;
    uint8_t *bytes;
    int64_t room;      /* in `bytes`, which has KL_PAD more */
    uint8_t *views;    /* KL_VIEW: 16 bytes a row */
    int32_t buffer;    /* KL_VIEW: number of the buffer that views point into */
    uint8_t *valid;    /* written from the first null on */
    int64_t used;
    int64_t n_null;
} kl_binary;

typedef struct {
    int64_t *offset, *timestamp; /* may be NULL */
    int64_t capacity;            /* rows */
    kl_binary key, value;
    int with_headers;
    kl_binary header_key, header_value;
    int32_t *header_offsets;     /* one of the two: where the headers of each record begin */
    int64_t *wide_header_offsets;
    int64_t header_capacity;
    int64_t n_records, n_headers;
} kl_columns;

typedef struct {
    const uint8_t *payload, *end;
    const uint8_t *readable;     /* end of the memory that may be read */
    const uint8_t *origin;       /* what views count from */
    int64_t base_offset, base_timestamp, append_time;
    int32_t count;
    int appended;
    int32_t max_headers, max_batch_headers;
} kl_batch;

KL_INLINE uint32_t kl_le16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

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

#if defined(__GNUC__) || defined(__clang__)
typedef uint8_t kl_vector __attribute__((vector_size(32), aligned(1), may_alias));
#define KL_MOVE_32(to, from) (*(kl_vector *)(to) = *(const kl_vector *)(from))
#else
#define KL_MOVE_32(to, from) memcpy(to, from, 32)
#endif

KL_INLINE void kl_move(uint8_t *to, const uint8_t *from, int times) {
    for (int i = 0; i < times; i++) KL_MOVE_32(to + 32 * i, from + 32 * i);
}

/* Copy n bytes; up to 64 may be read and written in any case. */
KL_INLINE void kl_copy_padded(uint8_t *to, const uint8_t *from, int64_t n) {
    if (n <= 16) {
        memcpy(to, from, 16);
    } else if (n <= 64) {
        kl_move(to, from, 2);
    } else if (n <= 128) {
        kl_move(to, from, 2);
        kl_move(to + n - 64, from + n - 64, 2);
    } else if (n <= 256) {
        kl_move(to, from, 4);
        kl_move(to + n - 128, from + n - 128, 4);
    } else if (n <= 4096) {
        /* compilers make slow string instructions of a memcpy of unknown size here */
        for (int64_t i = 0; i < n - 128; i += 128) kl_move(to + i, from + i, 4);
        kl_move(to + n - 128, from + n - 128, 4);
    } else {
        memcpy(to, from, (size_t)n);
    }
}

/* Read a varint of at most `most` bytes: a pointer behind it, NULL if it does not end in time. */
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

KL_INLINE int64_t kl_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Write string i of a column; size -1 for null. `padded`: 64 bytes may be read at `from`, and behind its end. */
KL_INLINE void kl_put(kl_binary *column, const int mode, int64_t i, const uint8_t *from, int64_t size,
                      const uint8_t *origin, int padded, int64_t *used, int64_t *n_null) {
    int is_null = size < 0;
    if (is_null) size = 0;
    if (mode == KL_SKIP) return;
    if (__builtin_expect(is_null, 0)) {
        if (*n_null == 0) memset(column->valid, 1, (size_t)i);
        column->valid[i] = 0;
        *n_null += 1;
    } else if (*n_null) {
        column->valid[i] = 1;
    }
    if (mode == KL_COPY) {
        if (padded) kl_copy_padded(column->bytes + *used, from, size);
        else if (size) memcpy(column->bytes + *used, from, (size_t)size);
        *used += size;
        if (column->offsets) column->offsets[i + 1] = (int32_t)*used;
        else column->wide_offsets[i + 1] = *used;
        return;
    }
    uint8_t *view = column->views + 16 * i;
    uint32_t length = (uint32_t)size, place = (uint32_t)(from - origin), buffer = (uint32_t)column->buffer;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (padded || size > 12) {
        uint64_t low, high;
        if (size > 12) {
            low = kl_le64(from) << 32;
            high = buffer | (uint64_t)place << 32;
        } else {
            low = kl_le64(from);
            high = size > 8 ? kl_le64(from + 8) & ((1ull << 8 * (size - 8)) - 1) : 0;
            if (size < 8) low &= (1ull << 8 * size) - 1;
            high = low >> 32 | high << 32;
            low <<= 32;
        }
        low |= length;
        memcpy(view, &low, 8);
        memcpy(view + 8, &high, 8);
        return;
    }
#endif
    memset(view, 0, 16);
    memcpy(view, &length, 4);
    if (size > 12) {
        memcpy(view + 4, from, 4);
        memcpy(view + 8, &buffer, 4);
        memcpy(view + 12, &place, 4);
    } else if (size) {
        memcpy(view + 4, from, (size_t)size);
    }
}

/* Headers of one record, from p to end exactly; whether they are good. */
static int kl_put_headers(const uint8_t *p, const uint8_t *end, int32_t count, const kl_batch *batch, kl_columns *columns) {
    int64_t at = columns->n_headers;
    for (int32_t k = 0; k < count; k++, at++) {
        int32_t size;
        p = kl_int(p, end, &size);
        if (!p || size < 0 || size > end - p) return 0;
        const uint8_t *key = p;
        int32_t key_size = size;
        p = kl_int(p + size, end, &size);
        if (!p || size > end - p) return 0;
        if (columns->with_headers) {
            int padded = batch->readable - end >= KL_PAD;
            kl_put(&columns->header_key, KL_COPY, at, key, key_size, key, padded, &columns->header_key.used,
                   &columns->header_key.n_null);
            kl_put(&columns->header_value, KL_COPY, at, p, size, p, padded, &columns->header_value.used,
                   &columns->header_value.n_null);
        }
        if (size > 0) p += size;
    }
    columns->n_headers = at;
    return p == end;
}

KL_INLINE int kl_walk_as(const kl_batch *batch, kl_columns *columns, const int key_mode, const int value_mode) {
    const uint8_t *p = batch->payload, *const end = batch->end;
    /* a record that ends here or before may be read 64 bytes beyond its end */
    const int64_t before_end = batch->readable - batch->payload - KL_PAD;
    const uint8_t *const safe = before_end > 0 ? batch->payload + before_end : batch->payload;
    int64_t *const offset = columns->offset, *const timestamp = columns->timestamp;
    int64_t key_used = columns->key.used, value_used = columns->value.used;
    int64_t key_null = columns->key.n_null, value_null = columns->value.n_null;
    const int64_t first = columns->n_records, stop = first + batch->count;
    const int64_t most_headers = columns->n_headers + batch->max_batch_headers;
    for (int64_t i = first; i < stop; i++) {
        const uint8_t *q, *record_end, *key;
        int64_t stamp, delta, size;
        int32_t n_headers;
        int padded;
        if (KL_LIKELY(p < safe)) {
            /* one and two bytes alike, without a branch: the second counts if the first has its high bit */
            uint32_t two = kl_le16(p);
            if (!KL_LIKELY((two & 0x8080) != 0x8080)) goto by_bytes;
            uint32_t more = two >> 7 & 1;
            uint32_t length = (two & 0x7F) | (two >> 1 & 0x3F80 & (0u - more));
            q = p + 1 + more;
            /* zigzag: an odd number is a negative size */
            if (length & 1 || (int64_t)(length >> 1) > end - q) goto by_bytes;
            record_end = q + (length >> 1);
            if (record_end > safe) goto by_bytes;
            uint64_t word = kl_le64(q + 1); /* behind the attributes: two deltas and the size of the key */
            uint64_t more_1 = word >> 7 & 1, more_2 = more_1 & word >> 15;
            uint64_t raw = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_1)) | (word >> 2 & 0x1FC000 & (0ull - more_2));
            uint64_t doubt = more_2 & word >> 23;
            stamp = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            uint64_t width = 1 + more_1 + more_2;
            word >>= 8 * width;
            uint64_t more_3 = word >> 7 & 1;
            doubt |= more_3 & word >> 15;
            raw = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_3));
            delta = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            word >>= 8 + 8 * more_3;
            uint64_t more_4 = word >> 7 & 1;
            doubt |= more_4 & word >> 15;
            if (!KL_LIKELY(!(doubt & 1))) goto by_bytes;
            raw = (word & 0x7F) | (word >> 1 & 0x3F80 & (0ull - more_4));
            key = q + 3 + width + more_3 + more_4;
            size = raw & 1 ? -1 : (int64_t)(raw >> 1);
            int64_t key_size = size > 0 ? size : 0;
            /* one byte is left at least, for the size of the value */
            if (key_size >= record_end - key) goto by_bytes;
            const uint8_t *value = key + key_size;
            two = kl_le16(value);
            more = two >> 7 & 1;
            if (!KL_LIKELY((two & 0x8080) != 0x8080)) goto by_bytes;
            length = (two & 0x7F) | (two >> 1 & 0x3F80 & (0u - more));
            value += 1 + more;
            int64_t value_size = length & 1 ? -1 : (int64_t)(length >> 1);
            int64_t value_bytes = value_size > 0 ? value_size : 0;
            if (value_bytes >= record_end - value) goto by_bytes;
            kl_put(&columns->key, key_mode, i, key, size, batch->origin, 1, &key_used, &key_null);
            kl_put(&columns->value, value_mode, i, value, value_size, batch->origin, 1, &value_used, &value_null);
            q = value + value_bytes;
            if (KL_LIKELY(*q == 0 && q + 1 == record_end)) {
                n_headers = 0;
                q++;
            } else {
                q = kl_int(q, record_end, &n_headers);
            }
        } else {
        by_bytes:;
            uint64_t raw = 0;
            int32_t length, small;
            q = kl_int(p, end, &length);
            if (!q || length <= 0 || length > end - q) return 0;
            record_end = q + length;
            padded = batch->readable - record_end >= KL_PAD;
            q = kl_slow_varint(q + 1, record_end, 10, &raw);
            if (!q) return 0;
            stamp = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            q = kl_int(q, record_end, &small);
            if (!q) return 0;
            delta = small;
            q = kl_int(q, record_end, &small);
            if (!q || small > record_end - q) return 0;
            kl_put(&columns->key, key_mode, i, q, small, batch->origin, padded, &key_used, &key_null);
            q = kl_int(q + (small > 0 ? small : 0), record_end, &small);
            if (!q || small > record_end - q) return 0;
            kl_put(&columns->value, value_mode, i, q, small, batch->origin, padded, &value_used, &value_null);
            q = kl_int(q + (small > 0 ? small : 0), record_end, &n_headers);
        }
        if (offset) offset[i] = kl_sum(batch->base_offset, delta);
        if (timestamp) timestamp[i] = batch->appended ? batch->append_time : kl_sum(batch->base_timestamp, stamp);
        if (!q || n_headers < 0 || n_headers > record_end - q || n_headers > batch->max_headers) return 0;
        if (n_headers) {
            if (n_headers > most_headers - columns->n_headers) return 0;
            if (!kl_put_headers(q, record_end, n_headers, batch, columns)) return 0;
        } else if (q != record_end) {
            return 0;
        }
        if (columns->with_headers) {
            if (columns->header_offsets) columns->header_offsets[i + 1] = (int32_t)columns->n_headers;
            else columns->wide_header_offsets[i + 1] = columns->n_headers;
        }
        p = record_end;
    }
    if (p != end) return 0;
    columns->key.used = key_used;
    columns->key.n_null = key_null;
    columns->value.used = value_used;
    columns->value.n_null = value_null;
    columns->n_records = stop;
    return 1;
}

/* Whether the columns have room for the keys and values in so many bytes. */
KL_API int kl_has_room_for_strings(const kl_columns *columns, int64_t size, int64_t count) {
    const kl_binary *key = &columns->key, *value = &columns->value;
    if (count > columns->capacity - columns->n_records) return 0;
    if (key->mode == KL_COPY && size > key->room - key->used) return 0;
    return value->mode != KL_COPY || size <= value->room - value->used;
}

/* Whether the columns have room for whatever is in a payload of this size. */
KL_API int kl_has_room(const kl_columns *columns, int64_t size, int64_t count) {
    if (!kl_has_room_for_strings(columns, size, count)) return 0;
    if (!columns->with_headers) return 1;
    /* the worst case for all of the payload, once a batch: then no record has to look for room */
    return size <= columns->header_key.room - columns->header_key.used
        && size <= columns->header_value.room - columns->header_value.used
        && size / 2 <= columns->header_capacity - columns->n_headers;
}

KL_INLINE int kl_walk_any(const kl_batch *batch, kl_columns *columns) {
    switch (3 * columns->key.mode + columns->value.mode) {
    case 0: return kl_walk_as(batch, columns, KL_SKIP, KL_SKIP);
    case 1: return kl_walk_as(batch, columns, KL_SKIP, KL_COPY);
    case 2: return kl_walk_as(batch, columns, KL_SKIP, KL_VIEW);
    case 3: return kl_walk_as(batch, columns, KL_COPY, KL_SKIP);
    case 4: return kl_walk_as(batch, columns, KL_COPY, KL_COPY);
    case 6: return kl_walk_as(batch, columns, KL_VIEW, KL_SKIP);
    default: return kl_walk_as(batch, columns, KL_VIEW, KL_VIEW);
    }
}

static int kl_walk_portable(const kl_batch *batch, kl_columns *columns) { return kl_walk_any(batch, columns); }

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KL_HAS_AVX2() (__builtin_cpu_init(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
__attribute__((target("avx2,bmi2")))
static int kl_walk_avx2(const kl_batch *batch, kl_columns *columns) { return kl_walk_any(batch, columns); }
#else
#define KL_HAS_AVX2() 0
#define kl_walk_avx2 kl_walk_portable
#endif

static int (*kl_walk_best)(const kl_batch *, kl_columns *) = kl_walk_portable;

/* Take the best code up to `level` (1: AVX2) that the machine can run; the level taken. */
KL_API int kl_walk_setup(int level) {
    int taken = level >= 1 && KL_HAS_AVX2();
    kl_walk_best = taken ? kl_walk_avx2 : kl_walk_portable;
    return taken;
}

/* Walk one batch for whose payload there is room; on 0 something is wrong with it, and no record of it is kept. */
KL_API int kl_walk_batch(const kl_batch *batch, kl_columns *columns) {
    const kl_columns before = *columns;
    int good = kl_walk_best(batch, columns);
    if (!good) *columns = before;
    return good;
}

#endif
