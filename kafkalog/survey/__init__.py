"""A survey: the facts about a log that every command reports, from its files and its batches.

    `evidence`       what the other files say: indexes, snapshots, checkpoints, the state of the log dir
    `losses`         missing segments and offsets, and the losses of a partition as ranges
    `remains`        what a segment contains from a position on, which is lost if a broker cuts it there
    `startup`        the plan of a broker's start: what becomes of each segment and partition
    `startup_load`   which segments a broker recovers, by the checkpoints and by which indexes there are
    `startup_names`  files that a broker deletes, renames or cannot load, by their names alone
    `startup_files`  the leader epochs and the topic id of a partition, and which of them keep a broker from starting
    `startup_root`   the files of a log dir that a broker reads when it starts, and which keep it from starting
    `startup_end`    where a segment ends, for a broker that does not recover it

A survey is plain data. It reads the small files next to a log; the caller passes what each segment contains.
"""
