"""Protobuf: schemas compiled by protoc, and values read by a compiled program.

    `types`        compiles files with their imports
    `nested_text`  messages as JSON text
    `values`       values to columns

This package does not know frames or sources of schemas. It needs the extra ``protobuf``.
"""
