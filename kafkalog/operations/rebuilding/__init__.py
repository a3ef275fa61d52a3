"""Rebuild: `.log` files become the indexes, snapshots and checkpoints that a broker's recovery derives from them.

    `reindex`         the function, for log dirs, partitions and segments
    `rebuilder`       reads segments ahead and writes their files in order
    `choosing`        chooses the partitions and segments to rebuild
    `index_interval`  finds the settings that indexes are built with
    `snapshots`       replays producers: snapshots and aborted transactions
    `target`          writes rebuilt files: in place, elsewhere, or not at all
    `report`          the result of a rebuild

Mirrors `LogSegment.recover` and `LogLoader`. This package never writes `.log` files.
"""
