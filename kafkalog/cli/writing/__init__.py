"""Commands that write, and the command for Spark.

    `export`   records to files
    `reindex`  indexes out of `.log` files
    `convert`  logs into other logs
    `load`     files to partitions
    `spark`    jobs on a cluster

A command is imported when it runs; `kafkalog.cli.commands` names them. Only `spark` may import `kafkalog.spark`.
"""
