"""Cutting: removes the end or the start of a log offline, and updates the derived files.

    `truncate`    removes everything from an offset, an epoch or a time on
    `trim`        removes everything before an offset or a time, as DeleteRecords does
    `retention`   chooses the segments that retention deletes
    `partitions`  opens the partitions, and places the changed files and checkpoints

The rest is `repair.recovering` and `repair.placement`.
"""
