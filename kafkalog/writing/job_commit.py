"""Partitions that tasks wrote elsewhere, taken over by a log dir: all of a job's, or none.

Tasks write in the directory of their job, beside the log dir, with nothing but reading rights needed on what is there:
a new partition whole, or segments that go on where a partition of the log dir ends. One process then commits: it writes
down which files go where, and renames them, holding the locks of the log dir. A commit that was written down is
finished by the next job, whatever happened to who began it; a job of which nothing was written down leaves nothing.
Which tasks there are, and what runs them, is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, OutputExistsError, Reason, SidecarError, UnsafePathError, WriteError
from kafkalog.state.producers import ProducerSnapshot
from kafkalog.storage.atomic import (
    STAGED_SUFFIX,
    fsync_directory,
    identity,
    rename_new,
    take_back,
    try_lock,
    writing,
)
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.moves import Move, Undo, move_groups
from kafkalog.storage.output_paths import check_log_dir, check_stage_in, copy_ownership, staging_directory
from kafkalog.storage.source import read_file
from kafkalog.storage.staging import staged_file
from kafkalog.writing.commit_log import CommitLog, read_commits
from kafkalog.writing.destination import segment_moves
from kafkalog.writing.log_end import log_stamp, read_log_end
from kafkalog.writing.partition_writer import PartitionWriter

INTENT_FILE: Final = "commit.json"
OWNER_FILE: Final = "owner.json"
ABANDONED_SECONDS: Final = 7 * 24 * 3600
"""How long the directory of a job on another machine is left alone when nothing happens in it."""
LOCK_SECONDS: Final = 60.0
_MAX_INTENT_BYTES: Final = 2**28


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """What a task wrote of a partition.

    Attributes
    ----------
    name : str
        Of its directory, such as ``orders-0``.
    staged : str
        Where it is, relative to the job's directory.
    n_records : int
    first_offset, next_offset : int
    stamp : tuple or None
        What the partition of the log dir looked like when its end was read; None where there was none.
    groups : tuple of tuples of (str, str)
        How files get to those that are there: see `kafkalog.storage.staging.Move`.
    sizes : tuple of (str, int)
        Names of the `.log` files, and their bytes.
    """

    name: str
    staged: str
    n_records: int
    first_offset: int
    next_offset: int
    stamp: tuple[tuple[str, ...], int] | None = None
    groups: tuple[tuple[tuple[str, str], ...], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A log dir, and where what goes into it is kept meanwhile.

    Attributes
    ----------
    log_dir : pathlib.Path
    directory : pathlib.Path
        On the same file system.
    """

    log_dir: Path
    directory: Path

    @classmethod
    def of(cls, log_dir: str | os.PathLike[str], stage_in: str | os.PathLike[str] | None = None) -> Place:
        """The place for a log dir, which need not be there yet.

        Raises
        ------
        UnsafePathError
            It is within a partition or another log dir, or there is nowhere to stage.
        WriteError
            Neither it nor its parent is there.
        """
        path = Path(os.path.realpath(log_dir))
        check_log_dir(path)
        if stage_in is not None:
            check_stage_in(stage_in)
            directory = Path(os.path.realpath(stage_in))
        elif path.is_dir():
            directory = staging_directory(path / "any-0")
        else:
            directory = path.parent
        for needed in (directory, path if path.is_dir() else path.parent):
            if not needed.is_dir():
                raise WriteError(Reason.WRITE_FAILED, os.strerror(errno.ENOENT), path=needed)
        return cls(path, directory)

    def job(self, job: str) -> Path:
        """The directory of a job."""
        return self.directory / f".{self.log_dir.name}.{job}{STAGED_SUFFIX}"

    def jobs(self, prefix: str = "job-") -> list[Path]:
        """Directories of jobs that are there."""
        start = f".{self.log_dir.name}.{prefix}"
        names = (name for name in os.listdir(self.directory) if name.startswith(start))
        return [self.directory / name for name in sorted(names) if name.endswith(STAGED_SUFFIX)]

    def commits(self) -> CommitLog:
        """What was committed so far."""
        return read_commits(self.directory, self.log_dir.name)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep brokers and other jobs out of the log dir.

        Raises
        ------
        UnsafePathError
            A broker runs on it, or another job has been committing for too long.
        """
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(descriptor, self.log_dir)
            with hold_locks([self.log_dir]):
                yield
        finally:
            os.close(descriptor)


def create_job(path: Path, owner: Mapping[str, Any]) -> None:
    """Make the directory of a job, if it is not there, with a note of whose it is."""
    with writing(path):
        path.mkdir(exist_ok=True)
        note = path / f"{OWNER_FILE}.{secrets.token_hex(4)}"
        note.write_text(json.dumps(dict(owner)))
        os.replace(note, path / OWNER_FILE)


def remove_job(path: Path) -> None:
    """Remove the directory of a job; tasks that still write there fail at their next file."""
    gone = path.with_name(f"{path.name.removesuffix(STAGED_SUFFIX)}.aborted{STAGED_SUFFIX}")
    with contextlib.suppress(OSError):
        os.rename(path, gone)
        path = gone
    shutil.rmtree(path, ignore_errors=True)


def this_owner(process_id: int | None) -> dict[str, Any]:
    """Whose a job's directory is: a process of this machine that lives as long as the job."""
    started = None if process_id is None else _start_time(process_id)
    return {"host": socket.gethostname(), "boot": _boot_id(), "process_id": process_id, "started": started}


class StagedWriter:
    """A partition that is written in a job's directory, to be taken over by the log dir.

    Parameters
    ----------
    place : Place
    task : Path
        A directory of the job that no other task writes in.
    key : TopicPartition
    **options
        See `PartitionWriter`.

    Attributes
    ----------
    writer : PartitionWriter
        Goes on where the partition of the log dir ends.

    Raises
    ------
    TruncatedTailError, CorruptionError
        The partition that is there cannot be continued.
    """

    def __init__(self, place: Place, task: Path, key: kf.TopicPartition, **options: Any) -> None:
        self._path, self._task = place.log_dir / str(key), task
        self._stamp: tuple[tuple[str, ...], int] | None = None
        self._replaced: int | None = None
        self._keeps_snapshot = True
        if os.path.lexists(self._path):
            options = self._continue(options)
        self.writer = PartitionWriter(task / self._path.name, stage_in=task, **options)

    def _continue(self, options: dict[str, Any]) -> dict[str, Any]:
        if not self._path.is_dir():
            raise UnsafePathError(Reason.UNSAFE_PATH, "what is there is not a directory", path=self._path)
        self._stamp = log_stamp(self._path)
        config = options.get("config")
        existing = read_log_end(
            self._path,
            index_interval_bytes=kf.INDEX_INTERVAL_BYTES if config is None else config.index_interval_bytes,
            truncate_tail=False,
        )
        topic_id = options.pop("topic_id", None)
        if None not in (topic_id, existing.topic_id) and topic_id != existing.topic_id:
            detail = f"the partition belongs to the topic with id {existing.topic_id}, not {topic_id}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self._path / kf.PARTITION_METADATA)
        self._replaced = existing.replaced_base_offset
        self._keeps_snapshot = existing.last is not None and not existing.is_last_empty
        if existing.last is None and not existing.next_offset:
            return options  # nobody knows yet where a directory without segments begins
        epochs = [] if existing.leader_epochs is None else existing.leader_epochs.tolist()
        return {
            **options,
            "start_offset": existing.next_offset,
            "leader_epoch": max(existing.latest_epoch, 0),
            "leader_epochs": [tuple(epoch) for epoch in epochs],
            "producer_snapshot": ProducerSnapshot(existing.next_offset, existing.producers.entries()),
        }

    def finish(self, n_records: int, first_offset: int) -> StagedPartition:
        """Complete and durable, but not in the log dir."""
        next_offset = self.writer.next_offset
        self.writer.close()
        path = self._task / self._path.name
        names = sorted(os.listdir(path))
        logs = [name for name in names if name.endswith(kf.LOG_SUFFIX)]
        return StagedPartition(
            self._path.name,
            f"{self._task.name}/{path.name}",
            n_records,
            first_offset,
            next_offset,
            self._stamp,
            () if self._stamp is None else self._groups(names, logs),
            tuple((name, (path / name).stat().st_size) for name in logs),
        )

    def _groups(self, names: list[str], logs: list[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The order that `PartitionWriter` adds segments in: after each step a broker starts on what is there."""
        groups: list[list[Move]] = [[]]
        if kf.LEADER_EPOCH_CHECKPOINT in names:
            groups[0].append(Move(kf.LEADER_EPOCH_CHECKPOINT, "put"))
        snapshots = [name for name in names if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX)]
        bases = [kf.parse_base_offset(log) for log in logs]
        for base in bases:
            assert base is not None
            files = [name for name in names if kf.parse_base_offset(name) == base]
            if base == bases[0] and not self._keeps_snapshot:
                files = [name for name in files if name not in snapshots]
            groups += segment_moves(base, files, replaces=base == self._replaced)
        groups.append([Move(name, "put") for name in snapshots if kf.parse_base_offset(name) not in bases])
        return tuple(tuple((name, what) for name, what in group) for group in groups if group)

    def abandon(self) -> None:
        """Forget it."""
        self.writer.abort()


def commit(
    place: Place, job: Path, partitions: Sequence[StagedPartition], record: Mapping[str, Any] | None = None
) -> bool:
    """Take a job's partitions over into the log dir.

    Parameters
    ----------
    place : Place
    job : Path
        Its directory, which is removed.
    partitions : sequence of StagedPartition
    record : mapping, optional
        What to write down as committed: see `CommitLog.has`.

    Returns
    -------
    bool
        False where that was committed before, and nothing is done.

    Raises
    ------
    FileChangedError
        Somebody wrote to one of the partitions since its end was read.
    OutputExistsError
        A partition or a file is there by now that was not.
    UnsafePathError
        A broker runs on the log dir, another writer is at one of the partitions, or two tasks wrote to one.
    WriteError
        Files could not be moved; what was moved is back.

    Notes
    -----
    A crash before the intent (`commit.json` in the job's directory) is durable leaves the log dir as it was. A crash
    behind that leaves some partitions, each complete, or of the one that was going on some of its new segments, each
    complete; `recover` finishes what is missing.
    """
    _refuse_shared(partitions)
    with place.locked():
        _finish_begun(place)
        commits = place.commits()
        if commits.has(record):
            remove_job(job)
            return False
        if not partitions and record is None:
            remove_job(job)
            return True
        with hold_partitions(place.log_dir / each.name for each in partitions):
            for each in partitions:
                _check_unchanged(place.log_dir / each.name, each)
            intent = _Intent(str(place.log_dir), dict(record or {}), list(partitions), not place.log_dir.exists())
            intent.write(job)
            try:
                _carry_out(place, job, intent)
            except _HalfMovedError:
                raise
            except Exception:
                # what was moved is back: without the intent it is as if nothing had been tried
                (job / INTENT_FILE).unlink(missing_ok=True)
                raise
        commits.add(record)
        remove_job(job)
    return True


def recover(place: Place) -> list[str]:
    """Finish commits that were written down and not finished, and remove what dead jobs left.

    Returns
    -------
    list of str
        Names of the partitions that got records by that.

    Raises
    ------
    FileChangedError
        Somebody wrote to a partition in between, and the commit cannot be finished.
    """
    jobs = place.jobs()
    finished: list[str] = []
    if any((job / INTENT_FILE).exists() for job in jobs):
        with place.locked():
            finished = _finish_begun(place)
    for job in place.jobs():
        if not (job / INTENT_FILE).exists() and _is_dead(job):
            remove_job(job)
    return finished


@dataclass(slots=True)
class _Intent:
    """What a commit is about to do; durable before anything is done."""

    log_dir: str
    record: dict[str, Any]
    partitions: list[StagedPartition] = field(default_factory=list)
    makes_log_dir: bool = False

    def write(self, job: Path) -> None:
        with writing(job):
            for task in {each.staged.partition("/")[0] for each in self.partitions}:
                fsync_directory(job / task)
            fsync_directory(job)
            fsync_directory(job.parent)
        with staged_file(job / INTENT_FILE) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, job: Path) -> _Intent:
        path = job / INTENT_FILE
        try:
            content = json.loads(read_file(path, max_bytes=_MAX_INTENT_BYTES))
            partitions = [
                StagedPartition(
                    **{
                        **each,
                        "stamp": None if each["stamp"] is None else (tuple(each["stamp"][0]), each["stamp"][1]),
                        "groups": tuple(tuple((name, what) for name, what in group) for group in each["groups"]),
                        "sizes": tuple((name, size) for name, size in each["sizes"]),
                    }
                )
                for each in content["partitions"]
            ]
            return cls(content["log_dir"], content["record"], partitions, content["makes_log_dir"])
        except (ValueError, KeyError, TypeError) as error:
            detail = f"a commit that was begun cannot be finished, since its plan cannot be read: {error}"
            raise SidecarError(Reason.CHECKPOINT_SYNTAX, detail, path=path) from error


def _refuse_shared(partitions: Iterable[StagedPartition]) -> None:
    seen: set[str] = set()
    for each in partitions:
        if each.name in seen:
            detail = (
                "two tasks wrote to it, and each would have given its records the same offsets: distribute them with"
                " kafkalog.spark.prepare(df, ...) first, so that a partition's records are in one task"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=each.name)
        seen.add(each.name)


def _check_unchanged(path: Path, staged: StagedPartition) -> None:
    if staged.stamp is None:
        if os.path.lexists(path):
            raise OutputExistsError(Reason.OUTPUT_EXISTS, "the partition appeared meanwhile", path=path)
    elif not path.is_dir() or log_stamp(path) != staged.stamp:
        detail = f"the end of the log has moved since it was read: records were to be appended at {staged.first_offset}"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)


def _finish_begun(place: Place) -> list[str]:
    """Finish commits of processes that are gone: who commits holds the lock until the end."""
    finished: list[str] = []
    for job in place.jobs():
        if not (job / INTENT_FILE).exists():
            continue
        intent = _Intent.read(job)
        if intent.log_dir != str(place.log_dir):
            continue
        with hold_partitions(place.log_dir / each.name for each in intent.partitions):
            for each in intent.partitions:
                _check_ours(place.log_dir / each.name, job / each.staged, each)
            _carry_out(place, job, intent)
        place.commits().add(intent.record)
        remove_job(job)
        finished += [each.name for each in intent.partitions]
    return finished


def _check_ours(path: Path, staged: Path, each: StagedPartition) -> None:
    """Refuse to go on where somebody else did so before."""
    if each.stamp is None:
        if not staged.exists() or not os.path.lexists(path):
            return
        found: tuple[tuple[str, ...], int] | None = None
    else:
        found = log_stamp(path) if path.is_dir() else None
        sizes = dict(each.sizes)
        left = {name for name in sizes if (staged / name).exists()}
        moved = [name for name in sizes if name not in left]
        names = tuple(sorted({*each.stamp[0], *moved}))
        size = sizes[names[-1]] if names and names[-1] in moved else each.stamp[1]
        if found == (names, size) or not left:
            return
    detail = (
        f"a job that died while it committed was to append records here, at {each.first_offset}, and somebody else"
        f" wrote meanwhile: they are in {staged}; take them from there, and remove {staged.parent.parent}"
    )
    raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)


def _carry_out(place: Place, job: Path, intent: _Intent) -> None:
    """Move what has not been moved yet; an error moves it all back."""
    undo: Undo = []
    try:
        if intent.makes_log_dir and not place.log_dir.exists():
            with writing(place.log_dir):
                undo.append(partial(_remove_directory, place.log_dir))
                place.log_dir.mkdir()
                fsync_directory(place.log_dir.parent)
        for each in intent.partitions:
            staged, there = job / each.staged, place.log_dir / each.name
            if not staged.exists():
                continue
            copy_ownership(staged, place.log_dir if each.stamp is None else there)
            if each.stamp is None:
                with writing(there):
                    undo.append(partial(take_back, there, staged, identity(staged), None))
                    rename_new(staged, there)
            else:
                groups = [[Move(name, what) for name, what in group] for group in each.groups]  # type: ignore[arg-type]
                move_groups(staged, there, groups, undo, resumes=True)
                with writing(there):
                    fsync_directory(staged)
        with writing(place.log_dir):
            fsync_directory(place.log_dir)
    except Exception:
        try:
            for step in reversed(undo):
                step()
        except OSError as error:
            detail = f"what was moved cannot be moved back ({error.strerror}): the next job finishes the commit"
            raise _HalfMovedError(Reason.WRITE_FAILED, detail, path=place.log_dir) from error
        raise


class _HalfMovedError(WriteError):
    """Some files are in place, and stay there."""


def _remove_directory(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _lock(descriptor: int, log_dir: Path) -> None:
    """Wait until no other job commits; a file system without locks is taken on."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            detail = f"another job has been committing for more than {LOCK_SECONDS:.0f} s"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=log_dir)
        time.sleep(0.05)


def _is_dead(job: Path) -> bool:
    """Whether nobody will commit what is in a job's directory any more."""
    if job.name.endswith(f".aborted{STAGED_SUFFIX}"):
        return True
    try:
        owner = json.loads((job / OWNER_FILE).read_bytes())
        host, boot = owner["host"], owner["boot"]
        process_id, started = owner["process_id"], owner["started"]
    except (OSError, ValueError, KeyError, TypeError):
        host = None
    if host == socket.gethostname() and process_id is not None and started is not None:
        return bool(boot != _boot_id() or _start_time(process_id) != started)
    try:
        newest = max(entry.stat().st_mtime for entry in (job, *job.glob("*"), *job.glob("*/*"), *job.glob("*/*/*")))
    except OSError:
        return False  # somebody is at work there
    return time.time() - newest > ABANDONED_SECONDS


def _start_time(process_id: int) -> str | None:
    """When a process started, in ticks since boot; None where it is not there, or that cannot be told."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
