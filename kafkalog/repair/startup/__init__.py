"""Startup: what a broker does with a log dir when it starts. Nothing here writes.

    `preflight`   the function: what a broker would do, partition by partition
    `forecast`    the result
    `loading`     one partition, as `LogLoader` loads it
    `small_files` exceptions about the leader epochs and the topic id
    `segment_reading` a segment as a broker reads it while it loads a log, and the log end offset that it finds
    `producer_loading` the producer snapshots that it takes and deletes, and what it dies of while it replays batches
    `control_records` the marker of a control batch, checksum or not, and what a broker dies of there
    `compressed_messages` the offsets inside of v0 and v1 messages, and what a broker dies of there
    `file_names`  files that a broker deletes, renames or cannot load, by their names alone
    `settings`    the cluster's and the broker's settings, and what retention deletes by them
    `load_plan`   which segments it recovers, by the checkpoints and by which indexes there are

Mirrors `LogManager` and `LogLoader`.
"""
