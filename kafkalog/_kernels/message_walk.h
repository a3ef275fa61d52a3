/* Writes the records of good v0 and v1 messages, and of the message sets inside compressed ones.
 * Kafka: LegacyRecord, AbstractLegacyRecordBatch.DeepRecordsIterator.
 *
 * As in batch_walk.h, wrong or unusual messages are left alone: legacy.pyx names the reason.
 */
#ifndef KAFKALOG_MESSAGE_WALK_H
#define KAFKALOG_MESSAGE_WALK_H

#include "batch_walk.h"

enum { KL_SIZE_AT = 8, KL_MAGIC_AT = 16, KL_ATTRIBUTES_AT = 17, KL_TIMESTAMP_AT = 18, KL_KEY_V0 = 18, KL_KEY_V1 = 26 };

KL_INLINE int32_t kl_signed_32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3]);
}

KL_INLINE int64_t kl_signed_64(const uint8_t *p) {
    return (int64_t)((uint64_t)(uint32_t)kl_signed_32(p) << 32 | (uint32_t)kl_signed_32(p + 4));
}

/* Bring bytes into cache: loads, because prefetches are dropped once too many wait. */
KL_API void kl_touch(const uint8_t *p, int64_t n) {
    volatile uint8_t seen;
    uint8_t all = 0;
    for (int64_t i = 0; i < n; i += 64) all |= p[i];
    seen = all;
    (void)seen;
}

/* Ask for bytes that are needed soon, if they are there. */
KL_API void kl_ask_for(const uint8_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i += 64) kl_prefetch_soon(p + i);
}

/* The bytes of a message's value, its size negative for null; NULL if its lengths are wrong. */
KL_INLINE const uint8_t *kl_message_value(const uint8_t *message, const uint8_t *end, int magic, const uint8_t **key,
                                          int32_t *key_size, int32_t *value_size) {
    const uint8_t *p = message + (magic ? KL_KEY_V1 : KL_KEY_V0);
    if (end - p < 8) return NULL;
    *key_size = kl_signed_32(p);
    p += 4;
    *key = p;
    if (*key_size > end - p - 4) return NULL;
    if (*key_size > 0) p += *key_size;
    *value_size = kl_signed_32(p);
    p += 4;
    return *value_size > end - p ? NULL : p;
}

/* Write the record of a plain message for which there is room; on 0 nothing of it is kept. */
KL_API int kl_put_message(kl_columns *columns, const uint8_t *message, const uint8_t *end, const uint8_t *readable,
                             const uint8_t *origin, int magic, int64_t offset, int64_t timestamp) {
    int64_t i = columns->n_records;
    const uint8_t *key;
    int32_t key_size, value_size;
    const uint8_t *value = kl_message_value(message, end, magic, &key, &key_size, &value_size);
    if (!value) return 0;
    int padded = readable - end >= KL_PAD;
    kl_put(&columns->key, columns->key.mode, i, key, key_size, origin, padded, &columns->key.used,
           &columns->key.n_null);
    kl_put(&columns->value, columns->value.mode, i, value, value_size, origin, padded, &columns->value.used,
           &columns->value.n_null);
    if (columns->offset) columns->offset[i] = offset;
    if (columns->timestamp) columns->timestamp[i] = timestamp;
    if (columns->with_headers) {
        if (columns->header_offsets) columns->header_offsets[i + 1] = (int32_t)columns->n_headers;
        else columns->wide_header_offsets[i + 1] = columns->n_headers;
    }
    columns->n_records = i + 1;
    return 1;
}

/* How many messages, all of one magic and plain, with increasing offsets, fill these bytes exactly, and the offset of
 * the last one; 0 if there is anything else. */
KL_API int64_t kl_count_messages(const uint8_t *p, int64_t size, int magic, int64_t *last_offset) {
    const uint8_t *const end = p + size;
    const int32_t least = (magic ? KL_KEY_V1 : KL_KEY_V0) - 12 + 8;
    int64_t n = 0;
    while (p < end) {
        if (end - p < 12 + least) return 0;
        int32_t after = kl_signed_32(p + KL_SIZE_AT);
        if (after < least || after > end - p - 12) return 0;
        if (p[KL_MAGIC_AT] != magic || p[KL_ATTRIBUTES_AT] & 7) return 0;
        if (n && kl_signed_64(p) <= *last_offset) return 0;
        *last_offset = kl_signed_64(p);
        n++;
        p += 12 + (int64_t)after;
    }
    return n;
}

/* The messages that were counted, for which there is room, with offsets increased by `shift`; on 0 none is kept. Their
 * timestamps are replaced if `appended`. */
KL_API int kl_walk_messages(kl_columns *columns, const uint8_t *p, int64_t size, const uint8_t *readable,
                            const uint8_t *origin, int magic, int64_t shift, int appended, int64_t append_time) {
    const kl_columns before = *columns;
    const uint8_t *const end = p + size;
    while (p < end) {
        const uint8_t *next = p + 12 + (int64_t)kl_signed_32(p + KL_SIZE_AT);
        int64_t timestamp = !magic ? -1 : appended ? append_time : kl_signed_64(p + KL_TIMESTAMP_AT);
        if (!kl_put_message(columns, p, next, readable, origin, magic, kl_sum(kl_signed_64(p), shift), timestamp)) {
            *columns = before;
            return 0;
        }
        p = next;
    }
    return 1;
}

#endif
