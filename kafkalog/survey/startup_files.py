"""The small files of a partition that a broker reads when it starts: its leader epochs and its topic id.

Mirrors `LeaderEpochCheckpointFile`, `LeaderEpochFileCache` and `PartitionMetadataFile`.
"""

from __future__ import annotations

import re
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.state.checkpoints import checkpoint_lines, java_fields, java_number, parse_topic_id, read_leader_epochs
from kafkalog.state.leader_epochs import LeaderEpochs

_SEPARATOR = re.compile(r":[ \t\n\x0b\f\r]+")


def epochs_problem(directory: Path) -> Finding | None:
    """Why a broker does not start with the leader epochs of a partition; None if it does. `recover` rewrites them.

    Source: LeaderEpochFileCache, CheckpointFile.read, Kafka 4.3.
    """
    path = directory / kf.LEADER_EPOCH_CHECKPOINT
    if path.is_symlink() and not path.exists():
        return _problem(path, "a link to nowhere")
    try:
        epochs = read_leader_epochs(path)
    except KafkalogError as error:
        return None if _is_version_alone(path) else _problem(path, error.detail)
    if epochs is not None and epochs.size and min(int(epochs["epoch"].min()), int(epochs["start_offset"].min())) < 0:
        return _problem(path, "an epoch or its start offset is negative")
    return None


def _is_version_alone(path: Path) -> bool:
    """Whether the file ends after the version: it has no entries for a broker."""
    try:
        return [java_number(line, 31) for line in checkpoint_lines(path)] == [0]
    except KafkalogError:
        return False


def known_epochs(directory: Path) -> LeaderEpochs:
    """The leader epochs of a partition; none if a broker cannot read the file."""
    try:
        return LeaderEpochs(read_leader_epochs(directory / kf.LEADER_EPOCH_CHECKPOINT))
    except KafkalogError:
        return LeaderEpochs()


def topic_id_problem(directory: Path) -> Finding | None:
    """Why a broker does not start with a `partition.metadata`; None if it does, or there is no such file.

    Source: PartitionMetadataReadBuffer.read, Uuid.fromString, Kafka 4.3.
    """
    path = directory / kf.PARTITION_METADATA
    if not path.exists():
        return None
    try:
        lines = checkpoint_lines(path)
    except KafkalogError as error:
        return _problem(path, error.detail)
    values = []
    for number in range(2):
        words = java_fields(lines[number], _SEPARATOR) if number < len(lines) else []
        if len(words) != 2:
            return _problem(path, f"line {number + 1} has no name and value")
        values.append(words[1])
    version = java_number(values[0], 31)
    if version is None or version < 0:
        return _problem(path, f"version {values[0][:40]!r}")
    try:
        parse_topic_id(values[1])
    except ValueError as error:
        return _problem(path, str(error))
    return None


def _problem(path: Path, detail: str) -> Finding:
    return Finding(Reason.CHECKPOINT_SYNTAX, f"{detail}: a broker does not start with it", path=str(path))
