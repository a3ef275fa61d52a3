"""Decode what the members of a classic consumer group subscribe to, and what they are assigned.

Both are bytes to the coordinator: the clients' own protocol, with a version in front. Mirrors `ConsumerProtocol`.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from kafkalog.protocol.decoder import MessageError, decode_message
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.json_form import json_form

SUBSCRIPTION: Final = "ConsumerProtocolSubscription"
ASSIGNMENT: Final = "ConsumerProtocolAssignment"


def decode_member(name: str, data: bytes) -> dict[str, Any]:
    """Decode a member's subscription or assignment.

    Parameters
    ----------
    name : str
        `SUBSCRIPTION` or `ASSIGNMENT`.
    data : bytes
        A version newer than the definitions is read as the newest known one, and the bytes after it are ignored, as
        clients do.

    Raises
    ------
    MessageError
        The bytes are not of this protocol; groups of other protocol types have others.
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
