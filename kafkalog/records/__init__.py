"""Record batches: from bytes to columns and from columns to bytes.

    `batch_table`   batch headers as a table: one row per batch, one array per column; the basis of all others
    `header`        the header of one batch, where damage or one batch is looked at
    `header_walk`   walks batch headers to batch tables, one window at a time
    `codecs`        codecs, levels and bounded decompression
    `spans`         decompressed batches to spans: start and size of the fields of each record
    `legacy`        messages of formats v0 and v1 to spans
    `selection`     selects records, by batch header first, then by span
    `byte_columns`  columns of byte strings and of headers
    `columns`       `RecordColumns`: records as NumPy columns
    `gathering`     records that arrive in parts, as columns of their own
    `batch_columns` columns of records, joined by those with one value per batch
    `readers`       fast path: reads batches of a file and fills columns in one call
    `decode`        batches of a window to columns, in one call or by spans
    `compress`      compression in the frames that Kafka writes
    `partitioner`   chooses the partition of a key
    `batch_spec`    header fields of batches to encode
    `encode`        columns to v2 batches

Mirrors `org.apache.kafka.common.record`. This package does not know segments, indexes or Arrow.
"""
