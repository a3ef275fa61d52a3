"""What the files next to a partition's `.log` files say of its log: indexes, snapshots, checkpoints, the log dir.

These files are not used as evidence while a broker runs: it updates checkpoints after the log, and deletes files one by
one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.log import live
from kafkalog.log.compaction import Density
from kafkalog.log.missing_parts import MissingPart
from kafkalog.log.partition import Partition
from kafkalog.log.proved_ends import ProvedEnd, proved_ends
from kafkalog.log.searching.missing import checkpointed, known_ends, orphan_indexes, snapshot_offsets
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place


@dataclass(frozen=True, slots=True)
class LogDirState:
    """State of the log dir that holds a partition: in use, cleanly shut down, or neither."""

    is_live: bool = False
    """A broker holds the log dir's lock."""
    was_closed: bool = False
    """A broker has shut it down cleanly and trimmed its preallocated files."""
    known_end: int | None = None
    """An offset that the log once reached, by checkpoints, and snapshots after the last segment's base offset."""

    @classmethod
    def of(cls, partition: Partition, names: Sequence[str] | None = None) -> LogDirState:
        """Inspect the directory above a partition, and what tells where its log ends; `names` is a listing of it."""
        root = partition.path.absolute().parent
        is_live = live.is_live(root)
        topic = partition.topic_partition.topic if partition.topic_partition else None
        # a broker that stops does not trim Raft's log, nor directories marked for deletion, as future or as stray
        is_trimmed = topic != kf.METADATA_TOPIC and partition.kind is None
        was_closed = not is_live and is_trimmed and live.was_closed(root)
        return cls(is_live, was_closed, None if is_live else _known_end(partition, names))


def _known_end(partition: Partition, names: Sequence[str] | None) -> int | None:
    try:
        names = Listing(partition.path).names if names is None else names
    except OSError:
        return None  # a removed directory cannot be read
    last = partition.segments[-1].base_offset if partition.segments else 0
    key = partition.topic_partition if partition.kind is None else None
    ends = known_ends(partition.path, key, names)
    return max((end for name, end in ends.items() if end > last or name in kf.END_CHECKPOINTS), default=None)


def tail_finding(finding: Finding, state: LogDirState, end_offset: int) -> Finding:
    """The finding about the end of a partition's last segment, whose last batch ends at an offset.

    A torn tail is normal there, but it is damage if the log dir was shut down cleanly: no broker truncates it then. No
    record is lost in it if other files know of none after the last batch.
    """
    if not finding.is_torn or finding.damage or not state.was_closed:
        return finding
    why = "after a clean shutdown, a broker does not truncate the tail: it appends after it, or fails"
    found = replace(finding, damage=True, detail=f"{finding.detail}; {why}", base_offset=end_offset)
    is_complete = state.known_end is not None and state.known_end <= end_offset
    return replace(found, n_records=0, certainty="exact") if is_complete else found


@dataclass(slots=True)
class SegmentContents:
    """What a segment contains, as a walk over its batches found it."""

    path: str
    """Path of the `.log`."""
    base_offset: int
    last_offset: int
    """If there is no batch, `last_offset` is `base_offset - 1`."""
    size_in_bytes: int
    n_batches: int = 0
    findings: list[Finding] = field(default_factory=list)
    """Issues of the `.log` and its indexes."""
    has_gaps: bool | None = False
    """Whether offsets are missing inside v2 batches, or between two adjacent batches; None if it was not read."""
    claimed_end: int = 0
    """The end offset of damaged batches after the last one, by their headers alone."""

    @property
    def density(self) -> Density | None:
        """How dense the offsets are; None if they were not all read."""
        return None if self.has_gaps is None else Density(self.base_offset, self.last_offset, self.has_gaps)

    @property
    def end_offset(self) -> int:
        """The offset after the last batch, or after what its findings count as lost."""
        lost = (one.last_offset for one in self.findings if one.damage and one.path == self.path and one.n_records)
        return max([self.last_offset + 1, self.claimed_end, *(last + 1 for last in lost if last is not None)])

    @property
    def is_unreadable(self) -> bool:
        """Whether nothing of it could be read, as without permission or key, or not all of it because of a limit.

        Then no gap there is a loss.
        """
        # an object in remote storage has another path
        is_empty = self.last_offset < self.base_offset
        return bool(self.findings) and any(one.is_limit or (is_empty and one.is_unreadable) for one in self.findings)

    @property
    def hides_end(self) -> bool:
        """Whether damage may have held offsets after the last batch; it has a finding already."""
        of_log = [one for one in self.findings if one.damage and one.path == self.path]
        # of what loses no records, a damaged marker takes an offset after the last batch, and a copy does not
        of_log = [one for one in of_log if one.n_records != 0 or one.base_offset == self.last_offset + 1]
        reached = [one.base_offset if one.last_offset is None else one.last_offset for one in of_log]
        return any(offset is None or offset > self.last_offset for offset in reached)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the other files of a partition and of its log dir say. A number is None where no file has it."""

    names: Sequence[str]
    """Names of all files in the directory."""
    state: LogDirState
    orphans: dict[int, list[str]]
    """Indexes that have entries but no `.log`, by base offset: a healthy broker leaves no such file."""
    leftovers: list[str]
    """Indexes without a `.log` as a healthy broker may leave them."""
    snapshots: list[int]
    """Offsets of the producer snapshots."""
    log_start: int | None
    """Log start offset of the log dir's checkpoint."""
    epochs_start: int | None
    """Start offset of the first leader epoch."""
    ends: dict[str, int]
    """Offsets that the log once reached, by the file that has them."""

    @classmethod
    def of(
        cls, partition: Partition, segments: Sequence[SegmentContents], state: LogDirState, names: Sequence[str]
    ) -> Evidence:
        """Read the files.

        `segments` has the contents of each segment of the partition in order, `names` lists all files.
        """
        if state.is_live:
            return cls(names, state, {}, [], [], None, None, {})
        key = partition.topic_partition if partition.kind is None else None
        log_start = checkpointed(partition.path, key, kf.LOG_START_OFFSET_CHECKPOINT).get(
            kf.LOG_START_OFFSET_CHECKPOINT
        )
        try:
            epochs = read_leader_epochs(partition.path / kf.LEADER_EPOCH_CHECKPOINT)
        except KafkalogError:
            epochs = None  # the check of the checkpoints reports it
        starts = [] if epochs is None else epochs["start_offset"].tolist()
        logs = {os.path.basename(segment.path) for segment in segments}
        is_explained = partial(_is_explained, partition, segments, log_start or 0)
        orphans, leftovers = orphan_indexes(partition.path, names, logs, is_explained)
        ends = known_ends(partition.path, key, names)
        for base, found in orphans.items():
            ends |= {name: max(_last_indexed(partition.path / name, base), base) + 1 for name in found}
        if segments:
            ends |= {proof.name: proof.offset for proof in ends_of(partition, segments[-1])}
        # after a crash the file may be older than the log: truncating a log writes it later. It hardly truncates all
        is_newer = state.was_closed or not any(one.size_in_bytes for one in segments)
        if starts and is_newer:
            ends[kf.LEADER_EPOCH_CHECKPOINT] = starts[-1]
        return cls(names, state, orphans, leftovers, snapshot_offsets(names), log_start, next(iter(starts), None), ends)

    def has(self, *suffixes: str) -> bool:
        """Whether a file has one of these suffixes."""
        return any(name.endswith(suffixes) for name in self.names)


def is_tiered(partition: Partition) -> bool:
    """Whether segments may be remote: by the topic's settings, or by metadata of such on its broker."""
    root = partition.path.absolute().parent
    try:
        names = Listing(root).names
    except OSError:
        return True  # a log dir that cannot be listed, or is gone by now, proves nothing
    if any(name.startswith(f"{kf.REMOTE_LOG_METADATA}-") for name in names):
        return True
    metadata = cluster_metadata(root)
    topic = partition.topic_partition.topic if partition.topic_partition else ""
    return metadata is not None and metadata.is_tiered(topic)


def ends_of(partition: Partition, contents: SegmentContents, next_base_offset: int = kf.MAX_OFFSET) -> list[ProvedEnd]:
    """The ends that the indexes of a segment prove past its last batch; see `proved_ends`."""
    segment = _segment_of(partition, contents)
    return [] if segment is None else proved_ends(segment, contents.end_offset, next_base_offset)


def take_cuts(partition: Partition, contents: SegmentContents) -> list[MissingPart]:
    """The places of a segment from which batches are gone, by its offset index. Its other gaps are `has_gaps`."""
    segment = None if contents.is_unreadable else _segment_of(partition, contents)
    found = None if segment is None else partition.cuts_in(segment)
    if found is None:
        return []
    if contents.has_gaps:
        contents.has_gaps = found.has_gaps
    return found.parts


def _segment_of(partition: Partition, contents: SegmentContents) -> Segment | None:
    return next((one for one in partition.segments if str(one.path) == contents.path), None)


def _is_explained(partition: Partition, segments: Sequence[SegmentContents], log_start: int, base: int) -> bool:
    """Whether an index with a base offset, without a `.log`, is below the log start or of a segment that was merged."""
    is_below_start = bool(segments) and base < min(partition.log_start_offset, log_start)
    return is_below_start or any(one.base_offset < base <= one.last_offset for one in segments)


def _last_indexed(path: Place, base_offset: int) -> int:
    """Return the offset of the last entry of an offset index; -1 for none, and for other indexes."""
    if path.suffix != kf.INDEX_SUFFIX:
        return -1
    try:
        offsets = OffsetIndex.open(path, base_offset).offset
    except KafkalogError:
        return -1  # the check of the index reports it
    return int(offsets[-1]) if offsets.size else -1
