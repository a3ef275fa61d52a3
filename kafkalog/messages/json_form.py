"""The JSON form of messages, as Kafka's own tools print it.

Mirrors the `*JsonConverter` classes that Kafka's generator makes: fields that the version lacks, and tagged fields with
their default, are left out; bytes are base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kafkalog.messages.definitions import Field, messages


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
