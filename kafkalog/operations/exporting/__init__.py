"""Export: writes a scan to files, directories and tables.

    `export`             the function: a file, a directory or a stream, all or nothing
    `partitioned_files`  the files of a directory, by topic, partition and date
    `parts`              what one process writes: an export is one part, or many of them on a cluster
    `last_batch`         the last exported batch of a partition, to detect records that replaced it
    `resuming`           offsets of earlier exports, and the new ranges
    `directory`          a directory of files to which each export adds, also in an object store
    `delta`              a Delta table to which each export adds
    `iceberg`            an Iceberg table to which each export adds

The target of `resume` stores the next offset and the last batch of each partition.
"""
