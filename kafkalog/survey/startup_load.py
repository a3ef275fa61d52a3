"""Which segments of a partition a broker recovers when it starts, and from which offset its log begins.

Mirrors `LogManager.loadLogs` and the first half of `LogLoader.load`. Segments are not read here, except for the fields
of transaction indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, ReadError, SidecarError
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.state.producers import read_snapshot
from kafkalog.storage.files import read_file
from kafkalog.storage.location import Place
from kafkalog.survey.startup_end import end_before_start
from kafkalog.survey.startup_files import FileNames, files_at_start


class RootOffsets(NamedTuple):
    """The checkpoints of a log dir that decide how its partitions are loaded."""

    recovery_points: Mapping[kf.TopicPartition, int]
    log_starts: Mapping[kf.TopicPartition, int]
    """Empty where a file is missing or cannot be read, as for a broker."""
    findings: list[Finding]
    """Checkpoints that cannot be read: a broker warns and goes on without them."""

    @classmethod
    def read(cls, root: Path) -> RootOffsets:
        """Read the checkpoints of a log dir. Source: LogManager.loadLogs, Kafka 4.3."""
        found: list[dict[kf.TopicPartition, int]] = [{}, {}]
        findings = []
        for number, name in enumerate(kf.LOADED_CHECKPOINTS):
            try:
                found[number] = read_offset_checkpoint(root / name) or {}
            except (SidecarError, ReadError) as error:
                findings.append(error.to_finding())
        return cls(found[0], found[1], findings)


class LoadPlan:
    """How a broker loads a partition directory.

    `partition` has its segments, `.swap` files included, and `log_start` is the checkpointed log start offset, 0 if
    there is none. After a clean shutdown (`is_clean`) only segments without an index are recovered; with
    `ignores_recovery_point` all are.
    """

    def __init__(
        self,
        path: Path,
        offsets: RootOffsets,
        *,
        ignores_recovery_point: bool = False,
        is_clean: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.path = path
        parsed = kf.parse_partition_directory(path.absolute().name)
        key = None if parsed is None else parsed.topic_partition
        # raft loads its log itself, without checkpoints, and always recovers all of it
        is_metadata = key is not None and key.topic == kf.METADATA_TOPIC
        self.is_clean = is_clean and not is_metadata
        known = key is not None and not is_metadata
        self.log_start = max(offsets.log_starts.get(key, 0), 0) if known and key is not None else 0
        self.recovery_point = 0
        if known and key is not None and not ignores_recovery_point:
            self.recovery_point = max(offsets.recovery_points.get(key, 0), 0)
        self.files: FileNames = files_at_start(path)
        self.unread: list[str] = []  # such as `0.log`: a broker takes its offset, and opens the file of 20 digits
        self.partition = Partition(path, log_start_offset=self.log_start, limits=limits)
        self.partition.segments = self._segments(limits)

    def _segments(self, limits: Limits) -> list[Segment]:
        """The segments that a broker loads: regular files, `.swap` files in place of others.

        Source: LogLoader.loadSegmentFiles, Kafka 4.3.
        """
        files = self.files
        # the file that a `.swap` replaces may still be there, under the same name
        replaced = {*files.removed, *files.renamed.values()}
        logs: dict[int, str] = {}
        for name in files.names:
            base, new = kf.parse_base_offset(name), files.renamed.get(name, name)
            if base is None or not new.endswith(kf.LOG_SUFFIX) or name in replaced:
                continue
            if new == kf.segment_file_name(base):
                logs[base] = name
            else:
                self.unread.append(name)
        bases = sorted(logs)
        key = self.partition.topic_partition
        old_names = {new: old for old, new in files.renamed.items()}
        is_there = {name: name for name in files.names if name not in replaced and name not in files.renamed}
        names = {**is_there, **old_names}
        return [
            _NamedSegment(
                self.path / logs[base],
                names=names,
                limits=limits,
                is_last=base == bases[-1],
                topic_partition=key,
                must_open=False,  # one unreadable segment must not hide the others
            )
            for base in bases
        ]

    @property
    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return [segment.base_offset for segment in self.partition.segments]

    def snapshots(self) -> dict[int, npt.NDArray[np.void] | None]:
        """PRODUCER_SNAPSHOT_DTYPE[n] of the snapshots that are there once `.swap` files are renamed, by offset.

        None stands for one that cannot be read, which a broker deletes.
        """
        found: dict[int, npt.NDArray[np.void] | None] = {}
        for name in self.files.names:
            new = self.files.renamed.get(name, name)
            offset = kf.parse_base_offset(new)
            if not new.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX) or offset is None or name in self.files.removed:
                continue
            try:
                found[offset] = read_snapshot(self.path / name, may_go_on=True).entries
            except KafkalogError:
                found[offset] = None
        return found

    @cached_property
    def end_before(self) -> int | None:
        """The offset after the last intact batch of the last segment; None if it cannot be read."""
        segments = self.partition.segments
        if not segments:
            return None
        return end_before_start(segments[-1])

    @property
    def is_unclean(self) -> bool:
        """Whether a broker recovers what the recovery point does not rule out."""
        # one that only waits for its deletion is not recovered
        return not self.is_clean and bool(self.bases) and self.partition.kind != "delete"

    @cached_property
    def unflushed_from(self) -> int | None:
        """Base offset of the first segment that is recovered because it may not be on disk; None if none is.

        Source: LogLoader.recoverLog, LogSegments.values, Kafka 4.3.
        """
        if not self.is_unclean or self.recovery_point == kf.MAX_OFFSET:
            return None
        # the segment that holds the recovery point is recovered from its start
        return max((base for base in self.bases if base <= self.recovery_point), default=self.bases[0])

    def is_unflushed(self, base_offset: int) -> bool:
        """Whether a segment is recovered because it may not be on disk; with it, it goes if one before it is cut.

        The segment of the largest offset never is: the range that a broker asks for ends before it.
        Source: LogLoader.recoverLog, Kafka 4.3.
        """
        return self.unflushed_from is not None and self.unflushed_from <= base_offset < kf.MAX_OFFSET

    @cached_property
    def lone(self) -> dict[int, str]:
        """Base offsets of the older segments that are recovered on their own, and why.

        A broker cuts such a segment where it is damaged, but keeps later ones.
        Source: LogLoader.loadSegmentFiles, LogSegment.sanityCheck, Kafka 4.3.
        """
        found = {}
        for segment in self.partition.segments:
            why = "" if self.is_unflushed(segment.base_offset) else why_recovered(segment)
            if why:
                found[segment.base_offset] = why
        return found

    @cached_property
    def cut_before(self) -> frozenset[int]:
        """Base offsets of the segments that a broker cuts before the recovery begins, which then finds them intact.

        So those after are not deleted, and a gap is in front of them.
        Source: LogLoader.loadSegmentFiles, LogLoader.recoverLog, Kafka 4.3.
        """
        found = (one for one in self.partition.segments if self.is_unflushed(one.base_offset))
        return frozenset(one.base_offset for one in found if why_recovered(one))

    @property
    def recovered(self) -> list[Segment]:
        """All segments that are recovered."""
        return [
            segment
            for segment in self.partition.segments
            if segment.base_offset in self.lone or self.is_unflushed(segment.base_offset)
        ]


class _NamedSegment(Segment):
    """A segment that has indexes under other names than its own.

    Only some of its files still end in `.swap`. `names` maps the names that a broker gives to files before it loads
    them to those that they have now.
    """

    def __init__(self, path: Path, *, names: Mapping[str, str], **options: Any) -> None:
        self._names = names
        super().__init__(path, **options)

    def sidecar_path(self, suffix: str) -> Place:
        name = kf.sidecar_name(self.path.name, suffix)
        # a broker that looks for the end of a `.swap` makes its index, and renames it over another one
        if suffix != kf.INDEX_SUFFIX or not name.endswith(kf.SWAP_SUFFIX):
            name = self._names.get(name.removesuffix(kf.SWAP_SUFFIX), name)
        return self.path.with_name(name)


def transaction_index_problem(segment: Segment) -> str:
    """Why a broker that loads a segment fails at its transaction index; "" if it does not.

    Of the version a broker reads the first byte alone.
    Source: TransactionIndex.sanityCheck, TransactionIndex.iterable, AbortedTxn.version, Kafka 4.3.
    """
    for entry in _transaction_entries(segment):
        if entry["version"] > _LAST_VERSION:
            return f"an entry of the transaction index has version {entry['version']}"
        if entry["last_offset"] < segment.base_offset:
            break  # it is built again
    return ""


def why_recovered(segment: Segment) -> str:
    """Why a broker recovers a segment even though it may be on disk; "" if it does not."""
    is_swap = segment.path.name.endswith(kf.SWAP_SUFFIX)
    # a broker that looks for the end of a .swap creates the index
    if not is_swap and not segment.has_sidecar(kf.INDEX_SUFFIX):
        return "its offset index is missing"
    if (_transaction_entries(segment)["last_offset"] < segment.base_offset).any():
        return "its transaction index has an entry below the segment"
    return ""


def _transaction_entries(segment: Segment) -> npt.NDArray[np.void]:
    """All that a broker reads, even if they are more than a `.log` of this size can have."""
    data = b""
    if segment.has_sidecar(kf.TRANSACTION_INDEX_SUFFIX):
        with contextlib.suppress(ReadError):
            path = segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX)
            data = read_file(path, max_bytes=segment.limits.max_segment_bytes)
    n = len(data) // kf.TRANSACTION_INDEX_DTYPE.itemsize
    return np.frombuffer(data, kf.TRANSACTION_INDEX_DTYPE, count=n)


_LAST_VERSION = 0xFF
