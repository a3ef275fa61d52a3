"""Record batches: from bytes to columns and from columns to bytes.

    `batch_table`   batch headers as a table: one row per batch, one array per column; all else builds on it
    `header_walk`   walks the batch headers of a segment window by window, and fills batch tables
    `checked_walk`  the same walk with checksums compared, many megabytes in one call
    `codecs`        codecs, levels and bounded decompression
    `spans`         batches of a window to spans: start and size of the parts of each record
    `legacy`        messages of formats v0 and v1 to spans
    `selection`     selects records, by batch header first, then by span
    `columns`       `RecordColumns`: records as NumPy columns
    `decode`        spans to columns
    `compress`      compression in the frames that Kafka writes
    `batch_spec`    header fields of the batches that are encoded
    `encode`        columns to v2 batches

Mirrors `org.apache.kafka.common.record`. Nothing here knows segments, indexes or Arrow.
"""
