"""Dump: the text of Kafka's DumpLogSegments, line for line, or the same as objects.

    `dump`        the function, over files
    `options`     what a dump is asked for
    `files`       what a file is, by its name
    `logs`        `.log` and `.checkpoint` files as lines
    `headers`     one batch header as Kafka's tool believes it
    `control`     control records of Raft as JSON
    `sidecars`    `.index`, `.txnindex` and `.snapshot` files as lines
    `time_index`  `.timeindex` files as lines, and held against the log
    `rows`        the same files as objects
    `report`      mismatches and findings

Dump believes what Kafka's tool believes, wrong checksums included; nothing else in kafkalog does.
"""
