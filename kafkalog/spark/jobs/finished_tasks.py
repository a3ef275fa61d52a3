"""Keeps a file for each finished task of a job, so that a job that is run again does only what is missing.

The directory is shared by driver and executors. A file appears when its task has finished (`kafkalog.storage.staging`).
Its name is a hash of everything the result depends on: the version of kafkalog, the options, and the paths, sizes,
modification times and inodes of the files read. A killed task leaves only hidden files, which the next task of this
name removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import kafkalog
from kafkalog.errors import Reason, UnsafePathError, WriteError
from kafkalog.storage.atomic import STAGED_SUFFIX, is_same, writing
from kafkalog.storage.file_locks import lock, try_lock, try_share
from kafkalog.storage.staging import remove_abandoned, staged_file

_LOCK: Final = "lock"
_RESULT: Final = "result"
_ATTEMPTS: Final = "attempts"
_POLL_SECONDS: Final = 0.05


class FinishedTasks:
    """The results of finished tasks, pickled.

    Parameters
    ----------
    directory : str
        Shared by driver and executors.
    """

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def make_directory(self, key: str) -> Path:
        """Make the directory of a task, and return its path."""
        path = self.directory / key[:2] / key
        try:
            # without `self.directory` itself: it is not shared with the driver, or the job is over and has removed it
            path.parent.mkdir(exist_ok=True)
            path.mkdir(exist_ok=True)
        except FileNotFoundError as error:
            raise _over(path) from error
        except OSError as error:
            raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=path) from error
        return path

    def has(self, key: str) -> bool:
        """Whether a task is finished."""
        return (self.directory / key[:2] / key / _RESULT).exists()

    def find(self, key: str) -> Any:
        """Return the result of a task; None if it is not finished."""
        try:
            data = (self.directory / key[:2] / key / _RESULT).read_bytes()
        except OSError:
            return None
        return pickle.loads(data)

    def put(self, key: str, result: Any) -> None:
        """Store the result of a finished task."""
        with staged_file(self.make_directory(key) / _RESULT, overwrite=True) as file:
            file.write(pickle.dumps(result))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory and lock it against other jobs; remove it if the block succeeds."""
        remove_abandoned(self.directory.parent, self.directory.name)  # of a job that was killed while it removed it
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            status = os.lstat(self.directory)
            # results are unpickled, which runs code: nobody else may be able to write them
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                detail = "is there already, and others may write to it: remove it"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.directory)
            descriptor = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=self.directory) from error
        try:
            try:
                # held by the driver alone: executors write only under names of their own
                lock(descriptor)
            except OSError:
                detail = "another job is at work here"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.directory) from None
            yield
            self._remove()
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """In a task: the driver does not leave `waits_for_attempts` before the block has ended.

        Raises
        ------
        WriteError
            The driver has left it.
        """
        path = self.directory / _ATTEMPTS
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise _over(path) from error
        try:
            if not try_share(descriptor) or not is_same(descriptor, path):
                raise _over(path)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def waits_for_attempts(self) -> Iterator[None]:
        """On the driver: wait at the end of the block until no attempt of a task is at work, and let none begin.

        Spark kills attempts that are not needed any more, but does not wait for their end: neither for the second
        attempt of a task, nor for the other tasks of a job that has failed.
        """
        path = self.directory / _ATTEMPTS
        with writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                yield
            finally:
                # an attempt that was killed has given its lock back
                while not try_lock(descriptor):
                    time.sleep(_POLL_SECONDS)
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _remove(self) -> None:
        """Remove the directory; an attempt of a task that is still at work fails at its next file."""
        # renamed first: what such an attempt makes while files are removed would keep the directory there
        aside = self.directory.with_name(f".{self.directory.name}.{secrets.token_hex(4)}{STAGED_SUFFIX}")
        try:
            os.rename(self.directory, aside)
        except OSError:
            aside = self.directory
        shutil.rmtree(aside, ignore_errors=True)


def _over(path: Path) -> WriteError:
    return WriteError(Reason.WRITE_FAILED, "its job is over, or driver and executors do not share it", path=path)


def key_of(*what: Any, files: Iterable[str | os.PathLike[str]] = ()) -> str:
    """Return a hash of values (of their `repr`) and of the current state of files."""
    # another version may find other things
    digest = hashlib.sha256(f"{kafkalog.__version__}\n".encode())
    with np.printoptions(threshold=sys.maxsize):  # by default repr abbreviates long arrays: others would look the same
        for value in what:
            digest.update(f"{value!r}\n".encode())
    for path in files:
        try:
            status = os.stat(path)
            digest.update(f"{os.fspath(path)!r} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
        except OSError:
            # an index that is missing is a state, too: a result must not outlive its coming
            digest.update(f"{os.fspath(path)!r} absent\n".encode())
    return digest.hexdigest()[:32]


def job_directory(beside: str | os.PathLike[str]) -> Path:
    """Return the hidden directory for a job's finished tasks, beside its output or its log dir."""
    path = Path(os.path.realpath(beside))
    return path.with_name(f".{path.name}.kafkalog-job")
