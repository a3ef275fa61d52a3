"""Turns Raft's control records into the JSON that Kafka's tool prints for them.

Mirrors `ControlRecordUtils` and the `JsonConverter` classes that Kafka generates from its message schemas. The kernel
prints transaction markers.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import ControlRecordType
from kafkalog.protocol.decoder import MessageError, decode_message
from kafkalog.protocol.json_form import java_json, json_form

_MESSAGES: Final = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChangeMessage", " LeaderChange: "),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeaderRecord", " SnapshotHeader "),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooterRecord", " SnapshotFooter "),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersionRecord", " KRaftVersion "),
    ControlRecordType.KRAFT_VOTERS: ("VotersRecord", " KRaftVoters "),
}
"""The message in the value of each type, and the tool's text in front of it."""


def describe(control_type: int, value: bytes | None, *, is_2_8: bool = False) -> str:
    """Return the text after the metadata of a control record other than a transaction marker.

    Parameters
    ----------
    control_type : int
        The type in the record's key.
    is_2_8 : bool
        Use the format of 2.8, which has only the name of the type.
    """
    if is_2_8:
        name = "LEADER_CHANGE" if control_type == ControlRecordType.LEADER_CHANGE else "UNKNOWN"
        return f" controlType: {name}({control_type})"
    if control_type not in _MESSAGES:
        return f" controlType: UNKNOWN({control_type})"
    _, label = _MESSAGES[ControlRecordType(control_type)]
    return label + java_json(parse(control_type, value))


def parse(control_type: int, value: bytes | None) -> dict[str, Any]:
    """Return the fields of a Raft control record by Kafka's names; {} for an unknown type.

    Raises
    ------
    CorruptionError
        `control_record`: the value does not match the type.
    """
    if control_type not in _MESSAGES:
        return {}
    name, _ = _MESSAGES[ControlRecordType(control_type)]
    if value is None:
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record has no value")
    try:
        # Kafka reads the schema of version 0 always, and shows fields of a later version with their defaults
        fields = decode_message(name, 0, value, whole=False)
    except MessageError as error:
        raise CorruptionError(Reason.CONTROL_RECORD, f"a control record's value: {error}") from error
    return json_form(name, max(fields["version"], 0), fields)
