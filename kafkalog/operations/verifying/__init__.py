"""Verify: checks batches, indexes, snapshots and checkpoints, and reports each issue as a `Finding`.

    `verify`               the function, over log dirs
    `segment`              one segment: batches and indexes in a single walk
    `partition`            checks across segments, and the snapshots and checkpoints
    `record_headers`       compares batch headers with records
    `values`               keys and values that a decoder rejects
    `verified_partitions`  the result

Verify writes nothing.
"""
