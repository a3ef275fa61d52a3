"""Salvage: every intact batch of a damaged log, and a report about the rest.

    `resync`          finds every intact batch of a file, in linear time
    `inside_links`    those over which the size field of a damaged batch leads by chance
    `wrappers`        where the offsets of compressed v0 and v1 messages begin
    `choosing`        which of them are the log's own
    `copies`          those that are left only in a second copy of a piece of the log
    `plan`            which bytes of a segment are kept, lost, suspect and padding
    `single_records`  what is left of damaged batches, for a file of its own
    `report`          what was kept and lost
    `output`          writes the batches, and describes the holes
    `salvage`         the public function

Nothing here knows the command line.
"""
