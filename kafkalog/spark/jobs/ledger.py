"""What of a job is done: a file for each finished task, so that a job that is run again does only what is missing.

Lies in a directory that driver and executors share. A file appears when its task is done (`kafkalog.storage.staging`),
under a name that depends on everything the result depends on: the files that were read with their sizes and times of
change, the options, the version. What a killed task leaves is hidden, and removed by the next one of its name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from kafkalog.storage.staging import staged_file

_LOCK: Final = "lock"
_RESULT: Final = "result"


class Ledger:
    """Results of finished tasks.

    Parameters
    ----------
    directory : str
    """

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def place(self, key: str) -> Path:
        """The directory of a task, which is made."""
        path = self.directory / key[:2] / key
        try:
            if not self.directory.is_dir():  # never make it here: that would hide that it is not shared
                raise FileNotFoundError(errno.ENOENT, "not there: driver and executors have to share it")
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=path) from error
        return path

    def has(self, key: str) -> bool:
        """Whether a task is finished."""
        return (self.directory / key[:2] / key / _RESULT).exists()

    def find(self, key: str) -> Any:
        """The result of a task; None if it is not finished."""
        try:
            data = (self.directory / key[:2] / key / _RESULT).read_bytes()
        except OSError:
            return None
        return pickle.loads(data)

    def put(self, key: str, result: Any) -> None:
        """A task is finished."""
        with staged_file(self.place(key) / _RESULT, overwrite=True) as file:
            file.write(pickle.dumps(result))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory, and keep other jobs from working in it meanwhile; it is removed when all ended well."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            status = os.lstat(self.directory)
            # results are unpickled, so they have to be one's own
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                detail = "is there already, and others may write to it: remove it"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.directory)
            descriptor = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=self.directory) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                detail = "another job is at work here"
                raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=self.directory) from None
            yield
            shutil.rmtree(self.directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def key_of(*what: Any, files: Iterable[str | os.PathLike[str]] = ()) -> str:
    """A name for what depends on some values (by their `repr`) and on files as they are now."""
    digest = hashlib.sha256(f"{kafkalog.__version__}\n".encode())
    with np.printoptions(threshold=sys.maxsize):  # or long arrays that differ would look the same
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
    """Where a job keeps what it has done, beside what it makes or works on."""
    path = Path(os.path.realpath(beside))
    return path.with_name(f".{path.name}.kafkalog-job")
