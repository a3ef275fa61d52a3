"""Partitions that the cluster's metadata has on a log dir, and whose directories are gone: a broker makes empty ones.

A checkpoint that names such a partition proves how far it reached. Without one the topic is new: a broker that is
killed just after a topic was created has not made its directories yet.
Mirrors `ReplicaManager.applyDelta` and `LogManager.getOrCreateLog`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.log.log_dir import is_blank
from kafkalog.log.set_apart import packed_partitions
from kafkalog.state.checkpoints import known_properties, known_topic_id, read_offset_checkpoint
from kafkalog.state.cluster_image import AssignedPartition, ClusterMetadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place
from kafkalog.survey.startup import PartitionPlan
from kafkalog.text import first_names, offset_range

_COPIED: Final = "the broker copies them from their leaders"
_NEW: Final = "no checkpoint names them, so the topics are new, and the broker makes the directories"
_EMPTY: Final = "no checkpoint has a record of them, and the broker makes the directories"
_NOWHERE: Final = "no checkpoint here names them either: if the broker has more log dirs, name these, too"
_COUNTED: Final = "no other broker here has them either, and the loss is counted there"


def absent_partitions(
    roots: Sequence[Place],
    present: Iterable[str],
    metadata: ClusterMetadata,
    node_id: int,
    *,
    has_all_roots: bool,
    at_others: Mapping[int, Container[str]] = MappingProxyType({}),
    counted: Container[kf.TopicPartition | None] = (),
) -> tuple[list[PartitionPlan], dict[str, list[PartitionPlan]]]:
    """Return the partitions of a broker that have no directory: those that lose records, and others by what happens.

    `present` has the names in all `roots`. If these are not all log dirs of the broker, a partition is lost only if its
    checkpoint or the directory id in the metadata says that it was in one of them. `at_others` has the names in all log
    dirs of other brokers that are known, and `counted` the partitions whose loss one of them has.
    """
    names = set(present)
    renamed = sorted(name for name in names if "." in name)
    log_dirs = _LogDirs(roots)
    lost: list[PartitionPlan] = []
    others: dict[str, list[PartitionPlan]] = {}
    for name, key, assigned in _without_directory(metadata, node_id, names):
        directory_id = dict(zip(assigned.replicas, assigned.directories, strict=False)).get(node_id)
        root = log_dirs.root_of(key, directory_id, are_all=has_all_roots)
        if root is None:
            others.setdefault(_elsewhere(directory_id), []).append(PartitionPlan(str(roots[0] / name), key))
            continue
        row = PartitionPlan(str(root / name), key)
        start, ends = log_dirs.starts[root].get(key, 0), log_dirs.ends[root]
        end = None if ends is None else ends.get(key)
        moved = _renamed(name, renamed, roots, metadata.topic_ids.get(key.topic)) if renamed else []
        elsewhere = {*assigned.isr} - {node_id}
        if elsewhere and any(name in at_others.get(replica, (name,)) for replica in elsewhere):
            others.setdefault(_COPIED, []).append(row)
        elif end is None and not moved and ends is not None:
            others.setdefault(_NEW, []).append(row)
        elif end is not None and end <= start:
            others.setdefault(_EMPTY, []).append(row)
        elif key in counted:
            others.setdefault(_COUNTED, []).append(row)
        else:
            _lose(row, start, end, moved, [name for name in log_dirs.packed if log_dirs.packed[name] == key])
            lost.append(row)
    return lost, others


def _elsewhere(directory_id: str | None) -> str:
    """Where a partition is that no named log dir has."""
    return f"they are {on_another_disk(str(directory_id))}" if is_directory_id(directory_id) else _NOWHERE


def on_another_disk(directory_ids: str) -> str:
    """Return where partitions are by the metadata log, if nobody named that log dir; and what to do about it."""
    return f"in the log dir with directory id {directory_ids}, which is not named: name it, too, unless it is lost"


class _LogDirs:
    """The log dirs of a broker: their ids, and the offsets in their checkpoints."""

    def __init__(self, roots: Sequence[Place]) -> None:
        self._roots = roots
        self._blank = next(filter(is_blank, roots), None)
        self._by_id = {_directory_id(root): root for root in roots}
        self.ends: dict[Place, dict[kf.TopicPartition, int] | None] = {}
        """The log ends in the checkpoints of a log dir; None if it has none."""
        self._named: dict[kf.TopicPartition, Place] = {}
        for root in roots:
            both = [offsets for name in kf.END_CHECKPOINTS if (offsets := _checkpoint(root, name)) is not None]
            ends: dict[kf.TopicPartition, int] = {}
            for key, end in [pair for offsets in both for pair in offsets.items()]:
                ends[key] = max(end, ends.get(key, end))
                self._named.setdefault(key, root)
            self.ends[root] = ends if both else None
        self.packed = {
            name: key for root in roots for name, key in packed_partitions({*Listing.or_empty(root).names}).items()
        }
        """Archives with the names of partitions."""
        self.starts = {root: _checkpoint(root, kf.LOG_START_OFFSET_CHECKPOINT) or {} for root in roots}

    def root_of(self, key: kf.TopicPartition, directory_id: str | None, *, are_all: bool) -> Place | None:
        """The log dir of a partition, by its directory id or a checkpoint; None if it may be on another disk.

        `are_all` tells that the broker has no other log dirs. An empty disk has lost its directory id: partitions with
        an id that no other log dir has were there.
        """
        root = self._by_id.get(directory_id)
        if root is None and is_directory_id(directory_id):
            root = self._blank
        named = self._named.get(key)
        if root is None and (named is None or is_directory_id(directory_id)) and not are_all:
            return None
        return root or named or self._roots[0]


def _without_directory(
    metadata: ClusterMetadata, node_id: int, names: Container[str]
) -> list[tuple[str, kf.TopicPartition, AssignedPartition]]:
    """The partitions of a broker that no directory of these names is for, with the names that they would have."""
    found = []
    for topic in sorted(metadata.topic_ids):
        for number, assigned in metadata.partitions(topic).items():
            # a log dir may lack thousands: the name without a call
            if node_id in assigned.replicas and (name := f"{topic}-{number}") not in names:
                found.append((name, kf.TopicPartition(topic, number), assigned))
    return found


def _renamed(name: str, others: Iterable[str], roots: Sequence[Place], topic_id: str | None) -> list[str]:
    """The directories that a broker has renamed from one of this name; not those of an earlier topic of that name."""
    found = [other for other in others if other.startswith(f"{name}.")]
    ids = {other: {known_topic_id(root / other) for root in roots} - {None} for other in found}
    return [other for other in found if not ids[other] or topic_id in ids[other]]


def _lose(row: PartitionPlan, start: int, end: int | None, moved: Sequence[str], packed: Sequence[str]) -> None:
    """Add the loss of a partition that no other broker has."""
    key, path = row.topic_partition, row.path
    lost = "its records" if end is None else f"offsets {offset_range(start, end)}"
    first = f"Rename {moved[0]} to {key}" if moved else f"Unpack {packed[0]}" if packed else "Restore it"
    detail = (
        f"the directory of {key} is missing, and the metadata log has it on this broker: the broker makes an empty one,"
        f" and {lost} are gone. {first} first"
    )
    # of an unknown number of records, the first file is the place
    finding = Finding(Reason.SEGMENT_MISSING, detail, f"{path}/{kf.segment_file_name(start, kf.LOG_SUFFIX)}")
    if end is not None:
        last = end - 1
        finding = replace(finding, path=path, base_offset=start, last_offset=last, n_records=end - start)
        finding = replace(finding, certainty="at_most")
        row.log_end_offset_before = end
    row.lost = [finding]


def absent_note(what: str, rows: Sequence[PartitionPlan]) -> Finding:
    """The note about partitions without a directory that lose nothing."""
    names = first_names([row.topic_partition for row in rows])
    which = f"no directory of {names}, which the metadata log has on this broker"
    return Finding(Reason.SEGMENT_MISSING, f"{which}: {what}", str(Path(rows[0].path).parent), damage=False)


def _checkpoint(root: Place, name: str) -> Mapping[kf.TopicPartition, int] | None:
    with contextlib.suppress(KafkalogError):
        return read_offset_checkpoint(root / name)
    return None


def _directory_id(root: Place) -> str | None:
    return known_properties(root).get("directory.id") or None


def is_directory_id(text: str | None) -> bool:
    """Whether this names a log dir: the ids below 100 stand for those that are unassigned, lost or being moved.

    Source: DirectoryId.reserved, Kafka 4.3.
    """
    return text is not None and not text.startswith("A" * 20)
