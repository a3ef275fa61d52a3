"""What a broker would do with a log dir on its next start: a row per partition, with its segments."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings
from kafkalog.html import HtmlReport
from kafkalog.survey.startup_root import StartProblem
from kafkalog.text import counted

Verdict = Literal["starts", "recovers", "loses", "does not start"]
VERDICTS: tuple[Verdict, ...] = ("starts", "recovers", "loses", "does not start")
SegmentAction = Literal["kept", "recovered", "cut", "emptied", "deleted", "split"]
IndexAction = Literal["rebuilt", "created empty"]


@dataclass(frozen=True, slots=True)
class BrokerException:
    """An exception that ends the broker's start, or takes the log dir offline."""

    name: str
    """Class of the exception, without its package."""
    path: str
    detail: str
    is_offline: bool = False
    """Whether the broker only takes the log dir offline; it stops if it has no other."""


class LoadFailure(Exception):
    """What a broker throws while it loads a partition; the message says why. It becomes a `BrokerException`.

    Parameters
    ----------
    java_name : str
        Class of what it throws, without its package.
    detail : str

    Attributes
    ----------
    path : Path, optional
    position : int, optional
        Of the batch that it is about, where one batch is the cause.
    """

    def __init__(self, java_name: str, detail: str) -> None:
        super().__init__(detail)
        self.java_name = java_name
        self.path: Path | None = None
        self.position: int | None = None


@dataclass(slots=True)
class SegmentForecast:
    """What becomes of one segment."""

    name: str
    base_offset: int
    action: SegmentAction
    """What is done with it. "kept": not read. "recovered": read, and nothing cut. "cut": truncated to `n_bytes`.
    "emptied": truncated to 0 bytes. "deleted": behind damage, or below the log start offset. "split": offsets are too
    far apart for one segment.
    """
    n_bytes_before: int
    n_bytes: int
    """Size of the `.log` before and after."""
    indexes: dict[str, IndexAction] = field(default_factory=dict)
    """By suffix; other index files stay as they are."""
    finding: Finding | None = None
    """The damage, or the torn tail."""
    expires: Literal["retention.ms", "retention.bytes"] | None = None
    """The setting by which the broker deletes the segment soon after its start, if its settings are known."""
    is_expired_early: bool = False
    """Whether it does so although the records are not old: zeros at the end of the time index say so."""

    @property
    def n_bytes_lost(self) -> int:
        """Bytes that are cut off or deleted, but for a torn tail or preallocated zeros, which are no records."""
        if self.is_expired_early:
            return self.n_bytes_before
        is_tail = self.action == "cut" and self.finding is not None and not self.finding.damage
        return 0 if is_tail else self.n_bytes_before - self.n_bytes


@dataclass(slots=True)
class PartitionForecast:
    """What becomes of one partition."""

    path: str
    topic_partition: kf.TopicPartition | None
    segments: list[SegmentForecast] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    """Other files that are deleted, and why."""
    renamed: dict[str, str] = field(default_factory=dict)
    """`.swap` files, and their new names."""
    exceptions: list[BrokerException] = field(default_factory=list)
    stray: str | None = None
    """Why a KRaft broker sets the directory apart as `-stray`, to be deleted later."""
    remarks: list[str] = field(default_factory=list)
    """What is lost besides records: producer states that are forgotten, epochs that are wrong."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    """Afterwards."""
    log_end_offset_before: int | None = None
    """The offset after the last intact batch of the last segment; None if it cannot be read."""
    n_bytes_read: int = 0
    """Bytes of `.log` files that recovery reads."""

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted, but for a torn tail."""
        return sum(segment.n_bytes_lost for segment in self.segments)

    @property
    def n_records_lost(self) -> int | None:
        """At most this many records are cut off or deleted, by their offsets; None if that cannot be told."""
        if not self.n_bytes_lost:
            return 0
        before, ends = self.log_end_offset_before, [one.base_offset for one in self.segments[1:]]
        ends.append(self.log_end_offset)
        n_early = sum(
            end - one.base_offset for one, end in zip(self.segments, ends, strict=True) if one.is_expired_early
        )
        if before is None or (before <= self.log_end_offset and not n_early):
            return None
        return n_early + max(before - self.log_end_offset, 0)

    @property
    def verdict(self) -> Verdict:
        """The worst that happens: the broker fails, records go, work is done, or nothing happens."""
        if self.exceptions:
            return "does not start"
        if self.n_bytes_lost or self.stray is not None or self.log_end_offset < (self.log_end_offset_before or 0):
            return "loses"
        is_touched = any(segment.action != "kept" or segment.indexes for segment in self.segments)
        return "recovers" if is_touched or self.removed or self.renamed or self.remarks else "starts"

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        key = self.topic_partition
        fields = asdict(self) | {
            "topic_partition": None if key is None else str(key),
            "verdict": self.verdict,
            "n_bytes_lost": self.n_bytes_lost,
            "n_records_lost": self.n_records_lost,
        }
        for row, segment in zip(fields["segments"], self.segments, strict=True):
            row["finding"] = None if segment.finding is None else segment.finding.as_dict()
        return fields


@dataclass(slots=True)
class Preflight(HtmlReport):
    """The result of `preflight`."""

    broker: str
    """One of "4.3", "2.8"."""
    is_clean: bool = False
    """Whether the broker takes all log dirs for cleanly shut down."""
    partitions: list[PartitionForecast] = field(default_factory=list)
    problems: list[StartProblem] = field(default_factory=list)
    """Files with which the broker does not start, except for the contents of partitions."""
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage that was found on the way, checkpoints that cannot be read."""
    bytes_per_second: float | None = None
    """How fast recovery was read here, by the CPU time of one thread; None if nothing was read. Waits for the disk are
    not in it: they depend on what of the files is in memory."""

    @property
    def n_bytes_read(self) -> int:
        """Bytes of `.log` files that recovery reads."""
        return sum(partition.n_bytes_read for partition in self.partitions)

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted."""
        return sum(partition.n_bytes_lost for partition in self.partitions)

    @property
    def n_bytes_needed(self) -> int:
        """Space that the start takes: a broker preallocates indexes of each last segment, and of those it recovers."""
        n_files = 0
        for partition in self.partitions:
            last = partition.segments[-1:]
            n_files += sum(segment.action in ("recovered", "cut") or segment in last for segment in partition.segments)
        return n_files * 2 * _INDEX_BYTES

    @property
    def seconds(self) -> float | None:
        """How long recovery takes with one thread (`num.recovery.threads.per.data.dir`), at the rate measured here.

        That is its CPU time. Where the disk is slower, what it takes to read the bytes from there counts instead.
        """
        return None if self.bytes_per_second is None else self.n_bytes_read / self.bytes_per_second

    @property
    def verdict(self) -> Verdict:
        """The worst of all partitions."""
        verdicts = [partition.verdict for partition in self.partitions]
        verdicts += ["does not start" if one.effect == "does not start" else "loses" for one in self.problems]
        return max(verdicts, key=VERDICTS.index, default="starts")

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "broker": self.broker,
            "is_clean": self.is_clean,
            "verdict": self.verdict,
            "problems": [one.as_dict() for one in self.problems],
            "n_bytes_read": self.n_bytes_read,
            "n_bytes_lost": self.n_bytes_lost,
            "n_bytes_needed": self.n_bytes_needed,
            "seconds": self.seconds,
            "partitions": [partition.as_dict() for partition in self.partitions],
            "findings": [finding.as_dict() for finding in self.findings.rows],
        }

    def __repr__(self) -> str:
        how = "clean" if self.is_clean else "unclean"
        lost = f", {counted(self.n_bytes_lost, 'byte')} lost" if self.n_bytes_lost else ""
        n = counted(len(self.partitions), "partition")
        return f"Preflight({n}, {how} start of {self.broker}: {self.verdict}{lost})"


_INDEX_BYTES = 10_485_760
