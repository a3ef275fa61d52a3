"""Searches a damaged segment for the batches that are intact, and chooses those that are the log's own.

    `resync`           finds every intact batch of a file, in linear time
    `damaged_sizes`    intact batches over which the size field of a damaged batch leads by chance
    `choosing`         the largest set of batches that agree with each other
    `copies`           batches that are left only in a second copy of a piece of the log
    `resume`           where reading continues after damage
    `odd_offsets`      which of two batches has a wrong offset, where the walk accepts both
    `neighbours`       what a batch that cannot be read held, as those around it tell
    `missing`          which offsets a log lacks, as its segments and other files tell

Readers that skip damage continue where this finds a batch. Salvage also questions single fields of them. Only the last
two know segments: the others are given bytes, and the offsets that bound them.
"""
