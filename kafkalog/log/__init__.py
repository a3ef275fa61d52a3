"""A log on disk, opened and walked: segments, partitions, log dirs.

    `open`              a path to what it holds
    `log_dir`           a mapping from topic-partition to partition
    `partition`         segments in order, with what the checkpoints say of them
    `ranges`            byte ranges of segments that travel and read like a partition
    `segment_files`     which files of a directory are segments
    `segment_reader`    segments read one after the other, as windows
    `segment_stream`    the windows of one segment, across damage where wanted
    `segment`           a `.log` with the indexes beside it, and lookups in it
    `timestamp_search`  the first record at or after a timestamp
    `list_offsets`      offsets for timestamps, as ListOffsets answers
    `recovery`          a segment as a broker's recovery reads it
    `tail`              how far a growing partition can be read

Mirrors `LogSegment`, `UnifiedLog` and `LogManager` as far as they read. Nothing here writes, and nothing needs Arrow.
"""
