"""Opens a log on disk and reads its batches: segments, partitions, log dirs.

    `open`              from a path to a Segment, Partition or LogDir
    `log_dir`           a mapping from topic-partition to partition
    `partition`         the segments of a directory in order, and the offsets from the checkpoints
    `ranges`            picklable byte ranges of segments that open as a partition
    `directory`         a partition's directory by one listing: what its names mean
    `segment_files`     the segments of a directory, as a broker loads them
    `same_clusters`     which log dirs are of one cluster
    `set_apart`         renamed directories and archives of partitions: which hold the only copy
    `segment_reader`    the windows of all segments of a partition, in order
    `segment_stream`    the windows of one segment; damage is raised, or skipped
    `proved_ends`       where a segment once ended, by its indexes
    `missing_parts`     where batches are gone from the middle of a segment, by its offset index
    `log_start`         where a log begins, by the checkpoint and the first segment
    `compaction`        whether missing offsets were compacted away
    `searching`         which batches of a damaged segment are intact, and the log's own
    `segment`           a `.log` with the indexes next to it, and lookups in it
    `lookups`           the first record at or after a timestamp, in a segment and in a partition
    `recovery`          a segment as a broker's recovery reads it
    `live`              what a running broker does to files while they are read
    `tail`              the offset up to which a growing partition can be read

Mirrors the reading half of `LogSegment`, `UnifiedLog` and `LogManager`. Nothing here writes, and nothing needs Arrow.
"""
