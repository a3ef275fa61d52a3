"""Operations on log dirs as Spark jobs: the driver plans, executors work, and the result has a row for each segment.

    `scan`            records and batches as DataFrames
    `verify`          `kafkalog.verify` as a job
    `reindex`         `kafkalog.reindex` as a job
    `salvage`         `kafkalog.salvage` as a job
    `recover`         `kafkalog.recover` as a job
    `export`          `kafkalog.export` as a job
    `task_outputs`    the output of a job, of which each task writes a part
    `two_passes`      first each segment alone, then the segments of a partition together
    `tables`          turns a table of tasks into a DataFrame of results
    `finished_tasks`  the finished tasks of a job, so that a later run can resume it

Spark moves only tasks and results: executors read and write the files themselves. So each needs kafkalog installed, and
the same paths as the driver: one machine, or a shared file system.
"""
