"""Operations on log dirs as Spark jobs: the driver plans, executors work, and the result has a row for each segment.

    `scan`      records and batches as DataFrames
    `verify`    `kafkalog.verify` as a job
    `reindex`   `kafkalog.reindex` as a job
    `export`    `kafkalog.export` as a job

Executors read and write the files themselves. So each needs kafkalog installed, and the same paths as the driver.
"""
