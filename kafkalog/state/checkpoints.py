"""The small text files: leader epochs of a partition, offsets of a log dir, ids of a partition and of a log dir.

Files are parsed as a broker parses them, and encoded as it writes them. Nothing here writes a file. Mirrors
`CheckpointFile`, `LeaderEpochCheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`, `MetaProperties` and
`Uuid`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Reason, SidecarError
from kafkalog.state.properties import read_properties
from kafkalog.storage.files import read_file, read_if_there, stamp_of
from kafkalog.storage.location import Place, place_of

MAX_CHECKPOINT_BYTES: Final = 64 * 2**20
_RACY_NS: Final = 2 * 10**9
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SPACE: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_COLON: Final = re.compile(r":[ \t\n\x0b\f\r]+")

Pathish = str | os.PathLike[str]


def read_checkpoint(path: Pathish, n_fields: int, data: bytes | None = None) -> list[list[str]] | None:
    """Read the entries of a checkpoint file, split into fields; None if the file does not exist, [] for an empty one.

    Line 1 is the version, line 2 the number of entries; then one entry per line. Raises SidecarError
    (`checkpoint_syntax`) with the line: the version is not 0, a line has another number of fields, or line 2 has
    another number of entries. Source: CheckpointFile.read, Kafka 4.3.
    """
    data = read_if_there(path, max_bytes=MAX_CHECKPOINT_BYTES) if data is None else data
    if data is None:
        return None
    lines = checkpoint_lines(path, data)
    # a broker that died before its first write leaves an empty file, and reads it as no entries
    if not lines:
        return []
    if java_number(lines[0], 31) != 0:
        text = repr(lines[0][:40]) if lines[0].strip("\0") else "bytes of zero, as after a power loss"
        raise _bad(path, 1, f"expected version 0, not {text}")
    n_entries = java_number(lines[1], 31) if len(lines) > 1 else 0
    if n_entries is None or n_entries < 0:
        raise _bad(path, 2, "expected the number of entries")
    entries = [java_fields(line) for line in lines[2:]]
    for number, entry in enumerate(entries, 3):
        if len(entry) != n_fields:
            raise _bad(path, number, f"{len(entry)} fields where {n_fields} are expected")
    # check both directions: too few lines mean a truncated write, too many are not announced
    if len(entries) != n_entries:
        raise _bad(path, 2, f"expected {n_entries} entries, found {len(entries)}")
    return entries


def checkpoint_lines(path: Pathish, data: bytes | None = None) -> list[str]:
    """Read the lines of a checkpoint file, as Java splits them; raises SidecarError if it is not UTF-8 text."""
    try:
        text = (read_file(path, max_bytes=MAX_CHECKPOINT_BYTES) if data is None else data).decode()
    except UnicodeDecodeError as error:
        raise _bad(path, 1, f"not UTF-8 text ({error.reason})") from error
    lines = _LINE_END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def read_offset_checkpoint(path: Pathish) -> dict[kf.TopicPartition, int] | None:
    """Read `topic partition offset` lines as a dict; None if the file does not exist."""
    entries = read_checkpoint(path, 3)
    if entries is None:
        return None
    result = {}
    for number, (topic, partition, offset) in enumerate(entries, 3):
        key = kf.TopicPartition(topic, _integer(path, number, partition, 31))
        result[key] = _integer(path, number, offset, 63)
    return result


def checkpointed_offset(path: Pathish, key: kf.TopicPartition) -> int | None:
    """Offset of a partition in an offset checkpoint; None if it has no entry, or the file cannot be read."""
    try:
        return read_checkpointed_offset(path, key)
    except KafkalogError:
        return None


def read_checkpointed_offset(path: Pathish, key: kf.TopicPartition) -> int | None:
    """Like `checkpointed_offset`, but raises for a file that is malformed.

    Suitable for looking up many partitions one by one: the last few files are cached as long as they do not change.
    """
    stamp = stamp_of(path)
    if stamp is None:
        return None
    # a file that was just written may be written again within the same tick of the file system's clock
    if time.time_ns() - stamp[1] < _RACY_NS:
        return (read_offset_checkpoint(path) or {}).get(key)
    return _remembered(os.fspath(path), *stamp).get(key)


def checkpointed_topics(path: Pathish) -> frozenset[str]:
    """The topics that an offset checkpoint names, none if it cannot be read; cached as in `checkpointed_offset`."""
    stamp = stamp_of(path)
    try:
        return frozenset() if stamp is None else _remembered_topics(os.fspath(path), *stamp)
    except KafkalogError:
        return frozenset()


@functools.lru_cache(maxsize=8)
def _remembered(path: str, *stamp: int) -> dict[kf.TopicPartition, int]:
    # `stamp` is only part of the cache's key, so that a changed file is read again
    return read_offset_checkpoint(path) or {}


@functools.lru_cache(maxsize=8)
def _remembered_topics(path: str, *stamp: int) -> frozenset[str]:
    return frozenset(key.topic for key in _remembered(path, *stamp))


def read_leader_epochs(path: Pathish, data: bytes | None = None) -> npt.NDArray[np.void] | None:
    """Read leader epochs and their start offsets (LEADER_EPOCH_DTYPE[n]), in file order.

    None if the file does not exist. With `data`, its bytes, no file is read.
    """
    entries = read_checkpoint(path, 2, data)
    if entries is None:
        return None
    rows = [
        (_integer(path, number, epoch, 31), _integer(path, number, start, 63))
        for number, (epoch, start) in enumerate(entries, 3)
    ]
    return np.array(rows, kf.LEADER_EPOCH_DTYPE)


def node_id_of(properties: Mapping[str, str]) -> str:
    """The id of the broker in a `meta.properties`, as text; "" without one. Version 0 names it `broker.id`."""
    return properties.get("node.id", properties.get("broker.id", ""))


def node_number(properties: Mapping[str, str]) -> int | None:
    """The id of the broker in a `meta.properties`; None if it has none."""
    number = java_number(node_id_of(properties), 31)
    return number if number is not None and number >= 0 else None


def known_properties(root: Place) -> dict[str, str]:
    """The `meta.properties` of a log dir; empty if there is none, or if it cannot be read."""
    with contextlib.suppress(KafkalogError):
        return read_properties(root / kf.META_PROPERTIES) or {}
    return {}


def node_number_of(root: Place) -> int | None:
    """The id of the broker whose log dir this is; None if its `meta.properties` has none, or cannot be read."""
    return node_number(known_properties(root))


def read_topic_id(directory: Pathish) -> str | None:
    """Read the topic id of a partition directory, as a broker does; None without a `partition.metadata`.

    Raises SidecarError if the file cannot be parsed, or has no valid topic id. Source:
    PartitionMetadataReadBuffer.read, Uuid.fromString, Kafka 4.3.
    """
    path = place_of(directory) / kf.PARTITION_METADATA
    data = read_if_there(path, max_bytes=MAX_CHECKPOINT_BYTES)
    if data is None:
        return None
    lines, values = checkpoint_lines(path, data), []
    for number in range(2):
        words = java_fields(lines[number], _COLON) if number < len(lines) else []
        if len(words) != 2:
            raise _bad(path, number + 1, "no name and value")
        values.append(words[1])
    version = java_number(values[0], 31)
    if version is None or version < 0:
        raise _bad(path, 1, f"version {values[0][:40]!r}")
    try:
        return parse_topic_id(values[1])
    except ValueError as error:
        raise _bad(path, 2, str(error)) from error


def known_topic_id(directory: Pathish) -> str | None:
    """The topic id of a partition directory; None if it has none, or none that can be read."""
    with contextlib.suppress(KafkalogError):
        return read_topic_id(directory)
    return None


def claimed_topic_id(directory: Pathish) -> str | None:
    """Read the text that stands for the topic id in `partition.metadata`, valid or not; None if there is none.

    Raises SidecarError if the file is not UTF-8 text.
    """
    path = place_of(directory) / kf.PARTITION_METADATA
    data = read_if_there(path, max_bytes=MAX_CHECKPOINT_BYTES)
    pairs = (line.partition(":") for line in (() if data is None else checkpoint_lines(path, data)))
    return next((value.strip() for name, _, value in pairs if name.strip() == "topic_id"), None)


def encode_checkpoint(entries: Iterable[Iterable[object]]) -> bytes:
    """Encode the content of a checkpoint file. Source: CheckpointFile.write, Kafka 4.3."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def encode_offset_checkpoint(offsets: Mapping[kf.TopicPartition, int]) -> bytes:
    """Encode the content of an offset checkpoint, in the order of the entries."""
    return encode_checkpoint((*key, offset) for key, offset in offsets.items())


def encode_partition_metadata(topic_id: str) -> bytes:
    """Encode the content of `partition.metadata`, without a newline at its end.

    Source: PartitionMetadata.encode, Kafka 4.3.
    """
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_topic_id(topic_id: str | bytes | uuid.UUID) -> str:
    """Convert a topic id to the text that Kafka writes.

    22 characters of URL-safe base64. Takes those characters, the 16 bytes, or a UUID. Raises ValueError if it is none,
    or all zeros, which brokers take for no id.
    """
    if isinstance(topic_id, uuid.UUID):
        topic_id = topic_id.bytes
    if isinstance(topic_id, str):
        try:
            data = base64.b64decode(topic_id.removesuffix("==") + "==", altchars=b"-_", validate=True)
        except ValueError:
            data = b""
    else:
        data = bytes(topic_id)
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    # of the last character a broker looks at two bits only
    is_other = isinstance(topic_id, str) and (text[:-1] != topic_id[: len(text) - 1] or topic_id[21:22] in ("+", "/"))
    if len(data) != 16 or not any(data) or is_other:
        raise ValueError(f"{topic_id!r} is not a topic id: 22 characters of URL-safe base64, not all zeros")
    return text


def _integer(path: Pathish, line: int, text: str, bits: int) -> int:
    number = java_number(text, bits)
    if number is None:
        raise _bad(path, line, f"expected a number, not {text[:40]!r}")
    return number


def java_number(text: str, bits: int) -> int | None:
    """A number as Java parses it, None if it is not one or has more bits."""
    # Java's parser takes a sign, and digits of any script, as Python's does
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > _MOST_DIGITS or not -(2**bits) <= int(text) < 2**bits:
        return None
    return int(text)


def java_fields(line: str, separator: re.Pattern[str] = _SPACE) -> list[str]:
    """The fields of a line as Java splits it: a separator in front makes an empty one, those at the end do not."""
    fields = separator.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


_MOST_DIGITS = 40  # leading zeros are allowed, but Python is slow at parsing thousands of digits, or raises


def _bad(path: Pathish, line: int, detail: str) -> SidecarError:
    return SidecarError(Reason.CHECKPOINT_SYNTAX, f"line {line}: {detail}", path=path)
