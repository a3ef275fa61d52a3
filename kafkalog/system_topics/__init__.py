"""Decodes the topics that hold the state of brokers, coordinators and the schema registry.

    `reading`         the records of such a topic, up to an offset or a time
    `group_types`     types of groups: their records, stable states, and which commit offsets
    `replay`          the last record of each key, as after a coordinator has loaded the topic
    `coordinator_load`  whether a coordinator loads a partition of groups or transactions
    `commits`         committed offsets of many records at once
    `commits_file`    committed offsets in a file, as JSON lines or CSV
    `share_state`     positions and deliveries of share groups
    `groups`          consumer groups: members, assignments, committed offsets and lag
    `list_producers`  producers of a partition, and its open transactions
    `transactions`    transactional ids of the coordinators, and their open partitions
    `remote_log`      segments in remote storage
    `schemas`         a registry's subjects, versions and schemas, also deleted ones
    `hidden_values`   secrets of the metadata, which are never shown
    `kafka_commands`     the metadata as commands of Kafka's tools
    `strimzi_manifests`  the metadata as manifests for Strimzi
    `metadata`        the cluster's topics, brokers, settings and so on
    `history`         every record, decoded

`kafkalog.protocol` decodes the records of Kafka's own topics.
"""
