"""What the topics say that hold state of brokers, coordinators and the schema registry.

    `reading`         the records of such a topic, up to an offset or a time
    `replay`          the last record of each key, as a coordinator that loads the topic would keep it
    `commits`         committed offsets of many records at once
    `share_state`     where share groups stand in partitions, and what they were delivered
    `groups`          groups of consumers: members, assignments, committed offsets and lag
    `list_producers`  producers of a partition, and its open transactions
    `transactions`    transactional ids as their coordinators know them, and where they are open
    `remote_log`      segments in remote storage
    `schemas`         a registry's subjects, versions and schemas, deleted ones too
    `metadata`        the cluster's topics, brokers, settings and so on
    `history`         every record, decoded

`kafkalog.protocol` decodes the records of Kafka's own topics.
"""
