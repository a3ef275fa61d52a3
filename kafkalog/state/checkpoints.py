"""The small text files: leader epochs of a partition, offsets of a log dir, who a partition and a log dir are.

Read as a broker reads them, and encoded as it writes them; who writes the bytes where is not decided here. Mirrors
`CheckpointFile`, `LeaderEpochCheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`, `MetaProperties` and
`Uuid`.
"""

from __future__ import annotations

import base64
import functools
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Reason, SidecarError
from kafkalog.storage.source import read_file

MAX_CHECKPOINT_BYTES: Final = 64 * 2**20

Pathish = str | os.PathLike[str]


def read_checkpoint(path: Pathish, n_fields: int) -> list[list[str]] | None:
    """Entries of a checkpoint file, split into fields; None when there is no such file.

    Raises
    ------
    SidecarError
        `checkpoint_syntax`, with the line: another version than 0, a line with another number of fields, more or
        fewer entries than line 2 says. An empty file is an empty list.

    Notes
    -----
    Line 1 is the version, line 2 the number of entries, then an entry a line. Source: CheckpointFile.read, Kafka 4.3.
    """
    if not os.path.exists(path):
        return None
    try:
        text = read_file(path, max_bytes=MAX_CHECKPOINT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise _bad(path, 1, f"not UTF-8 text ({error.reason})") from error
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines or lines[0].strip() != "0":
        raise _bad(path, 1, f"version {lines[0][:40]!r} where 0 is expected")
    if len(lines) < 2 or not lines[1].strip().isdecimal() or len(lines[1].strip()) > _MOST_DIGITS:
        raise _bad(path, 2, "the number of entries is expected")
    entries = [line.split() for line in lines[2:]]
    for number, entry in enumerate(entries, 3):
        if len(entry) != n_fields:
            raise _bad(path, number, f"{len(entry)} fields where {n_fields} are expected")
    if len(entries) != int(lines[1]):
        raise _bad(path, 2, f"{lines[1].strip()} entries are announced, {len(entries)} are there")
    return entries


def read_offset_checkpoint(path: Pathish) -> dict[kf.TopicPartition, int] | None:
    """`topic partition offset` lines as a dict; None when there is no such file."""
    entries = read_checkpoint(path, 3)
    if entries is None:
        return None
    result = {}
    for number, (topic, partition, offset) in enumerate(entries, 3):
        key = kf.TopicPartition(topic, _integer(path, number, partition, 31))
        result[key] = _integer(path, number, offset, 63)
    return result


def checkpointed_offset(path: Pathish, key: kf.TopicPartition) -> int | None:
    """What a checkpoint of offsets says of a partition; None where it says nothing or cannot be read.

    For looking up many partitions one by one: the last few files are remembered as long as they do not change.
    """
    try:
        status = os.stat(path)
        return _remembered(os.fspath(path), status.st_ino, status.st_mtime_ns, status.st_size).get(key)
    except (OSError, KafkalogError):
        return None


@functools.lru_cache(maxsize=8)
def _remembered(path: str, *stamp: int) -> dict[kf.TopicPartition, int]:
    return read_offset_checkpoint(path) or {}


def read_leader_epochs(path: Pathish) -> npt.NDArray[np.void] | None:
    """Leader epochs and their start offsets, in file order; None when there is no such file.

    Returns
    -------
    LEADER_EPOCH_DTYPE[n] or None
    """
    entries = read_checkpoint(path, 2)
    if entries is None:
        return None
    rows = [
        (_integer(path, number, epoch, 31), _integer(path, number, start, 63))
        for number, (epoch, start) in enumerate(entries, 3)
    ]
    return np.array(rows, kf.LEADER_EPOCH_DTYPE)


def read_properties(path: Pathish) -> dict[str, str] | None:
    """`meta.properties` or `partition.metadata` as a dict; None when there is no such file."""
    if not os.path.exists(path):
        return None
    try:
        text = read_file(path, max_bytes=MAX_CHECKPOINT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, "not UTF-8 text", path=path) from error
    separator = ":" if Path(path).name == kf.PARTITION_METADATA else "="
    pairs = (line.partition(separator) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_topic_id(directory: Pathish) -> str | None:
    """The topic id in the `partition.metadata` of a partition directory; None when there is no such file.

    Raises
    ------
    SidecarError
        The file cannot be parsed, or what it has is no topic id.
    """
    path = Path(directory) / kf.PARTITION_METADATA
    properties = read_properties(path)
    if properties is None:
        return None
    try:
        return parse_topic_id(properties.get("topic_id", ""))
    except ValueError as error:
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, str(error), path=path) from error


def encode_checkpoint(entries: Iterable[Iterable[object]]) -> bytes:
    """The content of a checkpoint file. Source: CheckpointFile.write, Kafka 4.3."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "".join(f"{line}\n" for line in ("0", len(lines), *lines)).encode()


def encode_offset_checkpoint(offsets: Mapping[kf.TopicPartition, int]) -> bytes:
    """The content of a checkpoint of offsets, in the order given."""
    return encode_checkpoint((*key, offset) for key, offset in offsets.items())


def encode_partition_metadata(topic_id: str) -> bytes:
    """The content of `partition.metadata`; no newline ends it. Source: PartitionMetadata.encode, Kafka 4.3."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_topic_id(topic_id: str | bytes | uuid.UUID) -> str:
    """A topic id as Kafka writes it: 22 characters of URL-safe base64.

    Parameters
    ----------
    topic_id : str, bytes or uuid.UUID
        Those characters, the 16 bytes, or a UUID.

    Raises
    ------
    ValueError
        It is none, or the one of all zeros, which brokers take for no id.
    """
    if isinstance(topic_id, uuid.UUID):
        topic_id = topic_id.bytes
    if isinstance(topic_id, str):
        try:
            data = base64.b64decode(topic_id + "==", altchars=b"-_", validate=True)
        except ValueError:
            data = b""
    else:
        data = bytes(topic_id)
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    if len(data) != 16 or not any(data) or (isinstance(topic_id, str) and text != topic_id):
        raise ValueError(f"{topic_id!r} is no topic id: 22 characters of URL-safe base64, not all zeros")
    return text


def _integer(path: Pathish, line: int, text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isdecimal() or len(digits) > _MOST_DIGITS or not -(2**bits) <= int(text) < 2**bits:
        raise _bad(path, line, f"{text[:40]!r} where a number is expected")
    return int(text)


_MOST_DIGITS = 40  # leading zeros are fine; Python takes a long time over thousands of digits, or refuses them


def _bad(path: Pathish, line: int, detail: str) -> SidecarError:
    return SidecarError(Reason.CHECKPOINT_SYNTAX, f"line {line}: {detail}", path=path)
