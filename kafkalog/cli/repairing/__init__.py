"""Commands that repair: a broker's recovery, done offline, and commands that save more than it would.

    `preflight`       shows what a broker would do at its next start
    `recover`         does a broker's recovery offline
    `truncate`        removes the end of a log
    `trim`            removes the start of a log
    `compact`         runs the log cleaner
    `cutting`         what the commands that change partitions share
    `diff`            compares two replicas of a partition
    `salvage`         saves every intact batch of a damaged log
    `undelete`        finds deleted segments in the image of a disk
    `merge`           merges several copies of a partition
    `boot`            builds a directory on which a broker starts, from partitions of a lost cluster

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
