"""Commands that repair: they say what a broker would do about damage, and do it, or better, before it starts.

    `preflight`    says what a broker would do on its next start
    `recover`      a broker's recovery, done offline
    `truncate`     removes the end of a log
    `trim`         removes the start of a log
    `cutting`      what these two share
    `diff`         two replicas of a partition
    `salvage`      every intact batch of a damaged log
    `merge`        several copies of a partition into the best log
    `destination`  the options that say where changed files go

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
