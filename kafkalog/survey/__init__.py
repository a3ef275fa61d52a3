"""A survey: the facts about a log that every command reports, from its files and its batches.

    `evidence`       facts from other files: indexes, snapshots, checkpoints, the state of the log dir
    `losses`         missing segments and offsets, the losses of a partition as ranges, the losses of a cut
    `origins`        where an output of another command comes from, and what it is known to lack
    `topics`         the settings of topics: compacted, tiered, kept for how long, and by which file that is known
    `retention`      the segments that retention deletes
    `next_steps`     commands to run next, each with its reason
    `startup`        the plan of a broker's start for each segment and partition
    `startup_load`   the segments that a broker recovers, by checkpoints and existing indexes
    `startup_files`  files that a broker deletes, renames or cannot load, leader epochs and the topic id among them
    `startup_root`   the files of a log dir that a broker reads at its start, and those that stop it
    `startup_config` the log dirs, the quorum and the roles in `server.properties`
    `topic_ids`      topic ids of partitions without `partition.metadata`, and the loss if none is known
    `absent_partitions`  partitions that the metadata log has, and whose directories are gone
    `startup_end`    the end of a segment for a broker that does not recover it

A survey is plain data. It reads the small files next to a log; the caller passes the contents of segments.
"""
