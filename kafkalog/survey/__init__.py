"""A survey: the facts about a partition that every command reports, from its directory and its batches.

    `evidence`  what the other files say: indexes, snapshots, checkpoints, the state of the log dir
    `losses`    missing segments and offsets, and the losses of a partition as ranges

A survey is plain data. It reads the small files next to a log; the caller passes what each segment contains.
"""
