"""What a salvage found: bytes kept and lost, lost offsets, and transactions that may have lost their marker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, LIMIT_NAMES, Certainty, Finding, Findings, Reason, lost_records
from kafkalog.html import JsonFields, PartsReport, ReportList
from kafkalog.survey.losses import Lost, PartitionsReport
from kafkalog.survey.next_steps import NextStep, steps_after_damage
from kafkalog.text import counted, offset_range


@dataclass(frozen=True, slots=True)
class LostPiece:
    """Bytes of a segment that are not in the output."""

    start: int
    end: int
    """Positions in the `.log`; `end` is excluded."""
    is_suspect: bool
    """Whether these are intact batches that do not agree with the rest of the log: copies, batches out of their place,
    batches inside of a record's value.
    """
    reason: Reason
    quarantine_position: int
    """Where these bytes are in the quarantine file."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """A hole in the log: everything between two batches that were kept.

    Zeros at the end of a file count as padding, not as lost, and have no pieces. Where offsets are missing after them,
    or nothing tells that there are none, they are listed here all the same.
    """

    segment: str
    """Path of the `.log`."""
    start: int
    end: int
    """Positions; `end` is excluded."""
    size_in_bytes: int
    """Bytes lost, without suspects and padding."""
    reason: Reason
    """Of the first piece."""
    first_offset: int
    end_offset: int | None
    """Offsets that the hole may have held; `end_offset` is excluded, and None at the end of a log whose end nothing
    tells.
    """
    n_records: int | None
    """Records lost; None if unknown."""
    certainty: Certainty | None
    """Where `n_records` comes from: "exact" if the headers of the damaged batches fill the hole, "header" if they are
    all there is to say, "at_most" if it is the number of offsets. A log that was compacted had fewer.
    """
    timestamp_before: int | None
    timestamp_after: int | None = None
    """Largest timestamp of the batch before and base timestamp of the batch after, ms: the time of what is lost, if
    timestamps rise.
    """
    open_transactions: tuple[tuple[int, int], ...] = ()
    """Producer and first offset of transactions that were open before the hole. Their markers may be lost."""
    is_unreadable: bool = False
    """Whether the disk could not read some of it."""
    pieces: tuple[LostPiece, ...] = ()
    is_torn: bool = False
    """Whether it is only the incomplete batch that a crash leaves at the end of a log: normal, and no damage."""
    is_fatal: bool = False
    """Whether it is zeros after a clean shutdown: a broker does not start with them."""
    n_markers: int = 0
    """Transaction markers lost, as headers show them; they are no records."""

    def to_finding(self) -> Finding:
        """The hole as a finding; zeros that may be padding are no damage."""
        offsets = offset_range(self.first_offset, self.end_offset)
        is_suspect = not self.size_in_bytes
        what = "intact batches that do not belong here" if is_suspect else f"{self.size_in_bytes:,} bytes lost"
        if self.reason in LIMIT_NAMES:
            what = f"{self.size_in_bytes:,} bytes left out, which may be intact"
        detail, is_damage = f"{what}, of offsets {offsets}", not self.is_torn
        if not self.pieces:
            is_damage = self.end_offset is not None or self.is_fatal
            known = "lost batches" if self.n_records else "padding or lost batches, which look the same"
            known = "after a clean shutdown, a broker does not start with them" if self.is_fatal else known
            detail = f"{self.end - self.start:,} zeros, of offsets {offsets}: {known}"
        return Finding(
            self.reason,
            detail,
            damage=is_damage,
            path=self.segment,
            position=self.start,
            length=self.end - self.start,
            base_offset=self.first_offset,
            last_offset=None if self.end_offset is None else self.end_offset - 1,
            n_records=self.n_records,
            certainty=self.certainty,
            n_markers=self.n_markers,
        )


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file that proves that records are missing. Its bytes are in the quarantine file."""

    name: str
    size_in_bytes: int
    quarantine_position: int


@leading_names
@dataclass(slots=True)
class SalvagedSegment:
    """The bytes of one `.log`; kept, lost, padding and suspect bytes add up to its size."""

    path: str
    base_offset: int
    size_in_bytes: int
    n_bytes_kept: int = 0
    n_bytes_lost: int = 0
    n_bytes_padding: int = 0
    n_bytes_suspect: int = 0
    """Padding are the zeros at the end of a preallocated file."""
    n_batches_kept: int = 0
    n_batches_suspect: int = 0
    n_batches_undecodable: int = 0
    """Those kept that cannot be decoded. Each has a finding."""
    n_records_kept: int = 0
    """As the headers say. Compressed v0 and v1 messages count as one, transaction markers not at all."""


@leading_names
@dataclass(slots=True)
class SalvagedPartition:
    """What became of one partition."""

    path: str
    """The source."""
    output: str
    """The new partition directory."""
    quarantine: str | None = None
    """The file with the lost and the suspect bytes, and with evidence; None if there are none."""
    start_offset: int = 0
    end_offset: int = 0
    """Of the output; `end_offset` is excluded."""
    segments: list[SalvagedSegment] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    """Holes, in order; at most `Limits.max_findings`."""
    n_more_lost: int = 0
    """Further holes. Their bytes are counted, and are in the quarantine file."""
    losses: list[Lost] = field(default_factory=list)
    """What is lost, by offset: in holes, and in segments that are missing. Losses that touch are one."""
    evidence: list[EvidenceFile] = field(default_factory=list)
    """Files that prove that segments are missing, such as an index without its `.log`."""
    error: str | None = None
    """Why the partition could not be saved; None if it was."""
    open_transactions: list[tuple[int, int]] = field(default_factory=list)
    """Producer and first offset of transactions that are open at the end of the output."""
    transactions_without_marker: list[tuple[int, int]] = field(default_factory=list)
    """Those whose marker may be lost: they were open before a hole. Where such a marker is gone, a consumer that reads
    committed records waits for the transaction, or treats it as a part of the producer's next one.
    """

    def total(self, name: str) -> int:
        """Sum of a field over the segments, such as ``"n_bytes_lost"``."""
        return int(sum(getattr(segment, name) for segment in self.segments))


@dataclass(slots=True)
class CopyReport(PartsReport, JsonFields):
    """What an operation made that copies intact batches. It has no time: equal sources give equal reports."""

    _json_properties = ("ok",)
    _json_without = ("log_dirs",)

    partitions: list[Any] = field(default_factory=list)
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """What is lost, and files that could not be read."""
    is_written: bool = False
    """False after a dry run."""
    log_dirs: list[str] = field(default_factory=list)
    """Where the intact batches are: the output, or the sources after a dry run."""

    @property
    def next(self) -> list[NextStep]:
        """What serves the intact batches after damage; empty without it."""
        return steps_after_damage(self.findings.rows, self.log_dirs)

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, as far as the source shows, and all that was copied can be decoded."""
        return not self.findings.n_damage


@dataclass(slots=True)
class SalvageReport(CopyReport, PartitionsReport):
    """What `salvage` kept and lost. There are findings about holes, and about batches kept that cannot be decoded."""

    partitions: list[SalvagedPartition] = field(default_factory=ReportList)

    def __repr__(self) -> str:
        kept, lost = self.total("n_batches_kept"), self.total("n_bytes_lost")
        n = counted(len(self.partitions), "partition")
        return f"SalvageReport({n}, {counted(kept, 'batch')} kept, {counted(lost, 'byte')} lost)"

    def total(self, name: str) -> int:
        """Sum of a field of the segments over all partitions, such as ``"n_batches_kept"``."""
        return sum(partition.total(name) for partition in self.partitions)

    def lines(self) -> Iterable[str]:
        """The report as text for people."""
        for partition in self.partitions:
            if partition.error is not None:
                yield f"{partition.path}: NOT SAVED: {partition.error}"
                continue
            kept, lost = partition.total("n_batches_kept"), partition.total("n_bytes_lost")
            yield f"{partition.path}: offsets {offset_range(partition.start_offset, partition.end_offset)}"
            yield f"  kept       {partition.total('n_bytes_kept'):,} bytes, {counted(kept, 'batch')}"
            if undecodable := partition.total("n_batches_undecodable"):
                yield f"             {counted(undecodable, 'batch')} of them cannot be decoded: see the findings"
            yield f"  lost       {lost:,} bytes"
            if suspect := partition.total("n_bytes_suspect"):
                batches = partition.total("n_batches_suspect")
                yield f"  suspect    {suspect:,} bytes, {counted(batches, 'intact batch')} that disagree with the log"
            if padding := partition.total("n_bytes_padding"):
                yield f"  padding    {padding:,} bytes"
            for one in partition.lost:
                yield f"  hole       {_hole(one)}"
            if partition.n_more_lost:
                yield f"  hole       and {partition.n_more_lost:,} more"
            for loss in partition.losses:
                if loss.path == partition.path:
                    yield f"  missing    {loss}"
            for file in partition.evidence:
                yield f"  evidence   {file.name}, {file.size_in_bytes:,} bytes, is in the quarantine file"
            for producer_id, first in partition.transactions_without_marker:
                yield (
                    f"  WARNING    the transaction of producer {producer_id} that begins at offset {first} may have"
                    " lost its marker: read_committed consumers may see its records differently"
                )


def _hole(lost: LostRange) -> str:
    offsets = offset_range(lost.first_offset, lost.end_offset)
    records, times = lost_records(lost.n_records, lost.certainty, lost.n_markers), ""
    what = "left out" if lost.reason in LIMIT_NAMES else "lost"
    if lost.timestamp_before is not None or lost.timestamp_after is not None:
        before, after = ("?" if time is None else time for time in (lost.timestamp_before, lost.timestamp_after))
        times = f", between {before} and {after} ms"
    disk = ", not readable from the disk" if lost.is_unreadable else ""
    return (
        f"{lost.segment}@{offset_range(lost.start, lost.end)}: {lost.reason.value}, offsets {offsets},"
        f" {what}: {records}{times}{disk}"
    )
