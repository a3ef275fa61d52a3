"""Key and value of a record of an internal topic, as Kafka's `DumpLogSegments` prints them with the topic's decoder.

Where a record cannot be decoded the tool prints that in place of the key (of the value in topics without keys), and
goes on. The reasons given there are kafkalog's.

Mirrors `CoordinatorRecordMessageParser`, `ClusterMetadataLogMessageParser` and `RemoteMetadataLogMessageParser`.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import CONSUMER_OFFSETS, METADATA_TOPIC, REMOTE_LOG_METADATA, TRANSACTION_STATE
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.definitions import PREVIEW
from kafkalog.protocol.framing import KEYED, InternalRecord, UnknownTypeError, decode_preview, decode_record
from kafkalog.protocol.json_form import ASSIGNMENT, decode_member, java_json, json_form, with_members

DELETED: Final = "<DELETE>"
"""What is printed as the value of a tombstone."""

DECODED_2_8: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, METADATA_TOPIC)
"""The topics that 2.8's form is available for."""

Shown = dict[str, Any]


def shown_record(topic: str, key: bytes | None, value: bytes | None) -> tuple[Shown | None, Shown | None]:
    """Return key and value in the form that Kafka prints; None for a key that the topic lacks, or a tombstone's value.

    Raises MessageError if the record cannot be decoded, and CorruptionError (`internal_record`) for a missing key,
    where Kafka's tool throws.
    """
    if topic not in KEYED:
        return None, _typed(decode_record(topic, key, value))
    if key is None:
        raise CorruptionError(Reason.INTERNAL_RECORD, f"a record of {topic} has no key")
    record = decode_record(topic, key, value)
    assert record.key is not None
    number = int.from_bytes(key[:2], "big")
    shown_key = {"type": str(number), "data": json_form(f"{record.type}Key", 0, record.key)}
    if record.value is None or record.version is None:
        return shown_key, None
    data = json_form(f"{record.type}Value", record.version, record.value)
    if record.type == "GroupMetadata":
        data = with_members(data)
    return shown_key, {"version": str(record.version), "data": data}


def _typed(record: InternalRecord, prefix: str = "") -> Shown:
    assert record.value is not None
    assert record.version is not None
    name = f"{record.type}Record"
    # as MetadataRecordType.toString: REGISTER_BROKER_RECORD
    constant = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
    version = 0 if prefix else record.version  # the only one that 2.8's classes have
    return {"type": constant, "version": record.version, "data": json_form(prefix + name, version, record.value)}


def printed_record(
    topic: str, offset: int, key: bytes | None, value: bytes | None, *, is_2_8: bool = False
) -> tuple[str | None, str | None]:
    """Return what is printed of key and value; None where nothing is.

    Raises CorruptionError as `shown_record` does; with 2.8 also where a record with a key cannot be decoded.
    """
    if is_2_8:
        return _previewed(offset, value) if topic == METADATA_TOPIC else _printed_2_8(topic, key, value)
    is_keyed = topic in KEYED
    try:
        shown_key, shown = shown_record(topic, key, value)
        if topic == REMOTE_LOG_METADATA:
            assert shown is not None
            return None, _remote_text(shown)
        text = DELETED if shown is None else java_json(shown)
        return None if shown_key is None else java_json(shown_key), text
    except MessageError as error:
        if is_keyed and isinstance(error, UnknownTypeError):
            said = f"Unknown record type {error.number} at offset {offset}, skipping."
        else:
            at = "at" if topic == METADATA_TOPIC else "at offset"
            said = f"Error {at} {offset}, skipping. {error}"
        return (said, None) if is_keyed else (None, said)


SEGMENT_STATES: Final = dict(
    enumerate(("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"))
)
DELETE_STATES: Final = dict(
    enumerate(("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"))
)


def _remote_text(shown: Shown) -> str:
    """Return what `toString` of Kafka's classes of remote log metadata gives."""
    data = shown["data"]
    tail = f"eventTimestampMs={data.get('eventTimestampMs')}, brokerId={data.get('brokerId')}}}"
    if shown["type"] == "REMOTE_PARTITION_DELETE_METADATA_RECORD":
        partition = _topic_id_partition(data["topicIdPartition"])
        state = _state(DELETE_STATES, data["remotePartitionDeleteState"])
        return f"RemotePartitionDeleteMetadata{{topicPartition={partition}, state={state}, {tail}"
    if shown["type"] == "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD":
        return f"RemoteLogSegmentMetadataUpdate{{{_segment_id(data)}, {_custom_and_state(data)}, {tail}"
    if shown["type"] != "REMOTE_LOG_SEGMENT_METADATA_RECORD":
        raise MessageError(f"{shown['type']} is not a record of this topic")
    epochs = {epoch["leaderEpoch"]: epoch["offset"] for epoch in data["segmentLeaderEpochs"]}
    if not epochs:
        raise MessageError("segmentLeaderEpochs is empty")
    # Kafka keeps a segment's leader epochs in a TreeMap, and so prints them sorted
    listed = ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs))
    numbers = ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")
    return (
        f"RemoteLogSegmentMetadata{{{_segment_id(data)}, {', '.join(f'{name}={data[name]}' for name in numbers)}, "
        f"segmentLeaderEpochs={{{listed}}}, segmentSizeInBytes={data['segmentSizeInBytes']}, "
        f"{_custom_and_state(data)}, txnIdxEmpty={java_json(data.get('txnIndexEmpty', False))}}}"
    )


def _topic_id_partition(data: Shown) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _segment_id(data: Shown) -> str:
    segment = data["remoteLogSegmentId"]
    partition = _topic_id_partition(segment["topicIdPartition"])
    return f"remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={partition}, id={segment['id']}}}"


def _custom_and_state(data: Shown) -> str:
    custom = data["customMetadata"]
    size = None if custom is None else len(base64.b64decode(custom))
    text = "Optional.empty" if size is None else f"Optional[CustomMetadata{{{size} bytes}}]"
    return f"customMetadata={text}, state={_state(SEGMENT_STATES, data['remoteLogSegmentState'])}"


def _state(states: Mapping[int, str], number: int) -> str:
    if number not in states:
        raise MessageError(f"there is no state {number}")
    return states[number]


TRANSACTION_STATES: Final = dict(
    enumerate(
        (
            *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
            "PrepareEpochFence",
        )
    )
)
"""Names of what `transactionStatus` may be in a transaction's record (`TransactionState`)."""


def _previewed(offset: int, value: bytes | None) -> tuple[None, str]:
    """Return what 2.8 prints of its preview of KRaft. Source: ClusterMetadataLogMessageParser, Kafka 2.8."""
    try:
        return None, java_json(_typed(decode_preview(value), PREVIEW))
    except MessageError as error:
        return None, f"Error at {offset}, skipping. {error}"


def _printed_2_8(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """Return what 2.8 prints. Source: GroupMetadataManager, TransactionLog.formatRecordKeyAndValue, Kafka 2.8."""
    try:
        record = decode_record(topic, key, value)
        assert record.key is not None
        if record.type not in _TEXTS_2_8:
            raise UnknownTypeError(topic, int.from_bytes((key or b"")[:2], "big", signed=True))
        key_text, value_text = _TEXTS_2_8[record.type]
        return key_text.format_map(record.key), DELETED if record.value is None else value_text(record.value)
    except MessageError as error:
        raise CorruptionError(Reason.INTERNAL_RECORD, f"a record of {topic}: {error}") from error


def _offset_value(value: Shown) -> str:
    return f"offset={value['offset']}" + (f",metadata={value['metadata']}" if value["metadata"] else "")


def _group_value(value: Shown) -> str:
    is_consumer = value["protocolType"] == "consumer"
    by_id = {member["memberId"]: member for member in value["members"]}
    members = ",".join(_assigned(by_id[name], is_consumer=is_consumer) for name in _members_in_order(by_id))
    shown = {
        "protocolType": value["protocolType"],
        "protocol": value["protocol"],
        "generationId": value["generation"],
        "assignment": f"{{{members}}}",
    }
    return java_json(shown)


def _assigned(member: Shown, *, is_consumer: bool) -> str:
    data = member["assignment"]
    if not is_consumer:
        return f"{member['memberId']}={data.hex()}"
    assignment = decode_member(ASSIGNMENT, data)
    partitions = ", ".join(
        f"{of_topic['topic']}-{partition}"
        for of_topic in assignment["assignedPartitions"]
        for partition in of_topic["partitions"]
    )
    user_data = (assignment["userData"] or b"").hex()
    return f"{member['memberId']}=[{partitions}]" + (f":{user_data}" if user_data else "")


def _transaction_value(value: Shown) -> str:
    # a transaction that has not begun has none
    topics = value["transactionPartitions"] or () if value["transactionStatus"] else ()
    partitions = ",".join(_partitions_in_order((one["topic"], one["partitionIds"]) for one in topics))
    return (
        f"producerId:{value['producerId']},producerEpoch:{value['producerEpoch']},"
        f"state={_state(TRANSACTION_STATES, value['transactionStatus'])},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value['transactionLastUpdateTimestampMs']},txnTimeoutMs={value['transactionTimeoutMs']}"
    )


def _partitions_in_order(topics: Iterable[tuple[str, list[int]]]) -> list[str]:
    """Partitions in the order of Scala's `mutable.HashSet` (2.13), to which those of each topic are added as one set.

    The table grows before a topic's partitions are added, if it has not room for them alone, and while they are, if
    they are up to four: a larger set brings hashes along, and the table's load is not looked at then.
    """
    n_places = _N_PLACES
    hashes: dict[str, int] = {}
    for topic, numbers in topics:
        different = set(numbers)
        n_places = max(n_places, 1 << (int((len(different) + 1) / 0.75) - 1).bit_length())
        for number in dict.fromkeys(numbers):
            if len(different) <= _SMALL_SET and len(hashes) + 1 >= int(n_places * 0.75):
                n_places *= 2
            hashes[f"{topic}-{number}"] = (31 * (31 + number) + java_hash(topic)) & 0xFFFFFFFF
    return _in_scala_order(hashes, n_places)


def _members_in_order(names: Iterable[str]) -> list[str]:
    """Member ids in the order of Scala's `mutable.HashMap`, to which they are added one by one."""
    hashes = {name: java_hash(name) for name in names}
    n_places = _N_PLACES
    while len(hashes) >= int(n_places * 0.75):
        n_places *= 2
    return _in_scala_order(hashes, n_places)


def _in_scala_order(hashes: Mapping[str, int], n_places: int) -> list[str]:
    """Keys in the order of a table's places, and in a place in that of their hashes as signed numbers."""
    # HashMap's own mixing of the high half into the low one, by which places are chosen
    mixed = {key: number ^ number >> 16 for key, number in hashes.items()}
    return sorted(mixed, key=lambda key: (mixed[key] & (n_places - 1), mixed[key] ^ 1 << 31))


_N_PLACES: Final = 16
_SMALL_SET: Final = 4


def java_hash(text: str) -> int:
    """Return what `String.hashCode` gives, without a sign."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", errors="surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


_TEXTS_2_8: Final[dict[str, tuple[str, Callable[[Shown], str]]]] = {
    "LegacyOffsetCommit": ("offset_commit::group={group},partition={topic}-{partition}", _offset_value),
    "OffsetCommit": ("offset_commit::group={group},partition={topic}-{partition}", _offset_value),
    "GroupMetadata": ("group_metadata::group={group}", _group_value),
    "TransactionLog": ("transaction_metadata::transactionalId={transactionalId}", _transaction_value),
}
