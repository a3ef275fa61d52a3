"""The command `kafkalog spark`: the commands that run as jobs on Spark.

    `spark`    scan, batches, verify, reindex and export
    `repairs`  salvage and recover
    `running`  what they share: options, and a session that tells its progress

Only these modules may import `kafkalog.spark`.
"""
