"""Sums up the batch headers of a segment or a partition: offsets, counts, timestamps, codecs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from kafkalog.errors import Finding, KafkalogError, Limits, Reason, SidecarError
from kafkalog.format import TopicPartition, codec_name
from kafkalog.html import JsonFields
from kafkalog.log.live import explained, merged_part, retired
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.checkpoints import node_number_of
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata, leading_metadata
from kafkalog.storage.location import Place, parent_of

_NOT_JSON: Final = ("name", "file_name", "segments", "codec_ids")
Visit = Callable[[Segment, BatchTable], object]


@dataclass(slots=True)
class Summary(JsonFields):
    """The numbers that segments and partitions have in common."""

    _JSON_NAMES: ClassVar = {"magics": "magic"}

    topic: str | None
    partition: int | None
    """From the name of the directory."""
    path: str
    size_in_bytes: int = 0
    start: int = 0
    end: int = 0
    """First offset, and the offset after the last one."""
    n_batches: int = 0
    n_records: int = 0
    n_control_records: int = 0
    """Records and control records in the files, according to the headers. With `n_records_is_minimum` there may be
    more: the header of a compressed v0 or v1 message has no count (it counts as 1), and what is damaged is not counted.
    """
    n_records_is_minimum: bool = False
    n_readable_records: int = 0
    """Those of `n_records` that are not below the log start offset. With `n_readable_is_minimum` there may be more."""
    n_readable_is_minimum: bool = False
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    """Milliseconds, without control batches. `first_timestamp` is the smallest first timestamp of a batch: another
    record of the batch may be older.
    """
    magics: list[int] = field(default_factory=list)
    codec_ids: list[int] = field(default_factory=list)
    """The magics and codecs that occur, sorted."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no finding is damage."""
        return not any(finding.damage for finding in self.findings)

    @property
    def codecs(self) -> list[str]:
        """The names of the codecs that occur."""
        return [codec_name(codec) for codec in self.codec_ids]

    def add(self, other: Summary) -> None:
        """Add the numbers of another summary; `start` and `end` stay."""
        self.size_in_bytes += other.size_in_bytes
        self.n_batches += other.n_batches
        self.n_records += other.n_records
        self.n_control_records += other.n_control_records
        self.n_records_is_minimum |= other.n_records_is_minimum
        self.n_readable_records += other.n_readable_records
        self.n_readable_is_minimum |= other.n_readable_is_minimum
        self.first_timestamp = _of_both(min, self.first_timestamp, other.first_timestamp)
        self.max_timestamp = _of_both(max, self.max_timestamp, other.max_timestamp)
        self.magics = sorted({*self.magics, *other.magics})
        self.codec_ids = sorted({*self.codec_ids, *other.codec_ids})
        self.findings = [*self.findings, *other.findings]

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as a dict for JSON."""
        found = {self._JSON_NAMES.get(name, name): value for name, value in JsonFields.as_dict(self).items()}
        return {**{name: found[name] for name in found if name not in _NOT_JSON}, "codecs": self.codecs, "ok": self.ok}


@dataclass(slots=True)
class SegmentSummary(Summary):
    """The summary of a `.log` file: from the base offset to the offset after its last whole batch."""

    _JSON_NAMES: ClassVar = {"magics": "magic", "start": "base_offset", "end": "next_offset"}
    file_name: str = ""
    kind: str | None = None


@dataclass(slots=True)
class PartitionSummary(Summary):
    """The summary of a partition directory: from the log start offset to the log end offset."""

    _JSON_NAMES: ClassVar = {"magics": "magic", "start": "log_start_offset", "end": "log_end_offset"}
    name: str = ""
    kind: str | None = None
    high_watermark: int | None = None
    leader_epoch: int | None = None
    topic_id: str | None = None
    configs: dict[str, str] | None = None
    """The topic's own settings; None without the cluster's metadata."""
    stray: str | None = None
    """Why a broker would set the directory apart; None if it would not, or without the cluster's metadata."""
    segments: list[SegmentSummary] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as a dict for JSON."""
        return {**Summary.as_dict(self), "n_segments": len(self.segments)}


class Clusters:
    """The metadata logs in some log dirs, each read once. A log dir without one has those that lead."""

    def __init__(self, roots: Iterable[Place], limits: Limits) -> None:
        self.findings: list[Finding] = []
        self._limits = limits
        self._known: dict[Place, tuple[ClusterMetadata, int | None]] = {}
        for root in dict.fromkeys(roots):
            metadata = cluster_metadata(root, limits=limits)
            if metadata is not None:
                self.findings += metadata.findings
                self._known[root] = metadata, node_number_of(root)

    @property
    def metadata(self) -> ClusterMetadata | None:
        """Those that lead; None without any."""
        return self._leading[0]

    @cached_property
    def _leading(self) -> tuple[ClusterMetadata | None, int | None]:
        if not self._known:
            return None, None
        known = [(root, metadata) for root, (metadata, _) in self._known.items()]
        place, metadata, _ = leading_metadata(known, limits=self._limits)
        return metadata, self._known[place][1]

    def join(self, summary: PartitionSummary) -> None:
        """Add the topic's settings to a summary, and whether its directory is a stray."""
        root = parent_of(Path(summary.path))
        metadata, node_id = self._known.get(root) or self._leading
        if metadata is None or summary.topic is None or summary.partition is None or summary.kind is not None:
            return
        summary.configs = dict(metadata.settings.get((TOPIC, summary.topic), {}))
        if summary.topic_id is not None:
            key = TopicPartition(summary.topic, summary.partition)
            summary.stray = metadata.why_stray(key, summary.topic_id, node_id)


def summaries(
    partitions: Sequence[Partition],
    limits: Limits,
    report: Callable[[Finding], object] = lambda finding: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> Iterator[PartitionSummary]:
    """Sum up partitions, one after the other, with what the cluster's metadata next to them says of each.

    Damage of that metadata goes to `report`, that of a partition is in its summary. `progress` is called with the bytes
    of `.log` files that are done.
    """
    clusters = clusters_beside(partitions, limits)
    for finding in clusters.findings:
        report(finding)
    done = 0
    for partition in partitions:
        yield summarise(partition, _after(done, progress), clusters=clusters)
        done += partition.size_in_bytes


def clusters_beside(partitions: Iterable[Partition], limits: Limits) -> Clusters:
    """Read the metadata logs in the log dirs of partitions."""
    return Clusters((parent_of(partition.path) for partition in partitions), limits)


def summarise(
    partition: Partition,
    progress: Callable[[int], object] = lambda n_bytes: None,
    *,
    clusters: Clusters | None = None,
    visit: Visit = lambda segment, batches: None,
) -> PartitionSummary:
    """Sum up a partition by walking its batch headers.

    `visit` is called with each segment and each window of its batches, for further counts in the same walk.
    """
    key = partition.topic_partition
    topic, number = (None, None) if key is None else key
    name = str(partition.path) if key is None else partition.path.name if partition.kind else str(key)
    summary = PartitionSummary(topic, number, str(partition.path), name=name, kind=partition.kind)
    done = 0
    for segment in partition.segments:
        end = summary.segments[-1].end if summary.segments else segment.base_offset
        found = summarise_segment(segment, _after(done, progress), partition.log_start_offset, visit, previous=end - 1)
        found.kind = partition.kind
        if any(finding.reason is Reason.PARTITION_REMOVED for finding in found.findings):
            summary.findings += found.findings
            break
        done += segment.size_in_bytes
        progress(done)
        before = summary.segments[-1] if summary.segments else None
        if before is not None and before.end < found.start and before.ok:
            # of a damaged segment the end is not known, and the damage is reported already
            gap = partition.gap_between(before.end, found.start)
            summary.findings += [] if gap is None else [gap]
        summary.add(found)
        summary.segments.append(found)
    if (
        summary.segments
        and summary.segments[-1].ok
        and (missing := partition.reader.missing_end(summary.segments[-1].end))
    ):
        summary.findings.append(missing)
    summary.start = partition.log_start_offset
    summary.end = max(summary.start, summary.segments[-1].end if summary.segments else 0)
    summary.high_watermark = partition.high_watermark
    try:
        epochs = partition.leader_epochs
        summary.leader_epoch = int(epochs["epoch"][-1]) if len(epochs) else None
        summary.topic_id = partition.topic_id
    except KafkalogError as error:
        summary.findings.append(error.to_finding())
    if clusters is not None:
        clusters.join(summary)
    # the partition reads its checkpoints on first access and adds findings then, so this comes last
    summary.findings = [*partition.findings, *summary.findings]
    return summary


def summarise_segment(
    segment: Segment,
    progress: Callable[[int], object],
    log_start_offset: int = 0,
    visit: Visit = lambda segment, batches: None,
    previous: int = -1,
) -> SegmentSummary:
    """Sum up a segment by walking its batch headers; damage is a finding, and the walk continues after it.

    If a running broker's log cleaner merged it into an earlier one, the records there after offset `previous` count.
    """
    topic, number = (None, None) if segment.topic_partition is None else segment.topic_partition
    summary = SegmentSummary(topic, number, str(segment.path), segment.size_in_bytes, file_name=segment.path.name)
    summary.start = summary.end = segment.base_offset
    found: list[Finding] = []
    try:
        with segment.open() as source:
            summary.size_in_bytes = source.size - segment.first_position
            stream = SegmentStream(segment, source, on_corruption="skip", report=found.append)
            for window in stream.windows():
                summary.add(_summarise_batches(window.batches, log_start_offset))
                visit(segment, window.batches)
                # after damage, offsets may go back
                summary.end = max(summary.end, int(window.batches.last_offset[-1]) + 1)
                progress(window.batches.end_position)
                source.release(window.data, window.start)
                del window  # its memory can serve the next one
    except KafkalogError as error:
        note = retired(segment, error)
        try:
            part = None if note else merged_part(segment, error, previous)
        except KafkalogError as other:
            found.append(explained(segment, other).to_finding())
            summary.n_records_is_minimum |= not isinstance(error, SidecarError)
        else:
            if part is not None:
                return summarise_segment(part, progress, log_start_offset, visit)
            summary.size_in_bytes = 0  # its bytes count in other segments, or were deleted
            found += [] if note is None else [note]
    summary.findings = found
    summary.n_records_is_minimum |= any(finding.damage and finding.n_records != 0 for finding in found)
    summary.n_readable_is_minimum |= summary.n_records_is_minimum
    return summary


def _summarise_batches(batches: BatchTable, log_start_offset: int) -> Summary:
    """Sum up one batch table, without the offsets."""
    known = batches.records_count >= 0
    is_control = batches.is_control
    n_known = batches.records_count.astype(np.int64) * known
    n_control = int(n_known[is_control].sum())
    n_of = np.where(batches.n_user_records < 0, 1, batches.n_user_records)
    # of a sparse batch across the log start offset, at most as many are below it as offsets are
    n_below = np.clip(log_start_offset - batches.base_offset, 0, None) * (batches.base_offset >= 0)
    is_readable = batches.last_offset >= log_start_offset
    is_dense = n_known == batches.last_offset - batches.base_offset + 1
    n_readable = np.where(is_readable, np.clip(n_of - n_below, 0, None), 0)
    # with LogAppendTime a broker leaves the first timestamp as the producer sent it, and the log cleaner stores its
    # delete horizon in the field: neither is the timestamp of a record
    first = np.where(batches.timestamp_type == 1, batches.max_timestamp, batches.base_timestamp)
    first = first[(first >= 0) & (batches.delete_horizon_ms < 0) & ~is_control]
    largest = int(batches.max_timestamp[~is_control].max(initial=-1))
    return Summary(
        None,
        None,
        "",
        n_batches=len(batches),
        n_records=int(n_of.sum()),
        n_control_records=n_control,
        n_records_is_minimum=not known.all(),
        n_readable_records=int(n_readable.sum()),
        n_readable_is_minimum=bool((is_readable & ~(known & ((n_below == 0) | is_dense))).any()),
        first_timestamp=int(first.min()) if first.size else None,
        max_timestamp=largest if largest >= 0 else None,
        # np.unique imports numpy.ma, which takes 10 ms
        magics=np.flatnonzero(np.bincount(batches.magic)).tolist(),
        codec_ids=np.flatnonzero(np.bincount(batches.codec)).tolist(),
    )


def _after(before: int, progress: Callable[[int], object]) -> Callable[[int], object]:
    return lambda position: progress(before + position)


def _of_both(which: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return which(left, right)
