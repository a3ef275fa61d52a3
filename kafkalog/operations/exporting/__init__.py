"""Export: writes a scan to files, directories and tables.

    `export`             the function: a file, a directory or a stream, all of it or nothing
    `partitioned_files`  the files of a directory, by topic, partition and date
    `resuming`           what earlier exports wrote, and the ranges of offsets that are new
    `directory`          a directory of files to which each export adds
    `remote_directory`   the same in an object store
    `delta`              a Delta table to which each export adds
    `iceberg`            an Iceberg table to which each export adds

What `resume` adds to says itself up to which offset each partition was exported.
"""
