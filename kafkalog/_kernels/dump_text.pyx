"""Formats the lines of `DumpLogSegments` from the tables of dump's walk, as bytes of text.

Kafka: DumpLogSegments.dumpLog, of 4.3 and of 2.8.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._kernels.dump_walk cimport (
    CODEC_MASK, CONTROL, CONTROL_BIT, CONTROL_KEY, CONTROL_VALUE, DECODER, DELETE_HORIZON_BIT, LAST_CODEC,
    LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, VALUE_CUT, Batch, Record,
)
from kafkalog._kernels.wire cimport (
    HEADER_LENGTH, OK, OUTPUT_FULL, VALUE_LENGTH, Cursor, distance, load_be16, load_be32, load_be64, read_varint,
    remaining,
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include "utf8_impl.h"
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
    uint8_t* put_u32 "kl_put_u32"(uint8_t* p, uint32_t value) noexcept nogil
    uint8_t* put_i64 "kl_put_i64"(uint8_t* p, int64_t value) noexcept nogil
    uint8_t* put_string "kl_put_string"(uint8_t* p, const uint8_t* text, size_t n) noexcept nogil

# of a line less what keys, values and header keys bring
cdef enum:
    LINE_ROOM = 1024

# options
cdef enum:
    CONTENTS = 1
    SKIP_METADATA = 2
    DIALECT_2_8 = 4
    INTERNAL = 8

# decoders
cdef enum:
    AS_STRING = 0
    AS_INTEGER = 1
    AS_LONG = 2

# places of the state that a caller keeps between calls
cdef enum:
    AT_BATCH = 0
    AT_RECORD = 1
    AT_LEFT = 2
    AT_NEEDED = 3
    STATE_SIZE = 4

OPTIONS = {"contents": CONTENTS, "skip_metadata": SKIP_METADATA, "dialect_2_8": DIALECT_2_8, "internal": INTERNAL}
DECODERS = {"string": AS_STRING, "integer": AS_INTEGER, "long": AS_LONG}
STATE = {"batch": AT_BATCH, "record": AT_RECORD, "left": AT_LEFT, "needed": AT_NEEDED, "size": STATE_SIZE}


cdef struct Style:
    int options
    int key_decoder
    int value_decoder


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


cdef inline uint8_t* put_timestamp_type(uint8_t* p, const Batch* batch) noexcept nogil:
    if batch.magic == 0:
        return put(p, b" NoTimestampType: ")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return put(p, b" LogAppendTime: ")
    return put(p, b" CreateTime: ")


cdef inline uint8_t* put_batch(uint8_t* p, const Batch* batch, bint old) noexcept nogil:
    """The line of a batch; only its beginning if Kafka's tool fails on the codec or the magic."""
    if batch.magic >= 2:
        p = put_i64(put(p, b"baseOffset: "), batch.base_offset)
        p = put_i64(put(p, b" lastOffset: "), batch.last_offset)
        p = put_i64(put(p, b" count: "), batch.records_count)
        p = put_i64(put(p, b" baseSequence: "), batch.base_sequence)
        p = put_i64(put(p, b" lastSequence: "), batch.last_sequence)
        p = put_i64(put(p, b" producerId: "), batch.producer_id)
        p = put_i64(put(p, b" producerEpoch: "), batch.producer_epoch)
        p = put_i64(put(p, b" partitionLeaderEpoch: "), batch.partition_leader_epoch)
        p = put_bool(put(p, b" isTransactional: "), batch.attributes & TRANSACTIONAL_BIT != 0)
        p = put_bool(put(p, b" isControl: "), batch.attributes & CONTROL_BIT != 0)
        if not old:
            if batch.attributes & DELETE_HORIZON_BIT:
                p = put(put_i64(put(p, b" deleteHorizonMs: OptionalLong["), batch.base_timestamp), b"]")
            else:
                p = put(p, b" deleteHorizonMs: OptionalLong.empty")
    else:
        p = put_i64(put(p, b"offset: "), batch.last_offset)
    if batch.magic < 0 or batch.attributes & CODEC_MASK > LAST_CODEC:
        return p
    p = put_i64(put(p, b" position: "), batch.position)
    p = put_i64(put_timestamp_type(p, batch), batch.max_timestamp)
    p = put_i64(put(p, b" size: "), batch.size_in_bytes)
    p = put_i64(put(p, b" magic: "), batch.magic)
    p = put_codec(put(p, b" compresscodec: "), batch.attributes & CODEC_MASK, old)
    p = put_u32(put(p, b" crc: "), batch.crc)
    p = put_bool(put(p, b" isvalid: "), batch.is_valid)
    return put(p, b"\n")


cdef inline uint8_t* put_batch_in_record(uint8_t* p, const Batch* batch) noexcept nogil:
    """What 2.8 repeats of the batch in each record's line."""
    p = put_i64(put(p, b" baseOffset: "), batch.base_offset)
    p = put_i64(put(p, b" lastOffset: "), batch.last_offset)
    p = put_i64(put(p, b" baseSequence: "), batch.base_sequence)
    p = put_i64(put(p, b" lastSequence: "), batch.last_sequence)
    p = put_i64(put(p, b" producerEpoch: "), batch.producer_epoch)
    p = put_i64(put(p, b" partitionLeaderEpoch: "), batch.partition_leader_epoch)
    p = put_i64(put(p, b" batchSize: "), batch.size_in_bytes)
    p = put_i64(put(p, b" magic: "), batch.magic)
    p = put_codec(put(p, b" compressType: "), batch.attributes & CODEC_MASK, True)
    return put_i64(put(p, b" position: "), batch.position)


cdef inline uint8_t* put_header_keys(uint8_t* p, const uint8_t* data, const Record* record) noexcept nogil:
    cdef Cursor cursor
    cdef int32_t i
    cdef int32_t size = 0
    cursor.pointer = data + record.headers_start
    cursor.end = data + record.start + record.size
    p = put(p, b" headerKeys: [")
    for i in range(record.headers_count):
        if i:
            p = put(p, b",")
        # the walk has read them once: it cannot go wrong
        if read_varint(&cursor, &size) != OK or size < 0 or size > remaining(&cursor):
            break
        p = put_string(p, cursor.pointer, size)
        cursor.pointer += size
        if read_varint(&cursor, &size) != OK or size > remaining(&cursor):
            break
        if size > 0:
            cursor.pointer += size
    return put(p, b"]")


cdef inline uint8_t* put_metadata(uint8_t* p, const uint8_t* data, const Batch* batch, const Record* record,
                                  bint old) noexcept nogil:
    """What a line says of a record beside its key and value."""
    cdef bint legacy = batch.magic < 2
    p = put_i64(put(p, b"| offset: "), record.offset)
    if old:
        p = put_bool(put(p, b" isValid: "), record.is_valid)
        p = put_u32(put(p, b" crc: "), record.crc) if legacy else put(p, b" crc: null")
    else:
        p = put_i64(put_timestamp_type(p, batch), record.timestamp)
    p = put_i64(put(p, b" keySize: "), record.key_size)
    p = put_i64(put(p, b" valueSize: "), record.value_size)
    if old:
        p = put_i64(put_timestamp_type(p, batch), record.timestamp)
        p = put_batch_in_record(p, batch)
    if not legacy:
        p = put_i64(put(p, b" sequence: "), record.sequence)
        return put_header_keys(p, data, record)
    if old:
        p = put_u32(put(p, b" crc: "), record.crc)
        return put_bool(put(p, b" isvalid: "), record.is_valid)
    p = put_bool(put(p, b" isValid: "), record.is_valid)
    return put_u32(put(p, b" crc: "), record.crc)


cdef inline uint8_t* put_decoded(uint8_t* p, int decoder, const uint8_t* data, int32_t size) noexcept nogil:
    if decoder == AS_STRING:
        return put_string(p, data, size)
    return put_i64(p, <int32_t>load_be32(data)) if decoder == AS_INTEGER else put_i64(p, <int64_t>load_be64(data))


cdef inline bint is_short(int decoder, int32_t size) noexcept nogil:
    # Kafka's decoders of numbers take the first four or eight bytes, and fail on fewer
    return size >= 0 and ((decoder == AS_INTEGER and size < 4) or (decoder == AS_LONG and size < 8))


cdef inline int put_contents(uint8_t** p, const uint8_t* data, const Record* record, const Style* style) noexcept nogil:
    """Key and value; a negative size is null, of which nothing is printed. Both are decoded before either is.

    CONTROL: they are those of an internal topic, for the caller to print, with the line's end.
    """
    cdef bint first = style.options & SKIP_METADATA != 0
    if record.status != OK:
        return VALUE_LENGTH
    if style.options & INTERNAL:
        return CONTROL
    if is_short(style.key_decoder, record.key_size) or is_short(style.value_decoder, record.value_size):
        return DECODER
    if record.key_size >= 0:
        p[0] = put(p[0], b"| key: ") if first else put(p[0], b" key: ")
        p[0] = put_decoded(p[0], style.key_decoder, data + record.key_start, record.key_size)
        first = False
    if record.value_size >= 0:
        if style.options & DIALECT_2_8:
            first = False
        p[0] = put(p[0], b"| payload: ") if first else put(p[0], b" payload: ")
        p[0] = put_decoded(p[0], style.value_decoder, data + record.value_start, record.value_size)
    return OK


cdef inline int put_control(uint8_t** p, const uint8_t* data, const Record* record) noexcept nogil:
    """What a control record says. CONTROL: Raft's, for the caller to print, with the line's end."""
    cdef const uint8_t* key = data + record.key_start
    cdef const uint8_t* value = data + record.value_start
    cdef int16_t kind
    if record.key_size < 4 or <int16_t>load_be16(key) < 0:
        return CONTROL_KEY
    kind = <int16_t>load_be16(key + 2)
    if kind != 0 and kind != 1:
        return CONTROL
    if record.value_size < 6 or <int16_t>load_be16(value) < 0:
        return CONTROL_VALUE
    p[0] = put(p[0], b" endTxnMarker: COMMIT coordinatorEpoch: ") if kind == 1 else put(
        p[0], b" endTxnMarker: ABORT coordinatorEpoch: ")
    p[0] = put_i64(p[0], <int32_t>load_be32(value + 2))
    return OK


cdef inline int put_record(uint8_t** p, const uint8_t* data, const Batch* batch, const Record* record,
                           const Style* style) noexcept nogil:
    """The line of a record; of one that cannot be printed whole, as much as Kafka prints."""
    cdef bint control = batch.magic >= 2 and batch.attributes & CONTROL_BIT != 0
    cdef int status
    if not style.options & SKIP_METADATA or style.options & CONTENTS:
        if record.status != OK and record.status != VALUE_CUT:
            return record.status
    if not style.options & SKIP_METADATA:
        p[0] = put_metadata(p[0], data, batch, record, style.options & DIALECT_2_8 != 0)
        if control:
            status = put_control(p, data, record)
            if status != OK:
                return status
    if style.options & CONTENTS and not control:
        status = put_contents(p, data, record, style)
        if status != OK:
            return status
    p[0] = put(p[0], b"\n")
    return OK


cdef inline bint lies_in(const Record* record, Py_ssize_t n) noexcept nogil:
    """Whether the parts of a record lie in it, in their order, and it in data of `n` bytes."""
    cdef int64_t end = <int64_t>record.start + record.size
    cdef int64_t value_size = record.value_size if record.value_size > 0 and record.status == OK else 0
    if record.start < 0 or record.size < 0 or end > n:
        return False
    if record.status != OK and record.status != VALUE_CUT:
        return True
    if record.key_start < record.start or record.headers_start > end:
        return False
    if <int64_t>record.key_start + (record.key_size if record.key_size > 0 else 0) > record.value_start:
        return False
    return record.value_start + value_size <= record.headers_start


def format_rows(const uint8_t[::1] batches not None, Py_ssize_t n_batches, const uint8_t[::1] records not None,
                Py_ssize_t n_records, const uint8_t[::1] data not None, int options, int key_decoder,
                int value_decoder, uint8_t[::1] out not None, int64_t[::1] state not None):
    """Print batches and their records, which lie in `data`, from where `state` says on; `(status, n_bytes)`.

    OUTPUT_FULL: the text has to be taken away; the next line may be as long as `needed`. CONTROL: the line of the last
    record waits for the rest. Others: what is wrong with the last record. `left` in the state is the number of records
    of the current batch to come, -1 before its line.
    """
    cdef Style style
    cdef Py_ssize_t n = data.shape[0]
    cdef int64_t need
    cdef int status = OK
    cdef bint outside = False
    cdef const uint8_t* origin = NULL
    cdef const Batch* batch
    cdef const Record* record
    cdef uint8_t* p
    cdef uint8_t* end
    if state.shape[0] != STATE_SIZE or out.shape[0] < LINE_ROOM or state[AT_BATCH] < 0 or state[AT_RECORD] < 0:
        raise ValueError("the state or the output has a wrong size")
    if n_batches > <Py_ssize_t>(batches.shape[0] // sizeof(Batch)) \
            or n_records > <Py_ssize_t>(records.shape[0] // sizeof(Record)):
        raise ValueError("a table has fewer rows")
    style.options = options
    style.key_decoder = key_decoder
    style.value_decoder = value_decoder
    if n:
        origin = &data[0]
    p = &out[0]
    end = p + out.shape[0]
    with nogil:
        while state[AT_BATCH] < n_batches and status == OK:
            batch = <const Batch*>&batches[0] + state[AT_BATCH]
            if state[AT_LEFT] < 0:
                if not batch.is_continued:
                    if distance(p, end) < LINE_ROOM:
                        state[AT_NEEDED] = LINE_ROOM
                        status = OUTPUT_FULL
                        break
                    p = put_batch(p, batch, options & DIALECT_2_8 != 0)
                state[AT_LEFT] = batch.n_records
            while state[AT_LEFT] > 0:
                record = <const Record*>&records[0] + state[AT_RECORD]
                if state[AT_RECORD] >= n_records or not lies_in(record, n):
                    outside = True
                    status = HEADER_LENGTH
                    break
                # a byte that is not UTF-8 is printed as U+FFFD, which takes three
                need = LINE_ROOM + 3 * <int64_t>record.size
                if distance(p, end) < need:
                    state[AT_NEEDED] = need
                    status = OUTPUT_FULL
                    break
                state[AT_RECORD] += 1
                state[AT_LEFT] -= 1
                status = put_record(&p, origin, batch, record, &style)
                if status != OK:
                    break
            if status == OK:
                state[AT_BATCH] += 1
                state[AT_LEFT] = -1
    if outside:
        raise IndexError("a record lies outside data")
    return status, distance(&out[0], p)
