"""Walks a log as `DumpLogSegments` walks it: bytes to a table of batches and a table of where their records lie.

Kafka: DumpLogSegments.dumpLog, FileLogInputStream.nextBatch, DefaultRecordBatch.iterator,
AbstractLegacyRecordBatch.DeepRecordsIterator. Unlike the readers' walks this one believes what Kafka's tool believes:
any order of offsets, any magic, records under a wrong checksum.
"""

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t

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
    /* going on at 0 after 2^31 - 1, in Java's int arithmetic (DefaultRecordBatch.incrementSequence) */
    static inline int32_t kl_add_sequence(int32_t sequence, int32_t delta) {
        if (sequence > (int32_t)((uint32_t)INT32_MAX - (uint32_t)delta))
            return (int32_t)((uint32_t)delta - ((uint32_t)INT32_MAX - (uint32_t)sequence) - 1u);
        return (int32_t)((uint32_t)sequence + (uint32_t)delta);
    }
    """
    int32_t add_sequence "kl_add_sequence"(int32_t sequence, int32_t delta) noexcept nogil

cdef enum:
    MIN_RECORD_BYTES = 7

# places of the state that a caller keeps between calls
cdef enum:
    AT_POSITION = 0
    AT_IN_BATCH = 1
    AT_CURSOR = 2
    AT_DONE = 3
    AT_NEEDED = 4
    AT_FIRST_OFFSET = 5
    AT_SHIFT = 6
    AT_COUNT = 7
    AT_PREVIOUS = 8
    AT_N_TO_REPORT = 9
    STATE_SIZE = 10

STATUSES = {
    "END": END,
    "PAYLOAD": PAYLOAD,
    "CODEC_ID": CODEC_ID,
    "HEADER_CUT": HEADER_CUT,
    "VALUE_CUT": VALUE_CUT,
    "TOO_LARGE": TOO_LARGE,
    "CONTROL": CONTROL,
    "CONTROL_KEY": CONTROL_KEY,
    "CONTROL_VALUE": CONTROL_VALUE,
    "DECODER": DECODER,
}
STATE = {
    "position": AT_POSITION,
    "needed": AT_NEEDED,
    "previous": AT_PREVIOUS,
    "n_to_report": AT_N_TO_REPORT,
    "size": STATE_SIZE,
}
BATCH_SIZE = sizeof(Batch)
RECORD_SIZE = sizeof(Record)


cdef struct Output:
    int64_t* state
    Batch* batches
    Record* records
    Py_ssize_t batch_room
    Py_ssize_t record_room
    Py_ssize_t n_batches
    Py_ssize_t n_records
    # what the starts of records count from
    const uint8_t* origin
    int32_t max_headers


cdef int set_output(Output* out, int64_t[::1] state, uint8_t[::1] batches, uint8_t[::1] records,
                    int32_t max_headers) except -1:
    if state.shape[0] != STATE_SIZE or batches.shape[0] < <Py_ssize_t>sizeof(Batch) \
            or records.shape[0] < <Py_ssize_t>sizeof(Record):
        raise ValueError("the state or a table has a wrong size")
    out.state = &state[0]
    out.state[AT_N_TO_REPORT] = 0
    out.batches = <Batch*>&batches[0]
    out.records = <Record*>&records[0]
    out.batch_room = batches.shape[0] // sizeof(Batch)
    out.record_room = records.shape[0] // sizeof(Record)
    out.n_batches = 0
    out.n_records = 0
    out.origin = NULL
    out.max_headers = max_headers
    return 0


cdef inline void read_header(const uint8_t* p, int64_t position, Batch* batch) noexcept nogil:
    """The header at `p`: 61 bytes of it from v2 on, 26 before, or as many as a v0 message has."""
    batch.position = position
    batch.size_in_bytes = <int64_t><int32_t>load_be32(p + 8) + ENVELOPE
    batch.magic = <int8_t>p[16]
    batch.base_offset = <int64_t>load_be64(p)
    batch.last_sequence = -1
    batch.n_records = 0
    batch.is_continued = 0
    if batch.magic >= 2:
        batch.partition_leader_epoch = <int32_t>load_be32(p + 12)
        batch.crc = load_be32(p + 17)
        # of the two bytes of attributes Kafka reads the second one only
        batch.attributes = p[22]
        batch.last_offset = wrap_add(batch.base_offset, <int32_t>load_be32(p + 23))
        batch.base_timestamp = <int64_t>load_be64(p + 27)
        batch.max_timestamp = <int64_t>load_be64(p + 35)
        batch.producer_id = <int64_t>load_be64(p + 43)
        batch.producer_epoch = <int16_t>load_be16(p + 51)
        batch.base_sequence = <int32_t>load_be32(p + 53)
        batch.records_count = <int32_t>load_be32(p + 57)
        if batch.base_sequence != -1:
            batch.last_sequence = add_sequence(batch.base_sequence, <int32_t>load_be32(p + 23))
    else:
        batch.partition_leader_epoch = -1
        batch.crc = load_be32(p + 12)
        batch.attributes = p[17]
        batch.last_offset = batch.base_offset
        batch.max_timestamp = <int64_t>load_be64(p + 18) if batch.magic != 0 else -1
        batch.base_timestamp = batch.max_timestamp
        batch.producer_id = -1
        batch.producer_epoch = -1
        batch.base_sequence = -1
        batch.records_count = 1


cdef inline void end_record(Output* out) noexcept nogil:
    cdef int64_t offset = out.records[out.n_records].offset
    out.state[AT_N_TO_REPORT] += offset != wrap_add(out.state[AT_PREVIOUS], 1)
    out.state[AT_PREVIOUS] = offset
    out.state[AT_DONE] += 1
    out.n_records += 1


cdef inline int read_record(Cursor* cursor, const Batch* batch, Output* out, Record* record) noexcept nogil:
    """The record at the cursor, checked whole, as DefaultRecord.readFrom; a null key or value has a size of -1."""
    cdef Cursor inside
    cdef const uint8_t* start = cursor.pointer
    cdef int32_t length = 0
    cdef int32_t size = 0
    cdef int32_t _i
    cdef int64_t timestamp_delta = 0
    cdef int32_t delta = 0
    cdef int status = read_varint(cursor, &length)
    if status != OK:
        return status
    if length <= 0 or length > remaining(cursor):
        return RECORD_LENGTH
    inside.pointer = cursor.pointer + 1
    inside.end = cursor.pointer + length
    cursor.pointer = inside.end
    record.start = <int32_t>distance(out.origin, start)
    record.size = <int32_t>distance(start, inside.end)
    status = read_varlong(&inside, &timestamp_delta)
    if status != OK:
        return status
    status = read_varint(&inside, &delta)
    if status != OK:
        return status
    record.offset = wrap_add(batch.base_offset, delta)
    record.timestamp = wrap_add(batch.base_timestamp, timestamp_delta)
    if batch.attributes & LOG_APPEND_TIME_BIT:
        record.timestamp = batch.max_timestamp
    record.sequence = -1 if batch.base_sequence < 0 else add_sequence(batch.base_sequence, delta)
    record.status = OK
    record.crc = 0
    record.magic = batch.magic
    record.is_valid = 1
    status = read_varint(&inside, &size)
    if status != OK:
        return status
    if size > remaining(&inside):
        return KEY_LENGTH
    record.key_start = <int32_t>distance(out.origin, inside.pointer)
    record.key_size = size if size >= 0 else -1
    inside.pointer += size if size >= 0 else 0
    status = read_varint(&inside, &size)
    if status != OK:
        return status
    if size > remaining(&inside):
        return VALUE_LENGTH
    record.value_start = <int32_t>distance(out.origin, inside.pointer)
    record.value_size = size if size >= 0 else -1
    inside.pointer += size if size >= 0 else 0
    status = read_varint(&inside, &record.headers_count)
    if status != OK:
        return status
    if record.headers_count < 0 or record.headers_count > remaining(&inside):
        return HEADER_COUNT
    if record.headers_count > out.max_headers:
        return TOO_MANY_HEADERS
    record.headers_start = <int32_t>distance(out.origin, inside.pointer)
    for _i in range(record.headers_count):
        status = read_varint(&inside, &size)
        if status != OK:
            return status
        if size < 0:
            return HEADER_KEY_NULL
        if size > remaining(&inside):
            return HEADER_LENGTH
        inside.pointer += size
        status = read_varint(&inside, &size)
        if status != OK:
            return status
        if size > 0:
            if size > remaining(&inside):
                return HEADER_LENGTH
            inside.pointer += size
    return OK if inside.pointer == inside.end else RECORD_LENGTH


cdef int check_records(const Batch* batch, const uint8_t* data, Py_ssize_t size, Output* out) noexcept nogil:
    """Whether all records are good: of a compressed batch Kafka shows none before it has read all."""
    cdef Cursor cursor
    cdef Record record
    cdef int32_t _i
    cdef int status = OK
    if batch.records_count < 0 or batch.records_count > size // MIN_RECORD_BYTES:
        return RECORD_COUNT
    cursor.pointer = data
    cursor.end = data + size
    for _i in range(batch.records_count):
        status = read_record(&cursor, batch, out, &record)
        if status != OK:
            return status
    return OK if cursor.pointer == cursor.end else RECORD_TRAILING_BYTES


cdef int add_records(const Batch* batch, const uint8_t* data, Py_ssize_t size, Output* out) noexcept nogil:
    """The records of a v2 batch, from where the state says on."""
    cdef Cursor cursor
    cdef int64_t* state = out.state
    cdef int status
    if batch.records_count < 0:
        return RECORD_COUNT
    cursor.pointer = data + state[AT_CURSOR]
    cursor.end = data + size
    while state[AT_DONE] < batch.records_count:
        if out.n_records >= out.record_room:
            return OUTPUT_FULL
        status = read_record(&cursor, batch, out, out.records + out.n_records)
        if status != OK:
            return status
        if state[AT_DONE] + 1 == batch.records_count and cursor.pointer != cursor.end:
            return RECORD_TRAILING_BYTES
        state[AT_CURSOR] = distance(data, cursor.pointer)
        end_record(out)
    return OK


cdef inline int64_t message_timestamp(const Batch* batch, const uint8_t* message, bint in_wrapper) noexcept nogil:
    """The timestamp of a v0 or v1 message: its own, or the wrapper's that was appended with it."""
    if message[4] == 0:
        return -1
    if message[4] == 1 and in_wrapper and batch.magic == 1 and batch.attributes & LOG_APPEND_TIME_BIT:
        return batch.max_timestamp
    return <int64_t>load_be64(message + 6)


cdef inline int read_fields(const uint8_t* message, int32_t size, int32_t at, Record* record) noexcept nogil:
    """Where the key and the value of a v0 or v1 message lie; they begin at `at`."""
    if size - at < 4:
        return KEY_LENGTH
    record.key_size = <int32_t>load_be32(message + at)
    at += 4
    record.key_start = record.start + at
    if record.key_size > 0:
        if record.key_size > size - at:
            return KEY_LENGTH
        at += record.key_size
    if size - at < 4:
        return VALUE_LENGTH
    record.value_size = <int32_t>load_be32(message + at)
    at += 4
    record.value_start = record.start + at
    return VALUE_CUT if record.value_size > size - at else OK


cdef int add_message(const Batch* batch, const uint8_t* message, int32_t size, int64_t offset, bint in_wrapper,
                     Output* out) noexcept nogil:
    """One v0 or v1 message, which begins, at `message`, with its checksum."""
    cdef Record* record = out.records + out.n_records
    if out.n_records >= out.record_room:
        return OUTPUT_FULL
    record.start = <int32_t>distance(out.origin, message)
    record.size = size
    record.offset = offset
    record.timestamp = message_timestamp(batch, message, in_wrapper)
    record.sequence = -1
    record.key_start = record.start
    record.value_start = record.start
    record.key_size = -1
    record.value_size = -1
    record.headers_start = record.start + size
    record.headers_count = 0
    record.crc = load_be32(message)
    record.magic = <int8_t>message[4]
    # only a message inside a wrapper has a checksum besides that of its batch
    record.is_valid = crc32(message + 4, size - 4) == record.crc if in_wrapper else batch.is_valid
    record.status = read_fields(message, size, 6 if record.magic == 0 else 14, record)
    end_record(out)
    return OK


cdef int check_message_set(const Batch* batch, const uint8_t* data, Py_ssize_t size, int64_t* state) noexcept nogil:
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


cdef int add_message_set(const Batch* batch, const uint8_t* data, Output* out) noexcept nogil:
    """The messages out of a compressed one, from where the state says on."""
    cdef int64_t* state = out.state
    cdef Py_ssize_t at
    cdef int32_t message
    cdef int status
    while state[AT_DONE] < state[AT_COUNT]:
        at = state[AT_CURSOR]
        message = <int32_t>load_be32(data + at + 8)
        if data[at + 17] & CODEC_MASK:
            return LEGACY_NESTED
        status = add_message(batch, data + at + ENVELOPE, message,
                             wrap_add(<int64_t>load_be64(data + at), state[AT_SHIFT]), True, out)
        if status != OK:
            return status
        state[AT_CURSOR] = at + message + ENVELOPE
    return OK


cdef inline void end_batch(int64_t* state, int64_t size) noexcept nogil:
    state[AT_POSITION] += size
    state[AT_IN_BATCH] = 0
    state[AT_CURSOR] = 0
    state[AT_DONE] = 0


def walk_batches(const uint8_t[::1] window not None, int64_t window_start, int64_t stop, int64_t file_size, bint deep,
                 int64_t max_batch_bytes, int32_t max_headers, int64_t[::1] state not None,
                 uint8_t[::1] batches not None, uint8_t[::1] records not None):
    """Fill tables of batches and, if `deep`, of their records, from where `state` says on.

    Returns `(status, n_batches, n_records)`. `window_start` is the position of `window[0]` in the file, of `file_size`
    bytes, that is taken to end at `stop`. END: no batch starts at the position any more. NEED_MORE: the window does not
    hold the batch there, of `needed` bytes. TOO_LARGE: it has more than `max_batch_bytes`. OUTPUT_FULL: a table is
    full. PAYLOAD: the last row is a batch whose records are compressed. BAD_MAGIC, CODEC_ID: the last row is a batch
    that Kafka prints half a line of. Others: what is wrong with the batch. `n_to_report` counts wrong checksums, and
    offsets that are not one more than the last.
    """
    cdef Output out
    cdef Batch batch
    cdef Py_ssize_t n = window.shape[0]
    cdef Py_ssize_t at, first
    cdef int64_t needed
    cdef int32_t size = 0
    cdef int status = OK
    cdef bint complete
    cdef const uint8_t* p = NULL
    set_output(&out, state, batches, records, max_headers)
    if window_start < 0 or stop > file_size or state[AT_POSITION] < window_start \
            or state[AT_POSITION] - window_start > n or n > INT32_MAX or window_start > file_size - n:
        raise ValueError("the position lies outside the window, or that outside the file")
    if n:
        out.origin = &window[0]
    with nogil:
        while True:
            at = state[AT_POSITION] - window_start
            status = find_batch(out.origin, at, n, stop - state[AT_POSITION], &size)
            if status != OK:
                state[AT_NEEDED] = OVERHEAD
                break
            p = out.origin + at
            needed = <int64_t>size + ENVELOPE
            # FileLogInputStream reads a whole v2 header, however small the size field is
            complete = <int8_t>p[16] < 2 or needed >= OVERHEAD
            if not complete:
                needed = OVERHEAD
            state[AT_NEEDED] = needed
            if needed > max_batch_bytes:
                status = TOO_LARGE
                break
            if needed > n - at:
                status = HEADER_CUT if state[AT_POSITION] > file_size - needed else NEED_MORE
                break
            if out.n_batches >= out.batch_room:
                status = OUTPUT_FULL
                break
            read_header(p, state[AT_POSITION], &batch)
            # of a batch that is continued the checksum was compared, and counted, in the call before
            if not complete:
                batch.is_valid = 0
            elif batch.magic >= 2:
                batch.is_valid = state[AT_IN_BATCH] or crc32c(p + 21, batch.size_in_bytes - 21) == batch.crc
            else:
                batch.is_valid = crc32(p + 16, batch.size_in_bytes - 16) == batch.crc
            batch.is_continued = state[AT_IN_BATCH] != 0
            state[AT_N_TO_REPORT] += not batch.is_valid
            out.batches[out.n_batches] = batch
            out.n_batches += 1
            if batch.magic < 0:
                status = BAD_MAGIC
                break
            if batch.attributes & CODEC_MASK > LAST_CODEC:
                status = CODEC_ID
                break
            state[AT_IN_BATCH] = 1
            if deep:
                first = out.n_records
                if not complete:
                    status = SIZE_TOO_SMALL
                elif batch.attributes & CODEC_MASK and (batch.magic < 2 or batch.records_count != 0):
                    status = PAYLOAD
                elif batch.magic < 2:
                    if state[AT_DONE] == 0:
                        status = add_message(&batch, p + ENVELOPE, size, batch.last_offset, False, &out)
                elif batch.records_count != 0:
                    # of a batch without records Kafka does not look at the bytes where they would be
                    status = add_records(&batch, p + OVERHEAD, batch.size_in_bytes - OVERHEAD, &out)
                out.batches[out.n_batches - 1].n_records = <int32_t>(out.n_records - first)
                if status != OK:
                    break
            end_batch(&state[0], batch.size_in_bytes)
    return status, out.n_batches, out.n_records


def walk_payload(const uint8_t[::1] batch_bytes not None, int64_t position, const uint8_t[::1] payload not None,
                 int32_t max_headers, int64_t[::1] state not None, uint8_t[::1] batches not None,
                 uint8_t[::1] records not None):
    """Fill a table of the records that were compressed in the batch at `position`; `(status, n_records)`.

    The first row of `batches` is the batch. OK: these are all the records, and the state stands behind the batch. Else
    as `walk_batches`.
    """
    cdef Output out
    cdef Batch batch
    cdef Py_ssize_t n = payload.shape[0]
    cdef int status = OK
    set_output(&out, state, batches, records, max_headers)
    if batch_bytes.shape[0] < ENVELOPE + MIN_SIZE or n > INT32_MAX or state[AT_CURSOR] < 0 or state[AT_CURSOR] > n:
        raise ValueError("the batch or the payload has a wrong size")
    if <int8_t>batch_bytes[16] >= 2 and batch_bytes.shape[0] < OVERHEAD:
        raise ValueError("the batch has a wrong size")
    # of an empty payload nothing is read: any address will do
    out.origin = &payload[0] if n else &batch_bytes[0]
    with nogil:
        read_header(&batch_bytes[0], position, &batch)
        batch.is_valid = 1
        batch.is_continued = 1
        if batch.magic >= 2:
            if state[AT_DONE] == 0:
                status = check_records(&batch, out.origin, n, &out)
            if status == OK:
                status = add_records(&batch, out.origin, n, &out)
        else:
            if state[AT_DONE] == 0:
                status = check_message_set(&batch, out.origin, n, &state[0])
            batch.base_offset = state[AT_FIRST_OFFSET]
            if status == OK:
                status = add_message_set(&batch, out.origin, &out)
        batch.n_records = <int32_t>out.n_records
        out.batches[0] = batch
        if status == OK:
            end_batch(&state[0], batch.size_in_bytes)
    return status, out.n_records
