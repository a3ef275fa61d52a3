"""Work on log dirs as Spark jobs: planned on the driver, done by executors, a result row for each segment.

    `scan`     records and batches as DataFrames
    `verify`   verify
    `rebuild`  rebuild
    `export`   export
    `passes`   segments by themselves, then the segments of a partition together
    `tables`   a table of tasks to a DataFrame of results
    `ledger`   finished tasks of a job, so that it can go on

Only tasks travel to executors, and only what is asked for travels back; files are read, and written, by the executors
themselves. So all of them need kafkalog, and the paths as the driver has them: one machine, or a shared file system.
"""
