"""Opens the partitions whose logs are cut, and places changed files and the log dir's checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, Findings, Limits, Reason
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.repair.outputs import Copied, InPlace, PartitionOutput, Unwritten
from kafkalog.repair.recovering.report import RecoveryReport
from kafkalog.repair.startup.file_names import partition_directories
from kafkalog.repair.startup.load_plan import LoadPlan, RootOffsets
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint
from kafkalog.storage.atomic import StrPath
from kafkalog.storage.broker_lock import hold_locks, hold_partitions, refuse_if_locked
from kafkalog.storage.copying import Backup, copy_file
from kafkalog.storage.output_paths import check_outside, check_stage_in, copy_ownership, staging_directory
from kafkalog.storage.staging import StagedDirectory, staged_directory, staged_file


class Destinations:
    """The partitions under a path, and where their changed files go.

    Parameters
    ----------
    path : path-like
        A log dir or a partition directory.
    output, in_place, backup, dry_run, stage_in
        See `recover`.
    removes_last_first : bool
        See `InPlace`.
    limits : Limits

    Attributes
    ----------
    plans : list of LoadPlan
    report : RecoveryReport
    is_partition : bool
        Whether `path` is a partition directory.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        output: StrPath | None,
        in_place: bool,
        backup: StrPath | None,
        dry_run: bool,
        stage_in: StrPath | None,
        removes_last_first: bool,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if (output is not None) + in_place != 1 and not (dry_run and output is None and not in_place):
            raise ValueError("say where to: one of output=, in_place=True with backup=, and dry_run=True")
        if in_place and backup is None and not dry_run:
            raise ValueError("in_place=True needs backup=, a directory for the files that are replaced")
        if not in_place and (backup is not None or stage_in is not None):
            raise ValueError("backup= and stage_in= go with in_place=True")
        self._root = Path(path)
        self._output, self._backup_path, self._stage_in = output, backup, stage_in
        self._is_dry, self._removes_last_first = dry_run, removes_last_first
        self.is_partition = is_partition_directory(self._root)
        self._log_dir = self._root.absolute().parent if self.is_partition else self._root
        refuse_if_locked([self._log_dir])
        self.report = RecoveryReport(is_written=not dry_run, findings=Findings(limits.max_findings))
        offsets = RootOffsets.read(self._log_dir)
        directories = [self._root] if self.is_partition else self._directories()
        self.plans = [LoadPlan(directory, offsets, limits=limits) for directory in directories]
        self._staged: StagedDirectory | None = None
        self._backup: Backup | None = None

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

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[LoadPlan], PartitionOutput]]:
        """Hold locks and stage; yields the function that makes the output of a partition."""
        with contextlib.ExitStack() as stack:
            if self._is_dry:
                yield lambda plan: Unwritten()
                return
            if self._output is not None:
                check_outside(self._output, [self._root])
                self._staged = stack.enter_context(staged_directory(self._output))
                yield self._copied
                return
            assert self._backup_path is not None
            check_outside(self._backup_path, [self._root])
            self._backup = Backup(self._backup_path)
            stack.enter_context(hold_locks([self._log_dir]))
            stack.enter_context(hold_partitions(plan.path for plan in self.plans))
            if self._stage_in is None:
                self._stage_in = staging_directory(self._log_dir / kf.RECOVERY_POINT_CHECKPOINT)
            else:
                check_stage_in(self._stage_in)
            yield self._in_place
            self.report.n_backup_files = self._backup.n_files

    def _copied(self, plan: LoadPlan) -> PartitionOutput:
        assert self._staged is not None
        prefix = "" if self.is_partition else f"{plan.path.name}/"
        (self._staged.path / prefix).mkdir(parents=True, exist_ok=True)
        return Copied(plan.path, self._staged, prefix, plan.files.names, lambda n_bytes: None)

    def _in_place(self, plan: LoadPlan) -> PartitionOutput:
        assert self._backup is not None
        assert self._stage_in is not None
        return InPlace(plan.path, self._backup, Path(self._stage_in), removes_last_first=self._removes_last_first)

    def copy_rest(self) -> None:
        """Copy the other files of a log dir, and the directories that are not cut."""
        if self._staged is None or self.is_partition:
            return
        done = {plan.path.name for plan in self.plans}
        for entry in sorted(os.scandir(self._root), key=lambda entry: entry.name):
            if entry.is_file() and entry.name != kf.LOCK_FILE and not (self._staged.path / entry.name).exists():
                copy_file(Path(entry.path), self._staged, entry.name)
            elif entry.is_dir() and entry.name not in done and kf.parse_partition_directory(entry.name) is not None:
                for file in sorted(os.scandir(entry.path), key=lambda file: file.name):
                    if file.is_file():
                        copy_file(Path(file.path), self._staged, f"{entry.name}/{file.name}")

    def put_checkpoint(self, name: str, change: Callable[[dict[kf.TopicPartition, int]], None]) -> None:
        """Change a checkpoint of the log dir; of a lone partition that is copied there is none."""
        if self._is_dry or (self._staged is not None and self.is_partition):
            return
        path = self._log_dir / name
        known = read_offset_checkpoint(path)
        offsets = dict(known or {})
        change(offsets)
        if offsets == (known or {}):
            return
        data = encode_offset_checkpoint(offsets)
        self.report.checkpoints.append(name)
        if self._staged is not None:
            with self._staged.create(name) as file:
                file.write(data)
            return
        assert self._backup is not None
        if path.exists():
            self._backup.keep(path, name)
            self._backup.sync()
        with staged_file(path, overwrite=True, stage_in=self._stage_in) as file:
            file.write(data)
        copy_ownership(path, self._log_dir)

    def check(self) -> None:
        """Raise the error of a partition that could not be cut; only in a copy, in which nothing may be half done."""
        for row in self.report.partitions:
            if row.error is not None and self._staged is not None:
                raise CorruptionError(Reason.UNKNOWN_FILE, row.error, path=row.path)
