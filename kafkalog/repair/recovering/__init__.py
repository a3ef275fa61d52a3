"""Recovering: the start of a broker, offline, and its dry run.

    `recover`               the function, for a log dir or a partition; the checkpoints and the clean-shutdown marker
    `preflight`             the dry run, also of clean starts: with strays, retention and the files of log dirs
    `partition`             one partition: the cuts, the deleted files, the new files; batches at which a broker stops
    `targets`               releases of Kafka: feature levels, the settings that each accepts, whether it loads disks
    `recovered_partitions`  the results

`survey.startup` makes the plans, `operations.rebuilding` reads segments and builds derived files, and
`repair.placement` places the files.
"""
