"""Kafka's message definitions, and one decoder and one encoder for all of them.

    `definitions`  the fields of the messages in internal topics and in control records, by name and version
    `decoder`      bytes of a message to a dict of its fields
    `encoder`      a dict of its fields to the bytes of a message
    `json_form`    a dict of fields as Kafka's own tools print it
    `framing`      the type and version in front of the messages of each internal topic
    `releases`     what each release of Kafka knows: types of records, levels and features
    `printed`      key and value as Kafka's dump tool prints them

Nothing here knows what the messages mean, or where their bytes come from.
"""
