"""Copies files durably: into a staged output, or aside as a backup before they are changed in place.

Does not know what is in a file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from kafkalog.errors import OutputExistsError, Reason
from kafkalog.storage.atomic import StrPath, fsync_directory, make_parents, resolve, writing
from kafkalog.storage.files import open_source
from kafkalog.storage.location import Place, local_path
from kafkalog.storage.staging import StagedDirectory, StagedFile, staged_file

COPY_BYTES: Final = 2**23
"""Bytes read at a time where a file is copied."""
_CANNOT_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})


def _ignore(n_bytes: int) -> None:
    pass


def copy_file(
    path: Place,
    staged: StagedDirectory,
    name: str,
    *,
    size: int | None = None,
    like: Path | None = None,
    progress: Callable[[int], object] = _ignore,
) -> None:
    """Copy a file, or its first `size` bytes, with its modification time; `name` is the relative path of the copy.

    The copy gets the owner and the mode of `like`, see `take_owner`. It shares the blocks of the file, copy on write,
    where the file system can, as Btrfs, XFS and others. FileChangedError if somebody wrote to the file meanwhile.
    """
    with staged.create(name, like) as file:
        _copy(local_path(path), file, size, progress)


def _copy(path: Path, file: StagedFile, size: int | None, progress: Callable[[int], object]) -> None:
    with open_source(path, memory_map=False) as source:
        end = source.size if size is None else min(size, source.size)
        is_cloned = end > 0 and file.clone(path, end)
        if is_cloned:
            progress(end)
        for start in range(0, 0 if is_cloned else end, COPY_BYTES):
            stop = min(start + COPY_BYTES, end)
            window = source.window(start, stop)
            file.write(window)
            source.release(window, start)
            progress(stop - start)
        # a writer may have been at work since the first window: then the copy is neither state of the file
        source.check_unchanged()
        # a broker's retention uses the modification time of segments without timestamps
        file.set_modified(path.stat().st_mtime_ns // 10**6)


class Backup:
    """A directory that keeps files as they are before they are replaced or removed.

    A file is kept as a hard link where the file system can link it there, else as a copy. A link is enough because
    files are replaced by others, and never written to. Threads may share it. The directory is made when the first file
    is kept; if it has entries already, that is an OutputExistsError: a backup never replaces another.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = resolve(path)
        self._changed: set[Path] = set()
        self._lock = Lock()
        self.n_files = 0
        if os.path.lexists(self.path) and not (self.path.is_dir() and not os.listdir(self.path)):
            raise OutputExistsError(
                Reason.OUTPUT_EXISTS,
                "the backup directory exists and is not empty; name a new one",
                path=os.fspath(path),
            )

    def keep(self, path: Path, name: str) -> None:
        """Keep a file under a relative name."""
        target = self.path / name
        with writing(target):
            with self._lock:  # no other thread meets a directory that is not durable yet
                make_parents(target)
            try:
                os.link(path, target)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                with staged_file(target, is_lone=False, like=path) as file:
                    _copy(path, file, None, _ignore)
        with self._lock:
            self.n_files += 1
            self._changed |= {target.parent, self.path.parent}

    def keep_existing(self, path: Path, name: str) -> bool:
        """Keep a file if it exists; returns whether it does."""
        if not path.exists():
            return False
        self.keep(path, name)
        return True

    def sync(self) -> None:
        """Make the files kept so far durable."""
        with self._lock:  # also while they are synced: what another thread has kept is durable when its own call ends
            # deepest first: an entry is durable before the directory that it is in
            for directory in sorted(self._changed, reverse=True):
                with writing(directory):
                    fsync_directory(directory)
            self._changed.clear()


class NoBackup:
    """In place of a `Backup` where nothing is kept, such as on a full disk."""

    n_files = 0

    def keep(self, path: Path, name: str) -> None:
        """Keep nothing."""

    def keep_existing(self, path: Path, name: str) -> bool:
        """Whether the file exists."""
        return path.exists()

    def sync(self) -> None:
        """Do nothing."""
