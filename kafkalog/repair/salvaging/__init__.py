"""Salvage: every intact batch of a damaged log, and a report about the rest.

    `kept_batches`         which batches are kept, and their leader epochs, which no checksum covers
    `plan`                 which bytes of a segment are kept, lost, suspect and padding; kept batches that do not decode
    `salvaged_partitions`  what was kept and lost
    `partition`            writes the batches of a partition, and describes the holes
    `salvage`              the public function
    `quarantine`           reads the intact batches of what was not kept

The batches are found by `kafkalog.log.searching`. Nothing here knows the command line.
"""
