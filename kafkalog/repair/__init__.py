"""Repair: does a broker's recovery and cleaning offline, and saves more of a damaged log than a broker would.

    `placement`   puts changes in place with a backup, or into a copy
    `recovering`  a broker's recovery, offline, and its dry run
    `cutting`     removes the end or the start of a log
    `compacting`  a broker's log cleaner, offline
    `diff`        finds the first batch in which two replicas differ
    `salvaging`   saves every intact batch of a damaged log, and reports the rest
    `rescue`      the plan for a partition, made from one or many copies
    `merging`     merges several copies of a partition into the best log

This package changes sources only with `in_place`. It then keeps a backup, unless that would fill the disk.
"""
