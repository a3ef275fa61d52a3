"""Protobuf: schemas as text or as descriptors, and values read by a compiled program.

    `proto_text`   the text of `.proto` files
    `descriptors`  binary descriptors, which clients without source text register
    `well_known`   the standard imports
    `types`        combines files and resolves names
    `nested_text`  messages as JSON text
    `values`       values to columns

This package does not know Confluent's wire format or sources of schemas.
"""
