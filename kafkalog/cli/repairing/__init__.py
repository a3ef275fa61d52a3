"""Commands that repair: what a broker would do about damage, done before it starts, and what saves more than it would.

    `preflight`       says what a broker would do on its next start
    `recover`         a broker's recovery, done offline
    `truncate`        removes the end of a log
    `trim`            removes the start of a log
    `compact`         runs the log cleaner
    `cutting`         what these three share
    `diff`            two replicas of a partition
    `salvage`         every intact batch of a damaged log
    `merge`           several copies of a partition into the best log
    `boot`            a directory on which a broker starts, out of partitions whose cluster is gone
    `output_options`  the options that say where changed files go

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
