"""Records to batches, batches to segments, segments to partition directories that a broker serves.

    `partition_writer`    `PartitionWriter`: records or whole batches in
    `options`             its options, checked
    `record_accumulator`  records on their way into batches
    `batch_builder`       records checked, numbered and encoded
    `partition_files`     segments and the state beside them, while they are written
    `rolling`             when a broker begins a new segment
    `segment_writer`      one `.log` and its indexes
    `log_end`             the state that an append continues from
    `destination`         where a partition is staged, and the order in which its files are moved
    `partitioner`         the partition of a key
    `routing`             rows of a table to the partitions that they belong to
    `job_commit`          partitions that tasks wrote elsewhere, taken into a log dir: all or none
    `commit_log`          which jobs have been committed

Nothing here knows how logs are scanned.
"""
