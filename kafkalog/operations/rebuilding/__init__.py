"""Rebuild: derives indexes, snapshots and checkpoints from `.log` files, as a broker's recovery does.

    `reindex`         the function, for log dirs, partitions and segments
    `rebuilder`       reads segments ahead, replays their producers, and writes their files in order
    `partitions`      chooses the partitions and segments to rebuild
    `index_interval`  finds the settings that indexes are built with
    `target`          writes rebuilt files: in place, elsewhere, or not at all
    `rebuilt_files`   the result of a rebuild

Mirrors `LogSegment.recover` and `LogLoader`. This package never writes `.log` files.
"""
