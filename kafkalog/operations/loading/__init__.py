"""Load: tables and files of records to partitions of a log dir, all or none.

    `load`       `write_table` and `load_files`
    `report`     what a load wrote
    `target`     where the partitions of a load are staged
    `retention`  what a broker would delete soon
    `install`    finished partitions into the log dir of a stopped broker

Existing files of a log are never changed: appends begin new segments.
"""
