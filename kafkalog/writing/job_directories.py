"""What jobs keep next to a log dir: a directory for each job that runs, a lock, and the log of what was committed.

The tasks of a job write in its directory. Nothing here knows what the files hold, or moves them into the log dir: see
`kafkalog.writing.job_commit`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog.errors import Reason, SidecarError, UnsafePathError, WriteError
from kafkalog.log.live import PAUSE_SECONDS, repeated
from kafkalog.storage.atomic import resolve, writing
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.storage.file_locks import try_lock
from kafkalog.storage.files import read_if_there
from kafkalog.storage.listing import Listing, newest_change
from kafkalog.storage.location import kind_of
from kafkalog.storage.output_paths import check_log_dir, check_stage_in, staging_directory
from kafkalog.storage.own_names import COMMITS_SUFFIX, STAGED_SUFFIX
from kafkalog.storage.staging import staged_file

MAX_JOBS: Final = 10_000
"""Number of job ids that are kept; the oldest are dropped."""
ABANDONED_SECONDS: Final = 3 * 24 * 3600
"""Age after which the unchanged directory of a job counts as abandoned."""
LOCK_SECONDS: Final = 60.0
_MAX_BYTES: Final = 2**26
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StagingArea:
    """A log dir and the directory in which jobs stage files for it."""

    log_dir: Path
    directory: Path
    """The staging directory, on the same file system."""

    @classmethod
    def of(cls, log_dir: str | os.PathLike[str], stage_in: str | os.PathLike[str] | None = None) -> StagingArea:
        """The staging area of a log dir, which may not exist yet.

        Raises UnsafePathError if the log dir lies in a partition or in another log dir, or if there is no directory to
        stage in; WriteError if neither the log dir nor its parent exists, or `stage_in` does not.
        """
        path = check_log_dir(log_dir)
        is_there = kind_of(path) == "directory"
        if stage_in is not None:
            check_stage_in(stage_in)
            directory = resolve(stage_in)
        elif is_there:
            directory = staging_directory(path / "any-0")
        else:
            directory = path.parent
        for needed in (directory, path if is_there else path.parent):
            if kind_of(needed) != "directory":
                raise WriteError(Reason.WRITE_FAILED, os.strerror(errno.ENOENT), path=needed)
        return cls(path, directory)

    def job(self, job: str) -> Path:
        """The directory of a job."""
        return self.directory / f".{self.log_dir.name}.{job}{STAGED_SUFFIX}"

    def jobs(self, prefix: str = "job-") -> list[Path]:
        """The existing job directories."""
        start = f".{self.log_dir.name}.{prefix}"
        names = (name for name in Listing(self.directory).names if name.startswith(start))
        return [self.directory / name for name in names if name.endswith(STAGED_SUFFIX)]

    def commits(self) -> CommitLog:
        """Read the commit log."""
        return CommitLog.read(self.directory / f".{self.log_dir.name}{COMMITS_SUFFIX}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep brokers and other jobs out of the log dir; UnsafePathError if one is there for too long."""
        # the directory itself is locked: no lock file is left behind
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(descriptor, self.log_dir)
            with hold_locks([self.log_dir]):
                yield
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class CommitLog:
    """The commits recorded for a log dir: a small JSON file, which is replaced as a whole.

    A job that may be retried records its id in the commit that publishes its records. A retry finds the entry and does
    not write the records twice.
    """

    path: Path
    """The commit log's file."""
    jobs: list[str] = field(default_factory=list)
    """Ids of committed jobs, the oldest first."""

    @classmethod
    def read(cls, path: Path) -> CommitLog:
        """Read a commit log; an empty one if there is no file.

        An invalid file is a SidecarError: without it a retried job would write its records twice.
        """
        data = read_if_there(path, max_bytes=_MAX_BYTES)
        if data is None:
            return cls(path)
        try:
            content = json.loads(data)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']} is not known")
            return cls(path, [str(job) for job in content["jobs"]])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            detail = f"the list of committed jobs is unreadable ({error}): restore the file, or remove it"
            raise SidecarError(Reason.CHECKPOINT_SYNTAX, detail, path=path) from error

    def has(self, job: str | None) -> bool:
        """Whether a job was committed before; one without an id was not."""
        return job in self.jobs

    def add(self, job: str | None) -> None:
        """Add the id of a job, if it has one, and write the file durably."""
        if job is None or self.has(job):
            return
        self.jobs = [*self.jobs, job][-MAX_JOBS:]
        content = {"version": _VERSION, "jobs": self.jobs}
        with staged_file(self.path, overwrite=True) as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")


def create_job(path: Path) -> None:
    """Create the directory of a job."""
    with writing(path):
        path.mkdir(mode=0o755)


def remove_job(path: Path) -> None:
    """Remove the directory of a job; tasks that still write in it fail at their next file."""
    # renamed first: if removal is interrupted, `is_dead` recognises the rest by this name
    gone = path.with_name(f"{path.name.removesuffix(STAGED_SUFFIX)}.aborted{STAGED_SUFFIX}")
    with contextlib.suppress(OSError):
        os.rename(path, gone)
        path = gone
    shutil.rmtree(path, ignore_errors=True)


def _lock(descriptor: int, log_dir: Path) -> None:
    """Wait until no other job commits. On a file system without locks, continue without one."""
    # polled, since waiting for the lock itself knows no deadline
    if not repeated(lambda: try_lock(descriptor), bool, LOCK_SECONDS / PAUSE_SECONDS):
        detail = f"another job has been committing for more than {LOCK_SECONDS:.0f} s"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=log_dir)


def is_dead(job: Path) -> bool:
    """Whether a job's directory is half removed, or nothing changed there for days: no process tells that it lives."""
    if job.name.endswith(f".aborted{STAGED_SUFFIX}"):
        return True
    try:
        newest = newest_change(job)
    except OSError:
        return False  # a file vanished meanwhile: a task is at work
    return time.time() - newest > ABANDONED_SECONDS
