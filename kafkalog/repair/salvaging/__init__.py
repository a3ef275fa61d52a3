"""Salvage: every intact batch of a damaged log, and a report about the rest.

    `resync`          finds every intact batch of a file, in linear time
    `choosing`        which of them are the log's own
    `plan`            which bytes of a segment are kept, lost, suspect and padding
    `single_records`  what is left of damaged batches, for a file of its own
    `report`          what was kept and lost
    `output`          writes the batches, and describes the holes
    `salvage`         the public function

Nothing here knows the command line.
"""
