"""Compiled loops. They take bytes and numbers, and return numbers and a status.

    `wire`         the one reader of untrusted bytes: integers and varints within bounds, and the status codes
    `crc`          CRC-32C and CRC-32, of one batch or of a table of them
    `buffer_pool`  reused blocks of memory, and memory that grows
    `growing_columns`  columns of records that kernels append to
    `header_walk`  batch headers to the columns of a batch table, from a window or a file
    `record_windows`  valid batches to record batches or columns, a window per call
    `header_rows`  the memory of these columns, and sums over them
    `resync`       every intact batch of a damaged window, and the longest run of increasing offsets
    `decode`       records of v2 batches: finds the spans of all fields, then fills columns
    `fill`         records of valid v2 batches to columns in one pass, with decompression
    `legacy`       messages of formats v0 and v1
    `columns`      byte strings gathered in another order
    `filters`      comparisons of byte strings in place
    `replay`       the last row of each key, over many parts
    `commits`      committed offsets from records of `__consumer_offsets`
    `encode`       record columns to the records of v2 batches
    `batch_spec`   headers of v2 batches
    `partitioner`  murmur2 of keys
    `indexes`      index entries of batches, full segments, many lookups at once
    `avro`         Avro values to columns, by a program compiled from their schema
    `protobuf`     Protobuf values to columns, the same way
    `json_text`    JSON values to columns, by a program compiled from their type

Kernels use no paths, no Python objects in loops and no exceptions about bytes. They return a status, and
`kafkalog.errors` turns it into an exception. Each kernel belongs to the module of its name in another package.
"""
