"""Dump: turns segment files into the text of Kafka's DumpLogSegments, line for line, or into the same as objects.

    `dump`        the function, over files
    `options`     the options of a dump
    `files`       the type of a file, by its name
    `dump_walk`   `.log` and `.checkpoint` files to batches and records, as Kafka's tool walks them
    `dump_text`   batches and records as lines
    `rows`        batches and records as objects
    `control`     Raft's control records as JSON
    `dump_chain`  batches at positions that an index gives
    `sidecars`    `.index`, `.txnindex` and `.snapshot` files
    `time_index`  `.timeindex` files, compared with the log
    `report`      mismatches and findings

Dump accepts whatever Kafka's tool accepts, wrong checksums included. No other package of kafkalog does.
"""
