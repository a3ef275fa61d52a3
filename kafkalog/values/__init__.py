"""Decodes the bytes of keys and values into typed columns, for `decode=` of a scan.

    `options`       parses `decode=`
    `payloads`      byte strings of an Arrow column, by position
    `frames`        frames of schema registries: the schema of a value, and the start of its bytes
    `schemas`       sources of schemas: a directory, a registry, the topic `_schemas`, the caller
    `formats`       text, numbers, JSON, Avro, Protobuf: bytes to arrays
    `types`         the common Arrow type of several types, and arrays of it
    `registry`      a schema registry, over HTTP
    `columns`       decoders of the key or value column, with or without schemas
    `mixed_fields`  comparisons with fields that are JSON text
    `mixed_expressions`  the same in Arrow expressions
    `conditions`    filters on decoded columns
    `decoding`      decodes the record batches of a scan, with all of these
    `encoding`      encodes values as JSON, Avro and Protobuf

A value that does not decode becomes null, and is counted with its reason. This package does not read log files.
"""
