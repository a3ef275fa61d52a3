"""A survey: the facts about a log that every command reports, from its files and its batches.

    `evidence`      what the other files say: indexes, snapshots, checkpoints, the state of the log dir
    `losses`        missing segments and offsets, and the losses of a partition as ranges
    `startup_root`  the files of a log dir that a broker reads when it starts, and which keep it from starting

A survey is plain data. It reads the small files next to a log; the caller passes what each segment contains.
"""
