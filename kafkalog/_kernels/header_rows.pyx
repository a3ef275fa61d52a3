"""Batch headers in the layout that kernels write and `BatchTable` reads: columns one after another in a block."""

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint32_t

from kafkalog._kernels.buffer_pool cimport Block

cdef enum:
    # bytes per row: all columns, and the number of records filled in
    ROW_BYTES = 79


cdef class HeaderRows:
    """Room for batch headers, and a summary of the headers that `read_intact` read.

    Attributes
    ----------
    block : Block
        The columns of a batch table, one after another, each with `capacity` rows. The last column is the number of
        records filled in from each batch, as int32.
    capacity : int
        A multiple of 8, so that columns are aligned.
    n : int
        Number of rows.
    magics, attribute_bits, common_bits : int
        Bit m for each magic m; the attribute bits of any batch; the attribute bits of all batches.
    largest : int
        Size of the largest batch.
    first_offset, last_offset : int
        A compressed v0 or v1 message has only a last offset.
    last_position, end_position : int
        Start and end of the last batch.
    has_empty : bool
        Whether any batch header has a record count of 0.
    has_hidden : bool
        Whether bytes follow the header of such a batch.
    next_offset : int or None
        The offset field after the last batch; None if it was not read.
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
