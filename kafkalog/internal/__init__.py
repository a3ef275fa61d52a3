"""What the internal topics say: the state that brokers keep in them.

    `replay`  the last record of each key, as a coordinator that loads the topic would keep it
    `groups`  groups of consumers: members, assignments, committed offsets and lag

`kafkalog.messages` decodes the records; nothing here reads files by itself.
"""
