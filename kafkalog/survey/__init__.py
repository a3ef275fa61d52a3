"""A survey: the facts about a log that every command reports, from its files and its batches.

    `evidence`       what the other files say: indexes, snapshots, checkpoints, the state of the log dir
    `losses`         missing segments and offsets, the losses of a partition as ranges, and what a cut loses
    `startup`        the plan of a broker's start: what becomes of each segment and partition
    `startup_load`   which segments a broker recovers, by the checkpoints and by which indexes there are
    `startup_names`  files that a broker deletes, renames or cannot load, leader epochs and the topic id among them
    `startup_root`   the files of a log dir that a broker reads when it starts, and which keep it from starting
    `startup_end`    where a segment ends, for a broker that does not recover it

A survey is plain data. It reads the small files next to a log; the caller passes what each segment contains.
"""
