"""Converts record columns to Arrow and back, and Arrow to Parquet, CSV and JSON lines and back.

    `arrow_output`    record columns to Arrow; the types of the columns
    `column_arrays`   record columns of users as tables, arrays and data frames
    `arrow_streams`   any Arrow-compatible object to a stream of record batches
    `arrow_input`     Arrow record batches to record columns
    `arrow_values`    Arrow arrays to numbers, byte strings and headers
    `arrow_buffers`   the buffers of Arrow arrays as NumPy arrays
    `table_types`     what Parquet, Delta, Iceberg and Spark store of each Arrow type
    `json_fields`     fields of decoded JSON whose text is JSON
    `expression_trees`  the tree of an Arrow expression
    `file_types`      format and compression from a file name
    `record_writers`  record batches to a file of any format
    `text_output`     record batches to lines of CSV and JSON
    `input_paths`     input paths and directories to files
    `record_files`    files of records to record batches
    `text_input`      lines of CSV and JSON to record batches
    `text_values`     text to numbers, timestamps, byte strings and headers

Nothing here knows a log: no segment, no partition, no index.
"""
