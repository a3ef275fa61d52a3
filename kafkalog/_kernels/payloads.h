/* Decompresses the payloads of batches without Python: lz4 and snappy here, zstd and gzip by functions of libraries.
 *
 * What is written is what Kafka's consumer would get. A stream that is damaged, unusual or too large is left alone, and
 * kafkalog.records.codecs finds out what is wrong with it. LZ4 blocks are accepted only if LZ4_decompress_safe accepts
 * them, including its rules for the end of a block. Outputs have KL_PAD bytes more than their room.
 */
#ifndef KAFKALOG_PAYLOADS_H
#define KAFKALOG_PAYLOADS_H

#include <stddef.h>

#include "batch_walk.h"

enum { KL_DOUBT = -1, KL_NO_ROOM = -2 };
enum { KL_NONE = 0, KL_GZIP = 1, KL_SNAPPY = 2, KL_LZ4 = 3, KL_ZSTD = 4 };

/* Functions of libraries, as found at run time; NULL where there is none. */
typedef struct {
    void *(*zstd_create)(void);
    size_t (*zstd_free)(void *context);
    size_t (*zstd_decompress)(void *context, void *to, size_t room, const void *from, size_t size);
    size_t (*zstd_frame_size)(const void *from, size_t size);
    void *(*deflate_create)(void);
    void (*deflate_free)(void *context);
    int (*deflate_gzip)(void *context, const void *from, size_t size, void *to, size_t room, size_t *used,
                        size_t *written);
} kl_libraries;

typedef struct {
    kl_libraries of;
    void *zstd, *deflate; /* contexts of the thread */
    uint32_t (*xxh32)(const uint8_t *, size_t);
} kl_codecs;

/* Copy n bytes that lie `distance` bytes before `to`, where they may overlap; up to 32 bytes more may be written. */
KL_INLINE void kl_repeat(uint8_t *to, int64_t distance, int64_t n) {
    const uint8_t *from = to - distance;
    uint8_t *const stop = to + n;
    if (KL_LIKELY(distance >= 16 && n <= 32)) {
        /* most matches: one more move than needed costs less than a branch that is guessed wrong */
        memcpy(to, from, 16);
        memcpy(to + 16, from + 16, 16);
    } else if (distance >= 16) {
        do {
            memcpy(to, from, 16);
            to += 16;
            from += 16;
        } while (to < stop);
    } else if (distance >= 8) {
        do {
            memcpy(to, from, 8);
            to += 8;
            from += 8;
        } while (to < stop);
    } else {
        /* a multiple of the distance is one, too */
        int64_t multiple = distance;
        while (multiple < 8) multiple += distance;
        for (int64_t i = 0; i < multiple; i++) to[i] = from[i];
        for (to += multiple; to < stop; to += 8) memcpy(to, to - multiple, 8);
    }
}

/* One LZ4 block: its size decompressed, or KL_DOUBT. */
static int64_t kl_lz4_block(const uint8_t *p, int64_t size, uint8_t *const start, int64_t room) {
    const uint8_t *const end = p + size;
    uint8_t *to = start, *const stop = start + room;
    while (p < end) {
        /* far from both ends, short literals and a match of up to 273 bytes: whether a byte more tells the size of the
         * match is guessed wrong too often to be a branch. The code below takes all other sequences. */
        while (end - p >= 40 && stop - to >= 320) {
            const int64_t literals = p[0] >> 4, is_long = (p[0] & 15) == 15;
            const uint8_t *q = p + 1 + literals;
            uint8_t *at = to + literals;
            const int64_t distance = kl_le16(q), more = q[2] & -is_long, n = (p[0] & 15) + 4 + more;
            if (!KL_LIKELY(literals < 15 && more < 255 && distance >= 16 && distance <= at - start)) break;
            memcpy(to, p + 1, 16);
            memcpy(at, at - distance, 16);
            memcpy(at + 16, at - distance + 16, 16);
            for (int64_t i = 32; i < n; i += 16) memcpy(at + i, at - distance + i, 16);
            p = q + 2 + is_long;
            to = at + n;
        }
        uint32_t token = *p++;
        int64_t n = token >> 4;
        if (KL_LIKELY(n < 15 && end - p >= 24 && stop - to >= 32)) {
            memcpy(to, p, 16);
        } else {
            if (n == 15) {
                uint8_t byte;
                do {
                    if (p >= end || n > room) return KL_DOUBT;
                    byte = *p++;
                    n += byte;
                } while (byte == 255);
            }
            if (n > end - p || n > stop - to) return KL_DOUBT;
            if (end - p >= n + KL_PAD) kl_copy_padded(to, p, n, 0);
            else memcpy(to, p, (size_t)n);
        }
        p += n;
        to += n;
        if (p == end) return to - start;
        /* a block ends with five literals at least, and its last match begins twelve bytes before its end */
        if (end - p < 8 || stop - to < 12) return KL_DOUBT;
        int64_t distance = kl_le16(p);
        p += 2;
        n = token & 15;
        if (n == 15) {
            uint8_t byte;
            do {
                if (end - p < 5 || n > room) return KL_DOUBT;
                byte = *p++;
                n += byte;
            } while (byte == 255);
        }
        n += 4;
        /* Kafka's blocks are independent: a match never reaches back into the block before */
        if (distance == 0 || distance > to - start || n > stop - to - 5) return KL_DOUBT;
        kl_repeat(to, distance, n);
        to += n;
    }
    return KL_DOUBT;
}

/* One frame, as Lz4BlockInputStream reads it. */
static int64_t kl_lz4(const kl_codecs *codecs, const uint8_t *p, int64_t size, uint8_t *to, int64_t room) {
    static const uint8_t magic[4] = {0x04, 0x22, 0x4D, 0x18};
    const uint8_t *const end = p + size;
    int64_t written = 0;
    if (size < 7 || memcmp(p, magic, 4)) return KL_DOUBT;
    uint32_t flags = p[4], descriptor = p[5];
    int64_t head = flags & 0x08 ? 15 : 7, block_size = (int64_t)1 << (2 * (descriptor >> 4) + 8);
    /* version 1, independent blocks, no dictionary; codes of block sizes from 4 to 7 */
    if ((flags & 0xE3) != 0x60 || descriptor & 0x8F || descriptor >> 4 < 4 || size < head) return KL_DOUBT;
    if ((codecs->xxh32(p + 4, (size_t)head - 5) >> 8 & 0xFF) != p[head - 1]) return KL_DOUBT;
    int64_t trailer = flags & 0x10 ? 4 : 0;
    p += head;
    while (end - p >= 4) {
        uint32_t header = (uint32_t)kl_le16(p) | kl_le16(p + 2) << 16;
        int64_t n = header & 0x7FFFFFFF;
        p += 4;
        if (n == 0) return flags & 0x04 && end - p < 4 ? KL_DOUBT : written;
        if (n > block_size || n + trailer > end - p) return KL_DOUBT;
        /* a block does not say its size decompressed: there has to be room for the largest */
        if (block_size > room - written) return KL_NO_ROOM;
        /* Kafka compares the checksums of blocks, and not that of the content */
        if (trailer && codecs->xxh32(p, (size_t)n) != (kl_le16(p + n) | kl_le16(p + n + 2) << 16)) return KL_DOUBT;
        int64_t block = n;
        if (header & 0x80000000u) memcpy(to + written, p, (size_t)n);
        else block = kl_lz4_block(p, n, to + written, block_size);
        if (block < 0) return KL_DOUBT;
        written += block;
        p += n + trailer;
    }
    return KL_DOUBT;
}

/* One raw snappy block: its size decompressed, KL_DOUBT or KL_NO_ROOM. */
static int64_t kl_snappy_block(const uint8_t *p, int64_t size, uint8_t *const start, int64_t room) {
    const uint8_t *const end = p + size;
    uint64_t declared = 0;
    p = kl_slow_varint(p, end, 5, &declared);
    /* snappy does not expand 22 times: who claims that reserves no memory */
    if (!p || declared > (uint64_t)size * 22 + 65536) return KL_DOUBT;
    if (declared > (uint64_t)room) return KL_NO_ROOM;
    uint8_t *to = start, *const stop = start + declared;
    while (p < end) {
        uint32_t tag = *p++;
        int64_t n, distance;
        if ((tag & 3) == 0) {
            n = (tag >> 2) + 1;
            if (KL_LIKELY(n <= 16 && end - p >= 16 && stop - to >= n)) {
                memcpy(to, p, 16);
                p += n;
                to += n;
                continue;
            }
            if (n > 60) {
                int64_t width = n - 60;
                if (end - p < width) return KL_DOUBT;
                n = 0;
                for (int64_t i = 0; i < width; i++) n |= (int64_t)p[i] << 8 * i;
                n++;
                p += width;
            }
            if (n > end - p || n > stop - to) return KL_DOUBT;
            if (end - p >= n + KL_PAD) kl_copy_padded(to, p, n, 0);
            else memcpy(to, p, (size_t)n);
            p += n;
            to += n;
            continue;
        }
        if (KL_LIKELY((tag & 3) != 3 && end - p >= 2)) {
            /* whether a copy is near or far is guessed wrong too often to be a branch */
            const int64_t is_near = tag & 1, if_near = -is_near;
            distance = ((int64_t)kl_le16(p) & 0xFFFF >> 8 * is_near) | ((int64_t)(tag >> 5) << 8 & if_near);
            n = (tag >> 2 & (63 ^ (56 & if_near))) + 1 + 3 * is_near;
            p += 2 - is_near;
        } else if ((tag & 3) == 1) {
            if (p == end) return KL_DOUBT;
            n = (tag >> 2 & 7) + 4;
            distance = (int64_t)(tag >> 5) << 8 | *p++;
        } else {
            if ((tag & 3) == 2 || end - p < 4) return KL_DOUBT;
            n = (tag >> 2) + 1;
            distance = (int64_t)kl_le16(p + 2) << 16 | kl_le16(p);
            p += 4;
        }
        if (distance == 0 || distance > to - start || n > stop - to) return KL_DOUBT;
        kl_repeat(to, distance, n);
        to += n;
    }
    return to == stop && (declared || size == 1) ? (int64_t)declared : KL_DOUBT;
}

/* Xerial chunks after one header, or one raw block, as SnappyInputStream reads them. */
static int64_t kl_snappy(const uint8_t *p, int64_t size, uint8_t *to, int64_t room) {
    static const uint8_t magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    const uint8_t *const end = p + size;
    int64_t written = 0;
    if (size < 8 || memcmp(p, magic, 8)) return kl_snappy_block(p, size, to, room);
    if (size < 16) return KL_DOUBT;
    for (p += 16; p < end;) {
        /* a second header, or a rest that is cut off: rare enough to be left alone */
        if (end - p < 4 || p[0] & 0x80) return KL_DOUBT;
        int64_t n = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
        p += 4;
        if (n == 0 || n > end - p) return KL_DOUBT;
        int64_t block = kl_snappy_block(p, n, to + written, room - written);
        if (block < 0) return block;
        written += block;
        p += n;
    }
    return written;
}

/* Whether no block of a frame says that it holds more than its window allows. Decompressing a frame in one call does
 * not look at that, and Kafka's consumer, which decompresses a stream, refuses such a block. */
static int kl_zstd_blocks(const uint8_t *p, int64_t size) {
    enum { MOST = 1 << 17, RLE = 1, RESERVED = 3 };
    static const uint8_t id_sizes[4] = {0, 1, 2, 4}, content_sizes[4] = {0, 2, 4, 8};
    const uint8_t *end = p + size;
    int is_single = p[4] >> 5 & 1, content_size = content_sizes[p[4] >> 6];
    if (is_single && !content_size) content_size = 1;
    int64_t head = 5 + !is_single + id_sizes[p[4] & 3] + content_size;
    if (head > size) return 0;
    uint64_t window = 0;
    if (is_single) {
        const uint8_t *content = p + head - content_size;
        for (int i = 0; i < content_size; i++) window |= (uint64_t)content[i] << 8 * i;
        if (content_size == 2) window += 256;
    } else {
        uint64_t base = (uint64_t)1 << (10 + (p[5] >> 3));
        window = base + (base >> 3) * (p[5] & 7);
    }
    uint32_t most = window < MOST ? (uint32_t)window : MOST, is_last = 0;
    p += head;
    while (!is_last) {
        if (end - p < 3) return 0;
        uint32_t block = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16, kind = block >> 1 & 3;
        is_last = block & 1;
        block >>= 3;
        p += 3;
        if (block > most || kind == RESERVED) return 0;
        if (kind == RLE) block = 1;
        if (block > end - p) return 0;
        p += block;
    }
    return 1;
}

/* One frame with a window that Kafka's consumer accepts. */
static int64_t kl_zstd(kl_codecs *codecs, const uint8_t *p, int64_t size, uint8_t *to, int64_t room) {
    static const uint8_t magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    /* ZSTD_error_dstSize_tooSmall, ZSTD_error_maxCode, and the largest window that libzstd takes in a stream */
    enum { TOO_SMALL = 70, LARGEST_ERROR = 120, LARGEST_WINDOW = 27 };
    if (size < 6 || memcmp(p, magic, 4) || !codecs->of.zstd_decompress) return KL_DOUBT;
    /* without a window of its own, a frame needs one as large as its content */
    if (p[4] & 0x20) {
        if (room > (int64_t)1 << LARGEST_WINDOW) return KL_DOUBT;
    } else if (10 + (p[5] >> 3) + ((p[5] & 7) > 0) > LARGEST_WINDOW) {
        return KL_DOUBT;
    }
    if (codecs->of.zstd_frame_size(p, (size_t)size) != (size_t)size || !kl_zstd_blocks(p, size)) return KL_DOUBT;
    if (!codecs->zstd && !(codecs->zstd = codecs->of.zstd_create())) return KL_DOUBT;
    size_t n = codecs->of.zstd_decompress(codecs->zstd, to, (size_t)room, p, (size_t)size);
    if (n > (size_t)-LARGEST_ERROR) return n == (size_t)-TOO_SMALL ? KL_NO_ROOM : KL_DOUBT;
    return n <= (size_t)room ? (int64_t)n : KL_DOUBT;
}

/* One member with a plain header. */
static int64_t kl_gzip(kl_codecs *codecs, const uint8_t *p, int64_t size, uint8_t *to, int64_t room) {
    enum { SUCCESS = 0, NO_SPACE = 3 };
    size_t used = 0, written = 0;
    /* a header with flags (a name, a checksum) is no writer's of Kafka's: the exact way reads it */
    if (size < 18 || p[0] != 0x1F || p[1] != 0x8B || p[2] != 8 || p[3] || !codecs->of.deflate_gzip) return KL_DOUBT;
    if (!codecs->deflate && !(codecs->deflate = codecs->of.deflate_create())) return KL_DOUBT;
    int status = codecs->of.deflate_gzip(codecs->deflate, p, (size_t)size, to, (size_t)room, &used, &written);
    if (status == NO_SPACE) return KL_NO_ROOM;
    return status == SUCCESS && used == (size_t)size && written <= (size_t)room ? (int64_t)written : KL_DOUBT;
}

/* Whether this machine has what a codec needs. */
KL_API int kl_knows(const kl_codecs *codecs, int codec) {
    return codec == KL_SNAPPY || codec == KL_LZ4 || (codec == KL_ZSTD && codecs->of.zstd_decompress != NULL)
        || (codec == KL_GZIP && codecs->of.deflate_gzip != NULL);
}

/* Decompress a payload: its size, KL_DOUBT or KL_NO_ROOM. */
KL_API int64_t kl_decompress(kl_codecs *codecs, int codec, const uint8_t *p, int64_t size, uint8_t *to, int64_t room) {
    switch (codec) {
    case KL_GZIP: return kl_gzip(codecs, p, size, to, room);
    case KL_SNAPPY: return kl_snappy(p, size, to, room);
    case KL_LZ4: return kl_lz4(codecs, p, size, to, room);
    case KL_ZSTD: return kl_zstd(codecs, p, size, to, room);
    default: return KL_DOUBT;
    }
}

#endif
