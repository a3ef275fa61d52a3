"""Commands that write, and the command for Spark.

    `export`   writes records to files
    `reindex`  rebuilds indexes from `.log` files
    `convert`  rewrites logs
    `load`     writes files of records to partitions
    `spark`    runs jobs on a cluster
    `spark_running`  what its commands share
    `spark_repairs`  those that repair

A command is imported when it runs; `kafkalog.cli.commands` names them. Only `spark` may import `kafkalog.spark`.
"""
