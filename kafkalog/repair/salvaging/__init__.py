"""Salvage: every intact batch of a damaged log, and a report about the rest.

    `plan`                 which batches of a segment are kept, with which leader epochs, and which bytes are lost
    `salvaged_partitions`  what was kept and lost
    `partition`            writes the batches of a partition, and describes the holes
    `salvage`              the public function
    `quarantine`           reads the intact batches of what was not kept

The batches are found by `kafkalog.log.searching`. Nothing here knows the command line.
"""
