"""State that a broker keeps about a log in addition to its records.

    `transactions`          replays batches to open and ended transactions
    `outcomes`              the outcomes of the transactions of a partition, as far as known
    `transaction_outcomes`  finds them in batch headers
    `read_committed`        the batches that a `read_committed` consumer gets
    `entries`               columns of numbers as entries of a file
    `producers`             producer state and its snapshot files
    `leader_epochs`         start and end of each leader epoch, from batches and from the checkpoint
    `checkpoints`           the text files of a partition and of a log dir
    `properties`            files in Java's properties format
    `log_config`            the settings of a topic
    `cluster_image`         the state of a cluster, from the records of its metadata log
    `cluster_metadata`      reads it from `__cluster_metadata-0`

Mirrors `ProducerStateManager`, `LeaderEpochFileCache` and `LogConfig`. Only `cluster_metadata` opens a `.log`.
"""
