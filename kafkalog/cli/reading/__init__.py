"""Commands that read.

    `ls`           lists topics, partitions, segments
    `report`       writes one report on log dirs
    `space`        shows disk usage
    `cat`          prints records
    `record_text`  formats records as lines, for `cat` and `lookup`
    `sql`          runs queries over topics as tables
    `batches`      lists record batches
    `lookup`       finds an offset or a time
    `dump`         prints the lines of DumpLogSegments
    `producers`    lists producers and transactions
    `epochs`       lists leader epochs
    `index_stats`  measures indexes
    `verify`       checks for damage
    `tiered`       checks remote storage, and restores a log dir from it

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
