from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(const uint8_t* pointer, size_t size) noexcept nogil
cdef uint32_t crc32(const uint8_t* pointer, size_t size) noexcept nogil
cdef uint32_t xxh32(const uint8_t* pointer, size_t size) noexcept nogil
