"""Merge: merges several copies of a partition into the best log.

    `merged_partitions`  the source of each range of offsets
    `merge`              the public function

`kafkalog.repair.rescue` chooses and writes the batches. Nothing here knows the command line.
"""
