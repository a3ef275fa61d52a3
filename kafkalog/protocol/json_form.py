"""The JSON form of messages, as Kafka's own tools print it.

Mirrors the `*JsonConverter` classes that Kafka's generator makes: fields that the version lacks, and tagged fields with
their default, are left out; bytes are base64.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from kafkalog.protocol.definitions import Field, messages


def json_form(name: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `decode_message` returned for a message and version in the form that Kafka prints."""
    return _struct(messages()[name].fields, version, fields)


def _struct(fields: tuple[Field, ...], version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in fields:
        value = values[field.name]
        if version in field.tagged:
            if value == field.default:
                continue
        elif version not in field.versions:
            continue
        shown[field.name] = _value(field, version, value)
    return shown


def _value(field: Field, version: int, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(field, version, item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _struct(field.fields, version, value) if isinstance(value, Mapping) else value


_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def java_json(value: Any) -> str:
    """Return a JSON form as text as Jackson writes it: without spaces, and characters as they are."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_string(key)}:{java_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(java_json, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Jackson's hexadecimal digits are capitals
    return _ESCAPE.sub(lambda match: match[0].upper().replace("U", "u") if len(match[0]) == 6 else match[0], text)


def _float(value: float) -> str:
    """A number as `Double.toString` writes it."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f")
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{Decimal(repr(value)).adjusted()}"
