"""Commands that write.

    `export`   writes records to files
    `reindex`  rebuilds indexes from `.log` files
    `convert`  rewrites logs
    `load`     writes files of records to partitions
    `sample`   writes a small log dir to try the commands on

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
