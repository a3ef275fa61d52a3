"""What the topics say that hold state of brokers, coordinators and the schema registry.

    `reading`  the records of such a topic, up to an offset or a time
    `replay`   the last record of each key, as a coordinator that loads the topic would keep it
    `groups`   groups of consumers: members, assignments, committed offsets and lag
    `schemas`  a registry's subjects, versions and schemas, deleted ones too

`kafkalog.messages` decodes the records of Kafka's own topics.
"""
