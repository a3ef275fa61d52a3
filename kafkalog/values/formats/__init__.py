"""The formats of values, each from bytes to an Arrow array.

    `plain`        text, and numbers as Kafka's serializers write them
    `json_text`    JSON
    `json_schema`  the types that JSON Schemas say
    `program`      what a schema becomes for a kernel, and arrays of what that gives
    `avro_types`   Avro schemas, parsed
    `avro`         Avro values, read by a compiled program
    `protobuf`     Protobuf: schemas, and values the same way

Nothing here knows frames, nor where schemas come from.
"""
