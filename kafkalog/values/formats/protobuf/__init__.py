"""Protobuf: schemas as text or as descriptors, and values read by a compiled program.

    `proto_text`   the text of `.proto` files
    `descriptors`  the same, as clients that have no text register it
    `well_known`   files that everybody may import
    `types`        files put together: names are resolved
    `nested_text`  messages as JSON text
    `values`       values to columns

Frames, and where schemas come from, are not known here.
"""
