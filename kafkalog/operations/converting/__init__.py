"""Convert: a partition read, rewritten window by window, and written to a new place.

    `convert`         the function, over log dirs
    `rules`           which records are kept, dropped or changed
    `needed_batches`  batches that producers and transactions need
    `conversion`      one partition: planned, rewritten, written in order
    `rewrite`         a window of batches to a window of batches
    `redaction`       parts of records made null or hashed
    `recut`           records cut into batches again
    `assemble`        a window put together
    `target`          where a converted partition goes
    `report`          what was done

The source is only read.
"""
