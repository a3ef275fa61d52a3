"""Partition directories that a running broker removes, or replaces by others of the same name, while they are read."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import ReadError, Reason
from kafkalog.format import PARTITION_METADATA
from kafkalog.storage.file_locks import is_locked
from kafkalog.storage.location import exists, store_of

# O_NONBLOCK: a FIFO of that name must not make us wait. Windows has other flags
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_TOPIC_ID: Final = re.compile(rb"^topic_id:[ \t]*(\S+)", re.MULTILINE)


class DirectoryIdentity(NamedTuple):
    """Tells a partition directory from a later one of the same name. Its topic id alone is pickled."""

    inode: int | None
    """File systems give the number of a directory that is gone to another one, and other hosts see other numbers; None
    if it comes from another process."""
    written_ns: int | None
    """When its topic id was written, which is once; None if it has none."""
    topic_id: bytes | None

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectoryIdentity, (None, None, self.topic_id)


def directory_identity(directory: str | os.PathLike[str]) -> DirectoryIdentity | None:
    """The identity of a directory now; None if it is not there."""
    status = _status(directory)
    return None if status is None else DirectoryIdentity(*status, _topic_id(directory))


def _status(directory: str | os.PathLike[str]) -> tuple[int, int | None] | None:
    try:  # in a store, where no broker works, there is none
        inode = os.stat(directory).st_ino
    except OSError:
        return None
    try:
        return inode, os.stat(os.path.join(directory, PARTITION_METADATA)).st_mtime_ns
    except OSError:
        return inode, None


def _topic_id(directory: str | os.PathLike[str]) -> bytes | None:
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(directory, PARTITION_METADATA), _FLAGS)
        try:
            found = _TOPIC_ID.search(os.read(descriptor, 256))
        finally:
            os.close(descriptor)
        return None if found is None else found[1]
    return None


def was_replaced(directory: str | os.PathLike[str], identity: DirectoryIdentity | None) -> bool:
    """Whether a broker has removed a directory with this identity, and made one of the same name.

    Another topic id proves it. Another inode, or the same topic id written again, counts where a broker runs.
    """
    status = None if identity is None else _status(directory)
    if identity is None or status is None:
        return False
    inode, written_ns = status
    if inode == identity.inode and (None in (written_ns, identity.written_ns) or written_ns == identity.written_ns):
        return False
    if identity.topic_id is not None and _topic_id(directory) not in (None, identity.topic_id):
        return True
    return identity.inode is not None and is_locked(os.path.dirname(os.path.abspath(directory)))


def is_gone(path: str | os.PathLike[str]) -> bool:
    """Whether nothing is any more at the path of what was listed: a running broker has removed or renamed it."""
    return not exists(path)


def removed_error(directory: str | os.PathLike[str]) -> ReadError:
    """The error about a directory that a running broker removed."""
    detail = "a broker removed the directory while it was read: its topic was deleted, or the partition moved"
    return ReadError(Reason.PARTITION_REMOVED, detail, path=directory)


def removed_directory(
    directory: str | os.PathLike[str], *, is_leaving: bool = False, identity: DirectoryIdentity | None = None
) -> ReadError | None:
    """The error about a directory that a running broker removed after it was listed; None for any other.

    It renames the directory of a deleted topic, or of a partition that it moved, and deletes that a minute later. One
    of the same name may be there again. Without a broker's lock or its renamed directory nothing tells a removal from
    a disk that went away. `is_leaving` says that the directory has the name of one that is deleted, `identity` what it
    was when it was listed.

    Source: LogManager.asyncDelete, UnifiedLog.logDeleteDirName, Kafka 4.3.
    """
    if not store_of(directory).is_live:
        return None
    root, name = os.path.split(os.path.abspath(directory))
    try:
        others = os.listdir(root)
    except OSError:
        return None
    renamed = f"{name}."
    is_removed = (
        is_leaving
        or any(other.startswith(renamed) and kf.is_deleted_directory(other) for other in others)
        or (is_locked(root) if name not in others else was_replaced(directory, identity))
    )
    return removed_error(directory) if is_removed else None
