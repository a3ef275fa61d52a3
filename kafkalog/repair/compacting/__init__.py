"""Compaction: what a broker's log cleaner does with a partition, offline.

    `compact`               `compact`, for log dirs and partitions
    `partition`             compacts one partition: how far, which segments become one, in which order
    `cleaning`              one pass over the windows of batches: which records and batches stay
    `cleaner_facts`         the facts that a pass needs: aborted transactions, producers, the last record of each key
    `compacted_partitions`  what became of each partition

Mirrors `LogCleanerManager` and `Cleaner` of Kafka 4.3. Where the new files go is in `repair.placement`.
"""
