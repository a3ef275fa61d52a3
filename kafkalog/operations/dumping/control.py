"""Raft's control records as the JSON that Kafka's tool prints of them.

Mirrors `ControlRecordUtils` and the `JsonConverter` classes that Kafka generates out of its message schemas. Markers
of transactions are printed by the kernel.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import ControlRecordType

_LABELS: Final = {
    ControlRecordType.LEADER_CHANGE: " LeaderChange: ",
    ControlRecordType.SNAPSHOT_HEADER: " SnapshotHeader ",
    ControlRecordType.SNAPSHOT_FOOTER: " SnapshotFooter ",
    ControlRecordType.KRAFT_VERSION: " KRaftVersion ",
    ControlRecordType.KRAFT_VOTERS: " KRaftVoters ",
}


def describe(control_type: int, value: bytes | None, *, is_2_8: bool = False) -> str:
    """What follows the metadata of a control record that is no marker of a transaction.

    Parameters
    ----------
    control_type : int
        From the record's key.
    value : bytes or None
    is_2_8 : bool
        As 2.8 prints it, which knows names only.

    Raises
    ------
    CorruptionError
        `control_record`: the value is not one of this type.
    """
    if is_2_8:
        name = "LEADER_CHANGE" if control_type == ControlRecordType.LEADER_CHANGE else "UNKNOWN"
        return f" controlType: {name}({control_type})"
    label = _LABELS.get(control_type)  # type: ignore[call-overload]
    if label is None:
        return f" controlType: UNKNOWN({control_type})"
    content = parse(control_type, value)
    text: str = label + json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text


def parse(control_type: int, value: bytes | None) -> dict[str, Any]:
    """The fields of a Raft control record by Kafka's names; {} for a type that is unknown.

    Raises
    ------
    CorruptionError
        `control_record`.
    """
    parser = _PARSERS.get(control_type)  # type: ignore[call-overload]
    if parser is None:
        return {}
    if value is None:
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record has no value")
    content: dict[str, Any] = parser(_Fields(value))
    return content


class _Fields:
    """Fields of a flexible message, one behind the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, n: int) -> bytes:
        if n > len(self._data) - self._at:
            raise CorruptionError(Reason.CONTROL_RECORD, "a control record's value ends early")
        self._at += n
        return self._data[self._at - n : self._at]

    def integer(self, n: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(n), "big", signed=signed)

    def length(self) -> int:
        """An unsigned varint less one: of arrays and strings."""
        return self._varint() - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record's value holds an overlong number")

    def array(self, item: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        n = self.length()
        if not 0 <= n <= len(self._data) - self._at:
            raise CorruptionError(Reason.CONTROL_RECORD, f"a control record's value holds an array of {n}")
        return [item() for _ in range(n)]

    def string(self) -> str:
        n = self.length()
        if n < 0:
            raise CorruptionError(Reason.CONTROL_RECORD, "a control record's value holds a null string")
        return self.take(n).decode("utf-8", "replace")

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.take(self._varint())


_ZERO_UUID = "A" * 22


def _leader_change(fields: _Fields) -> dict[str, Any]:
    version = fields.integer(2)

    def voter() -> dict[str, Any]:
        # version 0 is what is read, whatever the value says; the rest of a later one has its default
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


def _snapshot_header(fields: _Fields) -> dict[str, Any]:
    content = {"version": fields.integer(2), "lastContainedLogTimestamp": fields.integer(8)}
    fields.tags()
    return content


def _snapshot_footer(fields: _Fields) -> dict[str, Any]:
    content = {"version": fields.integer(2)}
    fields.tags()
    return content


def _kraft_version(fields: _Fields) -> dict[str, Any]:
    content = {"version": fields.integer(2), "kRaftVersion": fields.integer(2)}
    fields.tags()
    return content


def _kraft_voters(fields: _Fields) -> dict[str, Any]:
    def endpoint() -> dict[str, Any]:
        found = {"name": fields.string(), "host": fields.string(), "port": fields.integer(2, signed=False)}
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
