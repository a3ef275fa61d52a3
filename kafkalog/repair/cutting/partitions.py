"""Opens the partitions whose logs are cut, and places changed files and the log dir's checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.log.open import latest_of
from kafkalog.parsing import Time, TopicPatterns, parse_milliseconds
from kafkalog.repair.placement import PartitionOutput, Placement
from kafkalog.repair.recovering.partition import contents_before, missing
from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_leader_epochs, read_offset_checkpoint
from kafkalog.storage.atomic import StrPath
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.storage.copying import copy_file
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place
from kafkalog.storage.room import check_room
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.startup import PartitionPlan
from kafkalog.survey.startup_files import ORPHAN, partition_directories
from kafkalog.survey.startup_load import LoadPlan, RootOffsets


class CutPartitions:
    """The partitions under a path, a log dir or a partition directory, and where their changed files go.

    `log_dir` is the directory above a partition that was named.
    """

    def __init__(
        self,
        path: StrPath,
        placement: Placement,
        *,
        report: RecoveryReport | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._root = Path(path)
        self._placement, self._limits = placement, limits
        self.is_partition = is_partition_directory(self._root)
        self.log_dir = self._root.absolute().parent if self.is_partition else self._root
        refuse_if_locked([self.log_dir])
        self.report = RecoveryReport() if report is None else report
        self.report.is_written, self.report.findings = not placement.dry_run, Findings(limits.max_findings)
        offsets = RootOffsets.read(self.log_dir)
        directories = [self._root] if self.is_partition else self._directories()
        self.plans = [LoadPlan(directory, offsets, limits=limits) for directory in directories]
        self._missing: dict[LoadPlan, list[Finding]] = {}

    def _directories(self) -> list[Path]:
        found = []
        for one in partition_directories(self._root):
            if isinstance(one, Finding):
                self.report.findings.add(one)
                continue
            parsed = kf.parse_partition_directory(one.name)
            # raft keeps its own log, and a broker has given up the renamed ones
            if parsed is not None and parsed.kind is None and parsed.topic_partition.topic != kf.METADATA_TOPIC:
                found.append(one)
        return found

    @property
    def topics(self) -> list[str]:
        """The topics of the partitions, sorted."""
        keys = (plan.partition.topic_partition for plan in self.plans)
        return sorted({key.topic for key in keys if key is not None})

    def select(self, patterns: TopicPatterns) -> None:
        """Cut only the partitions of some topics."""
        patterns.check(self.topics)
        keys = {plan: plan.partition.topic_partition for plan in self.plans}
        self.plans = [plan for plan, key in keys.items() if patterns.wants("" if key is None else key.topic)]

    def milliseconds(self, name: str, time: Time | None) -> int | None:
        """A time that may be relative to the latest timestamp of the partitions."""
        if time is None:
            return None
        return parse_milliseconds(name, time, end_ms=lambda: latest_of(plan.partition for plan in self.plans))

    def is_past_end(self, plan: LoadPlan) -> bool:
        """Whether something of a partition lies past its log's end, as a truncation leaves it that was killed."""
        end, key = plan.partition.log_end_offset, plan.partition.topic_partition
        if not plan.partition.segments or plan.files.problem(plan.path) is not None:
            return False
        known = [read_offset_checkpoint(self.log_dir / name) or {} for name in kf.BOUNDED_CHECKPOINTS]
        offsets = [one.get(key, 0) for one in known if key]
        with contextlib.suppress(KafkalogError):
            epochs = read_leader_epochs(plan.path / kf.LEADER_EPOCH_CHECKPOINT)
            offsets += [] if epochs is None else epochs["start_offset"].tolist()
        return max([*offsets, *plan.snapshots()], default=0) > end or ORPHAN in plan.files.removed.values()

    def check_room(self, kept: Iterable[Place]) -> None:
        """Raise WriteError if a copy has no room for the `.log` files that are kept, and other partitions."""
        placement, chosen = self._placement, {plan.path.name for plan in self.plans}
        names = [] if self.is_partition or placement.output is None else Listing(self._root).directories
        others = [name for name in names if name not in chosen and kf.parse_partition_directory(name) is not None]
        logs = [*kept, *(self._root / name for name in others)]
        check_room(placement.output, logs, self.report.findings.add, dry_run=placement.dry_run)

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[LoadPlan], PartitionOutput]]:
        """Hold locks and stage; yields the function that makes the output of a partition."""
        with contextlib.ExitStack() as stack:
            paths = [plan.path for plan in self.plans]
            self._placement.enter(stack, self._root, paths)

            def make(plan: LoadPlan) -> PartitionOutput:
                # before the files are changed: their proofs may go then
                contents = [contents_before(segment) for segment in plan.partition.segments]
                self._missing[plan] = (
                    missing(plan, contents, LogDirState.of(plan.partition, plan.files.names)) if contents else []
                )
                return self._placement.partition(plan.path, plan.files.names)

            yield make
            self.report.n_backup_files = self._placement.n_backup_files

    def add(self, plan: LoadPlan, row: PartitionPlan) -> None:
        """Add what becomes of a partition, and the offsets that were missing in it before."""
        for finding in self._missing.pop(plan):
            if finding not in self.report.findings.rows:
                self.report.findings.add(finding)
            if finding.damage and finding not in row.lost:
                row.lost.append(finding)
        self.report.add(row)

    def copy_rest(self) -> None:
        """Copy the other files of a log dir, and the directories that are not cut."""
        staged = self._placement.staged
        if staged is None or self.is_partition:
            return
        done = {*(plan.path.name for plan in self.plans), *Listing(staged.path).names}
        self._placement.copy_root_files(done)
        root = Listing(self._root)
        for name in root.directories:
            if name not in done and kf.parse_partition_directory(name) is not None:
                for file in Listing(root.path / name).files:
                    copy_file(root.path / name / file, staged, f"{name}/{file}")

    def put_checkpoint(self, name: str, change: Callable[[dict[kf.TopicPartition, int]], None]) -> None:
        """Change a checkpoint of the log dir; a copy of one partition has no log dir, or one with only its entry."""
        if self._placement.dry_run or self._placement.is_lone:
            return
        path = self.log_dir / name
        known = read_offset_checkpoint(path) or {}
        is_alone = self._placement.staged is not None and self.is_partition
        keys = [plan.partition.topic_partition for plan in self.plans]
        offsets = {key: known[key] for key in keys if key in known} if is_alone else dict(known)
        change(offsets)
        if offsets == known or not offsets:
            return
        self.report.checkpoints.append(name)
        self._placement.put(name, encode_offset_checkpoint(offsets))

    def check(self) -> None:
        """Raise the error of a partition that could not be cut; only in a copy, in which nothing may be half done."""
        if self._placement.staged is not None:
            self.report.check()
