"""What a broker's start does with log dirs, as plain data: a plan per partition, and one per segment.

`repair.recovering` makes the plans. `preflight` displays them, and `recover` executes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from kafkalog import format as kf
from kafkalog.errors import MISSING, Finding, Loss
from kafkalog.html import JsonFields
from kafkalog.survey.losses import Lost, losses_of, total
from kafkalog.text import counted, first_names, offset_range

Verdict = Literal["starts", "recovers", "unreadable", "loses", "does not start"]
VERDICTS: tuple[Verdict, ...] = ("starts", "recovers", "unreadable", "loses", "does not start")
SegmentAction = Literal["kept", "recovered", "split", "cut", "emptied", "deleted", "cleaned"]
Retention = Literal["retention.ms", "retention.bytes"]
Kind = Literal["offset", "time", "txn", "snapshot", "epochs", "topic_id"]
Change = Literal["new", "changed", "removed", "same"]


@dataclass(frozen=True, slots=True)
class RebuiltFile(JsonFields):
    """A file that is derived from `.log` files."""

    path: str
    """Its path next to the `.log`, also if it was written elsewhere."""
    kind: Kind
    """One of "offset", "time", "txn", "snapshot", "epochs", "topic_id"."""
    n_entries: int
    n_bytes: int
    change: Change
    """Compared with the existing file."""
    backup: str | None = None
    """Path of the old file's backup."""


@dataclass(slots=True)
class SegmentPlan(JsonFields):
    """What becomes of one segment."""

    name: str
    """File name of the `.log`; that of a `.swap` file without its suffix."""
    base_offset: int
    action: SegmentAction
    """What is done with it. "kept": on disk according to the recovery point, and not read. "recovered": read, and
    intact. "split": its offsets reach too far for an index, and it becomes several. "cut": truncated to `n_bytes`,
    before damage. "emptied": truncated to 0 bytes, because its offsets do not rise. "deleted": it follows damage, lies
    below the log start offset, or was merged into another. "cleaned": it was compacted.
    """
    n_bytes_before: int
    n_bytes: int
    """Size of the `.log` before and after."""
    finding: Finding | None = None
    """The damage, or the torn tail."""
    expires: Retention | None = None
    """The setting by which the broker deletes the segment soon after its start, if its settings are known."""
    is_expired_early: bool = False
    """Whether it does so although the records are not old: because of zeros at the end of the time index."""

    @property
    def n_bytes_lost(self) -> int:
        """Bytes that are cut off or deleted, but for a torn tail or preallocated zeros, which are no records."""
        if self.is_expired_early:
            return self.n_bytes_before
        is_tail = self.action == "cut" and self.finding is not None and not self.finding.damage
        return 0 if is_tail else self.n_bytes_before - self.n_bytes


@dataclass(slots=True)
class PartitionPlan(JsonFields):
    """What becomes of one partition."""

    _json_properties: ClassVar[tuple[str, ...]] = ("verdict", "error", "n_bytes", "n_bytes_lost", "losses")
    _json_without = ("lost", "n_bytes_read", "unnoticed")

    path: str
    topic_partition: kf.TopicPartition | None
    segments: list[SegmentPlan] = field(default_factory=list)
    files: list[RebuiltFile] = field(default_factory=list)
    """Indexes, snapshots and epochs that are derived from the segments."""
    removed: dict[str, str] = field(default_factory=dict)
    """Other files that are deleted, and why."""
    renamed: dict[str, str] = field(default_factory=dict)
    """`.swap` files and their new names."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    """Afterwards."""
    log_end_offset_before: int | None = None
    """The offset after the last intact batch, before anything is cut; None if it cannot be read."""
    n_bytes_read: int = 0
    """Bytes of `.log` files that recovery reads."""
    lost: list[Finding] = field(default_factory=list)
    """The damage and the intact batches that are cut off or deleted, and offsets that no `.log` holds although other
    files or a gap show that there were records."""
    problem: Finding | None = None
    """Why a broker does not start with the partition. `recover` leaves it unchanged, or out of the copy."""
    stray: str | None = None
    """Why a KRaft broker sets the directory apart as `-stray`, to be deleted later."""
    unreadable: list[str] = field(default_factory=list)
    """Segments that cannot be read here, such as without permission: what a broker does with them is not known."""
    remarks: list[str] = field(default_factory=list)
    """What is lost besides records: producer states that are forgotten, epochs that are wrong."""
    expiring_commits: dict[str, int] = field(default_factory=dict)
    """Of `__consumer_offsets`: the groups with committed offsets that the broker deletes soon after its start, and how
    many of each. Without its configuration, only those with a time of expiry of their own."""
    unnoticed: Finding | None = None
    """Damage that a broker keeps and does not notice: a wrong magic byte or offset. Its consumers fail there."""

    @property
    def error(self) -> str | None:
        """The problem in one line, without the directory."""
        if self.problem is None:
            return None
        where = "" if self.problem.position is None else f"@{self.problem.position}"
        return f"{Path(self.problem.path or self.path).name}{where}: {self.problem.detail}"

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted, but for a torn tail, which is no record.

        With a directory that is set aside (`stray`), all of them go.
        """
        n_bytes = sum(segment.n_bytes_lost for segment in self.segments)
        return n_bytes if self.stray is None else n_bytes + self.n_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of `.log` files afterwards."""
        return sum(segment.n_bytes for segment in self.segments)

    @property
    def losses(self) -> list[Lost]:
        """What is lost, by offset; losses that touch are one. `verify` reports those that are lost already."""
        return [] if self.problem is not None else losses_of(self.lost)

    @property
    def loss(self) -> Loss:
        """The sum of the losses."""
        return total(self.losses)

    @property
    def verdict(self) -> Verdict:
        """The worst that happens: the broker fails, records go, work is done, or nothing happens."""
        if self.problem is not None:
            return "unreadable" if self.problem.is_unreadable else "does not start"
        if self._loses:
            return "loses"
        if self.unreadable:
            return "unreadable"
        return "recovers" if self._is_touched else "starts"

    @property
    def _loses(self) -> bool:
        is_shorter = self.log_end_offset < (self.log_end_offset_before or 0)
        return bool(self.n_bytes_lost or self.losses or self.stray is not None or is_shorter)

    @property
    def _is_touched(self) -> bool:
        """Whether the broker changes a file, or has something to say."""
        is_touched = any(segment.action != "kept" for segment in self.segments)
        is_touched |= any(file.change != "same" for file in self.files)
        return bool(is_touched or self.removed or self.renamed or self.remarks)

    def count(self, action: SegmentAction) -> int:
        """Number of segments with a given action."""
        return sum(segment.action == action for segment in self.segments)

    @property
    def is_plain_recovery(self) -> bool:
        """Whether a broker only reads segments and rebuilds their indexes, and nothing else is worth a line."""
        return len(self.lines()) == 2 and self.count("recovered") > 0

    @property
    def stray_detail(self) -> str:
        """What becomes of a stray."""
        return f"renamed to -stray and later deleted: {self.stray}"

    def lines(self) -> list[str]:
        """What becomes of the partition: a line, and one for each thing that happens to it."""
        offsets = f"offsets {offset_range(self.log_start_offset, self.log_end_offset)}"
        lost = f", {self.n_bytes_lost:,} bytes lost" if self.n_bytes_lost else ""
        lost += f", {self.loss}" if self.losses else ""
        lines = [f"{self.verdict:<8} {self.path}  {offsets}{lost}"]
        if self.error is not None:
            lines.append(f"  {self.error}")
        if self.stray is not None:
            lines.append(f"  {self.stray_detail}")
        for segment in self.segments:
            if segment.action == "cut":
                why = f": {segment.finding.reason.value}" if segment.finding is not None else ""
                lines.append(f"  {segment.name} cut at byte {segment.n_bytes:,} of {segment.n_bytes_before:,}{why}")
            elif segment.action == "split":
                lines.append(f"  {segment.name} split: its offsets are too far apart for one segment")
            elif segment.action not in ("kept", "recovered"):
                lines.append(f"  {segment.name} {segment.action}")
        lines += self._expiry_lines()
        n_recovered = sum(segment.action == "recovered" for segment in self.segments)
        lines += [f"  {counted(n_recovered, 'segment')} recovered, with indexes"] if n_recovered else []
        n_files = sum(file.change != "same" for file in self.files)
        lines += [f"  {counted(n_files, 'file')} rebuilt"] if n_files and not n_recovered else []
        lines += [f"  {name} deleted: {why}" for name, why in self.removed.items()]
        lines += [f"  {one.detail}" for one in self.lost if one.reason in MISSING]
        lines += [f"  {name} cannot be read: what a broker does with it is not known" for name in self.unreadable]
        lines += [f"  {name} becomes {new}" for name, new in self.renamed.items()]
        return lines + [f"  {remark}" for remark in self.remarks]

    def _expiry_lines(self) -> Iterator[str]:
        """What the broker deletes soon after its start, as it was told to."""
        for setting in ("retention.ms", "retention.bytes"):
            sizes = [one.n_bytes for one in self.segments if one.expires == setting]
            if sizes:
                yield f"  {counted(len(sizes), 'segment')} deleted by {setting} after the start, {sum(sizes):,} bytes"
        if groups := self.expiring_commits:
            offsets, which = counted(sum(groups.values()), "committed offset"), first_names([*map(repr, groups)])
            yield f"  {offsets} of {counted(len(groups), 'group')} ({which}) deleted soon after the start: expired"
