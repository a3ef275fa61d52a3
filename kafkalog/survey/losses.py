"""Finds what a partition lost: offsets that other files prove, or that a gap between segments shows, and damage.

"Lost" means: records that existed, by the best evidence, and that are not in the result. An index, a producer snapshot
or a checkpoint that reaches past the log proves a loss. A gap between segments is one unless it was compacted.
`remains` returns what a segment contains from a position on, which is lost if a broker cuts it there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    Certainty,
    Finding,
    KafkalogError,
    Loss,
    Reason,
    intact_records,
    least_certain,
    lost_markers,
    lost_records,
)
from kafkalog.html import JsonFields, PartsReport
from kafkalog.log.compaction import GapMeter
from kafkalog.log.partition import Partition
from kafkalog.log.proved_ends import ProvedEnd
from kafkalog.log.searching.lost_records import lost_in
from kafkalog.log.searching.missing import (
    FilesWithoutLog,
    GapProofs,
    copied_segments,
    copies_past_end,
    cut_finding,
    end_finding,
    gap_finding,
    missing_segment,
    names_of,
    snapshot_name,
    start_finding,
    with_copies,
)
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.storage.removals import is_gone
from kafkalog.survey.evidence import Evidence, LogDirState, SegmentContents, ends_of, is_tiered, tail_finding, take_cuts
from kafkalog.text import offset_range


@dataclass(frozen=True, slots=True)
class Lost(JsonFields):
    """A range of offsets whose records existed, by the best evidence, and are not in the result."""

    path: str
    """The `.log`, or the partition directory if no `.log` has them."""
    first_offset: int | None
    end_offset: int | None
    """The offsets, as far as known; `end_offset` is excluded."""
    n_records: int | None
    """Records lost; None if unknown."""
    certainty: Certainty | None
    """Where `n_records` comes from; see `Finding`."""
    n_bytes: int
    """Bytes of the `.log` that are not in the result; 0 if no file has them."""
    reason: Reason
    n_markers: int = 0
    """Transaction markers lost, as headers show them; they are no records."""
    n_intact: int = 0
    """Of the records, those in intact batches that a broker deletes. `salvage` and `boot` keep them."""

    @classmethod
    def of(cls, finding: Finding) -> Lost | None:
        """Return the loss that a finding of damage describes; None if neither a record nor a marker is lost."""
        if not finding.damage or finding.path is None or finding.is_unreadable:
            return None
        if finding.n_records == 0 and not finding.n_markers:
            return None
        if finding.n_records is None and ".log" not in os.path.basename(finding.path):
            return None  # another file is damaged, not the log
        end = None if finding.last_offset is None else finding.last_offset + 1
        n_bytes = finding.length or 0
        return cls(
            finding.path,
            finding.base_offset,
            end,
            finding.n_records,
            finding.certainty,
            n_bytes,
            finding.reason,
            finding.n_markers,
            finding.n_intact,
        )

    def to_finding(self, detail: str) -> Finding:
        """The loss as a finding; `detail` is followed by the offsets."""
        markers = f", with {lost_markers(self.n_markers)}" if self.n_markers else ""
        return Finding(
            self.reason,
            f"{detail}: {offset_range(self.first_offset, self.end_offset)}{markers}",
            path=self.path,
            base_offset=self.first_offset,
            last_offset=None if self.end_offset is None else self.end_offset - 1,
            n_records=self.n_records,
            certainty=self.certainty,
            n_markers=self.n_markers,
            n_intact=self.n_intact,
        )

    def __str__(self) -> str:
        """One line: the offsets, the number of records, and the reason."""
        n = lost_records(self.n_records, self.certainty, self.n_markers)
        n += intact_records(self.n_intact, is_all=self.n_intact == self.n_records)
        return f"offsets {offset_range(self.first_offset, self.end_offset)}, lost: {n} ({self.reason.value})"


class PartitionsReport(PartsReport):
    """A report with a row per partition."""

    __slots__ = ()
    partitions: list[Any]

    @property
    def losses(self) -> list[Lost]:
        """The losses of all partitions, in order; each partition has its own."""
        return [one for partition in self.partitions for one in partition.losses]


def losses_of(findings: Iterable[Finding]) -> list[Lost]:
    """Return the losses that findings describe, by offset. Losses that touch or overlap become one."""
    joined: list[Lost] = []
    for one in sorted(_without_copies([*findings]), key=_order):
        before = joined[-1] if joined else None
        if before is None or before.first_offset is None or one.first_offset is None:
            joined.append(one)
        elif before.end_offset is None and one.reason is Reason.LOG_END_MISSING:
            # another file says where damage at the end of the log would have ended
            assert one.end_offset is not None
            n = _most_records(one.end_offset - before.first_offset, before.n_markers)
            joined[-1] = replace(before, end_offset=one.end_offset, n_records=n, certainty="at_most")
        elif before.end_offset is None or one.first_offset > before.end_offset:
            joined.append(one)
        else:
            joined[-1] = _join(before, one, before.end_offset)
    return joined


def _without_copies(findings: Sequence[Finding]) -> Iterator[Lost]:
    """Yield what is lost by each finding, without the offsets of which copies are returned after it."""
    copies = [one for one in findings if one.n_returned]
    for finding in findings:
        lost = Lost.of(finding)
        parts = [] if lost is None else [lost]
        for copy in copies if finding.position is not None else ():
            first, last = copy.base_offset, copy.last_offset
            if first is not None and last is not None and _place_of(finding) <= _place_of(copy):
                parts = [part for one in parts for part in _without(one, first, last + 1)]
        yield from parts


def _place_of(finding: Finding) -> tuple[str, int]:
    return finding.path or "", finding.position or 0


def _without(lost: Lost, start: int, end: int) -> list[Lost]:
    """Return what is left of a loss if a copy has some of its offsets."""
    first, last = lost.first_offset, lost.end_offset
    if first is None or last is None or end <= first or start >= last:
        return [lost]
    parts = [(low, high) for low, high in ((first, start), (end, last)) if low < high]
    n_bytes = [lost.n_bytes, 0]
    rest = [
        replace(lost, first_offset=low, end_offset=high, n_records=_at_most(lost.n_records, high - low), n_bytes=n)
        for (low, high), n in zip(parts, n_bytes, strict=False)
    ]
    return [replace(one, n_intact=min(one.n_intact, one.n_records or 0)) for one in rest]


def _at_most(n_records: int | None, n_offsets: int) -> int | None:
    return None if n_records is None else min(n_records, n_offsets)


def _order(lost: Lost) -> tuple[bool, int, bool, bool, int]:
    """A key to sort losses by offset. With equal first offsets, a loss whose end is known comes last."""
    first, end = lost.first_offset, lost.end_offset
    return first is None, first or 0, lost.reason is Reason.LOG_END_MISSING, end is None, end or 0


def total(losses: Iterable[Lost]) -> Loss:
    """Add up losses."""
    loss = Loss()
    for one in losses:
        last = None if one.end_offset is None else one.end_offset - 1
        found = Finding(one.reason, base_offset=one.first_offset, last_offset=last, n_records=one.n_records)
        loss.add(replace(found, certainty=one.certainty, n_markers=one.n_markers, n_intact=one.n_intact))
    return loss


def _most_records(n_offsets: int, n_markers: int) -> int:
    """The most records that so many offsets had: none if a marker had the only one."""
    return n_offsets if n_offsets > n_markers else 0


def _join(before: Lost, after: Lost, reached: int) -> Lost:
    """Return one loss for two that touch or overlap; `reached` is the end of the first."""
    end = None if after.end_offset is None else max(reached, after.end_offset)
    n_markers = before.n_markers + after.n_markers
    certainty = least_certain(before.certainty, after.certainty)
    n_records = None
    if before.n_records is not None and after.n_records is not None:
        n_records = before.n_records + after.n_records
    if end is not None and before.first_offset is not None:
        span = _most_records(end - before.first_offset, n_markers)
        if n_records is None:
            certainty = "at_most"
        n_records = span if n_records is None else min(n_records, span)
    certainty = None if n_records is None else certainty
    n_bytes = before.n_bytes + after.n_bytes
    found = replace(before, end_offset=end, n_records=n_records, certainty=certainty, n_bytes=n_bytes)
    n_intact = before.n_intact + after.n_intact
    return replace(found, n_markers=n_markers, n_intact=n_intact if n_records is None else min(n_intact, n_records))


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """A range of offsets between two existing segments that neither of them holds."""

    start: int
    end: int
    """The range; `end` is exclusive."""
    is_compacted: bool | None
    """Whether the log cleaner explains the gap; None if the files do not tell. See `kafkalog.log.compaction`."""


@dataclass(slots=True)
class Survey:
    """The facts about what a partition lost."""

    evidence: Evidence
    gaps: list[OffsetGap] = field(default_factory=list)
    """All gaps between segments; those that the cleaner explains give no finding."""
    findings: list[Finding] = field(default_factory=list)
    """Missing segments and offsets. Damage inside a segment is in its contents."""
    proofs: list[str] = field(default_factory=list)
    """Names of the files that prove losses, of the partition or of its log dir."""

    def _take(self, found: Iterable[tuple[Finding, Sequence[str]]]) -> None:
        for finding, proofs in found:
            self.findings.append(finding)
            self.proofs += [name for name in proofs if finding.damage and name not in self.proofs]


def survey(
    partition: Partition, segments: Sequence[SegmentContents], state: LogDirState, names: Sequence[str]
) -> Survey:
    """Find missing segments and missing offsets.

    `segments` has the contents of each segment of the partition in order, `names` lists all files.
    """
    evidence = Evidence.of(partition, segments, state, names)
    found = Survey(evidence)
    found.findings += [_leftover(partition, name) for name in evidence.leftovers]
    found.findings += _overlaps(segments, state)
    found._take(_about_middles(partition, segments, evidence))
    found.gaps += _gaps(partition, segments)
    # a gap after a segment whose end is damaged is that damage, which has a finding already
    damaged = {one.last_offset + 1 for one in segments if one.hides_end}
    files = FilesWithoutLog(names if found.gaps else ())
    unread = {one.base_offset for one in segments if one.is_unreadable}
    for gap in found.gaps:
        if gap.start in unread:
            continue
        found._take(_about_gap(partition, gap, segments, evidence, files, is_damaged=gap.start in damaged))
    if not (state.is_live or partition.kind is not None or any(segment.error for segment in partition.segments)):
        if segments:
            found._take(_about_start(partition, segments[0].base_offset, evidence))
            found._take(_about_end(partition, segments[-1], evidence))
        else:
            found._take([_about_nothing(partition, evidence)])
    found.findings = _with_copies(found.findings, partition, segments, state, names)
    return found


def _with_copies(
    findings: Iterable[Finding],
    partition: Partition,
    segments: Sequence[SegmentContents],
    state: LogDirState,
    names: Sequence[str],
) -> list[Finding]:
    """The findings with the files that may have what is missing, and one about such files past the end of the log."""
    copies = copied_segments(names)
    found = [with_copies(one, copies) for one in findings]
    if not segments or state.is_live or partition.kind is not None:
        return found
    details = [one.detail for one in found]
    return [*found, *copies_past_end(str(partition.path), segments[-1].last_offset, copies, details)]


def _overlaps(segments: Sequence[SegmentContents], state: LogDirState) -> Iterator[Finding]:
    """Report segments that reach into the next one; no record is lost by that."""
    for before, after in itertools.pairwise(segments):
        if before.last_offset < after.base_offset or (state.is_live and is_gone(after.path)):
            continue  # a running cleaner merges segments: the first is there in its new form, the others are gone
        detail = f"reaches offset {before.last_offset}, but the next segment begins at {after.base_offset}"
        detail += f" ({os.path.basename(after.path)})"
        yield Finding(Reason.OFFSET_ORDER, detail, path=before.path, base_offset=before.base_offset, n_records=0)


def _about_middles(
    partition: Partition, segments: Sequence[SegmentContents], evidence: Evidence
) -> Iterator[tuple[Finding, Sequence[str]]]:
    """Report batches that are gone from the middle of a segment. Then the gaps there do not show compaction."""
    for segment in () if evidence.state.is_live or not evidence.names else segments:
        index = kf.sidecar_name(os.path.basename(segment.path), kf.INDEX_SUFFIX)
        for part in take_cuts(partition, segment):
            yield cut_finding(segment.path, part), [index]


def _gaps(partition: Partition, segments: Sequence[SegmentContents]) -> Iterator[OffsetGap]:
    rows = [row for segment in segments if (row := segment.density) is not None]
    for before, after in itertools.pairwise(segments):
        start, end = before.last_offset + 1, after.base_offset
        if start < end:
            yield OffsetGap(start, end, partition.is_compacted(end, rows if len(rows) == len(segments) else None))


def _about_gap(
    partition: Partition,
    gap: OffsetGap,
    segments: Sequence[SegmentContents],
    evidence: Evidence,
    files: FilesWithoutLog,
    *,
    is_damaged: bool,
) -> Iterator[tuple[Finding, Sequence[str]]]:
    ends = [] if evidence.state.is_live else _ends_in_gap(partition, gap, segments)
    orphans = {base: names for base, names in evidence.orphans.items() if gap.start <= base < gap.end}
    snapshots = [] if evidence.state.is_live else files.snapshots_from(gap.start, gap.end)
    proofs = GapProofs(ends, names_of(orphans), snapshots)
    found, names = gap_finding(
        str(partition.path), gap.start, gap.end, proofs, is_compacted=gap.is_compacted, is_damaged=is_damaged
    )
    if found is not None:
        yield found, names


def _ends_in_gap(partition: Partition, gap: OffsetGap, segments: Sequence[SegmentContents]) -> list[ProvedEnd]:
    """The ends in a gap that the indexes of the segment before it prove; none if its damage reaches there."""
    if any(segment.base_offset <= gap.start <= segment.last_offset for segment in segments):
        return []
    before = next(segment for segment in reversed(segments) if segment.last_offset + 1 == gap.start)
    return [] if before.hides_end else ends_of(partition, before, gap.end)


def _about_start(partition: Partition, first: int, evidence: Evidence) -> Iterator[tuple[Finding, Sequence[str]]]:
    """Report offsets before the first segment that other files know of.

    The checkpoint has log start offsets above the base offset of the first segment only. As the log start offset rises,
    epochs and producer snapshots below it are dropped. After a clean shutdown none of them is older than the log. After
    a crash they may be: retention may have deleted segments since. Without any of them a first segment that is gone
    leaves no trace. Offsets below a log start in the checkpoint are not missing, whatever else tells of them.
    """
    known = {name: base for base, found in evidence.orphans.items() for name in found}
    is_proved = any(base < first for base in known.values())
    if not evidence.has(kf.LOG_SUFFIX + kf.DELETED_SUFFIX):
        known |= {snapshot_name(offset): offset for offset in evidence.snapshots}
        known[kf.LOG_START_OFFSET_CHECKPOINT] = first if evidence.log_start is None else evidence.log_start
        known[kf.LEADER_EPOCH_CHECKPOINT] = first if evidence.epochs_start is None else evidence.epochs_start
    known = {name: offset for name, offset in known.items() if offset < first}
    # what lies below the log start was deleted on purpose
    begin = max(min(known.values(), default=first), evidence.log_start or 0)
    if begin >= first:
        return
    if is_proved or (evidence.state.was_closed and not is_tiered(partition)):
        yield missing_segment(str(partition.path), begin, first, [*known])
    else:
        yield start_finding(str(partition.path), begin, first, ", ".join(known)), []


def _about_end(
    partition: Partition, last: SegmentContents, evidence: Evidence
) -> Iterator[tuple[Finding, Sequence[str]]]:
    """Report offsets after the last segment that other files know of, and no finding about it counts."""
    end = last.end_offset
    known = {name: offset for name, offset in evidence.ends.items() if offset > end and not last.is_unreadable}
    missing = end_finding(str(partition.path), end, known, damage=True)
    if missing is not None:
        yield missing, [*known]


def _about_nothing(partition: Partition, evidence: Evidence) -> tuple[Finding, Sequence[str]]:
    """Report a directory without a segment.

    A broker creates the first segment before any other file, so any other file proves that a segment was lost.
    """
    orphans = evidence.orphans
    proofs = names_of(orphans)
    proofs += [name for name, offset in evidence.ends.items() if offset > 0]
    proofs += [name for name in (kf.PARTITION_METADATA,) if name in evidence.names]
    proofs += [kf.LEADER_EPOCH_CHECKPOINT] if evidence.epochs_start is not None else []
    is_deleting = evidence.has(kf.DELETED_SUFFIX, kf.SWAP_SUFFIX)
    if not proofs or (is_deleting and not orphans):
        detail = "no .log: a broker creates an empty one at its next start"
        return Finding(Reason.SEGMENT_MISSING, detail, path=str(partition.path), damage=False), []
    start = max(partition.log_start_offset, 0)
    end = max([start, *evidence.ends.values()])
    return missing_segment(str(partition.path), start, end, proofs)


def _leftover(partition: Partition, name: str) -> Finding:
    detail = "an index without a .log: a broker deletes it at its next start"
    return Finding(Reason.UNKNOWN_FILE, detail, path=str(partition.path / name), damage=False)


def remains(
    segment: Segment, start: int, state: LogDirState, *, previous: int = -1
) -> tuple[SegmentContents, list[Finding]]:
    """Read the contents of a segment, damage or not, and the loss if a broker cuts it at `start`.

    The findings are the damage from `start` on, and one about the intact batches there. Up to the offset
    `previous`, other segments have the batches: they are not lost in this one.
    """
    path, base = str(segment.path), segment.base_offset
    contents = SegmentContents(path, base, base - 1, segment.size_in_bytes)
    n_records, n_markers, first, is_exact = 0, 0, None, True
    gaps = GapMeter(base)

    def add(finding: Finding) -> None:
        end = contents.last_offset + 1
        contents.findings.append(tail_finding(finding, state, end) if segment.is_last else finding)

    try:
        with segment.open() as source:
            before = max(previous, base - 1)
            for window in segment.iter_windows(source, previous_offset=before, on_corruption="skip", report=add):
                batches, valid = window.batches, valid_crcs(window)
                for row in np.flatnonzero(~valid).tolist():
                    add(lost_in(segment, window, batch_error(STATUS["CRC_MISMATCH"], batches, row, path)))
                intact = batches[np.flatnonzero(valid)]
                gaps.feed(intact)
                # compressed messages of v0 and v1 do not say how many they are: their offsets are counted
                spans = np.diff(batches.last_offset, prepend=contents.last_offset)
                n_by_header = batches.n_user_records
                is_known, is_cut = n_by_header >= 0, valid & (batches.position >= start)
                is_exact &= bool(is_known[is_cut].all())
                n_of_each = np.where(is_known, n_by_header, spans)
                n_records += int(n_of_each[is_cut].sum())
                n_markers += int((batches.is_control & batches.is_transactional & (n_of_each == 0) & is_cut).sum())
                if first is None and is_cut.any():
                    row = int(np.argmax(is_cut))
                    first = int(batches.base_offset[row] if is_known[row] else (batches.last_offset - spans)[row] + 1)
                if len(intact):
                    contents.last_offset = max(contents.last_offset, int(intact.last_offset[-1]))
                source.release(window.data, window.start)
    except KafkalogError as error:
        add(error.to_finding())
    contents.has_gaps = gaps.has_gaps
    lost = [one for one in contents.findings if one.damage and (one.position or 0) >= start]
    if first is not None:
        detail = "intact batches after the place where a broker cuts the log"
        reason = lost[0].reason if lost else Reason.OFFSET_ORDER
        last = contents.last_offset
        found = Finding(reason, detail, path, start, base_offset=first, last_offset=last, n_records=n_records)
        # with records, most markers end transactions that are cut, too
        n_markers = 0 if n_records else n_markers
        found = replace(found, n_markers=n_markers, n_intact=n_records)
        lost.append(replace(found, certainty="exact" if is_exact else "at_most"))
    return contents, lost
