"""Dump: turns segment files into the text of Kafka's DumpLogSegments, line for line, or into the same as objects.

    `dump`        the function, over files
    `options`     the options of a dump
    `files`       the type of a file, by its name
    `logs`        `.log` and `.checkpoint` files as lines
    `headers`     one batch header, unchecked, as Kafka's tool reads it
    `control`     Raft's control records as JSON
    `sidecars`    `.index`, `.txnindex` and `.snapshot` files as lines
    `time_index`  `.timeindex` files as lines, compared with the log
    `rows`        all these files as objects
    `report`      mismatches and findings

Dump accepts whatever Kafka's tool accepts, wrong checksums included. No other package of kafkalog does.
"""
