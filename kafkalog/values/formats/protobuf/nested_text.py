"""Converts messages to JSON text: recursive ones, and the JSON types of `google.protobuf`.

Fields have the names of the schema; absent ones are null or have their default value, as in columns.
Bytes are base64, numbers are numbers (text if not finite), and times are text.
"""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kafkalog.interchange.table_types import json_text
from kafkalog.interchange.text_output import NOT_FINITE
from kafkalog.values.formats.protobuf.types import Descriptor, is_map, new_message

DYNAMIC: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
TIMESTAMP: Final = "google.protobuf.Timestamp"
ANY: Final = "google.protobuf.Any"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_text(message: Descriptor, data: bytes) -> str:
    """A message as JSON text. The kernel has checked the bytes."""
    return json_text(_shown(new_message(message, data)))


def _shown(message: Any) -> Any:
    kind = message.DESCRIPTOR
    if kind.full_name == "google.protobuf.Value":
        name = message.WhichOneof("kind")
        return None if name in (None, "null_value") else _field(message, kind.fields_by_name[name])
    if kind.full_name == TIMESTAMP:
        moment = _EPOCH + timedelta(seconds=message.seconds)
        digits = f".{message.nanos:09}".rstrip("0") if message.nanos else ""
        return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}{digits}Z"
    if kind.full_name in DYNAMIC or (kind.full_name in WRAPPERS and len(kind.fields) == 1):
        return _field(message, kind.fields[0])
    return {
        one.name: None if one.has_presence and not message.HasField(one.name) else _field(message, one)
        for one in kind.fields
    }


def _field(message: Any, one: Any) -> Any:
    value = getattr(message, one.name)
    if is_map(one):
        item = one.message_type.fields_by_name["value"]
        # keys are text in JSON; reading a missing key would add it
        return {str(key).lower() if isinstance(key, bool) else str(key): _item(value[key], item) for key in list(value)}
    return [_item(inner, one) for inner in value] if one.is_repeated else _item(value, one)


def _item(value: Any, one: Any) -> Any:
    if one.message_type is not None:
        return _shown(value)
    if one.enum_type is not None:
        return next((known.name for known in one.enum_type.values if known.number == value), str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return NOT_FINITE[str(value)] if isinstance(value, float) and not math.isfinite(value) else value
