"""Checks of output paths and the choice of staging directories.

Output must not replace what is being read, nor lie where a broker would find foreign files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.storage.atomic import StrPath, resolve, writing
from kafkalog.storage.listing import nearest
from kafkalog.storage.location import Location, exists
from kafkalog.storage.own_names import is_staged


def fitting_name(stem: str, suffix: str) -> str:
    """Return a file name of `stem` and `suffix` that fits in 255 bytes, the limit of file systems.

    A stem that is too long is cut, and ends in a hash of the whole, so that two stems never get one name.
    """
    stem_bytes, room = stem.encode(), _MAX_NAME_BYTES - len(suffix.encode())
    if len(stem_bytes) <= room:
        return stem + suffix
    digest = hashlib.sha256(stem_bytes).hexdigest()[:12]
    return f"{stem_bytes[: room - len(digest) - 1].decode(errors='ignore')}~{digest}{suffix}"


_MAX_NAME_BYTES: Final = 255


def named_partition(output: StrPath, *, is_one: bool) -> kf.TopicPartition | None:
    """Return the partition that an output directory is itself; None if partitions get subdirectories of it.

    One partition (`is_one`), not a log dir, goes to DIR if DIR is named like a partition, such as ``copy/orders-0``. In
    all other cases DIR is a log dir, with a subdirectory per partition.
    """
    name = kf.parse_partition_directory(Path(output).absolute().name)
    return name.topic_partition if is_one and name is not None and name.kind is None else None


def staging_directory(target: StrPath, stage_in: StrPath | None = None) -> Path:
    """Directory to stage output for a log dir in: the log dir's parent, where no broker loads it as a partition.

    If the parent cannot be used (another file system, not writable, or Kafka's), it is the log dir itself. If that
    looks like a broker's, UnsafePathError asks for `stage_in`, another directory, which `check_stage_in` checks.
    """
    if stage_in is not None:
        check_stage_in(stage_in)
        return Path(stage_in)
    log_dir = resolve(target).parent
    if is_staged(log_dir):
        return log_dir  # the log dir itself is being staged, so no broker sees it yet
    outside = log_dir.parent
    if not exists(log_dir):
        detail = f"no such directory: create the log dir first{nearest(log_dir)}"
        raise WriteError(Reason.WRITE_FAILED, detail, path=log_dir)
    with writing(log_dir):
        is_near = os.stat(outside).st_dev == os.stat(log_dir).st_dev
    if is_near and os.access(outside, os.W_OK | os.X_OK) and not _kafka_directories([outside]):
        return outside
    if _kafka_directories([log_dir]):
        detail = (
            f"{outside} is on another file system or not writable: name a directory for temporary files outside of the"
            " log dir and on its file system (stage_in, --stage-in)"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))
    return log_dir


def check_outside(target: StrPath, sources: Iterable[StrPath], *, is_new: bool = False) -> None:
    """Raise UnsafePathError if output at this path would do harm.

    That is if the target is one of the `sources`, is inside one or contains one; or if it is or is inside a log dir or
    a partition directory (read or not), where foreign files can stop a broker. With `is_new`, nothing at the path is
    replaced: existing files, such as the output of an earlier run, are left to the caller to refuse.
    """
    if isinstance(target, Location):
        ours = f"{target}/"
        for url in (f"{path}/" for path in sources if isinstance(path, Location)):
            if ours.startswith(url) or url.startswith(ours):
                raise _is_an_input(url[:-1], str(target))
        return
    resolved = resolve(target)
    for source in (resolve(path) for path in sources if not isinstance(path, Location)):
        if resolved == source or resolved in source.parents or (source in resolved.parents and source.is_dir()):
            raise _is_an_input(source, os.fspath(target))
    for directory, what in _kafka_directories(resolved.parents if is_new else (resolved, *resolved.parents)).items():
        detail = f"{directory} is a {what}, where a foreign file may stop a broker; choose another output"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))


def refuse_existing(path: StrPath, detail: str = "") -> None:
    """Raise OutputExistsError if anything is at a path, even a link to nowhere."""
    if os.path.lexists(path):
        raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=path) if detail else OutputExistsError.at(path)


def has_directory(path: Path) -> bool:
    """Whether a directory is at a path, False if nothing is; raises UnsafePathError for anything else."""
    if not os.path.lexists(path):
        return False
    if not path.is_dir():
        raise UnsafePathError(Reason.UNSAFE_PATH, "the path exists but is not a directory", path=path)
    return True


def is_occupied(path: Path) -> bool:
    """Whether a path holds more than an empty directory."""
    return path.exists() and (not path.is_dir() or bool(os.listdir(path)))


def _is_an_input(source: Path | str, target: str) -> UnsafePathError:
    detail = f"{source} is an input, which kafkalog never changes; choose another output"
    return UnsafePathError(Reason.UNSAFE_PATH, detail, path=target)


def check_stage_in(stage_in: StrPath) -> None:
    """Raise UnsafePathError if a staging directory is, or is inside, a partition directory or a log dir.

    A directory that contains partitions counts as a log dir, formatted or not. A directory further up the path counts
    only if it contains no other directories: ``/tmp``, for example, does not count, since no broker starts on it.
    """
    check_outside(stage_in, [])
    resolved = resolve(stage_in)
    if is_staged(resolved):
        return  # a directory that is being staged is not yet part of a log dir
    below = None
    for directory in (resolved, *resolved.parents):
        partition = _partition_in(directory, below)
        if partition:
            detail = (
                f"{directory} is a log dir, with partitions such as {partition}: a broker does not start with foreign"
                " directories in it; name another one on the same file system (stage_in, --stage-in)"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(stage_in))
        below = directory.name


def check_log_dir(log_dir: StrPath) -> Path:
    """The resolved path of a log dir for new partitions.

    Raises UnsafePathError if it would be a partition directory, or inside one or inside another log dir.
    """
    resolved = resolve(log_dir)
    # where output is staged was checked before
    above = () if is_staged(resolved) else (resolved, *resolved.parents)
    for directory, what in _kafka_directories(above).items():
        if what == "partition directory" or directory != resolved:
            raise UnsafePathError(Reason.UNSAFE_PATH, f"{directory} is a {what}", path=os.fspath(log_dir))
    return resolved


def copy_ownership(path: StrPath, like: StrPath) -> None:
    """Give a file or a directory tree the owner of `like`, durably: root may write for a broker that is another user.

    Does nothing unless run as root; errors are ignored.
    """
    with contextlib.suppress(OSError):
        owner = os.stat(like)
        give_ownership(path, owner.st_uid, owner.st_gid)


def give_ownership(path: StrPath, user: int, group: int) -> None:
    """Give a file or a directory tree an owner, durably. Does nothing unless run as root; errors are ignored."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        _give(path, user, group)
        for root, directories, names in os.walk(path):
            for name in (*directories, *names):
                _give(os.path.join(root, name), user, group)


def _give(path: StrPath, user: int, group: int) -> None:
    info = os.lstat(path)
    if (info.st_uid, info.st_gid) == (user, group) or stat.S_ISLNK(info.st_mode):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(descriptor, user, group)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kafka_directories(paths: Iterable[Path]) -> dict[Path, str]:
    """Those of some directories that look like a "log dir" or a "partition directory"."""
    found = {}
    for path in paths:
        if any(map(os.path.exists, map(path.joinpath, kf.LOG_DIR_FILES))):
            found[path] = "log dir"
        elif kf.parse_partition_directory(path.name) is not None:
            with contextlib.suppress(OSError):
                if kf.offsets_of(os.listdir(path), kf.LOG_SUFFIX):
                    found[path] = "partition directory"
    return found


def _partition_in(directory: Path, below: str | None) -> str:
    """The first subdirectory that is a partition with segments; "" if none.

    With `below`, also "" if there are others that are not named like partitions, of which the first ends the search.
    """
    partition = ""
    with contextlib.suppress(OSError):
        for name in sorted(entry.name for entry in os.scandir(directory) if entry.is_dir()):
            if kf.parse_partition_directory(name) is None:
                if below not in (None, name):
                    return ""
            elif not partition and "partition directory" in _kafka_directories([directory / name]).values():
                partition = name
    return partition
