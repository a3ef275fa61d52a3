"""The formats of values, each from bytes to an Arrow array.

    `plain`        text, and numbers as Kafka's serializers write them
    `json_text`    JSON
    `json_schema`  types from JSON Schemas
    `connect_json`  JSON of Kafka Connect, with schemas
    `program`      programs for kernels, and arrays of their results
    `avro_types`   Avro schemas, parsed
    `avro_texts`   decimals and UUIDs of Avro as text
    `avro`         Avro values, read by a compiled program
    `avro_resolution`  Avro values, resolved to a reader's schema
    `protobuf`     Protobuf schemas and values, the same way

This package does not know frames or sources of schemas.
"""
