"""Operations: each module or package takes a log and options, and returns a result or a report.

    `exporting`       writes a scan to files, directories and tables
    `cat`             records one by one
    `querying`        topics as tables for SQL
    `sql_conditions`  conditions of SQL on fields with values of several types
    `inspecting`      a result for each partition: `ls`, `lookup`, `index_stats`, `producers`, `epochs`
    `listing`         sums up the batch headers of a partition
    `trace_lookup`    shows a lookup step by step
    `remote_storage`  checks the remote storage of tiered partitions, and restores a log dir from it
    `verifying`       checks whether a broker can use everything
    `rebuilding`      makes indexes, snapshots and epochs from `.log` files
    `converting`      rewrites logs with other formats, codecs and sizes
    `dumping`         prints what DumpLogSegments prints
    `loading`         writes tables and files into log dirs

Operations use the reading and writing packages. They do not know the command line or Spark.
"""
