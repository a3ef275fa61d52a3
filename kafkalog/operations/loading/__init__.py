"""Load: tables and files of records become partitions of a log dir, all or none.

    `load`               `write_table` and `load`
    `rows`               rows of any columns to records with encoded values
    `avro_files`         Avro's container files
    `merging`            an input of record batches; files by date in the order of offsets
    `loaded_partitions`  the result of a load
    `install`            stages partitions and publishes them, also in the log dir of a stopped broker

This package never changes existing `.log` files.
"""
