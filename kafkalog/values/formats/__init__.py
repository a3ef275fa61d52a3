"""The formats of values, each from bytes to an Arrow array.

    `plain`        text, and numbers as Kafka's serializers write them
    `json_text`    JSON
    `avro_types`   Avro schemas, parsed
    `avro`         Avro values, read by a compiled program

Nothing here knows frames, nor where schemas come from.
"""
