"""What is wanted of a log, and one ordered, parallel pass over it that gives it.

    `read`            `scan` and the `read_*` functions
    `scan`            `Scan`: which records, as which columns
    `batch_scan`      the same for batch tables
    `filters`         `filters=`: conditions judged before anything is copied
    `expressions`     Arrow expressions applied to decoded columns
    `user_functions`  `where=` and `extract=`: functions compiled with numba
    `query`           `Query`: what is wanted, checked
    `ordered_pool`    threads that work ahead on a plan; results in its order
    `execution`       one pass: windows planned, decoded by several threads, given in order
    `explain`         what a pass rules out where, and how much it read
    `planning`        a scan divided into tasks for other processes

Nothing here knows how logs are written.
"""
