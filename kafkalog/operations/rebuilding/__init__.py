"""Rebuild: what a broker's recovery derives from `.log` files.

    `rebuild`         the function, over log dirs
    `rebuilder`       the work: segments read ahead, files made in order
    `choosing`        what is to be rebuilt
    `index_interval`  the settings that indexes are built with
    `snapshots`       producer snapshots and aborted transactions
    `outputs`         where rebuilt files go
    `report`          what was done

Mirrors `LogSegment.recover` and `LogLoader`. `.log` files are never written.
"""
