"""Commits the partitions that the tasks of a job staged into a log dir: all of them or none.

Tasks write in the directory of their job, next to the log dir: a new partition as a whole, or segments that continue a
partition of the log dir. They need only read access to the log dir. One process then commits: it holds the locks of the
log dir, writes an intent file that lists which files go where, and renames them. If it dies after the intent is
durable, the next job finishes the commit; if it dies before, the log dir is unchanged. This module does not run tasks.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, ReadError, Reason, SidecarError, UnsafePathError, WriteError
from kafkalog.log.directory import Directory
from kafkalog.state.producers import ProducerSnapshot
from kafkalog.storage.atomic import fsync_directory, identity, rename_new, take_back, writing
from kafkalog.storage.broker_lock import hold_partitions
from kafkalog.storage.files import file_status, is_absent, read_file
from kafkalog.storage.listing import Listing
from kafkalog.storage.moves import Move, Undo, move_groups
from kafkalog.storage.output_paths import copy_ownership, has_directory, refuse_existing
from kafkalog.storage.own_names import INTENT_NAME
from kafkalog.storage.staging import staged_file
from kafkalog.writing.job_directories import StagingArea, is_dead, remove_job
from kafkalog.writing.log_end import log_stamp, read_log_end
from kafkalog.writing.partition_staging import segment_moves
from kafkalog.writing.partition_writer import PartitionWriter

_MAX_INTENT_BYTES: Final = 2**28


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The part of a partition that a task wrote in the job's directory."""

    name: str
    """Name of the partition directory, such as ``orders-0``."""
    staged: str
    """Path of the staged directory, relative to the job's directory."""
    n_records: int
    first_offset: int
    next_offset: int
    """Offset of the first record, and one past the last."""
    stamp: tuple[tuple[str, ...], int] | None = None
    """`log_stamp` of the partition in the log dir when its end was read; None if it did not exist."""
    groups: tuple[tuple[tuple[str, str], ...], ...] = ()
    """The moves that add the files to an existing partition, in order: see `kafkalog.storage.moves.Move`. Empty for a
    new partition, which is renamed as a whole.
    """
    sizes: tuple[tuple[str, int], ...] = ()
    """Names of the staged `.log` files, and their bytes."""


class StagedWriter:
    """Writes a partition in a job's directory, from where `commit` moves it into the log dir.

    `task` is a directory of the job that no other task writes in. `writer` continues at the end of the partition in the
    log dir. Raises TruncatedTailError or CorruptionError if the existing partition is damaged at its end, and
    UnsafePathError if its path is not a directory.
    """

    def __init__(self, area: StagingArea, task: Path, key: kf.TopicPartition, **options: Any) -> None:
        self._path, self._task = area.log_dir / str(key), task
        self._stamp: tuple[tuple[str, ...], int] | None = None
        self._replaced: int | None = None
        self._keeps_snapshot = True
        if has_directory(self._path):
            options = self._continue(options)
        self.writer = PartitionWriter(task / self._path.name, stage_in=task, **options)

    def _continue(self, options: dict[str, Any]) -> dict[str, Any]:
        # taken before the end is read: `commit` then notices whatever is written later
        self._stamp = log_stamp(self._path)
        config = options.get("config")
        existing = read_log_end(
            self._path,
            index_interval_bytes=kf.INDEX_INTERVAL_BYTES if config is None else config.index_interval_bytes,
            # tasks only read the log dir, so that none of them can cut its tail
            truncate_tail=False,
        )
        self._replaced = existing.replaced_base_offset
        self._keeps_snapshot = existing.last is not None and not existing.is_last_empty
        if existing.last is None and not existing.next_offset:
            return options  # a directory without segments does not tell its start offset
        epochs = [] if existing.leader_epochs is None else existing.leader_epochs.tolist()
        return {
            **options,
            "start_offset": existing.next_offset,
            "leader_epoch": max(existing.latest_epoch, 0),
            # the writer makes a new partition elsewhere: it gets the state that it would find in the log dir
            "leader_epochs": [tuple(epoch) for epoch in epochs],
            "producer_snapshot": ProducerSnapshot(existing.next_offset, existing.producers.entries()),
        }

    def finish(self, n_records: int, first_offset: int) -> StagedPartition:
        """Complete the staged files and make them durable; the log dir is unchanged."""
        next_offset = self.writer.next_offset
        self.writer.close()
        path = self._task / self._path.name
        directory = Directory(path)
        names, logs = directory.names, [*directory.logs]
        return StagedPartition(
            self._path.name,
            f"{self._task.name}/{path.name}",
            n_records,
            first_offset,
            next_offset,
            self._stamp,
            () if self._stamp is None else self._groups(names, logs),
            tuple((name, directory.status(name).st_size) for name in logs),
        )

    def _groups(self, names: list[str], logs: list[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The order in which `PartitionWriter` adds segments: a broker starts on the state after each group."""
        groups: list[list[Move]] = [[]]
        if kf.LEADER_EPOCH_CHECKPOINT in names:
            groups[0].append(Move(kf.LEADER_EPOCH_CHECKPOINT, "put"))
        snapshots = [name for name in names if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX)]
        bases = [kf.parse_base_offset(log) for log in logs]
        for base in bases:
            assert base is not None
            files = [name for name in names if kf.parse_base_offset(name) == base]
            # a broker took this snapshot when it rolled the empty segment that is replaced
            if base == bases[0] and not self._keeps_snapshot:
                files = [name for name in files if name not in snapshots]
            groups += segment_moves(base, files, replaces=base == self._replaced)
        groups.append([Move(name, "put") for name in snapshots if kf.parse_base_offset(name) not in bases])
        return tuple(tuple((name, what) for name, what in group) for group in groups if group)

    def abandon(self) -> None:
        """Discard what was written."""
        self.writer.abort()


def commit(area: StagingArea, job: Path, partitions: Sequence[StagedPartition], job_id: str | None = None) -> bool:
    """Move a job's partitions into the log dir, and remove the job's directory.

    Adds `job_id` to the commit log. Returns False if it was committed before; then no partition is moved. Raises
    FileChangedError or OutputExistsError if a partition has changed since its end was read, UnsafePathError if a broker
    or another writer holds it or two tasks wrote to it, and WriteError after files were moved back.

    A crash before the intent (`commit.json` in the job's directory) is durable leaves the log dir as it was. A later
    crash leaves some partitions complete, and of one partition that was being appended to, some complete new segments.
    `recover` finishes the commit.
    """
    _refuse_shared(partitions)
    with area.locked():
        _finish_begun(area)
        # read after begun commits are finished: one of them may be an earlier attempt of this job
        commits = area.commits()
        if commits.has(job_id):
            remove_job(job)
            return False
        if not partitions and job_id is None:
            remove_job(job)
            return True
        # the lock of the log dir is shared within a process: only those of the partitions keep its other writers out
        with hold_partitions(area.log_dir / each.name for each in partitions):
            for each in partitions:
                _check_unchanged(area.log_dir / each.name, each)
            intent = _Intent(str(area.log_dir), job_id, list(partitions), not has_directory(area.log_dir))
            intent.write(job)
            try:
                _carry_out(area, job, intent)
            except _HalfMovedError:
                raise
            except Exception:
                # everything is moved back: without the intent, `recover` does not retry the commit
                (job / INTENT_NAME).unlink(missing_ok=True)
                raise
        # the intent stays until the id is durable: after a crash in between `recover` adds it
        commits.add(job_id)
        remove_job(job)
    return True


def recover(area: StagingArea) -> list[str]:
    """Finish commits whose intent is durable, and remove the directories of dead jobs; return the names of the
    partitions.

    Raises FileChangedError if a partition was written to in the meantime, so that the commit cannot be finished.
    """
    finished: list[str] = []
    # without an intent no file of the log dir changes, so that no lock is needed
    if any(map(has_begun, area.jobs())):
        with area.locked():
            finished = _finish_begun(area)
    for job in area.jobs():
        if not has_begun(job) and is_dead(job):
            remove_job(job)
    return finished


def has_begun(job: Path) -> bool:
    """Whether a job's commit has begun: then it is finished, since readers may have seen a part of it."""
    try:
        file_status(job / INTENT_NAME)
    except ReadError as error:
        # not known is not "no": the files of a commit that has begun must not be removed
        if is_absent(error):
            return False
        raise
    return True


@dataclass(slots=True)
class _Intent:
    """The plan of a commit; it is durable before the first file is moved."""

    log_dir: str
    job_id: str | None
    partitions: list[StagedPartition] = field(default_factory=list)
    makes_log_dir: bool = False

    def write(self, job: Path) -> None:
        # the staged directories first: a durable intent must not list files that a power cut can take
        with writing(job):
            for task in {each.staged.partition("/")[0] for each in self.partitions}:
                fsync_directory(job / task)
            fsync_directory(job)
            fsync_directory(job.parent)
        with staged_file(job / INTENT_NAME) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, job: Path) -> _Intent:
        path = job / INTENT_NAME
        try:
            content = json.loads(read_file(path, max_bytes=_MAX_INTENT_BYTES))
            partitions = [
                # JSON has no tuples, and `log_stamp` returns them
                StagedPartition(**{**each, "stamp": each["stamp"] and (tuple(each["stamp"][0]), each["stamp"][1])})
                for each in content["partitions"]
            ]
            return cls(content["log_dir"], content["job_id"], partitions, content["makes_log_dir"])
        except (ValueError, KeyError, TypeError) as error:
            detail = f"a started commit cannot be finished: its plan is unreadable: {error}"
            raise SidecarError(Reason.CHECKPOINT_SYNTAX, detail, path=path) from error


def _refuse_shared(partitions: Iterable[StagedPartition]) -> None:
    seen: set[str] = set()
    for each in partitions:
        if each.name in seen:
            detail = (
                "two tasks wrote to it, which would assign the same offsets twice: use kafkalog.spark.prepare(df, ...)"
                " first, which brings the records of a partition into one task"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=each.name)
        seen.add(each.name)


def _check_unchanged(path: Path, staged: StagedPartition) -> None:
    if staged.stamp is None:
        refuse_existing(path, "another process created the partition")
    elif not has_directory(path) or log_stamp(path) != staged.stamp:
        detail = f"another process wrote to the log: expected its end at {staged.first_offset}"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)


def _finish_begun(area: StagingArea) -> list[str]:
    """Finish the commits of processes that died: a live one would still hold the lock that the caller holds now."""
    finished: list[str] = []
    for job in area.jobs():
        if not has_begun(job):
            continue
        intent = _Intent.read(job)
        # log dirs of the same name may share a staging directory
        if intent.log_dir != str(area.log_dir):
            continue
        with hold_partitions(area.log_dir / each.name for each in intent.partitions):
            for each in intent.partitions:
                _check_ours(area.log_dir / each.name, job / each.staged, each)
            _carry_out(area, job, intent)
        area.commits().add(intent.job_id)
        remove_job(job)
        finished += [each.name for each in intent.partitions]
    return finished


def _check_ours(path: Path, staged: Path, each: StagedPartition) -> None:
    """Raise if a partition is not in a state that the interrupted commit can have left.

    The names and the size of the last `.log` file must be those before the commit plus the files already moved. Once
    all `.log` files are moved, nothing is checked: later appends do no harm.
    """
    if each.stamp is None:
        if not has_directory(staged) or not os.path.lexists(path):
            return
        found: tuple[tuple[str, ...], int] | None = None
    else:
        found = log_stamp(path) if has_directory(path) else None
        sizes = dict(each.sizes)
        left = sizes.keys() & {*Listing.or_empty(staged).names}
        moved = [name for name in sizes if name not in left]
        names = tuple(sorted({*each.stamp[0], *moved}))
        size = sizes[names[-1]] if names and names[-1] in moved else each.stamp[1]
        if found == (names, size) or not left:
            return
    detail = (
        f"a job died before it appended its records here at {each.first_offset}, and another process has appended"
        f" since. The records are in {staged}: copy them, then remove {staged.parent.parent}"
    )
    raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)


def _carry_out(area: StagingArea, job: Path, intent: _Intent) -> None:
    """Move the files that are not moved yet; after an error move all of them back."""
    undo: Undo = []
    try:
        if intent.makes_log_dir and not has_directory(area.log_dir):
            with writing(area.log_dir):
                undo.append(partial(_remove_directory, area.log_dir))
                area.log_dir.mkdir()
                fsync_directory(area.log_dir.parent)
        for each in intent.partitions:
            staged, there = job / each.staged, area.log_dir / each.name
            if not has_directory(staged):
                continue  # a process that died had moved it already
            # before the rename: a broker must not meet files that it cannot open
            copy_ownership(staged, area.log_dir if each.stamp is None else there)
            if each.stamp is None:
                with writing(there):
                    undo.append(partial(take_back, there, staged, identity(staged), None))
                    rename_new(staged, there)
            else:
                groups = [[Move(name, what) for name, what in group] for group in each.groups]  # type: ignore[arg-type]
                move_groups(staged, there, groups, undo, resumes=True)
                with writing(there):
                    fsync_directory(staged)
        with writing(area.log_dir):
            fsync_directory(area.log_dir)
    except Exception:
        try:
            for step in reversed(undo):
                step()
        except OSError as error:
            detail = f"moved files cannot be moved back ({error.strerror}): the next job finishes the commit"
            raise _HalfMovedError(Reason.WRITE_FAILED, detail, path=area.log_dir) from error
        raise


class _HalfMovedError(WriteError):
    """Some files were moved and could not be moved back; the intent stays for the next job."""


def _remove_directory(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()
