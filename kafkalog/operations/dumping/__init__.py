"""Dump: turns segment files into the text of Kafka's DumpLogSegments, line for line, or into the same as objects.

    `dump`        the function, over files
    `options`     the options of a dump
    `files`       the type of a file, by its name
    `log_walk`    `.log` and `.checkpoint` files to batches and records, with wrong checksums
    `decoders`    keys and values as text and numbers; control records, and Raft's as JSON
    `dump_text`   batches and records as lines
    `rows`        batches and records as objects, with the names and types of all fields
    `sidecars`    indexes, compared with the log, and `.snapshot` files
    `mismatches`  mismatches and findings

Damage ends a file with the error of the ordinary reader; a wrong checksum does not.
"""
