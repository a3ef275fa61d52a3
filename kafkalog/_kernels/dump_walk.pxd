# Rows of dump's walk: a batch as its header says, and where the parts of a record lie. Their NumPy types are in
# operations/dumping/dump_walk.py; tables are passed as bytes, of which a view costs nothing.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._kernels.wire cimport (
    NEED_MORE, OK, SIZE_NEGATIVE, SIZE_TOO_SMALL, load_be32, load_be64, wrap_add,
)

cdef enum:
    ENVELOPE = 12
    MAGIC_END = 17
    OVERHEAD = 61
    MIN_SIZE = 14
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    LAST_CODEC = 4

# statuses of dump's kernels, beside those of wire.pxd
cdef enum:
    END = 100
    PAYLOAD = 101
    CODEC_ID = 102
    HEADER_CUT = 103
    VALUE_CUT = 104
    TOO_LARGE = 105
    CONTROL = 106
    CONTROL_KEY = 107
    CONTROL_VALUE = 108
    DECODER = 109

cdef struct Batch:
    int64_t position
    int64_t size_in_bytes
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t partition_leader_epoch
    int32_t base_sequence
    int32_t last_sequence
    int32_t records_count
    uint32_t crc
    # rows of the record table that belong to this row
    int32_t n_records
    int16_t producer_epoch
    uint8_t attributes
    int8_t magic
    uint8_t is_valid
    # the batch was in an earlier table already: these are more of its records
    uint8_t is_continued

cdef struct Record:
    int64_t offset
    int64_t timestamp
    # bytes of the record; keys, values and headers lie in them in this order
    int32_t start
    int32_t size
    int32_t sequence
    int32_t key_start
    int32_t key_size
    int32_t value_start
    int32_t value_size
    int32_t headers_start
    int32_t headers_count
    # of v0 and v1: what is wrong with the fields, which Kafka notices only where it prints them
    int32_t status
    uint32_t crc
    int8_t magic
    uint8_t is_valid


cdef inline int find_batch(const uint8_t* origin, int64_t at, Py_ssize_t n, int64_t left, int32_t* size) noexcept nogil:
    """The size field of the batch at `at` in a window of `n` bytes, where the file has `left` more."""
    if left <= MAGIC_END:
        return END
    if at > n - MAGIC_END:
        return NEED_MORE
    size[0] = <int32_t>load_be32(origin + at + 8)
    if size[0] < MIN_SIZE:
        return SIZE_NEGATIVE if size[0] < 0 else SIZE_TOO_SMALL
    return END if left - ENVELOPE < size[0] else OK


cdef inline int read_last_offset(const uint8_t* origin, int64_t at, Py_ssize_t n, int64_t left_in_file,
                                 int64_t* last_offset) noexcept nogil:
    """The last offset of the batch that `find_batch` found; HEADER_CUT where the file ends inside the header."""
    last_offset[0] = <int64_t>load_be64(origin + at)
    if <int8_t>origin[at + 16] >= 2:
        if at > n - OVERHEAD:
            return HEADER_CUT if left_in_file < OVERHEAD else NEED_MORE
        last_offset[0] = wrap_add(last_offset[0], <int32_t>load_be32(origin + at + 23))
    return OK
