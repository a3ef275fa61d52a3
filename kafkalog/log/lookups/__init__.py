"""Lookups by time: the first record at or after a timestamp, from batch headers.

    `list_offsets`      in a partition, as ListOffsets answers
    `timestamp_search`  in a segment

Only batches that may hold the record are decoded, and no index is trusted.
"""
