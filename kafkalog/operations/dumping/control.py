"""Turns Raft's control records into the JSON that Kafka's tool prints for them.

Mirrors `ControlRecordUtils` and the `JsonConverter` classes that Kafka generates from its message schemas. The kernel
prints transaction markers.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import ControlRecordType
from kafkalog.messages.json_form import java_json
from kafkalog.state.compact_types import CompactReader

_LABELS: Final = {
    ControlRecordType.LEADER_CHANGE: " LeaderChange: ",
    ControlRecordType.SNAPSHOT_HEADER: " SnapshotHeader ",
    ControlRecordType.SNAPSHOT_FOOTER: " SnapshotFooter ",
    ControlRecordType.KRAFT_VERSION: " KRaftVersion ",
    ControlRecordType.KRAFT_VOTERS: " KRaftVoters ",
}


def describe(control_type: int, value: bytes | None, *, is_2_8: bool = False) -> str:
    """Return the text after the metadata of a control record other than a transaction marker.

    Parameters
    ----------
    control_type : int
        The type in the record's key.
    value : bytes or None
    is_2_8 : bool
        Use the format of 2.8, which has only the name of the type.

    Raises
    ------
    CorruptionError
        `control_record`: the value does not match the type.
    """
    if is_2_8:
        name = "LEADER_CHANGE" if control_type == ControlRecordType.LEADER_CHANGE else "UNKNOWN"
        return f" controlType: {name}({control_type})"
    label = _LABELS.get(control_type)  # type: ignore[call-overload]
    if label is None:
        return f" controlType: UNKNOWN({control_type})"
    content = parse(control_type, value)
    text: str = label + java_json(content)
    return text


def parse(control_type: int, value: bytes | None) -> dict[str, Any]:
    """Return the fields of a Raft control record by Kafka's names; {} for an unknown type.

    Raises
    ------
    CorruptionError
        `control_record`: the value does not match the type.
    """
    parser = _PARSERS.get(control_type)  # type: ignore[call-overload]
    if parser is None:
        return {}
    if value is None:
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record has no value")
    try:
        content: dict[str, Any] = parser(CompactReader(value))
    except ValueError as error:
        raise CorruptionError(Reason.CONTROL_RECORD, f"a control record's value {error}") from error
    return content


_ZERO_UUID = "A" * 22  # 16 zero bytes in base64 without padding


def _leader_change(fields: CompactReader) -> dict[str, Any]:
    version = fields.integer(2)

    def voter() -> dict[str, Any]:
        # always reads the schema of version 0; for a later version the added field is shown with its default
        found: dict[str, Any] = {"voterId": fields.integer(4)}
        if version >= 1:
            found["voterDirectoryId"] = _ZERO_UUID
        fields.tags()
        return found

    content = {
        "version": version,
        "leaderId": fields.integer(4),
        "voters": fields.array(voter),
        "grantingVoters": fields.array(voter),
    }
    fields.tags()
    return content


def _snapshot_header(fields: CompactReader) -> dict[str, Any]:
    content = {"version": fields.integer(2), "lastContainedLogTimestamp": fields.integer(8)}
    fields.tags()
    return content


def _snapshot_footer(fields: CompactReader) -> dict[str, Any]:
    content = {"version": fields.integer(2)}
    fields.tags()
    return content


def _kraft_version(fields: CompactReader) -> dict[str, Any]:
    content = {"version": fields.integer(2), "kRaftVersion": fields.integer(2)}
    fields.tags()
    return content


def _kraft_voters(fields: CompactReader) -> dict[str, Any]:
    def string() -> str:
        found = fields.string("replace")
        if found is None:
            raise ValueError("holds a null string")
        return found

    def endpoint() -> dict[str, Any]:
        found = {"name": string(), "host": string(), "port": fields.integer(2, signed=False)}
        fields.tags()
        return found

    def version_range() -> dict[str, Any]:
        found = {"minSupportedVersion": fields.integer(2), "maxSupportedVersion": fields.integer(2)}
        fields.tags()
        return found

    def voter() -> dict[str, Any]:
        found = {
            "voterId": fields.integer(4),
            "voterDirectoryId": fields.uuid(),
            "endpoints": fields.array(endpoint),
            "kRaftVersionFeature": version_range(),
        }
        fields.tags()
        return found

    content = {"version": fields.integer(2), "voters": fields.array(voter)}
    fields.tags()
    return content


_PARSERS: Final = {
    ControlRecordType.LEADER_CHANGE: _leader_change,
    ControlRecordType.SNAPSHOT_HEADER: _snapshot_header,
    ControlRecordType.SNAPSHOT_FOOTER: _snapshot_footer,
    ControlRecordType.KRAFT_VERSION: _kraft_version,
    ControlRecordType.KRAFT_VOTERS: _kraft_voters,
}
