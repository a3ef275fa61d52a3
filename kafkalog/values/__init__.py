"""Turns the bytes of keys and values into typed columns, for `decode=` of a scan.

    `options`     `decode=` as users write it
    `payloads`    byte strings of an Arrow column, by position
    `frames`      Confluent's frames: which schema a value is written with, and where its bytes begin
    `schemas`     where schemas come from: a directory, a registry, the records of `_schemas`, one from the caller
    `formats`     text, numbers, JSON, Avro, Protobuf: bytes to arrays
    `types`       the Arrow type that several types have in common, and arrays of it
    `registry`    a registry that answers HTTP
    `columns`     what decodes the key or the value of records, by schemas or without
    `conditions`  filters on decoded columns
    `decoding`    decodes the record batches of a scan, with all of these
    `encoding`    values to JSON, Avro and Protobuf

A value that does not decode is null, and counted with its reason. Nothing here knows files of a log.
"""
