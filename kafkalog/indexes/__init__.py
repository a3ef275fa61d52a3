"""Reads, searches, builds, checks and measures `.index`, `.timeindex` and `.txnindex` files.

    `view`               entries as arrays, and searches in them
    `builder`            builds entries from batches
    `index_files`        `OffsetIndex`, `TimeIndex` and `TransactionIndex`
    `checks`             checks entries against the batches of a segment, and their distances against the interval
    `transaction_check`  checks aborted transactions against the batches of a partition
    `time_hints`         where to begin to read for a time
    `distribution`       percentiles of many numbers in bounded memory
    `measures`           the gaps and the lookup cost of one offset index
    `statistics`         measures of a segment and of a partition, also for other settings
    `plot`               draws the statistics

Mirrors `OffsetIndex`, `TimeIndex` and `TransactionIndex`. Indexes are hints: no result may depend on one.
"""
