"""Work on log dirs as Spark jobs: planned on the driver, done by the executors, a row of result for each segment.

Only tasks travel to executors, and only what is asked for travels back; files are read, and written, by the executors
themselves. So all of them need kafkalog, and the paths as the driver has them: one machine, or a shared file system.
"""
