"""One verb each: it takes a log and options, and gives a result or a report.

    `export`          a scan into files
    `list_producers`  who writes to a partition
    `trace_lookup`    a lookup, step by step
    `verifying`       is everything as a broker needs it?
    `rebuilding`      indexes, snapshots and epochs out of `.log` files
    `converting`      logs into other formats, codecs and sizes
    `dumping`         what DumpLogSegments prints
    `loading`         tables and files into log dirs

Operations stand on the packages above and do not know the command line or Spark.
"""
