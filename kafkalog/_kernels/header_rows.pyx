"""Batch headers in the layout that kernels write and `BatchTable` reads: columns one after another in a block."""

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint32_t

from kafkalog._kernels.buffer_pool cimport Block

cdef enum:
    # bytes per row: all columns, and the number of records filled in
    ROW_BYTES = 79


cdef class HeaderRows:
    """Room for batch headers, and a summary of the headers that `read_intact` read.

    `block` has the columns of a batch table, one after another, each with `capacity` rows, a multiple of 8 for
    alignment. The last column is the number of records filled in from each batch, as int32. `n` is the number of rows.
    `magics` has bit m for each magic m, `attribute_bits` the bits of any batch, and `common_bits` those of all. A
    compressed v0 or v1 message has only a last offset. `last_position` and `end_position` are those of the last batch,
    and `next_offset` is the offset field after it; None if it was not read.
    """

    def __cinit__(self, int64_t capacity):
        cdef char* p
        if capacity < 0 or capacity > INT32_MAX:
            raise ValueError("there cannot be so many rows")
        capacity = (capacity + 7) // 8 * 8
        self.capacity = capacity
        self.block = Block(capacity * ROW_BYTES)
        p = <char*>self.block.pointer
        self.at.position = <int64_t*>p
        self.at.size_in_bytes = <int32_t*>(p + 8 * capacity)
        self.at.base_offset = <int64_t*>(p + 12 * capacity)
        self.at.last_offset = <int64_t*>(p + 20 * capacity)
        self.at.leader_epoch = <int32_t*>(p + 28 * capacity)
        self.at.magic = <int8_t*>(p + 32 * capacity)
        self.at.crc = <uint32_t*>(p + 33 * capacity)
        self.at.attributes = <int16_t*>(p + 37 * capacity)
        self.at.base_timestamp = <int64_t*>(p + 39 * capacity)
        self.at.max_timestamp = <int64_t*>(p + 47 * capacity)
        self.at.producer_id = <int64_t*>(p + 55 * capacity)
        self.at.producer_epoch = <int16_t*>(p + 63 * capacity)
        self.at.base_sequence = <int32_t*>(p + 65 * capacity)
        self.at.records_count = <int32_t*>(p + 69 * capacity)
        self.at.control_type = <int16_t*>(p + 73 * capacity)
        self.n_filled = <int32_t*>(p + 75 * capacity)
