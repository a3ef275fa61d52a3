"""Commands that read.

    `ls`             topics, partitions, segments
    `summary`        sums of a log dir
    `cat`            records
    `record_text`    a record as a line
    `batches`        record batches
    `batch_summary`  who sends what
    `lookup`         an offset or a time
    `dump`           as DumpLogSegments
    `producers`      producers and transactions
    `epochs`         leader epochs
    `index_stats`    how good indexes are
    `verify`         what is damaged

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
