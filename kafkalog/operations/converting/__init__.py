"""Convert: a log is read, rewritten window by window, and written to a new directory.

    `convert`               `convert`, for log dirs, partitions and segments
    `kept_records`          decides which records are kept, dropped or redacted, and which batches are needed
    `partition`             converts one partition: plans, rewrites and writes windows in order
    `rewrite`               turns a window of batches into a window of batches
    `redaction`             sets parts of records to null or replaces them by hashes
    `batch_boundaries`      cuts records into batches again
    `assemble`              joins copied, encoded and empty batches into one window
    `target`                opens the writer of a converted partition
    `converted_partitions`  the result of a conversion

This package only reads the source.
"""
