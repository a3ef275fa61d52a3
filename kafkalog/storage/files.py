"""Files by their paths, local or in a store: opened, read whole, measured.

A running broker renames files to delete them, and replaces directories: what a listing named is looked for there, too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkalog.errors import FileChangedError, ReadError, Reason
from kafkalog.format import moved_names
from kafkalog.storage.location import Location, stat_of, store_of
from kafkalog.storage.removals import DirectoryIdentity, removed_directory, removed_error, was_replaced
from kafkalog.storage.source import ByteSource, FileSource, open_regular
from kafkalog.text import counted


def open_source(
    path: str | os.PathLike[str],
    *,
    memory_map: bool | str,
    was_there: bool = False,
    identity: DirectoryIdentity | None = None,
) -> ByteSource:
    """Open a regular file; for `memory_map` see `FileSource`.

    A file that `was_there` when its directory was listed may have another name now, since a running broker renames
    files to delete them: `path` of the source is that name. `identity` is that of the directory when it was listed: a
    file in another one that has its name now is not opened.
    """
    if isinstance(path, Location):
        return path.open()
    try:
        source = FileSource(path, memory_map=memory_map)
    except ReadError:
        if not was_there or os.path.lexists(path):
            raise
        for name in moved_names(os.fspath(path)):
            with contextlib.suppress(ReadError):
                return FileSource(name, memory_map=memory_map)
        if removed := removed_directory(_parent(path), identity=identity):
            raise removed from None
        raise
    # after it was opened: it may be replaced at any time
    if identity is not None and was_replaced(directory := os.path.dirname(os.path.abspath(path)), identity):
        source.close()
        raise removed_error(directory)
    return source


def _parent(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.path.abspath(path))


def read_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """Read a small file whole; raises ReadError if that fails, or if it is larger than `max_bytes`."""
    if isinstance(path, Location):
        with open_source(path, memory_map=False) as source:
            _check_size(path, source.size, max_bytes)
            return source.window(0, source.size).tobytes()
    name = os.fspath(path)
    descriptor, status = open_regular(name)
    with open(descriptor, "rb") as file:
        _check_size(path, status.st_size, max_bytes)
        try:
            data = file.read(status.st_size)
        except OSError as error:
            raise ReadError.of(error, name, 0) from error
    if len(data) < status.st_size:
        detail = f"ends at byte {len(data)}, but had {status.st_size} bytes"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=name)
    return data


def read_if_there(path: str | os.PathLike[str], *, max_bytes: int) -> bytes | None:
    """Read a small file whole, like `read_file`; None if there is none."""
    try:
        stat_of(path)  # most are not there, and an error of ours takes longer
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # `read_file` reports it
    try:
        return read_file(path, max_bytes=max_bytes)
    except ReadError as error:
        if is_absent(error):
            return None
        raise


def refuse_forbidden(paths: Sequence[Path]) -> None:
    """Raise ReadError for files of the local disk that another user may read; others, and missing ones, pass."""
    denied: list[tuple[Path, PermissionError]] = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except PermissionError as error:
            denied.append((path, error))
        except OSError:
            continue
    if denied:
        path, cause = denied[0]
        first = ReadError.of(cause, path)
        more = f"; so it is for {counted(len(denied) - 1, 'more file')}" if denied[1:] else ""
        raise ReadError.about(first, first.detail + more) from cause


def is_absent(error: Exception) -> bool:
    """Whether a file could not be read because there is none."""
    return isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))


def stamp_of(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """What distinguishes one content of a file from another: inode, time and size; None if there is no file."""
    try:
        status = stat_of(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def last_entry(path: str | os.PathLike[str], n_bytes: int) -> bytes:
    """The last whole entry of a file of entries of this size; empty if it has none. Raises ReadError."""
    with open_source(path, memory_map=False) as source:
        stop = source.size // n_bytes * n_bytes
        return source.window(stop - n_bytes, stop).tobytes() if stop else b""


def _check_size(path: str | os.PathLike[str], size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ReadError(Reason.FILE_UNREADABLE, f"has {size} bytes, more than {max_bytes}", path=os.fspath(path))


def file_status(
    path: str | os.PathLike[str], *, was_there: bool = False, identity: DirectoryIdentity | None = None
) -> Any:
    """`os.stat` of a file, symbolic links followed; raises ReadError. For the options see `open_source`."""
    try:
        return stat_of(path)
    except OSError as error:
        if was_there and store_of(path).is_live:
            for name in moved_names(os.fspath(path)):
                with contextlib.suppress(OSError):
                    return os.stat(name)
            if removed := removed_directory(_parent(path), identity=identity):
                raise removed from None
        raise ReadError.of(error, os.fspath(path)) from error


def size_if_there(path: str | os.PathLike[str]) -> int | None:
    """Size of a file in bytes, without opening it; None if nothing is at the path."""
    if isinstance(path, Location):
        entry = path.status()
        return None if entry is None else entry.size
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def size_of(path: str | os.PathLike[str]) -> int:
    """Size of a regular file in bytes, without opening it; 0 if there is no regular file."""
    if isinstance(path, Location):
        entry = path.status()
        return 0 if entry is None else entry.size
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
