"""The JSON form of messages, as Kafka's own tools print it.

Mirrors the `*JsonConverter` classes that Kafka's generator makes: fields that the version lacks, and tagged fields with
their default, are left out; bytes are base64. What a classic group's members subscribe to, and are assigned, is bytes
in a message of its own.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from kafkalog.protocol.decoder import MessageError, decode_message
from kafkalog.protocol.definitions import MessageField, messages


def json_form(name: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `decode_message` returned for a message and version in the form that Kafka prints."""
    return _struct(messages()[name].fields, version, fields)


def _struct(fields: tuple[MessageField, ...], version: int, values: Mapping[str, Any]) -> dict[str, Any]:
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


def _value(field: MessageField, version: int, value: Any) -> Any:
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


SUBSCRIPTION: Final = "ConsumerProtocolSubscription"
ASSIGNMENT: Final = "ConsumerProtocolAssignment"


def decode_member(name: str, data: bytes) -> dict[str, Any]:
    """Decode a member's `SUBSCRIPTION` or `ASSIGNMENT`.

    A newer version is read as the newest known one, and the bytes after it are ignored, as clients do. Raises
    MessageError for bytes of another protocol type.
    """
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MessageError(f"{name} of {len(data)} bytes has no version")
    # what follows the fields of a newer version is not looked at: clients read on from versions they know
    newest = messages()[name].versions.last
    return decode_message(name, min(version, newest), data[2:], whole=False)


def with_members(record: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a `GroupMetadataValue` with its members' bytes decoded, as Kafka's tools print it.

    What cannot be decoded stays base64. Source: DumpLogSegments.OffsetsMessageParser, Kafka 4.3.
    """
    if record["protocolType"] != "consumer":
        return record
    decoded = {"subscription": SUBSCRIPTION, "assignment": ASSIGNMENT}
    members = [{key: _shown(decoded.get(key), value) for key, value in member.items()} for member in record["members"]]
    return {**record, "members": members}


def _shown(name: str | None, value: Any) -> Any:
    if name is None:
        return value
    data = base64.b64decode(value)
    try:
        return json_form(name, int.from_bytes(data[:2], "big", signed=True), decode_member(name, data))
    except MessageError:
        return value
