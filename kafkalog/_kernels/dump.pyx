"""Formats what `DumpLogSegments` prints, from the bytes of a segment straight into bytes of text.

Kafka: DumpLogSegments.dumpLog, FileLogInputStream.nextBatch, DefaultRecordBatch.iterator,
AbstractLegacyRecordBatch.DeepRecordsIterator. Unlike the other walks this one believes what Kafka's tool believes: any
order of offsets, any magic, records under a wrong checksum.
"""

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kafkalog._kernels.crc cimport crc32, crc32c
from kafkalog._kernels.wire cimport (
    BAD_MAGIC, HEADER_COUNT, HEADER_KEY_NULL, HEADER_LENGTH, KEY_LENGTH, LEGACY_EMPTY_WRAPPER, LEGACY_NESTED,
    LEGACY_WRAPPER_OFFSET, NEED_MORE, OK, OUTPUT_FULL, RECORD_COUNT, RECORD_LENGTH, RECORD_TRAILING_BYTES,
    SIZE_NEGATIVE, SIZE_TOO_SMALL, TOO_MANY_HEADERS, VALUE_LENGTH, Cursor, distance, load_be16, load_be32, load_be64,
    read_varint, read_varlong, remaining, wrap_add, wrap_sub,
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint8_t *kl_put(uint8_t *p, const char *text) {
        size_t n = strlen(text); /* of a literal: the compiler knows */
        memcpy(p, text, n);
        return p + n;
    }
    static const char kl_digits[201] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051"
        "525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    static inline uint8_t *kl_put_u32(uint8_t *p, uint32_t value) {
        uint8_t text[10];
        uint8_t *at = text + 10;
        size_t n;
        while (value >= 100) {
            uint32_t rest = value / 100;
            at -= 2;
            memcpy(at, kl_digits + 2 * (value - 100 * rest), 2);
            value = rest;
        }
        if (value >= 10) {
            at -= 2;
            memcpy(at, kl_digits + 2 * value, 2);
        } else {
            *--at = (uint8_t)('0' + value);
        }
        n = (size_t)(text + 10 - at);
        memcpy(p, at, n);
        return p + n;
    }
    static inline uint8_t *kl_put_8(uint8_t *p, uint32_t value) {
        uint32_t high = value / 10000, low = value % 10000;
        memcpy(p, kl_digits + 2 * (high / 100), 2);
        memcpy(p + 2, kl_digits + 2 * (high % 100), 2);
        memcpy(p + 4, kl_digits + 2 * (low / 100), 2);
        memcpy(p + 6, kl_digits + 2 * (low % 100), 2);
        return p + 8;
    }
    static inline uint8_t *kl_put_i64(uint8_t *p, int64_t signed_value) {
        uint64_t value = (uint64_t)signed_value;
        if (signed_value < 0) {
            *p++ = '-';
            value = 0 - value;
        }
        if (value < 100000000)
            return kl_put_u32(p, (uint32_t)value);
        if (value < UINT64_C(10000000000000000)) {
            p = kl_put_u32(p, (uint32_t)(value / 100000000));
            return kl_put_8(p, (uint32_t)(value % 100000000));
        }
        p = kl_put_u32(p, (uint32_t)(value / UINT64_C(10000000000000000)));
        value %= UINT64_C(10000000000000000);
        p = kl_put_8(p, (uint32_t)(value / 100000000));
        return kl_put_8(p, (uint32_t)(value % 100000000));
    }
    /* going on at 0 after 2^31 - 1, in Java's int arithmetic (DefaultRecordBatch.incrementSequence) */
    static inline int32_t kl_add_sequence(int32_t sequence, int32_t delta) {
        if (sequence > (int32_t)((uint32_t)INT32_MAX - (uint32_t)delta))
            return (int32_t)((uint32_t)delta - ((uint32_t)INT32_MAX - (uint32_t)sequence) - 1u);
        return (int32_t)((uint32_t)sequence + (uint32_t)delta);
    }
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
    /* as Java's new String(bytes, UTF_8); needs room for three times as many bytes */
    static uint8_t *kl_put_string(uint8_t *out, const uint8_t *p, size_t n) {
        const uint8_t *end = p + n;
        while (1) {
            while ((size_t)(end - p) >= 32) {
                uint64_t words[4];
                memcpy(words, p, 32);
                if ((words[0] | words[1] | words[2] | words[3]) & UINT64_C(0x8080808080808080))
                    break;
                memcpy(out, words, 32);
                p += 32;
                out += 32;
            }
            if (p == end)
                return out;
            /* a stretch byte by byte, then try whole words again */
            const uint8_t *stop = (size_t)(end - p) > 32 ? p + 32 : end;
            while (p < stop) {
                int size;
                if (*p < 0x80) {
                    *out++ = *p++;
                    continue;
                }
                size = kl_character(p, end);
                if (size > 0) {
                    memcpy(out, p, (size_t)size);
                    out += size;
                    p += size;
                } else {
                    memcpy(out, "\\xef\\xbf\\xbd", 3);
                    out += 3;
                    p -= size;
                }
            }
        }
    }
    """
    uint8_t* put "kl_put"(uint8_t* p, const char* text) noexcept nogil
    int32_t add_sequence "kl_add_sequence"(int32_t sequence, int32_t delta) noexcept nogil
    uint8_t* put_u32 "kl_put_u32"(uint8_t* p, uint32_t value) noexcept nogil
    uint8_t* put_i64 "kl_put_i64"(uint8_t* p, int64_t value) noexcept nogil
    uint8_t* put_string "kl_put_string"(uint8_t* p, const uint8_t* text, size_t n) noexcept nogil

cdef enum:
    ENVELOPE = 12
    MAGIC_END = 17
    OVERHEAD = 61
    MIN_SIZE = 14
    MIN_RECORD_BYTES = 7
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    LAST_CODEC = 4
    # of a line less what keys, values and header keys bring
    LINE_ROOM = 1024

# statuses of this kernel, beside those of wire.pxd
cdef enum:
    END = 100
    PAYLOAD = 101
    CONTROL = 102
    CODEC_ID = 103
    CONTROL_KEY = 104
    CONTROL_VALUE = 105
    DECODER = 106
    HEADER_CUT = 107

# options
cdef enum:
    DEEP = 1
    CONTENTS = 2
    SKIP_METADATA = 4
    DIALECT_2_8 = 8

# decoders
cdef enum:
    AS_STRING = 0
    AS_INTEGER = 1
    AS_LONG = 2

# places of the state that a caller keeps between calls
cdef enum:
    AT_POSITION = 0
    AT_IN_BATCH = 1
    AT_CURSOR = 2
    AT_DONE = 3
    AT_PREVIOUS = 4
    AT_N_PAIRS = 5
    AT_N_INVALID = 6
    AT_NEEDED = 7
    AT_KEY_START = 8
    AT_KEY_SIZE = 9
    AT_VALUE_START = 10
    AT_VALUE_SIZE = 11
    AT_CONTROL_TYPE = 12
    AT_FIRST_OFFSET = 13
    AT_SHIFT = 14
    AT_COUNT = 15
    STATE_SIZE = 16

STATUSES = {
    "END": END,
    "PAYLOAD": PAYLOAD,
    "CONTROL": CONTROL,
    "CODEC_ID": CODEC_ID,
    "CONTROL_KEY": CONTROL_KEY,
    "CONTROL_VALUE": CONTROL_VALUE,
    "DECODER": DECODER,
    "HEADER_CUT": HEADER_CUT,
}
OPTIONS = {"deep": DEEP, "contents": CONTENTS, "skip_metadata": SKIP_METADATA, "dialect_2_8": DIALECT_2_8}
DECODERS = {"string": AS_STRING, "integer": AS_INTEGER, "long": AS_LONG}
STATE = {
    "position": AT_POSITION,
    "in_batch": AT_IN_BATCH,
    "cursor": AT_CURSOR,
    "done": AT_DONE,
    "previous": AT_PREVIOUS,
    "n_pairs": AT_N_PAIRS,
    "n_invalid": AT_N_INVALID,
    "needed": AT_NEEDED,
    "key_start": AT_KEY_START,
    "key_size": AT_KEY_SIZE,
    "value_start": AT_VALUE_START,
    "value_size": AT_VALUE_SIZE,
    "control_type": AT_CONTROL_TYPE,
    "first_offset": AT_FIRST_OFFSET,
    "shift": AT_SHIFT,
    "count": AT_COUNT,
    "size": STATE_SIZE,
}


cdef struct Batch:
    int64_t position
    int64_t size
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence
    int32_t last_sequence
    int32_t count
    uint32_t crc
    int16_t producer_epoch
    uint8_t attributes
    int8_t magic
    bint is_valid


cdef struct Sink:
    uint8_t* pointer
    uint8_t* end
    int64_t* state
    int64_t* pair_previous
    int64_t* pair_next
    Py_ssize_t pair_room
    int options
    int key_decoder
    int value_decoder
    int32_t max_headers


cdef inline uint8_t* put_codec(uint8_t* p, int codec, bint upper) noexcept nogil:
    if codec == 0:
        return put(p, b"NONE") if upper else put(p, b"none")
    if codec == 1:
        return put(p, b"GZIP") if upper else put(p, b"gzip")
    if codec == 2:
        return put(p, b"SNAPPY") if upper else put(p, b"snappy")
    if codec == 3:
        return put(p, b"LZ4") if upper else put(p, b"lz4")
    return put(p, b"ZSTD") if upper else put(p, b"zstd")


cdef inline uint8_t* put_bool(uint8_t* p, bint value) noexcept nogil:
    return put(p, b"true") if value else put(p, b"false")


cdef inline uint8_t* put_timestamp_type(uint8_t* p, Batch* batch) noexcept nogil:
    if batch.magic == 0:
        return put(p, b" NoTimestampType: ")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return put(p, b" LogAppendTime: ")
    return put(p, b" CreateTime: ")


cdef inline void read_header(const uint8_t* p, Batch* batch) noexcept nogil:
    """The header at `p`: 61 bytes of it from v2 on, 26 before, or as many as a v0 message has."""
    batch.size = <int64_t><int32_t>load_be32(p + 8) + ENVELOPE
    batch.magic = <int8_t>p[16]
    batch.base_offset = <int64_t>load_be64(p)
    if batch.magic >= 2:
        batch.leader_epoch = <int32_t>load_be32(p + 12)
        batch.crc = load_be32(p + 17)
        batch.attributes = p[22]
        batch.last_offset = wrap_add(batch.base_offset, <int32_t>load_be32(p + 23))
        batch.base_timestamp = <int64_t>load_be64(p + 27)
        batch.max_timestamp = <int64_t>load_be64(p + 35)
        batch.producer_id = <int64_t>load_be64(p + 43)
        batch.producer_epoch = <int16_t>load_be16(p + 51)
        batch.base_sequence = <int32_t>load_be32(p + 53)
        batch.count = <int32_t>load_be32(p + 57)
        batch.last_sequence = -1
        if batch.base_sequence != -1:
            batch.last_sequence = add_sequence(batch.base_sequence, <int32_t>load_be32(p + 23))
    else:
        batch.leader_epoch = -1
        batch.crc = load_be32(p + 12)
        batch.attributes = p[17]
        batch.last_offset = batch.base_offset
        batch.base_timestamp = -1
        batch.max_timestamp = -1
        if batch.magic == 1:
            batch.max_timestamp = <int64_t>load_be64(p + 18)
        batch.producer_id = -1
        batch.producer_epoch = -1
        batch.base_sequence = -1
        batch.last_sequence = -1
        batch.count = 1


cdef inline int put_batch(Batch* batch, Sink* sink) noexcept nogil:
    """The line of a batch; what Kafka prints before it stumbles over a codec or a magic is printed too."""
    cdef uint8_t* p = sink.pointer
    cdef bint old = sink.options & DIALECT_2_8 != 0
    if batch.magic >= 2:
        p = put_i64(put(p, b"baseOffset: "), batch.base_offset)
        p = put_i64(put(p, b" lastOffset: "), batch.last_offset)
        p = put_i64(put(p, b" count: "), batch.count)
        p = put_i64(put(p, b" baseSequence: "), batch.base_sequence)
        p = put_i64(put(p, b" lastSequence: "), batch.last_sequence)
        p = put_i64(put(p, b" producerId: "), batch.producer_id)
        p = put_i64(put(p, b" producerEpoch: "), batch.producer_epoch)
        p = put_i64(put(p, b" partitionLeaderEpoch: "), batch.leader_epoch)
        p = put_bool(put(p, b" isTransactional: "), batch.attributes & TRANSACTIONAL_BIT != 0)
        p = put_bool(put(p, b" isControl: "), batch.attributes & CONTROL_BIT != 0)
        if not old:
            if batch.attributes & DELETE_HORIZON_BIT:
                p = put(put_i64(put(p, b" deleteHorizonMs: OptionalLong["), batch.base_timestamp), b"]")
            else:
                p = put(p, b" deleteHorizonMs: OptionalLong.empty")
    else:
        p = put_i64(put(p, b"offset: "), batch.last_offset)
    sink.pointer = p
    if batch.magic < 0:
        return BAD_MAGIC
    if batch.attributes & CODEC_MASK > LAST_CODEC:
        return CODEC_ID
    p = put_i64(put(p, b" position: "), batch.position)
    p = put_i64(put_timestamp_type(p, batch), batch.max_timestamp)
    p = put_i64(put(p, b" size: "), batch.size)
    p = put_i64(put(p, b" magic: "), batch.magic)
    p = put_codec(put(p, b" compresscodec: "), batch.attributes & CODEC_MASK, old)
    p = put_u32(put(p, b" crc: "), batch.crc)
    p = put_bool(put(p, b" isvalid: "), batch.is_valid)
    sink.pointer = put(p, b"\n")
    return OK


cdef inline int follow(Sink* sink, int64_t offset) noexcept nogil:
    """Note an offset that is not the one after the last; OUTPUT_FULL where there is no room to note it."""
    cdef int64_t previous = sink.state[AT_PREVIOUS]
    cdef int64_t n = sink.state[AT_N_PAIRS]
    if offset != wrap_add(previous, 1) and not (previous == -1 and sink.options & DIALECT_2_8):
        if n >= sink.pair_room:
            sink.state[AT_NEEDED] = 0
            return OUTPUT_FULL
        sink.pair_previous[n] = previous
        sink.pair_next[n] = offset
        sink.state[AT_N_PAIRS] = n + 1
    sink.state[AT_PREVIOUS] = offset
    return OK


cdef inline uint8_t* put_batch_in_record(uint8_t* p, Batch* batch, int64_t base_offset) noexcept nogil:
    """What 2.8 repeats of the batch in each record's line."""
    p = put_i64(put(p, b" baseOffset: "), base_offset)
    p = put_i64(put(p, b" lastOffset: "), batch.last_offset)
    p = put_i64(put(p, b" baseSequence: "), batch.base_sequence)
    p = put_i64(put(p, b" lastSequence: "), batch.last_sequence)
    p = put_i64(put(p, b" producerEpoch: "), batch.producer_epoch)
    p = put_i64(put(p, b" partitionLeaderEpoch: "), batch.leader_epoch)
    p = put_i64(put(p, b" batchSize: "), batch.size)
    p = put_i64(put(p, b" magic: "), batch.magic)
    p = put_codec(put(p, b" compressType: "), batch.attributes & CODEC_MASK, True)
    return put_i64(put(p, b" position: "), batch.position)


cdef inline int put_decoded(Sink* sink, int decoder, const uint8_t* data, int32_t size) noexcept nogil:
    if decoder == AS_STRING:
        sink.pointer = put_string(sink.pointer, data, size)
    elif decoder == AS_INTEGER:
        if size < 4:
            return DECODER
        sink.pointer = put_i64(sink.pointer, <int32_t>load_be32(data))
    else:
        if size < 8:
            return DECODER
        sink.pointer = put_i64(sink.pointer, <int64_t>load_be64(data))
    return OK


cdef inline bint is_short(int decoder, int32_t size) noexcept nogil:
    return size >= 0 and ((decoder == AS_INTEGER and size < 4) or (decoder == AS_LONG and size < 8))


cdef inline int put_contents(Sink* sink, const uint8_t* key, int32_t key_size, const uint8_t* value,
                             int32_t value_size) noexcept nogil:
    """Key and value; a negative size is null, of which nothing is printed. Both are decoded before either is."""
    cdef bint skipped = sink.options & SKIP_METADATA != 0
    cdef bint first = skipped
    if is_short(sink.key_decoder, key_size) or is_short(sink.value_decoder, value_size):
        return DECODER
    if key_size >= 0:
        sink.pointer = put(sink.pointer, b"| key: ") if first else put(sink.pointer, b" key: ")
        put_decoded(sink, sink.key_decoder, key, key_size)
        first = False
    if value_size >= 0:
        if sink.options & DIALECT_2_8:
            first = False
        sink.pointer = put(sink.pointer, b"| payload: ") if first else put(sink.pointer, b" payload: ")
        put_decoded(sink, sink.value_decoder, value, value_size)
    return OK


cdef inline int parse_record(Cursor* cursor, Batch* batch, int32_t max_headers, int64_t* timestamp, int32_t* delta,
                             Cursor* key, Cursor* value, Cursor* headers, int32_t* n_headers) noexcept nogil:
    """The record at the cursor, checked whole, as DefaultRecord.readFrom; a null pointer for a null key or value."""
    cdef Cursor record
    cdef int32_t length = 0
    cdef int32_t size = 0
    cdef int32_t _i
    cdef int64_t delta64 = 0
    cdef int status = read_varint(cursor, &length)
    if status != OK:
        return status
    if length <= 0 or length > remaining(cursor):
        return RECORD_LENGTH
    record.pointer = cursor.pointer + 1
    record.end = cursor.pointer + length
    cursor.pointer = record.end
    status = read_varlong(&record, &delta64)
    if status != OK:
        return status
    status = read_varint(&record, delta)
    if status != OK:
        return status
    timestamp[0] = wrap_add(batch.base_timestamp, delta64)
    if batch.attributes & LOG_APPEND_TIME_BIT:
        timestamp[0] = batch.max_timestamp
    status = read_varint(&record, &size)
    if status != OK:
        return status
    key.pointer = NULL
    key.end = NULL
    if size >= 0:
        if size > remaining(&record):
            return KEY_LENGTH
        key.pointer = record.pointer
        record.pointer += size
        key.end = record.pointer
    status = read_varint(&record, &size)
    if status != OK:
        return status
    value.pointer = NULL
    value.end = NULL
    if size >= 0:
        if size > remaining(&record):
            return VALUE_LENGTH
        value.pointer = record.pointer
        record.pointer += size
        value.end = record.pointer
    status = read_varint(&record, n_headers)
    if status != OK:
        return status
    if n_headers[0] < 0 or n_headers[0] > remaining(&record):
        return HEADER_COUNT
    if n_headers[0] > max_headers:
        return TOO_MANY_HEADERS
    headers[0] = record
    for _i in range(n_headers[0]):
        status = read_varint(&record, &size)
        if status != OK:
            return status
        if size < 0:
            return HEADER_KEY_NULL
        if size > remaining(&record):
            return HEADER_LENGTH
        record.pointer += size
        status = read_varint(&record, &size)
        if status != OK:
            return status
        if size > 0:
            if size > remaining(&record):
                return HEADER_LENGTH
            record.pointer += size
    if record.pointer != record.end:
        return RECORD_LENGTH
    return OK


cdef inline int32_t span_size(Cursor* span) noexcept nogil:
    return -1 if span.pointer == NULL else <int32_t>remaining(span)


cdef inline int put_control(Sink* sink, const uint8_t* origin, Cursor* key, Cursor* value) noexcept nogil:
    """What a control record says. CONTROL: Raft's, for the caller to print, with the line's end."""
    cdef int16_t kind
    if key.pointer == NULL or remaining(key) < 4 or <int16_t>load_be16(key.pointer) < 0:
        return CONTROL_KEY
    kind = <int16_t>load_be16(key.pointer + 2)
    if kind != 0 and kind != 1:
        sink.state[AT_CONTROL_TYPE] = kind
        sink.state[AT_VALUE_SIZE] = span_size(value)
        sink.state[AT_VALUE_START] = 0 if value.pointer == NULL else distance(origin, value.pointer)
        return CONTROL
    if value.pointer == NULL or remaining(value) < 6 or <int16_t>load_be16(value.pointer) < 0:
        return CONTROL_VALUE
    sink.pointer = put(sink.pointer, b" endTxnMarker: COMMIT coordinatorEpoch: ") if kind == 1 else put(
        sink.pointer, b" endTxnMarker: ABORT coordinatorEpoch: ")
    sink.pointer = put_i64(sink.pointer, <int32_t>load_be32(value.pointer + 2))
    return OK


cdef int check_records(Batch* batch, const uint8_t* data, Py_ssize_t size, int32_t max_headers) noexcept nogil:
    """Whether all records are good: of a compressed batch Kafka shows none before it has read all."""
    cdef Cursor cursor, key, value, headers
    cdef int64_t timestamp = 0
    cdef int32_t delta = 0
    cdef int32_t n_headers = 0
    cdef int32_t _i
    cdef int status = OK
    if batch.count < 0 or batch.count > size // MIN_RECORD_BYTES:
        return RECORD_COUNT
    cursor.pointer = data
    cursor.end = data + size
    for _i in range(batch.count):
        status = parse_record(&cursor, batch, max_headers, &timestamp, &delta, &key, &value, &headers, &n_headers)
        if status != OK:
            return status
    return OK if cursor.pointer == cursor.end else RECORD_TRAILING_BYTES


cdef int put_records(Batch* batch, const uint8_t* origin, Py_ssize_t size, Sink* sink) noexcept nogil:
    """The lines of a v2 batch's records, from where the state says on."""
    cdef Cursor cursor, key, value, headers
    cdef int64_t* state = sink.state
    cdef int64_t timestamp = 0
    cdef int64_t offset, need
    cdef int32_t delta = 0
    cdef int32_t n_headers = 0
    cdef int32_t length, i
    cdef int64_t done
    cdef int options = sink.options
    cdef bint control = batch.attributes & CONTROL_BIT != 0
    cdef bint old = options & DIALECT_2_8 != 0
    cdef int status = OK
    cdef uint8_t* p
    cursor.end = origin + size
    if batch.count < 0:
        return RECORD_COUNT
    while state[AT_DONE] < batch.count:
        done = state[AT_DONE]
        cursor.pointer = origin + state[AT_CURSOR]
        status = parse_record(&cursor, batch, sink.max_headers, &timestamp, &delta, &key, &value, &headers, &n_headers)
        if status != OK:
            return status
        if done + 1 == batch.count and cursor.pointer != cursor.end:
            return RECORD_TRAILING_BYTES
        need = 3 * (distance(origin, cursor.pointer) - state[AT_CURSOR]) + LINE_ROOM
        if distance(sink.pointer, sink.end) < need:
            state[AT_NEEDED] = need
            return OUTPUT_FULL
        offset = wrap_add(batch.base_offset, delta)
        status = follow(sink, offset)
        if status != OK:
            return status
        state[AT_CURSOR] = distance(origin, cursor.pointer)
        state[AT_DONE] = done + 1
        if not options & SKIP_METADATA:
            p = put_i64(put(sink.pointer, b"| offset: "), offset)
            if old:
                p = put_i64(put(p, b" isValid: true crc: null keySize: "), span_size(&key))
                p = put_i64(put(p, b" valueSize: "), span_size(&value))
                p = put_i64(put_timestamp_type(p, batch), timestamp)
                p = put_batch_in_record(p, batch, batch.base_offset)
            else:
                p = put_i64(put_timestamp_type(p, batch), timestamp)
                p = put_i64(put(p, b" keySize: "), span_size(&key))
                p = put_i64(put(p, b" valueSize: "), span_size(&value))
            p = put(p, b" sequence: ")
            p = put_i64(p, -1 if batch.base_sequence < 0 else add_sequence(batch.base_sequence, delta))
            p = put(p, b" headerKeys: [")
            for i in range(n_headers):
                if i:
                    p = put(p, b",")
                length = 0
                # read once already: it cannot go wrong
                read_varint(&headers, &length)
                p = put_string(p, headers.pointer, length)
                headers.pointer += length
                read_varint(&headers, &length)
                if length > 0:
                    headers.pointer += length
            sink.pointer = put(p, b"]")
            if control:
                status = put_control(sink, origin, &key, &value)
                if status != OK:
                    return status
        if options & CONTENTS and not control:
            status = put_contents(sink, key.pointer, span_size(&key), value.pointer, span_size(&value))
            if status != OK:
                return status
        sink.pointer = put(sink.pointer, b"\n")
    return OK


cdef inline int64_t message_timestamp(Batch* batch, const uint8_t* record, bint in_wrapper) noexcept nogil:
    """The timestamp of a v0 or v1 message: its own, or the wrapper's that was appended with it."""
    if record[4] == 0:
        return -1
    if record[4] == 1 and in_wrapper and batch.magic == 1 and batch.attributes & LOG_APPEND_TIME_BIT:
        return batch.max_timestamp
    return <int64_t>load_be64(record + 6)


cdef int put_message(Batch* batch, const uint8_t* record, int32_t size, int64_t offset, Sink* sink, bint in_wrapper,
                     int64_t base_offset) noexcept nogil:
    """The line of one v0 or v1 message, which begins, at `record`, with its checksum."""
    cdef int8_t magic = <int8_t>record[4]
    cdef int32_t at = 6 if magic == 0 else 14
    cdef int32_t key_size = -1
    cdef int32_t value_size = -1
    cdef int64_t timestamp
    cdef int64_t need = LINE_ROOM + 3 * <int64_t>size
    cdef uint32_t crc = load_be32(record)
    cdef bint is_valid
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int options = sink.options
    cdef bint old = options & DIALECT_2_8 != 0
    cdef bint fits = True
    cdef int status
    cdef uint8_t* p
    if distance(sink.pointer, sink.end) < need:
        sink.state[AT_NEEDED] = need
        return OUTPUT_FULL
    status = follow(sink, offset)
    if status != OK:
        return status
    sink.state[AT_DONE] += 1
    if not options & SKIP_METADATA or options & CONTENTS:
        if size - at < 4:
            return KEY_LENGTH
        key_size = <int32_t>load_be32(record + at)
        at += 4
        key = record + at
        if key_size > 0:
            if key_size > size - at:
                return KEY_LENGTH
            at += key_size
        if size - at < 4:
            return VALUE_LENGTH
        value_size = <int32_t>load_be32(record + at)
        at += 4
        value = record + at
        fits = value_size <= size - at
    if not options & SKIP_METADATA:
        timestamp = message_timestamp(batch, record, in_wrapper)
        is_valid = crc32(record + 4, size - 4) == crc if in_wrapper else batch.is_valid
        p = put_i64(put(sink.pointer, b"| offset: "), offset)
        if old:
            p = put_bool(put(p, b" isValid: "), is_valid)
            p = put_u32(put(p, b" crc: "), crc)
            p = put_i64(put(p, b" keySize: "), key_size)
            p = put_i64(put(p, b" valueSize: "), value_size)
            p = put_i64(put_timestamp_type(p, batch), timestamp)
            p = put_batch_in_record(p, batch, base_offset)
            p = put_u32(put(p, b" crc: "), crc)
            p = put_bool(put(p, b" isvalid: "), is_valid)
        else:
            p = put_i64(put_timestamp_type(p, batch), timestamp)
            p = put_i64(put(p, b" keySize: "), key_size)
            p = put_i64(put(p, b" valueSize: "), value_size)
            p = put_bool(put(p, b" isValid: "), is_valid)
            p = put_u32(put(p, b" crc: "), crc)
        sink.pointer = p
    if options & CONTENTS:
        if not fits:
            return VALUE_LENGTH
        status = put_contents(sink, key, key_size, value, value_size)
        if status != OK:
            return status
    sink.pointer = put(sink.pointer, b"\n")
    return OK


cdef int check_message_set(Batch* batch, const uint8_t* data, Py_ssize_t size, int64_t* state) noexcept nogil:
    """How many messages came out of a compressed one, and what their relative offsets lack."""
    cdef Py_ssize_t at = 0
    cdef int32_t message
    cdef int64_t last = 0
    state[AT_COUNT] = 0
    state[AT_SHIFT] = 0
    while size - at >= ENVELOPE:
        message = <int32_t>load_be32(data + at + 8)
        if message < MIN_SIZE:
            return SIZE_NEGATIVE if message < 0 else SIZE_TOO_SMALL
        if message > size - at - ENVELOPE:
            break
        last = <int64_t>load_be64(data + at)
        if state[AT_COUNT] == 0:
            state[AT_FIRST_OFFSET] = last
        state[AT_COUNT] += 1
        at += message + ENVELOPE
    if state[AT_COUNT] == 0:
        return LEGACY_EMPTY_WRAPPER
    # a wrapper offset of 0 is produce data as librdkafka writes it: the base is 0
    if batch.magic == 1 and batch.last_offset != 0:
        if batch.last_offset < last:
            return LEGACY_WRAPPER_OFFSET
        state[AT_SHIFT] = wrap_sub(batch.last_offset, last)
    state[AT_FIRST_OFFSET] = wrap_add(state[AT_FIRST_OFFSET], state[AT_SHIFT])
    return OK


cdef int put_message_set(Batch* batch, const uint8_t* data, Sink* sink) noexcept nogil:
    """The lines of the messages out of a compressed one, from where the state says on."""
    cdef int64_t* state = sink.state
    cdef Py_ssize_t at
    cdef int32_t message
    cdef int status
    while state[AT_DONE] < state[AT_COUNT]:
        at = state[AT_CURSOR]
        message = <int32_t>load_be32(data + at + 8)
        if data[at + 17] & CODEC_MASK:
            return LEGACY_NESTED
        status = put_message(batch, data + at + ENVELOPE, message,
                             wrap_add(<int64_t>load_be64(data + at), state[AT_SHIFT]), sink, True,
                             state[AT_FIRST_OFFSET])
        if status != OK:
            return status
        state[AT_CURSOR] = at + message + ENVELOPE
    return OK


cdef inline void end_batch(int64_t* state, int64_t size) noexcept nogil:
    state[AT_POSITION] += size
    state[AT_IN_BATCH] = 0
    state[AT_CURSOR] = 0
    state[AT_DONE] = 0


cdef int set_sink(Sink* sink, uint8_t[::1] out, int64_t[::1] state, int64_t[::1] pair_previous,
                  int64_t[::1] pair_next, int options, int key_decoder, int value_decoder,
                  int32_t max_headers) except -1:
    if state.shape[0] != STATE_SIZE or pair_next.shape[0] != pair_previous.shape[0] or out.shape[0] < LINE_ROOM:
        raise ValueError("the state or the output has a wrong size")
    memset(sink, 0, sizeof(Sink))
    sink.pointer = &out[0]
    sink.end = sink.pointer + out.shape[0]
    sink.state = &state[0]
    if pair_previous.shape[0]:
        sink.pair_previous = &pair_previous[0]
        sink.pair_next = &pair_next[0]
    sink.pair_room = pair_previous.shape[0]
    sink.options = options
    sink.key_decoder = key_decoder
    sink.value_decoder = value_decoder
    sink.max_headers = max_headers
    return 0


def dump_batches(const uint8_t[::1] window not None, int64_t window_start, int64_t stop, int64_t file_size,
                 int options, int key_decoder, int value_decoder, int32_t max_headers, uint8_t[::1] out not None,
                 int64_t[::1] state not None, int64_t[::1] pair_previous not None, int64_t[::1] pair_next not None,
                 int64_t[::1] invalid not None):
    """Print batches, and with DEEP their records, from where `state` says on; `(status, n_bytes)` of text in `out`.

    `window_start` is the position of `window[0]` in the file, of `file_size` bytes, that is taken to end at `stop`.
    END: no batch starts at the position any more. NEED_MORE: the window does not hold the batch there, of `needed`
    bytes. OUTPUT_FULL: the text has to be taken away; the next line may be as long as `needed`, if that is not 0.
    PAYLOAD: the line of the batch is printed, its records are compressed. CONTROL: the line of a control record waits
    for the rest, out of the value that lies at `value_start` in the batch. Others: what is wrong with the batch.
    """
    cdef Sink sink
    cdef Batch batch
    cdef Py_ssize_t n = window.shape[0]
    cdef Py_ssize_t at
    cdef int64_t left, needed
    cdef int32_t size
    cdef int status = OK
    cdef bint complete
    cdef const uint8_t* p = NULL
    cdef const uint8_t* origin = NULL
    cdef uint8_t* start
    cdef Py_ssize_t invalid_room = invalid.shape[0]
    set_sink(&sink, out, state, pair_previous, pair_next, options, key_decoder, value_decoder, max_headers)
    if window_start < 0 or stop > file_size or state[AT_POSITION] < window_start \
            or state[AT_POSITION] - window_start > n or n > INT32_MAX or window_start > file_size - n:
        raise ValueError("the position lies outside the window, or that outside the file")
    start = sink.pointer
    if n:
        origin = &window[0]
    with nogil:
        while True:
            left = stop - state[AT_POSITION]
            if left <= MAGIC_END:
                status = END
                break
            at = state[AT_POSITION] - window_start
            if n - at < MAGIC_END:
                state[AT_NEEDED] = OVERHEAD
                status = NEED_MORE
                break
            p = origin + at
            size = <int32_t>load_be32(p + 8)
            if size < MIN_SIZE:
                status = SIZE_NEGATIVE if size < 0 else SIZE_TOO_SMALL
                break
            if left - ENVELOPE < size:
                status = END
                break
            needed = <int64_t>size + ENVELOPE
            complete = True
            if <int8_t>p[16] >= 2 and needed < OVERHEAD:
                complete = False
                needed = OVERHEAD
            if needed > n - at:
                if state[AT_POSITION] > file_size - needed:
                    status = HEADER_CUT
                    break
                state[AT_NEEDED] = needed
                status = NEED_MORE
                break
            batch.position = state[AT_POSITION]
            read_header(p, &batch)
            if not complete:
                batch.is_valid = False
            elif batch.magic >= 2:
                batch.is_valid = (state[AT_IN_BATCH] != 0) or crc32c(p + 21, batch.size - 21) == batch.crc
            else:
                batch.is_valid = crc32(p + 16, batch.size - 16) == batch.crc
            if state[AT_IN_BATCH] == 0:
                if distance(sink.pointer, sink.end) < LINE_ROOM or (
                        not batch.is_valid and state[AT_N_INVALID] >= invalid_room):
                    state[AT_NEEDED] = 0
                    status = OUTPUT_FULL
                    break
                status = put_batch(&batch, &sink)
                if status != OK:
                    break
                if not batch.is_valid:
                    invalid[state[AT_N_INVALID]] = batch.position
                    state[AT_N_INVALID] += 1
                state[AT_IN_BATCH] = 1
                state[AT_DONE] = 0
                state[AT_CURSOR] = 0
            if options & DEEP:
                if not complete:
                    status = SIZE_TOO_SMALL
                    break
                if batch.magic >= 2:
                    if batch.count != 0:
                        if batch.attributes & CODEC_MASK:
                            status = PAYLOAD
                            break
                        status = put_records(&batch, p + OVERHEAD, batch.size - OVERHEAD, &sink)
                        if status != OK:
                            break
                elif batch.attributes & CODEC_MASK:
                    status = PAYLOAD
                    break
                elif state[AT_DONE] == 0:
                    status = put_message(&batch, p + ENVELOPE, size, batch.last_offset, &sink, False, batch.last_offset)
                    if status != OK:
                        break
            end_batch(&state[0], batch.size)
    return status, distance(start, sink.pointer)


def dump_payload(const uint8_t[::1] batch_bytes not None, int64_t position, const uint8_t[::1] payload not None,
                 int options, int key_decoder, int value_decoder, int32_t max_headers, uint8_t[::1] out not None,
                 int64_t[::1] state not None, int64_t[::1] pair_previous not None, int64_t[::1] pair_next not None):
    """Print the records that were compressed in the batch at `position`; `(status, n_bytes)`.

    OK: all of them, and the state stands behind the batch. Else as `dump_batches`; the value of a control record
    lies in the payload.
    """
    cdef Sink sink
    cdef Batch batch
    cdef Py_ssize_t n = payload.shape[0]
    cdef int status = OK
    cdef const uint8_t* origin = NULL
    cdef uint8_t* start
    set_sink(&sink, out, state, pair_previous, pair_next, options, key_decoder, value_decoder, max_headers)
    if batch_bytes.shape[0] < ENVELOPE + MIN_SIZE or n > INT32_MAX or state[AT_CURSOR] < 0 or state[AT_CURSOR] > n:
        raise ValueError("the batch or the payload has a wrong size")
    if <int8_t>batch_bytes[16] >= 2 and batch_bytes.shape[0] < OVERHEAD:
        raise ValueError("the batch has a wrong size")
    start = sink.pointer
    # of an empty payload nothing is read: any address will do
    origin = &payload[0] if n else &batch_bytes[0]
    with nogil:
        batch.position = position
        read_header(&batch_bytes[0], &batch)
        batch.is_valid = True
        if batch.magic >= 2:
            if state[AT_DONE] == 0:
                status = check_records(&batch, origin, n, max_headers)
            if status == OK:
                status = put_records(&batch, origin, n, &sink)
        else:
            if state[AT_DONE] == 0:
                status = check_message_set(&batch, origin, n, &state[0])
            if status == OK:
                status = put_message_set(&batch, origin, &sink)
        if status == OK:
            end_batch(&state[0], batch.size)
    return status, distance(start, sink.pointer)


def find_largest_timestamp(const uint8_t[::1] batch_bytes not None, const uint8_t[::1] payload not None,
                           int32_t max_headers):
    """`(status, timestamp)`: the largest of the records in a payload, -1 for none.

    The payload is what follows the header of a v2 batch, decompressed, or the messages out of a compressed one.
    """
    cdef Batch batch
    cdef Cursor cursor, key, value, headers
    cdef int64_t[STATE_SIZE] state
    cdef int64_t largest = -1
    cdef int64_t timestamp = 0
    cdef int32_t delta = 0
    cdef int32_t n_headers = 0
    cdef int64_t _i
    cdef Py_ssize_t n = payload.shape[0]
    cdef Py_ssize_t at = 0
    cdef int status = OK
    cdef const uint8_t* p = NULL
    if batch_bytes.shape[0] < ENVELOPE + MIN_SIZE or n > INT32_MAX:
        raise ValueError("the batch or the payload has a wrong size")
    if <int8_t>batch_bytes[16] >= 2 and batch_bytes.shape[0] < OVERHEAD:
        raise ValueError("the batch has a wrong size")
    p = &payload[0] if n else &batch_bytes[0]
    with nogil:
        read_header(&batch_bytes[0], &batch)
        if batch.magic >= 2:
            cursor.pointer = p
            cursor.end = p + n
            status = check_records(&batch, p, n, max_headers) if batch.count else OK
            for _i in range(batch.count if status == OK else 0):
                parse_record(&cursor, &batch, max_headers, &timestamp, &delta, &key, &value, &headers, &n_headers)
                if timestamp > largest:
                    largest = timestamp
        else:
            status = check_message_set(&batch, p, n, state)
            for _i in range(state[AT_COUNT] if status == OK else 0):
                if p[at + 17] & CODEC_MASK:
                    status = LEGACY_NESTED
                    break
                timestamp = message_timestamp(&batch, p + at + ENVELOPE, True)
                if timestamp > largest:
                    largest = timestamp
                at += <int32_t>load_be32(p + at + 8) + ENVELOPE
    return status, largest


def find_last_offsets(const uint8_t[::1] window not None, int64_t window_start, int64_t file_size,
                      const int64_t[::1] position not None, int64_t max_bytes, int64_t[::1] last_offset not None):
    """The last offsets of the batches at positions, within `max_bytes` each; `(status, n_done)`.

    Stops at the first position where Kafka's tool stops: END where no batch starts. NEED_MORE: the window ends first.
    """
    cdef Py_ssize_t n = position.shape[0]
    cdef Py_ssize_t size_of_window = window.shape[0]
    cdef Py_ssize_t i, at
    cdef int64_t left
    cdef int32_t size
    cdef int status = OK
    cdef const uint8_t* p = NULL
    if last_offset.shape[0] != n:
        raise ValueError("columns differ in length")
    i = 0
    with nogil:
        while i < n:
            if position[i] < 0 or position[i] > file_size:
                status = END
                break
            left = file_size - position[i]
            if max_bytes < left:
                left = max_bytes
            if left <= MAGIC_END:
                status = END
                break
            at = position[i] - window_start
            if at < 0 or at > size_of_window - MAGIC_END:
                status = NEED_MORE
                break
            p = &window[at]
            size = <int32_t>load_be32(p + 8)
            if size < MIN_SIZE:
                status = SIZE_NEGATIVE if size < 0 else SIZE_TOO_SMALL
                break
            if left - ENVELOPE < size:
                status = END
                break
            last_offset[i] = <int64_t>load_be64(p)
            if <int8_t>p[16] >= 2:
                if at > size_of_window - OVERHEAD:
                    status = HEADER_CUT if position[i] > file_size - OVERHEAD else NEED_MORE
                    break
                last_offset[i] = wrap_add(last_offset[i], <int32_t>load_be32(p + 23))
            i += 1
    return status, i


def walk_chain(const uint8_t[::1] window not None, int64_t window_start, int64_t start, int64_t stop,
               int64_t file_size, int64_t[::1] position not None, int64_t[::1] last_offset not None):
    """Follow size fields as FileLogInputStream does; `(status, n_rows, position)` of the batches on the way.

    END: the log ends at the position. NEED_MORE: the window does.
    """
    cdef Py_ssize_t n = window.shape[0]
    cdef Py_ssize_t capacity = position.shape[0]
    cdef Py_ssize_t row = 0
    cdef int64_t at = start
    cdef int32_t size
    cdef int status = OK
    cdef const uint8_t* p = NULL
    if last_offset.shape[0] != capacity or start < window_start or start - window_start > n:
        raise ValueError("columns differ in length, or the start lies outside the window")
    with nogil:
        while True:
            if stop - at <= MAGIC_END:
                status = END
                break
            if row >= capacity:
                status = OUTPUT_FULL
                break
            if at - window_start > n - MAGIC_END:
                status = NEED_MORE
                break
            p = &window[at - window_start]
            size = <int32_t>load_be32(p + 8)
            if size < MIN_SIZE:
                status = SIZE_NEGATIVE if size < 0 else SIZE_TOO_SMALL
                break
            if stop - at - ENVELOPE < size:
                status = END
                break
            last_offset[row] = <int64_t>load_be64(p)
            if <int8_t>p[16] >= 2:
                if at - window_start > n - OVERHEAD:
                    status = HEADER_CUT if at > file_size - OVERHEAD else NEED_MORE
                    break
                last_offset[row] = wrap_add(last_offset[row], <int32_t>load_be32(p + 23))
            position[row] = at
            row += 1
            at += <int64_t>size + ENVELOPE
    return status, row, at


def dump_pairs(int64_t base, const int64_t[::1] first not None, const int64_t[::1] second not None, int kind,
               uint8_t[::1] out not None):
    """Print index entries a line each: of an offset index (kind 0) or a time index (1); `n_bytes`."""
    cdef Py_ssize_t n = first.shape[0]
    cdef Py_ssize_t i
    cdef uint8_t* p
    cdef uint8_t* start
    if second.shape[0] != n or out.shape[0] < 80 * n + 1:
        raise ValueError("columns differ in length, or there is no room")
    start = &out[0]
    p = start
    with nogil:
        for i in range(n):
            if kind == 0:
                p = put_i64(put(p, b"offset: "), wrap_add(base, first[i]))
                p = put_i64(put(p, b" position: "), second[i])
            else:
                p = put_i64(put(p, b"timestamp: "), first[i])
                p = put_i64(put(p, b" offset: "), wrap_add(base, second[i]))
            p = put(p, b"\n")
    return distance(start, p)
