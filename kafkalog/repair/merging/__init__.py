"""Merge: several copies of a partition into the best log.

    `replica`  the intact batches of one copy, and its leader epochs
    `leading`  which copy leads, where the others are cut, and which of their batches fill its holes
    `report`   where each range of offsets comes from
    `merge`    the public function, which writes the batches

Nothing here knows the command line.
"""
