"""Verify: batches, indexes, snapshots and checkpoints, and what is wrong with them.

    `verify`          the function, over log dirs
    `segment`         one segment: batches and indexes in a single walk
    `partition`       what spans segments, and the small files
    `losses`          what is gone: segments and offsets that other files know of
    `record_headers`  whether headers tell the truth about records

Verify writes nothing.
"""
