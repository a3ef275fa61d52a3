"""What a broker throws while it reads the small files of a partition: its leader epochs and its topic id.

Mirrors `CheckpointFile`, `LeaderEpochCheckpointFile`, `LeaderEpochFileCache` and `PartitionMetadataFile`.
"""

from __future__ import annotations

import re
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.repair.startup.forecast import BrokerException
from kafkalog.state.checkpoints import java_fields, java_number, parse_topic_id, read_leader_epochs
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.storage.source import read_file

_OFFLINE = "KafkaStorageException"
_SEPARATOR = re.compile(r":[ \t\n\x0b\f\r]+")
_MOST_BYTES = 2**20
_MOST_ENTRIES = 2**28
"""As many references fill 1 GiB, a broker's memory unless KAFKA_HEAP_OPTS says otherwise."""
_TOO_MANY = "it announces more entries than a broker has memory for"
_MOST_ID_CHARACTERS = 24


def epochs_exception(directory: Path, broker: str) -> BrokerException | None:
    """The exception that the leader epochs of a partition end in; None if there is none.

    Notes
    -----
    4.3 takes the log dir offline where the file's form is wrong, but not where a number is. A negative number is
    refused later, in either version.

    Source: LeaderEpochFileCache, CheckpointFile.read, Kafka 4.3; CheckpointReadBuffer, Kafka 2.8.
    """
    path = directory / kf.LEADER_EPOCH_CHECKPOINT
    if path.is_symlink() and not path.exists():
        return _exception(_OFFLINE, path, "a link to nowhere", broker)
    try:
        epochs = read_leader_epochs(path)
    except KafkalogError as error:
        name = _of_form(path, broker)
        return _exception(name, path, error.detail, broker) if name else None
    if epochs is not None and epochs.size and min(int(epochs["epoch"].min()), int(epochs["start_offset"].min())) < 0:
        return _exception("IllegalArgumentException", path, "an epoch or its start offset is negative", broker)
    return None


def known_epochs(directory: Path) -> LeaderEpochs:
    """The leader epochs of a partition; none if a broker cannot read the file."""
    try:
        return LeaderEpochs(read_leader_epochs(directory / kf.LEADER_EPOCH_CHECKPOINT))
    except KafkalogError:
        return LeaderEpochs()


def _is_too_much(lines: list[str], broker: str) -> bool:
    """Whether 4.3 asks for the memory of as many entries as the file announces, and has not got it."""
    is_counted = broker != "2.8" and len(lines) > 1 and java_number(lines[0], 31) == 0
    return is_counted and (java_number(lines[1], 31) or 0) >= _MOST_ENTRIES


def _of_form(path: Path, broker: str) -> str:
    """Kafka parses the entries before it counts them; a file that ends behind the version is an empty one."""
    try:
        lines = _lines(path)
    except (KafkalogError, UnicodeDecodeError):
        return _OFFLINE
    if len(lines) == 1 and java_number(lines[0], 31) == 0:
        return ""
    if broker == "2.8" or java_number(lines[0], 31) != 0 or java_number(lines[1], 31) is None:
        return _OFFLINE
    if _is_too_much(lines, broker):
        return "OutOfMemoryError"
    if (java_number(lines[1], 31) or 0) < 0:
        return "IllegalArgumentException"
    for line in lines[2:]:
        fields = java_fields(line)
        if len(fields) != 2:
            return _OFFLINE
        if java_number(fields[0], 31) is None or java_number(fields[1], 63) is None:
            return "NumberFormatException"
    return _OFFLINE


def _lines(path: Path) -> list[str]:
    lines = re.split(r"\r\n|\r|\n", read_file(path, max_bytes=_MOST_BYTES).decode())
    return lines[:-1] if lines[-1] == "" else lines


def topic_id_exception(directory: Path, broker: str) -> BrokerException | None:
    """The exception that `partition.metadata` ends in; None if there is none.

    Source: PartitionMetadataReadBuffer.read, Uuid.fromString, Kafka 4.3.
    """
    path = directory / kf.PARTITION_METADATA
    if not path.exists():
        return None
    try:
        lines = _lines(path)
    except (KafkalogError, UnicodeDecodeError) as error:
        return _exception(_OFFLINE, path, str(error), broker)
    values = []
    for number in range(2):
        if number == len(lines):
            return _exception("NullPointerException", path, f"it ends after line {number}", broker)
        words = java_fields(lines[number], _SEPARATOR)
        if len(words) != 2:
            return _exception(_OFFLINE, path, f"line {number + 1} is no name with a value", broker)
        values.append(words[1])
        if number == 0 and not _is_version(words[1], broker):
            return _exception(_OFFLINE, path, f"version {words[1][:40]!r}", broker)
    try:
        parse_topic_id(values[1])
    except ValueError as error:
        # the id of zeros can be parsed, and is refused by another class than the one that parses it
        is_zero = set(values[1]) == {"A"} and len(values[1]) <= _MOST_ID_CHARACTERS
        return _exception(_OFFLINE if is_zero else "IllegalArgumentException", path, str(error), broker)
    return None


def _is_version(text: str, broker: str) -> bool:
    version = java_number(text, 31)
    return version is not None and (version == 0 or (version > 0 and broker != "2.8"))


def _exception(name: str, path: Path, detail: str, broker: str) -> BrokerException:
    return BrokerException(name, str(path), detail, is_offline=name == _OFFLINE and broker != "2.8")
