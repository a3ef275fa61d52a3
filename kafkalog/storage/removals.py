"""Partition directories that a running broker removes, or replaces by others of the same name, while they are read."""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalog.errors import ReadError, Reason
from kafkalog.format import PARTITION_METADATA
from kafkalog.storage.file_locks import is_locked


class DirectoryIdentity(NamedTuple):
    """Tells a partition directory from a later one of the same name."""

    inode: int
    """File systems give the number of a directory that is gone to another one."""
    written_ns: int | None
    """When its topic id was written, which is once; None if it has none."""


def directory_identity(directory: str | os.PathLike[str]) -> DirectoryIdentity | None:
    """The identity of a directory now; None if it is not there."""
    try:
        inode = os.stat(directory).st_ino
    except OSError:
        return None
    try:
        written_ns = os.stat(os.path.join(directory, PARTITION_METADATA)).st_mtime_ns
    except OSError:
        written_ns = None
    return DirectoryIdentity(inode, written_ns)


def was_replaced(directory: str | os.PathLike[str], identity: DirectoryIdentity | None) -> bool:
    """Whether a running broker has removed a directory with this identity, and made one of the same name."""
    now = None if identity is None else directory_identity(directory)
    if identity is None or now is None:
        return False
    is_other = now.inode != identity.inode or (
        None not in (now.written_ns, identity.written_ns) and now.written_ns != identity.written_ns
    )
    return is_other and is_locked(os.path.dirname(os.path.abspath(directory)))


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
    root, name = os.path.split(os.path.abspath(directory))
    try:
        others = os.listdir(root)
    except OSError:
        return None
    renamed = f"{name}."
    is_removed = (
        is_leaving
        or any(other.startswith(renamed) and other.endswith("-delete") for other in others)
        or (is_locked(root) if name not in others else was_replaced(directory, identity))
    )
    return removed_error(directory) if is_removed else None
