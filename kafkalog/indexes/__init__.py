"""`.index`, `.timeindex` and `.txnindex`: viewed, searched, built, checked, measured.

    `view`               entries as arrays, and searches in them
    `builder`            entries made out of batches
    `index_files`        the three index files: viewed, built, checked, measured
    `spacing`            how far apart entries lie
    `checks`             entries held against the batches of a segment
    `odd_offsets`        which of two batches has a wrong offset, where they contradict each other
    `transaction_check`  aborted transactions held against the batches of a partition
    `distribution`       percentiles of many numbers in bounded memory
    `measures`           the gaps of one offset index, and what other settings would give
    `statistics`         measures of a segment and of a partition
    `plot`               pictures of them

Mirrors `OffsetIndex`, `TimeIndex` and `TransactionIndex`. Indexes are hints: no result may depend on one.
"""
