"""The results of a recovery, of its dry run, and of a preflight: a plan per partition, and the log dir's own files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Findings, Reason
from kafkalog.html import JsonFields, ReportList
from kafkalog.survey.losses import PartitionsReport
from kafkalog.survey.next_steps import NextStep, are_set_apart, boot_steps, log_dirs_of, needs_boot
from kafkalog.survey.startup import VERDICTS, PartitionPlan, Verdict
from kafkalog.survey.startup_root import StartProblem
from kafkalog.text import counted


@dataclass(slots=True)
class RecoveryReport(PartitionsReport, JsonFields):
    """What `recover` did."""

    _json_properties: ClassVar[tuple[str, ...]] = ("n_bytes_lost", "is_clean", "next")

    partitions: list[PartitionPlan] = field(default_factory=ReportList)
    checkpoints: list[str] = field(default_factory=list)
    """Files of the log dir itself that were written, the clean-shutdown marker among them."""
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage, torn tails, files that could not be read."""
    problems: list[StartProblem] = field(default_factory=list)
    """Files of the log dir with which a broker does not start even afterwards."""
    n_backup_files: int = 0
    """Files that are in the backup."""
    is_written: bool = False
    """False after a dry run."""
    log_dirs: list[str] = field(default_factory=list)
    """Of `recover`: where all that was there before still is. After a change in place, the backup is one of two."""

    def add(self, row: PartitionPlan) -> None:
        """Take the row of a partition. Its problem and damage are findings, in place of others about the same bytes."""
        for found in [row.problem, *(segment.finding for segment in row.segments)]:
            if found is None or not found.damage:
                continue
            rows = self.findings.rows
            places = [n for n, one in enumerate(rows) if (one.path, one.position) == (found.path, found.position)]
            if not places:
                if found is row.problem:  # what is not touched is not lost
                    row.problem = found = replace(found, n_records=0)
                self.findings.add(found)
            elif not any(rows[place].damage for place in places):
                self.findings.exchange([*rows[: places[0]], found, *rows[places[0] + 1 :]])
        self.partitions.append(row)

    def check(self) -> None:
        """Raise why a partition could not be recovered or cut, for output in which nothing may be half done."""
        for row in self.partitions:
            if row.problem is not None:
                raise CorruptionError.about(row.problem, row.problem.detail)

    @property
    def is_clean(self) -> bool:
        """Whether a broker can start on the result as after a clean shutdown: every partition was recovered."""
        return not any(partition.error or partition.count("split") for partition in self.partitions)

    @property
    def ok(self) -> bool:
        """Whether nothing was damaged or lost, and a broker starts on the result."""
        return not (self.findings.n_damage or self.losses or self.problems)

    @property
    def next(self) -> list[NextStep]:
        """What serves the intact batches that a broker deletes, and the check of what was not read.

        Empty if all was read, and nothing is damaged or lost.
        """
        if not self.log_dirs:
            return []
        problems = (one.to_finding() for one in self.problems)
        needs = self.losses or any(not one.is_unreadable for one in problems)
        needs = needs or any(map(needs_boot, self.findings.rows))
        steps = boot_steps(self.log_dirs) if needs else []
        unread = [one for one in self.partitions if one.count("kept")]
        why = (
            "recovery reads no segment before the recovery point, as a broker: verify shows damage there, which remains"
        )
        check = NextStep(("kafkalog", "verify", *log_dirs_of(one.path for one in unread)), why)
        return [*steps, check] if unread else steps

    @property
    def n_bytes_lost(self) -> int:
        """Bytes of `.log` files that are cut off or deleted."""
        return sum(partition.n_bytes_lost for partition in self.partitions)

    def __repr__(self) -> str:
        n_failed = sum(partition.error is not None for partition in self.partitions)
        state = f"{counted(self.n_bytes_lost, 'byte')} lost" if self.n_bytes_lost else "nothing lost"
        failed = f", {n_failed} not recovered" if n_failed else ""
        return f"RecoveryReport({counted(len(self.partitions), 'partition')}, {state}{failed})"


@dataclass(slots=True)
class Preflight(PartitionsReport, JsonFields):
    """The result of `preflight`."""

    _json_properties = ("verdict", "n_bytes_read", "n_bytes_lost", "n_bytes_needed", "next")

    is_clean: bool = False
    """Whether the broker takes all log dirs for cleanly shut down."""
    is_kraft: bool = True
    """Whether they are of a broker without ZooKeeper. Strays of others are remarks: Kafka 4.x alone renames them."""
    partitions: list[PartitionPlan] = field(default_factory=ReportList)
    problems: list[StartProblem] = field(default_factory=list)
    """Files with which the broker does not start, except for the contents of partitions."""
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage that was found on the way, checkpoints that cannot be read."""
    release: str | None = None
    """The release of Kafka that starts; None if none was named."""
    log_dirs: list[str] = field(default_factory=list)
    """The log dirs, or what they lie in, as they were named, and those that only the configuration names."""
    metadata: str | None = None
    """Another log dir with the cluster's metadata log, if one was named."""

    @property
    def ok(self) -> bool:
        """Whether the broker starts, keeps every partition, and meets no damage or loss."""
        is_kept = not any(partition.stray for partition in self.partitions)
        starts = self.verdict in ("starts", "recovers")
        return starts and is_kept and not (self.findings.n_damage or self.losses or self.problems)

    def add_lost(self, partition: PartitionPlan) -> None:
        """Add a partition that is lost as a whole."""
        self.partitions.append(partition)
        for finding in partition.lost:
            self.findings.add(finding)

    @property
    def _is_limited(self) -> bool:
        """Whether nothing but limits and permissions is in the way: without these there may be nothing to do."""
        damage = [one for one in self.findings.rows if one.damage]
        damage += [one.to_finding() for one in self.problems]
        return bool(damage) and all(one.is_unreadable for one in damage) and not self.losses

    @property
    def next(self) -> list[NextStep]:
        """What to do instead of a start that loses something or fails, or on which all topics were set apart.

        Empty if the broker may start, or its configuration alone is at fault, and there are no empty disks.
        """
        paths = [one.path for one in self.partitions]
        is_harmless = replace(self, problems=[one for one in self.problems if not one.is_configured]).ok
        # what an empty disk had may be on the others
        has_blank = any(one.reason is Reason.NOT_KAFKA for one in self.findings.rows)
        if not self.log_dirs or self._is_limited or (is_harmless and not (are_set_apart(paths) or has_blank)):
            return []
        return boot_steps(self.log_dirs, self.release, metadata=self.metadata)

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
    def verdict(self) -> Verdict:
        """The worst of all partitions and problems."""
        verdicts = [partition.verdict for partition in self.partitions]
        effects: dict[str, Verdict] = {"does not start": "does not start", "unreadable": "unreadable"}
        verdicts += [effects.get(one.effect, "loses") for one in self.problems]
        return max(verdicts, key=VERDICTS.index, default="starts")

    def __repr__(self) -> str:
        how = "clean" if self.is_clean else "unclean"
        strays = [partition for partition in self.partitions if partition.stray is not None]
        n_lost = self.n_bytes_lost - sum(partition.n_bytes for partition in strays)
        lost = f", {counted(n_lost, 'byte')} lost" if n_lost else ""
        lost += f", {counted(len(strays), 'partition')} renamed to -stray" if strays else ""
        return f"Preflight({counted(len(self.partitions), 'partition')}, {how} start: {self.verdict}{lost})"


_INDEX_BYTES = 10_485_760
