"""The command `kafkalog spark`: the commands that run as jobs on Spark.

    `spark`    scan, batches, verify, reindex and export
    `running`  options of all jobs, and their session

Only these modules may import `kafkalog.spark`.
"""
