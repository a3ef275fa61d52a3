"""Write: records become batches, batches become segments, segments become partition directories that a broker serves.

    `partition_writer`    `PartitionWriter`: appends records or whole batches to a partition
    `option_checks`       checks the writer's options
    `batch_builder`       checks and numbers records, collects them into batches and encodes these
    `partition_files`     writes the segments of a partition and its producer snapshots
    `segment_writer`      writes one `.log` and its indexes
    `log_end`             reads the state that an append continues from
    `partition_staging`   stages a partition and moves its files into place in a safe order
    `routing`             routes the rows of a table to partitions
    `job_directories`     what jobs keep next to a log dir: their directories, a lock, the log of commits
    `job_commit`          moves partitions that tasks staged into a log dir: all or none

This package does not scan logs.
"""
