/* Walks the records of good v2 batches and writes their columns. Kafka: DefaultRecord.readFrom.
 *
 * For speed: short varints are decoded without a branch on their width, and short byte strings are copied in moves of
 * fixed size. Both touch up to KL_PAD bytes more than they need, so records that end less than KL_PAD bytes before the
 * end of readable memory are walked byte by byte, as are records with longer varints. Outputs have KL_PAD bytes more
 * than their room. The machine works at several records at once if each takes few instructions.
 *
 * A batch with anything wrong is left alone, without naming what it is: the exact walk in decode.pyx does that. Every
 * length is compared with what is left before it is used.
 */
#ifndef KAFKALOG_BATCH_WALK_H
#define KAFKALOG_BATCH_WALK_H

#include <stdint.h>
#include <string.h>

#include "varints.h"

#define KL_PAD 128

enum { KL_SKIP = 0, KL_COPY = 1, KL_VIEW = 2, KL_COPY_MIXED = 3 };

/* A column of byte strings that is being written. */
typedef struct {
    int mode;
    int32_t *offsets;  /* KL_COPY: one of the two, with a place more than there are rows */
    int64_t *wide_offsets;
    uint8_t *bytes;
    int64_t room;      /* in `bytes`, which has KL_PAD more */
    uint8_t *views;    /* KL_VIEW: 16 bytes a row */
    int32_t buffer;    /* KL_VIEW: number of the buffer that views point into */
    uint8_t *valid;    /* written from the first null on, */
    int nulls;         /* which sets this */
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
    int mixed;                   /* whether the sizes of keys or values vary, */
    int64_t next_look;           /* which is looked at again from this row on */
} kl_columns;

typedef struct {
    const uint8_t *payload, *end;
    const uint8_t *readable;     /* end of the memory that may be read */
    const uint8_t *origin;       /* what views count from */
    int64_t base_offset, base_timestamp, append_time;
    int32_t count;
    int appended;
    int32_t max_headers, max_batch_headers;
    int64_t lines_ahead;         /* cache lines after the batch to ask for with each record; 0: none */
} kl_batch;

#if defined(__GNUC__) || defined(__clang__)
typedef uint8_t kl_vector __attribute__((vector_size(32), aligned(1), may_alias));
#define KL_MOVE_32(to, from) (*(kl_vector *)(to) = *(const kl_vector *)(from))
#else
#define KL_MOVE_32(to, from) memcpy(to, from, 32)
#endif

KL_INLINE void kl_move(uint8_t *to, const uint8_t *from, int times) {
    for (int i = 0; i < times; i++) KL_MOVE_32(to + 32 * i, from + 32 * i);
}

/* Copy n bytes; up to KL_PAD may be read and written in any case. Where sizes are `mixed`, more moves than needed cost
 * less than a branch that is guessed wrong. */
KL_INLINE void kl_copy_padded(uint8_t *to, const uint8_t *from, int64_t n, const int mixed) {
    if (!mixed && n <= 16) {
        memcpy(to, from, 16);
    } else if (!mixed && n <= 64) {
        kl_move(to, from, 2);
    } else if (n <= 128) {
        kl_move(to, from, 4);
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

KL_INLINE int64_t kl_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Write view i of a column: the size, then up to 12 bytes, or the first four and where they are. */
KL_INLINE void kl_put_view(const kl_binary *column, int64_t i, const uint8_t *from, int64_t size, const uint8_t *origin,
                           int padded) {
    uint8_t *view = column->views + 16 * i;
    uint32_t length = (uint32_t)size, place = (uint32_t)(from - origin), buffer = (uint32_t)column->buffer;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (padded || size > 12) {
        uint64_t low, high;
        if (KL_LIKELY(size > 12)) {
            low = (uint64_t)kl_le32_at(from) << 32;
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

/* Write string i of a column. `padded`: KL_PAD bytes may be read at `from`, and after its end. */
KL_INLINE void kl_put_bytes(kl_binary *column, const int mode, int64_t i, const uint8_t *from, int64_t size,
                            const uint8_t *origin, int padded, int64_t *used) {
    if (mode == KL_VIEW) {
        kl_put_view(column, i, from, size, origin, padded);
        return;
    }
    if (padded) kl_copy_padded(column->bytes + *used, from, size, mode == KL_COPY_MIXED);
    else if (size) memcpy(column->bytes + *used, from, (size_t)size);
    *used += size;
    if (column->offsets) column->offsets[i + 1] = (int32_t)*used;
    else column->wide_offsets[i + 1] = *used;
}

/* From row i on, write which strings of a column are null; those before are not. */
KL_INLINE void kl_expect_nulls(kl_binary *column, int64_t i) {
    if (!column->nulls && column->mode != KL_SKIP) memset(column->valid, 1, (size_t)i);
    column->nulls = 1;
}

/* The same of one that may be null: of size -1. */
KL_INLINE void kl_put(kl_binary *column, const int mode, int64_t i, const uint8_t *from, int64_t size,
                      const uint8_t *origin, int padded, int64_t *used, int64_t *n_null) {
    if (column->mode == KL_SKIP) return;
    if (__builtin_expect(size < 0, 0)) {
        size = 0;
        kl_expect_nulls(column, i);
        column->valid[i] = 0;
        *n_null += 1;
    } else if (column->nulls) {
        column->valid[i] = 1;
    }
    kl_put_bytes(column, mode, i, from, size, origin, padded, used);
}

/* The same of one that is padded; with `nulls` it may be null: no branch decides. */
KL_INLINE void kl_put_padded(kl_binary *column, const int mode, int64_t i, const uint8_t *from, int64_t size,
                             const int nulls, int64_t is_null, const uint8_t *origin, int64_t *used, int64_t *n_null) {
    if (column->mode == KL_SKIP) return;
    if (nulls) {
        column->valid[i] = (uint8_t)(is_null ^ 1);
        *n_null += is_null;
    }
    kl_put_bytes(column, mode, i, from, size, origin, 1, used);
}

/* Headers of one record, from p to end exactly; whether they are good. */
static int kl_put_headers(const uint8_t *p, const uint8_t *end, int32_t count, const kl_batch *batch,
                          kl_columns *columns) {
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

/* The same of headers that nobody asked for, which have sizes of one byte as usual; -1 if one is longer. */
KL_INLINE int kl_pass_headers(const uint8_t *p, const uint8_t *end, int32_t count) {
    while (count-- > 0) {
        int64_t left = end - p;
        /* a size is twice the number of bytes; an odd one is negative: of a key an error, of a value a null */
        if (left < 2) return 0;
        if (p[0] & 0x80) return -1;
        int64_t key = 1 + (p[0] >> 1);
        if (p[0] & 1 || key >= left) return 0;
        if (p[key] & 0x80) return -1;
        int64_t value = 1 + (p[key] & 1 ? 0 : p[key] >> 1);
        if (value > left - key) return 0;
        p += key + value;
    }
    return p == end;
}

enum { KL_WRONG = 0, KL_GOOD = 1, KL_HAS_NULLS = 2 };

/* The headers of a record, which are all that is left of it; whether they are good. */
static int kl_end_record(const kl_batch *batch, kl_columns *columns, const uint8_t *p, const uint8_t *end,
                         int32_t count, int64_t most) {
    if (!p || count < 0 || count > end - p || count > batch->max_headers) return 0;
    if (count == 0) return p == end;
    if (count > most - columns->n_headers) return 0;
    if (!columns->with_headers) {
        int passed = kl_pass_headers(p, end, count);
        if (KL_LIKELY(passed >= 0)) {
            columns->n_headers += count;
            return passed;
        }
    }
    return kl_put_headers(p, end, count, batch, columns);
}

/* Walk the records of a batch. Without `nulls` no validity is written, and the first null ends the walk. `asks`: the
 * next batch is brought from memory meanwhile, as many lines a record in a row as it takes, since the walk leaves the
 * way to memory idle, and its checksum would have to wait for it. */
KL_INLINE int kl_walk_as(const kl_batch *batch, kl_columns *columns, const int mode, const int way, const int nulls,
                         const int asks) {
    const uint8_t *p = batch->payload, *const end = batch->end, *const origin = batch->origin;
    /* a record that ends here or before may be read KL_PAD bytes beyond its end */
    const int64_t before_end = batch->readable - batch->payload - KL_PAD;
    const uint8_t *const padded_end = before_end > 0 ? batch->payload + before_end : batch->payload;
    const uint8_t *const safe = end < padded_end ? end : padded_end;
    int64_t *const offset = columns->offset, *const timestamp = columns->timestamp;
    int64_t key_used = columns->key.used, value_used = columns->value.used;
    int64_t key_null = columns->key.n_null, value_null = columns->value.n_null;
    const int64_t first = columns->n_records, stop = first + batch->count;
    const int64_t most_headers = columns->n_headers + batch->max_batch_headers;
    const int64_t base_offset = batch->base_offset;
    const int64_t base_stamp = batch->appended ? batch->append_time : batch->base_timestamp;
    const int64_t stamp_bits = batch->appended ? 0 : -1;
    const int64_t lines_ahead = batch->lines_ahead;
    const uint8_t *line = end;
    for (int64_t i = first; i < stop; i++) {
        const uint8_t *q, *record_end;
        int64_t stamp, delta;
        int32_t n_headers;
        if (asks)
            for (int64_t k = 0; k < lines_ahead; k++, line += 64) kl_prefetch_soon(line);
        if (KL_LIKELY(p < safe)) {
            uint32_t length, value_raw, value_width;
            uint64_t raw[3]; /* after the attributes: two deltas and the size of the key */
            uint32_t width = kl_first_varint(p, &length, way);
            q = p + width;
            if (!KL_LIKELY(width) || (int64_t)(length >> 1) > safe - q) goto by_bytes;
            record_end = q + (length >> 1);
            uint64_t width_of_three = kl_three_varints(q + 1, raw, way);
            const uint8_t *key = q + 1 + width_of_three;
            int64_t key_size = (uint32_t)raw[2] >> 1, key_is_null = raw[2] & 1;
            if (nulls) key_size &= key_is_null - 1;
            /* one byte is left at least, for the size of the value */
            if (!KL_LIKELY(width_of_three) || key_size >= record_end - key) goto by_bytes;
            const uint8_t *value = key + key_size;
            value_width = kl_one_varint(value, &value_raw, way);
            value += value_width;
            int64_t value_size = value_raw >> 1, value_is_null = value_raw & 1;
            if (nulls) value_size &= value_is_null - 1;
            int64_t left = record_end - value - value_size;
            if (!KL_LIKELY(value_width) || left <= 0) goto by_bytes;
            /* zigzag: an odd number is negative, as a size that of a null; no offset lies before the first one */
            if (((length | raw[1] | (nulls ? 0 : raw[2] | value_raw)) & 1)) goto by_bytes;
            stamp = (int64_t)(raw[0] >> 1) ^ -(int64_t)(raw[0] & 1);
            delta = (uint32_t)raw[1] >> 1;
            kl_put_padded(&columns->key, mode, i, key, key_size, nulls, key_is_null, origin, &key_used, &key_null);
            kl_put_padded(&columns->value, mode, i, value, value_size, nulls, value_is_null, origin, &value_used,
                          &value_null);
            /* the last byte of most records is the number of their headers, 0 */
            if (!KL_LIKELY(left == 1 && record_end[-1] == 0)) {
                q = kl_int(value + value_size, record_end, &n_headers);
                if (!kl_end_record(batch, columns, q, record_end, n_headers, most_headers)) return KL_WRONG;
            }
        } else {
        by_bytes:;
            uint64_t raw = 0;
            int32_t length, small;
            int padded;
            q = kl_int(p, end, &length);
            if (!q || length <= 0 || length > end - q) return KL_WRONG;
            record_end = q + length;
            padded = batch->readable - record_end >= KL_PAD;
            q = kl_slow_varint(q + 1, record_end, 10, &raw);
            if (!q) return KL_WRONG;
            stamp = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            q = kl_int(q, record_end, &small);
            if (!q) return KL_WRONG;
            delta = small;
            q = kl_int(q, record_end, &small);
            if (!q || small > record_end - q) return KL_WRONG;
            if (!nulls && small < 0) return KL_HAS_NULLS;
            kl_put(&columns->key, mode, i, q, small, origin, padded, &key_used, &key_null);
            q = kl_int(q + (small > 0 ? small : 0), record_end, &small);
            if (!q || small > record_end - q) return KL_WRONG;
            if (!nulls && small < 0) return KL_HAS_NULLS;
            kl_put(&columns->value, mode, i, q, small, origin, padded, &value_used, &value_null);
            q = kl_int(q + (small > 0 ? small : 0), record_end, &n_headers);
            if (!kl_end_record(batch, columns, q, record_end, n_headers, most_headers)) return KL_WRONG;
        }
        if (offset) offset[i] = kl_sum(base_offset, delta);
        if (timestamp) timestamp[i] = kl_sum(base_stamp, stamp & stamp_bits);
        if (columns->with_headers) {
            if (columns->header_offsets) columns->header_offsets[i + 1] = (int32_t)columns->n_headers;
            else columns->wide_header_offsets[i + 1] = columns->n_headers;
        }
        p = record_end;
    }
    if (p != end) return KL_WRONG;
    columns->key.used = key_used;
    columns->key.n_null = key_null;
    columns->value.used = value_used;
    columns->value.n_null = value_null;
    columns->n_records = stop;
    return KL_GOOD;
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

/* Code for each case: keys and values are both copied or both viewed, unless they are skipped. */
KL_INLINE int kl_walk_in(const kl_batch *batch, kl_columns *columns, const int mode, const int nulls, const int way) {
    if (batch->lines_ahead)
        return nulls ? kl_walk_as(batch, columns, mode, way, 1, 1) : kl_walk_as(batch, columns, mode, way, 0, 1);
    return nulls ? kl_walk_as(batch, columns, mode, way, 1, 0) : kl_walk_as(batch, columns, mode, way, 0, 0);
}

KL_INLINE int kl_walk_by(const kl_batch *batch, kl_columns *columns, int nulls, const int way) {
    if (columns->key.mode == KL_VIEW || columns->value.mode == KL_VIEW)
        return kl_walk_in(batch, columns, KL_VIEW, nulls, way);
    if (columns->mixed) return kl_walk_in(batch, columns, KL_COPY_MIXED, nulls, way);
    return kl_walk_in(batch, columns, KL_COPY, nulls, way);
}

static int kl_walk_portable(const kl_batch *batch, kl_columns *columns, int nulls) {
    return kl_walk_by(batch, columns, nulls, KL_SHIFTS);
}

#if KL_HAS_PEXT
__attribute__((target("avx2,bmi,bmi2")))
static int kl_walk_avx2(const kl_batch *batch, kl_columns *columns, int nulls) {
    return kl_walk_by(batch, columns, nulls, KL_SHIFTS);
}

__attribute__((target("avx2,bmi,bmi2")))
static int kl_walk_pext(const kl_batch *batch, kl_columns *columns, int nulls) {
    return kl_walk_by(batch, columns, nulls, KL_PEXT);
}
#endif

static int (*kl_walk_best)(const kl_batch *, kl_columns *, int nulls) = kl_walk_portable;

/* Take the best code up to `level` that the machine can run (1: AVX2; 2: `pext`, where it is fast: AMD's machines took
 * many cycles for it until they got VPCLMULQDQ, too); the level taken. */
KL_API int kl_walk_setup(int level) {
    int taken = 0;
    kl_walk_best = kl_walk_portable;
#if KL_HAS_PEXT
    __builtin_cpu_init();
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
        taken = level >= 2 && (__builtin_cpu_is("intel") || __builtin_cpu_supports("vpclmulqdq")) ? 2 : 1;
        kl_fill_threes();
        kl_walk_best = taken == 2 ? kl_walk_pext : kl_walk_avx2;
    }
#endif
    return taken;
}

enum { KL_SEEN = 16, KL_FEW_CHANGES = 3, KL_ROWS_BETWEEN_LOOKS = 1024 };

/* Whether the last strings of a column differ in how many moves copy them. */
static int kl_sizes_vary(const kl_binary *column, int64_t n) {
    int64_t n_changes = 0, before = 0;
    if (column->mode != KL_COPY) return 0;
    for (int64_t i = n - KL_SEEN; i < n; i++) {
        int64_t size = column->offsets ? column->offsets[i + 1] - column->offsets[i]
                                       : column->wide_offsets[i + 1] - column->wide_offsets[i];
        int64_t moves = (size > 16) + (size > 64);
        n_changes += i > n - KL_SEEN && moves != before;
        before = moves;
    }
    return n_changes > KL_FEW_CHANGES;
}

/* Walk one batch for whose payload there is room; on 0 something is wrong with it, and no record of it is kept. */
KL_API int kl_walk_batch(const kl_batch *batch, kl_columns *columns) {
    const kl_columns before = *columns;
    int result = KL_HAS_NULLS;
    if (!columns->key.nulls && !columns->value.nulls) result = kl_walk_best(batch, columns, 0);
    if (result == KL_HAS_NULLS) {
        *columns = before;
        kl_expect_nulls(&columns->key, before.n_records);
        kl_expect_nulls(&columns->value, before.n_records);
        result = kl_walk_best(batch, columns, 1);
    }
    if (result == KL_WRONG) {
        *columns = before;
    } else if (columns->n_records >= columns->next_look && columns->n_records >= KL_SEEN) {
        columns->mixed = kl_sizes_vary(&columns->key, columns->n_records)
            || kl_sizes_vary(&columns->value, columns->n_records);
        columns->next_look = columns->n_records + KL_ROWS_BETWEEN_LOOKS;
    }
    return result;
}

#endif
