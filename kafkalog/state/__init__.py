"""What a broker knows about a log besides its records.

    `transactions`          open and ended transactions, as batches go by
    `transaction_outcomes`  how each transaction of a partition ended, learned from its headers
    `read_committed`        which batches a `read_committed` consumer gets
    `producers`             producer state and its snapshot files
    `leader_epochs`         where each leader epoch begins and ends, by the batches and by the checkpoint
    `checkpoints`           the text files of a partition and of a log dir
    `log_config`            the settings of a topic
    `compact_types`         fields of a message of Kafka's protocol
    `cluster_metadata`      settings, ids and replicas of topics out of `__cluster_metadata-0`

Mirrors `ProducerStateManager`, `LeaderEpochFileCache` and `LogConfig`. No module opens a `.log`.
"""
