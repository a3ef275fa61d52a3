"""Dump: turns segment files into the text of Kafka's DumpLogSegments, line for line, or into the same as objects.

    `dump`        the function, over files
    `options`     the options of a dump
    `files`       the type of a file, by its name
    `batch_chain` batches at positions that an index gives, and from one to the next
    `log_walk`    `.log` and `.checkpoint` files to batches and records, as Kafka's tool walks them
    `decoders`    keys and values as text and numbers; control records, and Raft's as JSON
    `dump_text`   batches and records as lines
    `rows`        batches and records as objects
    `sidecars`    `.index`, `.txnindex` and `.snapshot` files
    `time_index`  `.timeindex` files, compared with the log
    `report`      mismatches and findings

Dump accepts whatever Kafka's tool accepts, wrong checksums included. No other package of kafkalog does.
"""
