# Headers of batches, for the kernels that write them.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t

from kafkalog._kernels.buffer_pool cimport Block

cdef struct Rows:
    # one row per batch; see BatchTable
    int64_t* position
    int32_t* size_in_bytes
    int64_t* base_offset
    int64_t* last_offset
    int32_t* leader_epoch
    int8_t* magic
    uint32_t* crc
    int16_t* attributes
    int64_t* base_timestamp
    int64_t* max_timestamp
    int64_t* producer_id
    int16_t* producer_epoch
    int32_t* base_sequence
    int32_t* records_count
    int16_t* control_type


cdef class HeaderRows:
    cdef Rows at
    cdef int32_t* n_filled
    cdef readonly Block block
    cdef readonly int64_t capacity
    cdef readonly int64_t n
    cdef readonly int magics
    cdef readonly int attribute_bits
    cdef readonly int common_bits
    cdef readonly int64_t largest
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t last_position
    cdef readonly int64_t end_position
    cdef readonly object next_offset
