"""Every record of a topic that holds state, decoded, in the order of each partition's offsets.

Nothing is applied: deletions, and records of transactions that were aborted, are among them, and so are the markers
that say how a transaction ended. Fields have the form in which Kafka's own tools print them; values of settings that
may be secrets are hidden, and the salts and keys of SCRAM credentials are left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits
from kafkalog.format import INTERNAL_TOPICS, METADATA_TOPIC, SCHEMAS_TOPIC, ControlRecordType
from kafkalog.html import JsonFields, PublicNames
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.framing import KEYED, decode_record
from kafkalog.protocol.json_form import json_form, with_members
from kafkalog.system_topics.hidden_values import without_secrets
from kafkalog.system_topics.reading import AsOf, read_records


@dataclass(frozen=True, slots=True)
class StateRecord(JsonFields):
    """A record of a topic that holds state."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """In ms."""
    type: str | None
    """Such as ``OffsetCommit``; ``COMMIT``, ``ABORT`` and so on for control records; None if it cannot be decoded."""
    version: int | None
    """Of the value; None for a tombstone."""
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    """Fields by name, bytes in base64. The value of a tombstone is None."""
    producer_id: int | None = None
    """Of a record in a transaction, and of its marker."""
    error: str | None = None
    """Why it cannot be decoded. Key and value are ``{"base64": ...}`` then."""


class History(PublicNames, Iterator[StateRecord]):
    """The records of topics that hold state, one topic after the other, as they are read.

    Attributes
    ----------
    findings : list of Finding
        Damage so far.
    """

    def __init__(self, log_dir: LogDir, topics: Sequence[str], as_of: AsOf, registry_topic: str) -> None:
        self.findings: list[Finding] = []
        self._topics, self._registry_topic = topics, registry_topic
        self._records = self._read(log_dir, topics, as_of)

    def __repr__(self) -> str:
        return f"History({', '.join(self._topics)})"

    def __next__(self) -> StateRecord:
        return next(self._records)

    def _read(self, log_dir: LogDir, topics: Sequence[str], as_of: AsOf) -> Iterator[StateRecord]:
        for topic in topics:
            for record in read_records(log_dir, topic, as_of, self.findings.append):
                if record.is_control:
                    content = _control(record.key)
                else:
                    content = _content(topic, record.key, record.value, is_registry=topic == self._registry_topic)
                yield StateRecord(
                    topic,
                    record.partition,
                    record.offset,
                    record.timestamp if record.timestamp >= 0 else None,
                    *content[:4],
                    record.producer_id if record.is_transactional else None,
                    content.error,
                )


def history(
    path: Paths | LogDir,
    topics: str | Sequence[str],
    *,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    registry_topic: str = SCHEMAS_TOPIC,
    limits: Limits | None = None,
) -> History:
    """Decode every record of topics that hold state, deletions included, as far as they are still in the files.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
    topics : str or sequence of str
        Of ``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``, ``__cluster_metadata``,
        ``__remote_log_metadata`` and ``_schemas``. One that is not there has no records.
    end_offset, end_timestamp, limits
        See `groups`.
    registry_topic : str
        A schema registry's `kafkastore.topic`, which may be among `topics`.

    Returns
    -------
    History
        An iterator of `StateRecord`. Damage does not raise: reading continues after it, and `findings` has it.

    Examples
    --------
    >>> list(kafkalog.history("tests/golden/log_dir", "__transaction_state"))
    []
    """
    wanted = [topics] if isinstance(topics, str) else list(topics)
    for topic in wanted:
        if topic not in INTERNAL_TOPICS and topic != registry_topic:
            known = ", ".join(sorted({*INTERNAL_TOPICS, registry_topic}))
            raise ValueError(f"cannot decode records of {topic}; expected one of {known}")
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    return History(log_dir, wanted, AsOf.of(log_dir, wanted, end_offset, end_timestamp), registry_topic)


class _Content(NamedTuple):
    type: str | None
    version: int | None = None
    key: dict[str, Any] | None = None
    value: dict[str, Any] | None = None
    error: str | None = None


def _control(key: bytes | None) -> _Content:
    number = int.from_bytes((key or b"")[2:4], "big")
    known = number in set(ControlRecordType)
    return _Content(ControlRecordType(number).name if known else f"CONTROL({number})")


def _content(topic: str, key: bytes | None, value: bytes | None, *, is_registry: bool) -> _Content:
    try:
        return _of_registry(key, value) if is_registry else _message(topic, key, value)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, MessageError) else f"not JSON: {error}"
        return _Content(None, None, _raw(key), _raw(value), why)


def _message(topic: str, key: bytes | None, value: bytes | None) -> _Content:
    record = decode_record(topic, key, value)
    fields: dict[str, Any] | None = None
    if record.value is not None and record.version is not None:
        name = f"{record.type}{'Value' if topic in KEYED else 'Record'}"
        fields = json_form(name, record.version, record.value)
        if record.type == "GroupMetadata":
            fields = with_members(fields)
        elif topic == METADATA_TOPIC:
            fields = without_secrets(record.type, fields)
    known = None if record.key is None else json_form(f"{record.type}Key", 0, record.key)
    return _Content(record.type, record.version, known, fields)


def _of_registry(key: bytes | None, value: bytes | None) -> _Content:
    fields = None if key is None else json.loads(key)
    found = None if value is None else json.loads(value)
    if not isinstance(fields, dict) or not isinstance(found, (dict, type(None))):
        raise ValueError("no object")
    return _Content(str(fields.get("keytype")), None, fields, found)


def _raw(data: bytes | None) -> dict[str, Any] | None:
    return None if data is None else {"base64": base64.b64encode(data).decode()}
