"""Keeps a file for each finished task of a job, so that a job that is run again does only what is missing.

The directory is shared by driver and executors. A file appears when its task has finished (`kafkalog.storage.staging`).
Its name is a hash of everything the result depends on: the version of kafkalog, the options, and the paths, sizes,
modification times and inodes of the files read. A killed task leaves only hidden files, which the next task of this
name removes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import kafkalog
from kafkalog.errors import Reason, UnsafePathError, WriteError
from kafkalog.storage.file_locks import lock
from kafkalog.storage.staging import staged_file

_LOCK: Final = "lock"
_RESULT: Final = "result"


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
            if not self.directory.is_dir():  # do not make it: if it is missing here, it is not shared with the driver
                raise FileNotFoundError(errno.ENOENT, "does not exist here: driver and executors must share it")
            path.mkdir(parents=True, exist_ok=True)
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
                lock(descriptor)
            except OSError:
                detail = "another job is at work here"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.directory) from None
            yield
            shutil.rmtree(self.directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def key_of(*what: Any, files: Iterable[str | os.PathLike[str]] = ()) -> str:
    """Return a hash of values (of their `repr`) and of the current state of files."""
    digest = hashlib.sha256(f"{kafkalog.__version__}\n".encode())
    with np.printoptions(threshold=sys.maxsize):  # by default repr abbreviates long arrays: others would look the same
        for value in what:
            digest.update(f"{value!r}\n".encode())
    for path in files:
        try:
            status = os.stat(path)
            digest.update(f"{os.fspath(path)!r} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
        except OSError:
            digest.update(f"{os.fspath(path)!r} absent\n".encode())
    return digest.hexdigest()[:32]


def job_directory(beside: str | os.PathLike[str]) -> Path:
    """Return the hidden directory for a job's finished tasks, beside its output or its log dir."""
    path = Path(os.path.realpath(beside))
    return path.with_name(f".{path.name}.kafkalog-job")
