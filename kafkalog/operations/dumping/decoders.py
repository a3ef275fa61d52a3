"""Reads keys and values as Kafka's tool does: as text or numbers, and those of control records as its text and JSON.

Mirrors `ControlRecordUtils`, `EndTransactionMarker` and the `JsonConverter` classes that Kafka generates from its
message schemas.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import ControlRecordType
from kafkalog.interchange.arrow_output import java_string
from kafkalog.operations.dumping.options import DECODERS
from kafkalog.protocol.decoder import MessageError, decode_message
from kafkalog.protocol.json_form import java_json, json_form

_NUMBER_SIZES = {"integer": 4, "long": 8}


def number_size(decoder: str | None) -> int:
    """Return how many bytes a decoder reads as a number; 0 for a decoder of text."""
    return 0 if decoder is None else _NUMBER_SIZES.get(DECODERS[decoder], 0)


def decoded(value: bytes | None, decoder: str | None, offset: int) -> bytes | str | int | None:
    """Decode the key or the value of the record at an offset; without a decoder return the bytes.

    Raises ValueError if it is shorter than its decoder needs.
    """
    if value is None or decoder is None:
        return value
    size = number_size(decoder)
    if not size:
        return java_string(value)
    if len(value) < size:
        raise too_short(value, decoder, offset)
    return int.from_bytes(value[:size], "big", signed=True)


def too_short(value: bytes, decoder: str | None, offset: int) -> ValueError:
    """Return the error for a value that is shorter than its decoder needs."""
    name = "string" if decoder is None else DECODERS[decoder]
    size = number_size(decoder)
    return ValueError(f"offset {offset}: {len(value)} bytes where the {name} decoder needs {size}")


_MESSAGES: Final = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChangeMessage", " LeaderChange: "),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeaderRecord", " SnapshotHeader "),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooterRecord", " SnapshotFooter "),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersionRecord", " KRaftVersion "),
    ControlRecordType.KRAFT_VOTERS: ("VotersRecord", " KRaftVoters "),
}
"""The message in the value of each type, and the tool's text in front of it."""
_MARKERS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


def describe(key: bytes | None, value: bytes | None, *, is_2_8: bool = False) -> str:
    """Return the text after the metadata of a control record; 2.8 has only the name of a type of Raft.

    Raises the errors of `parse_control`.
    """
    kind = control_type(key)
    if kind in _MARKERS:
        epoch = parse_control(key, value)["coordinator_epoch"]
        return f" endTxnMarker: {ControlRecordType(kind).name} coordinatorEpoch: {epoch}"
    if is_2_8:
        name = "LEADER_CHANGE" if kind == ControlRecordType.LEADER_CHANGE else "UNKNOWN"
        return f" controlType: {name}({kind})"
    if kind not in _MESSAGES:
        return f" controlType: UNKNOWN({kind})"
    _, label = _MESSAGES[ControlRecordType(kind)]
    return label + java_json(parse_control(key, value))


def parse_control(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Return the fields of a control record, those of Raft by Kafka's names; {} for an unknown type.

    Raises CorruptionError (`control_record`) for an invalid key, or a value that does not match it.
    """
    kind = control_type(key)
    if kind in _MARKERS:
        if value is None or len(value) < 6 or value[0] > 127:
            raise CorruptionError(Reason.CONTROL_RECORD, "the value of a transaction marker is invalid")
        return {"coordinator_epoch": int.from_bytes(value[2:6], "big", signed=True)}
    if kind not in _MESSAGES:
        return {}
    name, _ = _MESSAGES[ControlRecordType(kind)]
    if value is None:
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record has no value")
    try:
        # Kafka reads the schema of version 0 always, and shows fields of a later version with their defaults
        fields = decode_message(name, 0, value, whole=False)
    except MessageError as error:
        raise CorruptionError(Reason.CONTROL_RECORD, f"a control record's value: {error}") from error
    return json_form(name, max(fields["version"], 0), fields)


def control_type(key: bytes | None) -> int:
    """Return the number of the type in the key of a control record.

    Raises CorruptionError (`control_record`) for a key that is too short, or has a negative version.
    """
    if key is None or len(key) < 4 or key[0] > 127:
        raise CorruptionError(Reason.CONTROL_RECORD, "the key of a control record is invalid")
    return int.from_bytes(key[2:4], "big", signed=True)
