"""Commands that repair: they say what a broker would do about damage, and do it, or better, before it starts.

    `preflight`    says what a broker would do on its next start
    `recover`      a broker's recovery, done offline
    `salvage`      every intact batch of a damaged log
    `destination`  the options that say where changed files go

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
