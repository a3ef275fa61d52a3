"""Lookups by time: which record is the first at or after a timestamp, as batch headers tell.

    `list_offsets`      in a partition, as ListOffsets answers
    `timestamp_search`  in a segment

Only batches that may hold the record are decoded, and no index is believed.
"""
