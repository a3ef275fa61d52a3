"""Conditions on records: checks them, binds them to a topic-partition, and applies them to batches and records.

    `filters`         `Term` and `Filter`: conditions applied before any record is copied
    `filter_tuples`   `filters=` checked and converted to these
    `filter_text`     the same as text
    `arrow_filters`   the filters that say what an Arrow expression says, or less
    `expressions`     Arrow expressions applied to decoded columns where filters do not say all
    `latest`          `latest=`: the offsets of the last record of each key

Nothing here opens a log.
"""
