"""Turns a path and the options of a scan into records or batch rows, in one ordered, parallel pass.

    `read`            `scan` and the `read_*` functions
    `scan`            `Scan`: which records, as which columns
    `dataset`         `ScanDataset`: a scan as engines take a `pyarrow.dataset.Dataset`
    `batch_scan`      `BatchScan`: the batch table of all partitions
    `batch_summary`   counts of batches by producer, codec and so on
    `conditions`      `filters=`: conditions on records, as tuples, as text and as Arrow expressions
    `user_functions`  `where=` and `extract=`: functions compiled with numba
    `decoded`         `decode=`: which conditions wait for decoded values, and the schemas beside a log
    `options`         the options of scans: names, types and checks, and which calls take them
    `query`           `Query`: the checked options of a scan; what a scan rules out at each level
    `ordered_pool`    threads that work ahead on a plan; results in the order of the plan
    `execution`       one pass: plans windows, decodes them in several threads, returns them in order
    `planning`        divides what a scan reads into tasks for other processes
    `following`       scans of what a running broker appends
    `tasks`           reads one task of a plan, as Spark's jobs do

Nothing here writes logs.
"""
