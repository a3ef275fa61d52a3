"""Record batches: from bytes to columns and from columns to bytes.

    `batch_table`   a row a record batch, a contiguous array a column: what all else is built on
    `header_walk`   the walk that fills it, a window of a segment at a time
    `checked_walk`  the walk that also compares checksums, many megabytes in one call
    `codecs`        codecs, levels and bounded decompression
    `spans`         batches of a window to spans: where the parts of each record lie
    `legacy`        the same for messages of formats v0 and v1
    `selection`     which records are wanted, by header first, then by span
    `columns`       `RecordColumns`: records as NumPy columns
    `decode`        spans to columns
    `compress`      compression in the frames that Kafka writes
    `encode`        columns to v2 batches

Mirrors `org.apache.kafka.common.record`. Nothing here knows segments, indexes or Arrow.
"""
