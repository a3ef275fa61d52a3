"""Searches a damaged segment for intact batches, and chooses those that belong to the log.

    `resync`              finds every intact batch of a file, in linear time
    `damaged_sizes`       intact batches that a damaged batch's wrong size field skips
    `consistent_batches`  the largest consistent set of batches
    `resynchroniser`      where reading continues after damage
    `odd_offsets`         which of two contradicting batches has a wrong offset
    `copies`              the original of a batch that is in a log twice
    `lost_records`        the records lost with an unreadable batch, from the batches around it
    `missing`             missing offsets, from segments and other files

Readers that skip damage continue at the next batch found here. Salvage also checks single fields of these batches. Only
the last three modules know segments: the others get bytes, and the range of offsets.
"""
