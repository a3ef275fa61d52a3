"""Repair: what a broker would do with a log that is damaged, and what kafkalog does about it before the broker starts.

    `placement`   where changes go, and changed partitions: as copies, or in place with a backup
    `recovering`  what a broker does when it starts, done offline, and its dry run
    `cutting`     the end or the start of a log, removed offline
    `compacting`  what a broker's log cleaner does, done offline
    `diff`        the first batch in which two replicas differ
    `salvaging`   every intact batch of a damaged log, and a report about the rest
    `merging`     several copies of a partition into the best log

It stands on the readers and on `operations`; outputs are staged and published as `storage` and `writing` know how.
Sources are never modified unless `in_place` is asked for. Then a backup is kept, where one would not fill the disk.
"""
