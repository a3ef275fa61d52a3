/* A fuzzer of the kernels' C code, for clang's libFuzzer: `python tests/kernels/examine.py fuzz` builds and runs it.
 *
 * The first byte of an input chooses the target. Every input and output lies in a heap block of exactly the size that
 * the code may touch, so that AddressSanitizer finds a byte too many. Answers are compared with those of slow code
 * below, which shares nothing with the kernels. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "payloads.h"
#include "message_walk.h"
#include "crc_impl.h"
#include "json_impl.h"
#include "utf8_impl.h"

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); abort(); } } while (0)

static uint8_t *block(int64_t n) {
    uint8_t *made = malloc(n > 0 ? (size_t)n : 1);
    if (!made) abort();
    return made;
}

/* a block of exactly these bytes, and `slack` readable ones after them */
static uint8_t *copied(const uint8_t *p, int64_t n, int64_t slack) {
    uint8_t *made = block(n + slack);
    memcpy(made, p, (size_t)n);
    memset(made + n, 0xEE, (size_t)slack);
    return made;
}

static uint64_t number(const uint8_t *p, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value = value << 8 | p[i];
    return value;
}

/* --- columns to write to --- */

static void open_column(kl_binary *column, int mode, int wide, int64_t rows, int64_t room) {
    memset(column, 0, sizeof *column);
    column->mode = mode;
    column->valid = block(rows);
    if (mode == KL_VIEW) column->views = block(16 * rows);
    if (mode != KL_COPY) return;
    if (wide) memset(column->wide_offsets = (int64_t *)(void *)block(8 * (rows + 1)), 0, 8);
    else memset(column->offsets = (int32_t *)(void *)block(4 * (rows + 1)), 0, 4);
    column->bytes = block(room + KL_PAD);
    column->room = room;
}

static void close_column(kl_binary *column) {
    free(column->valid);
    free(column->views);
    free(column->offsets);
    free(column->wide_offsets);
    free(column->bytes);
}

/* whether row i has `size` bytes from `at` on; -1 for null */
static int is_value(const kl_binary *column, int64_t i, const uint8_t *origin, const uint8_t *at, int64_t size) {
    if (column->mode == KL_SKIP) return 1;
    if ((column->nulls ? column->valid[i] : 1) != (size >= 0)) return 0;
    if (size < 0) return 1;
    if (column->mode == KL_COPY) {
        int64_t from = column->offsets ? column->offsets[i] : column->wide_offsets[i];
        int64_t to = column->offsets ? column->offsets[i + 1] : column->wide_offsets[i + 1];
        return to - from == size && !memcmp(column->bytes + from, at, (size_t)size);
    }
    uint8_t expected[16] = {0};
    uint32_t length = (uint32_t)size, place = (uint32_t)(at - origin);
    memcpy(expected, &length, 4);
    if (size > 12) {
        memcpy(expected + 4, at, 4);
        memcpy(expected + 12, &place, 4);
    } else {
        memcpy(expected + 4, at, (size_t)size);
    }
    return !memcmp(column->views + 16 * i, expected, 16);
}

/* --- a slow reader of records, byte by byte: DefaultRecord.readFrom --- */

typedef struct { const uint8_t *p, *end; int failed; } cursor;

static uint8_t next(cursor *c) {
    if (c->p == c->end) c->failed = 1;
    return c->failed ? 0 : *c->p++;
}

static uint64_t varint(cursor *c, int most) {
    uint64_t value = 0;
    for (int i = 0;; i++) {
        uint8_t byte = next(c);
        value |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128) return value;
        if (i + 1 == most) c->failed = 1;
        if (c->failed) return 0;
    }
}

static int32_t varint_32(cursor *c) {
    uint32_t raw = (uint32_t)varint(c, 5);
    return (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
}

static int64_t varint_64(cursor *c) {
    uint64_t raw = varint(c, 10);
    return (int64_t)(raw >> 1 ^ (0ull - (raw & 1)));
}

/* the size of a string that is passed; `needed` if it may not be null */
static int32_t string(cursor *c, int needed, const uint8_t **at) {
    int32_t size = varint_32(c);
    *at = c->p;
    if ((size < 0 && needed) || size > c->end - c->p) c->failed = 1;
    if (!c->failed && size > 0) c->p += size;
    return size < 0 ? -1 : size;
}

typedef struct { int64_t offset, timestamp; const uint8_t *key, *value; int32_t key_size, value_size; } plain_record;

/* the number of headers; -1 if anything is wrong */
static int64_t read_plainly(const kl_batch *batch, plain_record *out) {
    cursor all = {batch->payload, batch->end, 0};
    int64_t n_headers = 0;
    for (int32_t i = 0; i < batch->count; i++) {
        int32_t size = varint_32(&all);
        if (all.failed || size <= 0 || size > all.end - all.p) return -1;
        cursor c = {all.p, all.p + size, 0};
        all.p += size;
        next(&c);
        int64_t time = varint_64(&c);
        int64_t delta = varint_32(&c);
        plain_record *record = out + i;
        record->key_size = string(&c, 0, &record->key);
        record->value_size = string(&c, 0, &record->value);
        int32_t count = varint_32(&c);
        if (c.failed || count < 0 || count > c.end - c.p || count > batch->max_headers) return -1;
        n_headers += count;
        if (n_headers > batch->max_batch_headers) return -1;
        const uint8_t *ignored;
        for (int32_t j = 0; j < count && !c.failed; j++) {
            string(&c, 1, &ignored);
            if (!c.failed) string(&c, 0, &ignored);
        }
        if (c.failed || c.p != c.end) return -1;
        record->offset = (int64_t)((uint64_t)batch->base_offset + (uint64_t)delta);
        record->timestamp = batch->appended ? batch->append_time
                                            : (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)time);
    }
    return all.p == all.end ? n_headers : -1;
}

/* --- targets: each has eight bytes of choices, and the rest --- */

static void open_columns(kl_columns *columns, const uint8_t *choice, int64_t n, int64_t rows) {
    int wide = choice[0] & 1, mode = choice[0] & 2 ? KL_VIEW : KL_COPY;
    memset(columns, 0, sizeof *columns);
    columns->capacity = rows;
    columns->offset = (int64_t *)(void *)block(8 * rows);
    columns->timestamp = (int64_t *)(void *)block(8 * rows);
    columns->mixed = choice[0] >> 2 & 1;
    open_column(&columns->key, choice[0] & 8 ? KL_SKIP : mode, wide, rows, n);
    open_column(&columns->value, choice[0] & 16 ? KL_SKIP : mode, wide, rows, n);
    columns->with_headers = choice[0] >> 5 & 1;
    int64_t headers = columns->with_headers ? n / 2 : 0;
    columns->header_capacity = headers;
    open_column(&columns->header_key, KL_COPY, wide, headers, n);
    open_column(&columns->header_value, KL_COPY, wide, headers, n);
    if (wide) memset(columns->wide_header_offsets = (int64_t *)(void *)block(8 * (rows + 1)), 0, 8);
    else memset(columns->header_offsets = (int32_t *)(void *)block(4 * (rows + 1)), 0, 4);
}

static void close_columns(kl_columns *columns) {
    close_column(&columns->key);
    close_column(&columns->value);
    close_column(&columns->header_key);
    close_column(&columns->header_value);
    free(columns->offset);
    free(columns->timestamp);
    free(columns->header_offsets);
    free(columns->wide_header_offsets);
}

static void walk_records(const uint8_t *choice, const uint8_t *p, int64_t n) {
    int64_t slack = choice[1], rows = n / 7 + 1;
    uint8_t *in = copied(p, n, slack);
    kl_batch batch = {.payload = in, .end = in + n, .readable = in + n + slack, .origin = in};
    batch.count = (int32_t)number(choice + 2, 2);
    batch.appended = choice[0] >> 6 & 1;
    batch.append_time = 99;
    batch.base_offset = (int64_t)number(choice, 8);
    batch.base_timestamp = (int64_t)(number(choice, 8) * 5);
    batch.max_headers = choice[4];
    batch.max_batch_headers = 3 * choice[5];
    batch.lines_ahead = choice[6] & 3;
    kl_walk_setup(choice[7] % 3);
    kl_columns columns;
    open_columns(&columns, choice, n, rows);
    if (batch.count > 0 && batch.count <= n / 7 && kl_has_room(&columns, n, batch.count)) {
        plain_record *expected = malloc(sizeof *expected * (size_t)batch.count);
        int64_t n_headers = read_plainly(&batch, expected);
        int is_good = kl_walk_batch(&batch, &columns);
        CHECK(is_good == (n_headers >= 0));
        if (is_good) {
            CHECK(columns.n_records == batch.count && columns.n_headers == n_headers);
            for (int32_t i = 0; i < batch.count; i++) {
                const plain_record *record = expected + i;
                CHECK(columns.offset[i] == record->offset && columns.timestamp[i] == record->timestamp);
                CHECK(is_value(&columns.key, i, in, record->key, record->key_size));
                CHECK(is_value(&columns.value, i, in, record->value, record->value_size));
            }
        }
        free(expected);
    }
    close_columns(&columns);
    free(in);
}

static void walk_messages(const uint8_t *choice, const uint8_t *p, int64_t n) {
    int64_t slack = choice[1], rows = n / 26 + 1, last = 0;
    int magic = choice[2] & 1;
    uint8_t *in = copied(p, n, slack);
    kl_columns columns;
    open_columns(&columns, choice, n, rows);
    columns.with_headers = 0;
    int64_t count = kl_count_messages(in, n, magic, &last);
    CHECK(count <= n / 26);
    if (count > 0 && kl_has_room_for_strings(&columns, n, count))
        kl_walk_messages(&columns, in, n, in + n + slack, in, magic, (int64_t)number(choice, 8), choice[3] & 1, 7);
    CHECK(columns.n_records <= rows);
    close_columns(&columns);
    free(in);
}

static void decompress(const uint8_t *choice, const uint8_t *p, int64_t n) {
    int64_t room = 512 * (1 + (int64_t)choice[1]);
    uint8_t *in = copied(p, n, 0), *out = block(room + KL_PAD);
    kl_codecs codecs = {.xxh32 = kl_xxh32};
    int64_t size;
    switch (choice[2] & 3) {
    case 0: size = kl_decompress(&codecs, KL_LZ4, in, n, out, room); break;
    case 1: size = kl_decompress(&codecs, KL_SNAPPY, in, n, out, room); break;
    case 2: size = kl_lz4_block(in, n, out, room); break;
    default: size = kl_snappy_block(in, n, out, room);
    }
    CHECK(size <= room);
    free(in);
    free(out);
}

static void read_text(const uint8_t *choice, const uint8_t *p, int64_t n) {
    (void)choice;
    uint8_t *in = copied(p, n, 0), *out = block(n), bits = 0, seen = 0;
    int64_t plain = 0;
    int is_ascii = 1;
    while (plain < n && in[plain] != '"' && in[plain] != '\\' && in[plain] >= ' ') seen |= in[plain++];
    CHECK(kl_plain(in, in + n, &bits) == in + plain && (bits & 128) == (seen & 128));
    for (int64_t i = 0; i < n; i++) is_ascii &= in[i] < 128;
    CHECK(!kl_is_ascii(in, n) == !is_ascii);
    if (is_ascii) CHECK(kl_is_utf8(in, n));
    int64_t counted = kl_unescape(in, n, NULL);
    CHECK(counted <= n && kl_unescape(in, n, out) == counted);
    free(in);
    free(out);
}

static uint32_t bit_by_bit(uint32_t poly, const uint8_t *p, int64_t n) {
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (poly & (0u - (crc & 1)));
    }
    return ~crc;
}

static void checksum(const uint8_t *choice, const uint8_t *p, int64_t n) {
    (void)choice;
    uint8_t *in = copied(p, n, 0);
    uint32_t crc32c = bit_by_bit(0x82F63B78u, in, n), crc32 = bit_by_bit(0xEDB88320u, in, n);
    CHECK(kl_crc32c_portable(in, (size_t)n) == crc32c && kl_crc32_portable(in, (size_t)n) == crc32);
    CHECK(kl_crc32c_best(in, (size_t)n) == crc32c && kl_crc32_best(in, (size_t)n) == crc32);
    free(in);
}

typedef void target(const uint8_t *choice, const uint8_t *p, int64_t n);
static target *const TARGETS[] = {walk_records, walk_messages, decompress, read_text, checksum, walk_records};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int is_ready = 0;
    if (!is_ready) is_ready = kl_crc_setup(3) >= 0;
    if (size >= 9) TARGETS[data[0] % 6](data + 1, data + 9, (int64_t)size - 9);
    return 0;
}
