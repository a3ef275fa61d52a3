# Reads valid batches, for kernels that process them in the same call.

from libc.stdint cimport int64_t, uint8_t

from kafkalog._kernels.fill cimport Filler
from kafkalog._kernels.header_rows cimport HeaderRows


cpdef tuple read_intact(int descriptor, int64_t start, int64_t stop, int64_t previous_offset, int64_t max_batch_bytes,
                        bint check_crc, int stop_at, int64_t start_offset, int64_t end_offset, Py_ssize_t read_bytes,
                        uint8_t[::1] room, const uint8_t[::1] data, Filler filler, HeaderRows rows)
