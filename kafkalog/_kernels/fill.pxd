# Declarations for kernels that fill columns, one batch at a time.

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "payloads.h":
    enum:
        KL_PAD
        KL_SKIP
        KL_COPY
        KL_VIEW
        KL_DOUBT
        KL_NO_ROOM
        KL_LZ4
        KL_ZSTD

    ctypedef struct kl_binary:
        int mode
        int32_t* offsets
        int64_t* wide_offsets
        uint8_t* bytes
        int64_t room
        uint8_t* views
        int32_t buffer
        uint8_t* valid
        int nulls
        int64_t used
        int64_t n_null

    ctypedef struct kl_columns:
        int64_t* offset
        int64_t* timestamp
        int64_t capacity
        kl_binary key
        kl_binary value
        int with_headers
        kl_binary header_key
        kl_binary header_value
        int32_t* header_offsets
        int64_t* wide_header_offsets
        int64_t header_capacity
        int64_t n_records
        int64_t n_headers

    ctypedef struct kl_batch:
        const uint8_t* payload
        const uint8_t* end
        const uint8_t* readable
        const uint8_t* origin
        int64_t base_offset
        int64_t base_timestamp
        int64_t append_time
        int32_t count
        int appended
        int32_t max_headers
        int32_t max_batch_headers
        int64_t lines_ahead

    ctypedef struct kl_libraries:
        void* (*zstd_create)() noexcept nogil
        size_t (*zstd_free)(void*) noexcept nogil
        size_t (*zstd_decompress)(void*, void*, size_t, const void*, size_t) noexcept nogil
        size_t (*zstd_frame_size)(const void*, size_t) noexcept nogil
        void* (*deflate_create)() noexcept nogil
        void (*deflate_free)(void*) noexcept nogil
        int (*deflate_gzip)(void*, const void*, size_t, void*, size_t, size_t*, size_t*) noexcept nogil

    ctypedef struct kl_codecs:
        kl_libraries of
        void* zstd
        void* deflate
        uint32_t (*xxh32)(const uint8_t*, size_t) noexcept nogil

    void kl_prefetch(const void*) noexcept nogil
    int kl_has_room(const kl_columns*, int64_t, int64_t) noexcept nogil
    int kl_walk_batch(const kl_batch*, kl_columns*) noexcept nogil
    int kl_walk_setup(int level) noexcept nogil
    int kl_knows(const kl_codecs*, int) noexcept nogil
    int64_t kl_decompress(kl_codecs*, int, const uint8_t*, int64_t, uint8_t*, int64_t) noexcept nogil

cdef extern from "message_walk.h":
    void kl_touch(const uint8_t*, int64_t) noexcept nogil
    void kl_ask_for(const uint8_t*, int64_t) noexcept nogil
    int kl_has_room_for_strings(const kl_columns*, int64_t, int64_t) noexcept nogil
    const uint8_t* kl_message_value(const uint8_t*, const uint8_t*, int, const uint8_t**, int32_t*,
                                    int32_t*) noexcept nogil
    int kl_put_message(kl_columns*, const uint8_t*, const uint8_t*, const uint8_t*, const uint8_t*, int, int64_t,
                       int64_t) noexcept nogil
    int64_t kl_signed_64(const uint8_t*) noexcept nogil
    int64_t kl_count_messages(const uint8_t*, int64_t, int, int64_t*) noexcept nogil
    int kl_walk_messages(kl_columns*, const uint8_t*, int64_t, const uint8_t*, const uint8_t*, int, int64_t, int,
                         int64_t) noexcept nogil

cdef enum:
    # why filling stopped
    ALL_DONE = 0
    IN_DOUBT = 1
    COLUMNS_FULL = 2
    ARENA_FULL = 3


cdef class Codecs:
    cdef kl_codecs codecs
    cdef object libraries


cdef class Filler:
    cdef kl_columns columns
    cdef Codecs codecs
    cdef uint8_t* room
    cdef int64_t room_size
    cdef int64_t used
    cdef int64_t filled
    cdef int32_t max_records
    cdef int32_t max_headers
    cdef int32_t max_batch_headers
    cdef int64_t max_decompressed
    cdef bint views
    cdef bint is_in_memory  # payloads come from memory, not from the CPU cache

    cdef int fill(self, const uint8_t* payload, int64_t size, const uint8_t* origin, const uint8_t* readable,
                  int64_t base_offset, int64_t base_timestamp, int64_t max_timestamp, int16_t attributes,
                  int32_t records_count) noexcept nogil
    cdef int fill_message(self, const uint8_t* message, int64_t size, const uint8_t* origin, const uint8_t* readable,
                          int magic, int16_t attributes, int64_t offset, int64_t timestamp, int64_t previous_offset,
                          int32_t* n_filled) noexcept nogil
