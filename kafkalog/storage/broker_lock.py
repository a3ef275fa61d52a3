"""Locks that keep brokers and other writers out while kafkalog writes.

A running broker holds a POSIX record lock on the `.lock` file of its log dir. `flock` does not see such locks, so
`is_locked` queries and `hold_locks` takes a record lock. Mirrors Kafka's `FileLock`. A log dir may have no `.lock`, so
writers of kafkalog also hold an `flock` on each partition directory (`hold_partitions`). That leaves no file behind.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.format import LOCK_FILE, META_PROPERTIES
from kafkalog.storage.atomic import is_same, writing
from kafkalog.storage.file_locks import is_locked, take_record_lock, try_lock, unlock
from kafkalog.storage.open_file_limit import allow_open_files, count_open_files
from kafkalog.storage.own_names import is_staged
from kafkalog.storage.staging import staged_file


def refuse_if_locked(log_dirs: Iterable[str | os.PathLike[str]]) -> None:
    """Raise `UnsafePathError` if a broker runs on one of the log dirs."""
    for log_dir in log_dirs:
        if is_locked(log_dir):
            raise UnsafePathError(
                Reason.UNSAFE_PATH, "a broker holds the lock of this log dir: stop it first", path=os.fspath(log_dir)
            )


@contextlib.contextmanager
def hold_locks(log_dirs: Iterable[str | os.PathLike[str]]) -> Iterator[None]:
    """Hold the locks of log dirs, so that no broker can start on them.

    If a log dir (a directory with `meta.properties`) has no lock file, one is created, as a broker does. Other
    directories without a lock file are skipped. Several holders in one process share the lock. Raises UnsafePathError
    if a broker holds one of the locks.
    """
    with contextlib.ExitStack() as stack:
        for log_dir in dict.fromkeys(map(os.path.realpath, log_dirs)):
            path = Path(log_dir) / LOCK_FILE
            if path.exists() or (path.parent / META_PROPERTIES).exists():
                _take(path)
                stack.callback(_let_go, path)
        yield


@contextlib.contextmanager
def hold_partitions(partitions: Iterable[str | os.PathLike[str]]) -> Iterator[None]:
    """Lock partition directories against all other kafkalog writers, in this and other processes.

    Directories that do not exist are skipped: only one writer can create them. Directories inside a staged one are
    skipped too: only its owner writes there. On a file system without locks this holds nothing. Raises UnsafePathError
    if another writer holds one of the directories, WriteError if the limit on open files is too low.
    """
    process = os.getpid()
    paths = [Path(path) for path in dict.fromkeys(map(os.path.realpath, partitions)) if os.path.exists(path)]
    paths = [path for path in paths if not is_staged(path)]
    if len(paths) > 1:
        allow_open_files(count_open_files() + len(paths), path=paths[0].parent)
    with contextlib.ExitStack() as stack:
        for path in paths:
            with writing(path):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(_release, descriptor, process)
                # the directory may have been replaced between `open` and the lock: that lock would protect nothing
                if not try_lock(descriptor) or not is_same(descriptor, path):
                    detail = "another process or writer is writing to this partition: try again when it is done"
                    raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)
        yield


def _release(descriptor: int, process: int) -> None:
    """Unlock and close a descriptor.

    Forks share an `flock`: closing alone would leave it held by them, and a fork must not unlock for its parent.
    """
    if process == os.getpid():
        with contextlib.suppress(OSError):
            unlock(descriptor)
    os.close(descriptor)


def _take(path: Path) -> None:
    with _holding:
        descriptor, n_holders = _held.get(path, (-1, 0))
        # the lock belongs to the open file: opened again, it would conflict with this process's own
        if not n_holders:
            descriptor = _locked(path)
        _held[path] = descriptor, n_holders + 1


def _let_go(path: Path) -> None:
    with _holding:
        descriptor, n_holders = _held.pop(path)
        if n_holders > 1:
            _held[path] = descriptor, n_holders - 1
        else:
            os.close(descriptor)


def _locked(path: Path) -> int:
    """Open a lock file and take its record lock; returns the descriptor."""
    # a broker has to open it for writing, and runs as another user than root: at no time may it be root's
    with contextlib.suppress(OutputExistsError), staged_file(path, like=path.parent):
        pass
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=path) from error
    try:
        take_record_lock(descriptor)
    except OSError:
        os.close(descriptor)
        # it may have been a broker that started just now: say that, if it is so
        refuse_if_locked([path.parent])
        raise UnsafePathError(Reason.UNSAFE_PATH, "its lock cannot be taken", path=path) from None
    if os.fstat(descriptor).st_uid == 0:
        # left by somebody who ran as root
        with contextlib.suppress(OSError):
            owner = os.stat(path.parent)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


# Descriptor and number of holders of each lock of this process. A second descriptor could not get the same lock.
_holding = threading.Lock()
_held: dict[Path, tuple[int, int]] = {}
