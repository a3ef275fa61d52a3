"""Decode the records of internal topics: the type and version in front, then the message.

==========================  =============================  ===========================================
topic                       key                            value
==========================  =============================  ===========================================
``__consumer_offsets``      type, int16; message           version, int16; message
``__transaction_state``     as above                       as above
``__share_group_state``     as above                       as above
``__cluster_metadata``      none                           frame version, type, version; message
``__remote_log_metadata``   none                           as above
==========================  =============================  ===========================================

In the last two, frame version, type and version are unsigned varints. Mirrors `CoordinatorRecordSerde`, which passes
over bytes after a message, and `AbstractApiMessageSerde`, which does not.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from kafkalog.format import CONSUMER_OFFSETS, METADATA_TOPIC, REMOTE_LOG_METADATA, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafkalog.protocol.decoder import MessageError, MessageReader, UnknownVersionError, decode_message
from kafkalog.protocol.definitions import PREVIEW, messages

KEYED: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""Topics whose records have keys."""

TOPIC_DECODERS: Final = {
    "offsets": CONSUMER_OFFSETS,
    "transaction-log": TRANSACTION_STATE,
    "cluster-metadata": METADATA_TOPIC,
    "share-group-state": SHARE_GROUP_STATE,
    "remote-log-metadata": REMOTE_LOG_METADATA,
}
"""The decoders of Kafka's dump tool, by their names in its options, and the topics whose records they read."""

FRAME_VERSION: Final = 1
_PREVIEW_TOPIC: Final = f"{METADATA_TOPIC} of 2.8"
_PREVIEW_ITEMS: Final = {
    "endPoints": "BrokerEndpoint",
    "features": "BrokerFeature",
    "entity": "EntityData",
    "credentialInfos": "CredentialInfo",
}
"""Classes of the items of arrays, by the names of these fields, in their order."""


class UnknownTypeError(UnknownVersionError):
    """A record has a type that is not in the definitions."""

    def __init__(self, topic: str, number: int) -> None:
        super().__init__(f"record type {number} is not known in {topic}")
        self.number = number


class InternalRecord(NamedTuple):
    """A record of an internal topic."""

    type: str
    """Name of the record type in Kafka, without ``Key``, ``Value`` and ``Record``: ``OffsetCommit``."""
    version: int | None
    """Of the value's message; None for a tombstone."""
    key: dict[str, Any] | None
    """Fields of the key; None in topics that have no keys."""
    value: dict[str, Any] | None
    """Fields of the value; None for a tombstone."""


def decode_record(
    topic: str, key: bytes | None, value: bytes | None, *, as_version: int | None = None
) -> InternalRecord:
    """Decode a record of an internal topic; one without a key as another version, as a release without its own does.

    Raises UnknownVersionError for a type or version of a newer Kafka, MessageError for bytes that are not such a
    record.
    """
    if topic in KEYED:
        if key is None:
            raise MessageError("has no key")
        name, fields = _key(topic, key)
        if value is None:
            return InternalRecord(name, None, fields, None)
        version = _int16(value, "value")
        # CoordinatorRecordSerde ignores what follows the fields that it knows
        decoded = decode_message(f"{name}Value", version, value, start=2, whole=False)
        return InternalRecord(name, version, fields, decoded)
    number, version, start = _frame(value)
    name = _type(topic, number)
    read_as = version if as_version is None else as_version
    return InternalRecord(name, version, None, decode_message(f"{name}Record", read_as, value or b"", start=start))


def type_and_version(topic: str, key: bytes | None, value: bytes | None) -> tuple[int, int | None]:
    """Return the number of a record's type, and the version of its value, of which nothing else has to be known.

    The version is None for a tombstone. Raises MessageError for bytes that are not such a record.
    """
    if topic in KEYED:
        if key is None:
            raise MessageError("has no key")
        return _int16(key, "key"), None if value is None else _int16(value, "value")
    return _frame(value)[:2]


def _frame(value: bytes | None) -> tuple[int, int, int]:
    """Type and version of the message in a frame, and where it begins."""
    if value is None:
        raise MessageError("has no value")
    try:
        return _front(value[:3])  # of nearly all
    except MessageError:
        return _front(value[:15])


@lru_cache(1024)
def _front(front: bytes) -> tuple[int, int, int]:
    reader = MessageReader(front)
    if (frame_version := reader.uvarint()) != FRAME_VERSION:
        raise UnknownVersionError(f"frame version {frame_version}; known is {FRAME_VERSION}")
    return reader.uvarint(), reader.uvarint(), reader.at


def decode_preview(value: bytes | None) -> InternalRecord:
    """Decode a record of the metadata topic as 2.8 does, whose preview of KRaft has frames of version 0.

    Raises the errors of `decode_record`, with 2.8's wording where it differs. It ignores bytes after a message.
    """
    if value is None:
        raise MessageError("has no value")
    reader = MessageReader(value)
    if frame_version := reader.uvarint():
        said = "Could not deserialize metadata record due to unknown frame version"
        raise UnknownVersionError(f"{said} {frame_version}(only frame version 0 is supported)")
    number, version = _short(reader.uvarint()), _short(reader.uvarint())
    name = _types(_PREVIEW_TOPIC).get(number)
    if name is None:
        raise UnknownVersionError(f"Unknown metadata id {number}")
    # its classes have version 0 alone, and read any other as that; only items of arrays look at it
    decoded = decode_message(f"{name}Record", 0, value, start=reader.at, whole=False)
    for field, item in _PREVIEW_ITEMS.items():
        if version > 0 and decoded.get(field):
            raise UnknownVersionError(f"Can't read version {version} of {item}")
    return InternalRecord(name.removeprefix(PREVIEW), version, None, decoded)


def _short(number: int) -> int:
    """The number as Java casts an int to short."""
    return (number + 2**15 & 0xFFFF) - 2**15


def _key(topic: str, key: bytes) -> tuple[str, dict[str, Any]]:
    # the type stands in the place of a version; all keys have version 0
    name = _type(topic, _int16(key, "key"))
    return name, decode_message(f"{name}Key", 0, key, start=2, whole=False)


@cache
def _type(topic: str, number: int) -> str:
    name = _types(topic).get(number)
    if name is None:
        raise UnknownTypeError(topic, number)
    return name


@cache
def _types(topic: str) -> dict[int, str]:
    """Names of the record types of a topic, by their numbers."""
    return {
        message.key: re.sub("(Key|Value|Record)$", "", message.name)
        for message in messages().values()
        if message.topic == topic and message.key is not None
    }


def _int16(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise MessageError(f"{what} of {len(data)} bytes has no version")
    return int.from_bytes(data[:2], "big", signed=True)
