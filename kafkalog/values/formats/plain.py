"""Text and numbers as Kafka's serializers write them: `utf8`, `uuid`, `short`, `int`, `long`, `float`, `double`.

Mirrors the deserializers of `org.apache.kafka.common.serialization`: numbers are big-endian and must have exactly their
size.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalog.interchange.arrow_output import bitmap
from kafkalog.values.options import NUMBERS
from kafkalog.values.payloads import DecodedValues, Payloads

_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")

TYPES: Final = {
    "utf8": pa.string(),
    "uuid": pa.string(),
    **{name: pa.from_numpy_dtype(np.dtype(layout[1:])) for name, layout in NUMBERS.items()},
}
"""The Arrow type by format."""


def decode_plain(name: str, payloads: Payloads) -> DecodedValues:
    return decode_numbers(name, payloads) if name in NUMBERS else decode_text(name, payloads)


def decode_numbers(name: str, payloads: Payloads) -> DecodedValues:
    """Decode numbers.

    Source: LongDeserializer.deserialize and those of the other types, Kafka 4.3.
    """
    dtype, kind = np.dtype(NUMBERS[name]), TYPES[name]
    width = dtype.itemsize
    fits = payloads.valid & (payloads.stop - payloads.start == width)
    rows = np.flatnonzero(fits)
    numbers = np.zeros(len(payloads), dtype.newbyteorder("="))
    if rows.size:
        numbers[rows] = payloads.gather(rows, 0, width).reshape(-1).view(dtype)
    array = pa.Array.from_buffers(kind, len(payloads), [bitmap(fits), pa.py_buffer(numbers)])
    bad = np.flatnonzero(payloads.valid & ~fits).tolist()
    return DecodedValues(array, dict.fromkeys(bad, f"a {name} has {width} bytes"))


def decode_text(name: str, payloads: Payloads) -> DecodedValues:
    valid = payloads.valid
    array = _string_array(payloads)
    failures: dict[int, str] = {}
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for row in np.flatnonzero(valid).tolist():
            try:
                (payloads.bytes(row) or b"").decode("utf-8")
            except UnicodeDecodeError:
                failures[row] = "not UTF-8"
    if name == "uuid":
        for row in np.flatnonzero(valid).tolist():
            if row not in failures and _UUID.fullmatch(payloads.bytes(row) or b"") is None:
                failures[row] = "no UUID"
    if failures:
        bad = np.array([*failures], np.int64)
        start, stop = payloads.start.copy(), payloads.stop.copy()
        start[bad] = stop[bad] = -1
        array = _string_array(Payloads(payloads.data, start, stop))
    return DecodedValues(array, failures)


def _string_array(payloads: Payloads) -> pa.Array:
    offsets, data = payloads.packed()
    # 32-bit offsets would wrap around
    is_large = data.size > np.iinfo(np.int32).max
    kind, width = (pa.large_string(), np.int64) if is_large else (pa.string(), np.int32)
    buffers = [bitmap(payloads.valid), pa.py_buffer(offsets.astype(width)), pa.py_buffer(np.ascontiguousarray(data))]
    array = pa.Array.from_buffers(kind, len(payloads), buffers)
    return array.cast(pa.string()) if is_large else array
