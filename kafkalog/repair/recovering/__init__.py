"""Recovering: what a broker's own recovery would do with a log dir, done offline.

    `recover`         the function, for a log dir or a partition
    `partition`       one partition: which logs are cut, what is deleted, what is written
    `producer_order`  the order in which the producers of its segments are replayed
    `epochs`          the leader epochs that are found in its segments
    `log_dir`         the checkpoints and the clean-shutdown marker of the log dir
    `report`          the result

Reading segments and building what is derived is `operations.rebuilding`'s work; `repair.placement` places the files.
"""
