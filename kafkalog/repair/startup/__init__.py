"""Startup: what a broker does with a log dir when it starts. Nothing here writes.

    `preflight`   the function: what a broker would do, partition by partition
    `forecast`    the result
    `loading`     one partition, as `LogLoader` loads it
    `small_files` exceptions about the leader epochs and the topic id
    `log_end`     the log end offset as a broker finds it, from whatever the offset index says
    `file_names`  files that a broker deletes, renames or cannot load, by their names alone
    `settings`    the cluster's and the broker's settings, and what retention deletes by them
    `load_plan`   which segments it recovers, by the checkpoints and by which indexes there are

Mirrors `LogManager` and `LogLoader`.
"""
