"""Compiled loops: bytes and numbers in; numbers and a status out.

    `wire`         the one reader of untrusted bytes: integers and varints within bounds; the status codes
    `crc`          CRC-32C and CRC-32, of one batch or of a table of them
    `buffer_pool`  blocks of memory that are used again, and memory that grows
    `header_walk`  batch headers to the columns of a batch table, of a window or straight from a file, then with records
    `record_windows`  good batches to record batches or columns, a window a call
    `header_rows`  the block of memory that those columns lie in, and what they say together
    `resync`       every intact batch of a damaged window; which of them to keep so that their offsets rise
    `decode`       records of v2 batches: an exact walk to spans, then a fill of columns
    `fill`         all records of good v2 batches to columns in one pass, decompression included
    `legacy`       messages of formats v0 and v1
    `columns`      byte strings gathered in another order
    `filters`      comparisons of byte strings in place
    `replay`       of each key the last row, of records that come part by part
    `commits`      committed offsets out of records of `__consumer_offsets`
    `encode`       record columns to the records of v2 batches
    `batch_spec`   headers of v2 batches
    `partitioner`  murmur2 of keys
    `indexes`      which batches get an index entry; when a segment is full; lookups of many queries
    `avro`         Avro values to columns, by a program made of their schema
    `protobuf`     Protobuf values to columns, the same way
    `json_text`    JSON values to columns, by a program made of their type

Kernels know no paths, no Python objects in a loop and no exceptions about bytes: a status says what is wrong, and
`kafkalog.errors` makes an exception of it. Each one pairs with the module of its name in the packages above.
"""
