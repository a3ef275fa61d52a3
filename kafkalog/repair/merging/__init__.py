"""Merge: merges several copies of a partition into the best log.

    `replica`            the intact batches of one copy, and its leader epochs
    `merged_log`         chooses the base, cuts the other copies, and fills the holes of the base from them
    `merged_partitions`  the source of each range of offsets
    `merge`              the public function, which writes the batches

Nothing here knows the command line.
"""
