"""Where output may go, and where to write meanwhile: never where a broker would trip over it, nor over what is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import Reason, UnsafePathError
from kafkalog.storage.atomic import STAGED_SUFFIX, StrPath, resolve, writing

_LOG_DIR_FILES: Final = (
    kf.META_PROPERTIES,
    kf.RECOVERY_POINT_CHECKPOINT,
    kf.HIGH_WATERMARK_CHECKPOINT,
    kf.LOG_START_OFFSET_CHECKPOINT,
    kf.CLEAN_SHUTDOWN_FILE,
)


def staging_directory(target: StrPath) -> Path:
    """Where to stage what goes into a log dir: beside the log dir, where no broker takes it for a partition.

    Raises
    ------
    UnsafePathError
        There is no such place on the same file system, or nothing may be written there; `stage_in` has to be given.
    WriteError
        The log dir is not there.
    """
    log_dir = resolve(target).parent
    if any(part.endswith(STAGED_SUFFIX) for part in log_dir.parts):
        return log_dir  # all of it is being staged
    outside = log_dir.parent
    with writing(log_dir):
        is_near = os.stat(outside).st_dev == os.stat(log_dir).st_dev
    if is_near and os.access(outside, os.W_OK | os.X_OK) and not _kafka_directory(outside):
        return outside
    if _kafka_directory(log_dir):
        detail = (
            f"{outside} is on another file system, or may not be written to: name a directory outside of the log dir"
            " and on its file system to write in meanwhile (stage_in)"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))
    return log_dir


def check_outside(target: StrPath, sources: Iterable[StrPath]) -> None:
    """Refuse a place for output that would do harm.

    Parameters
    ----------
    target : path-like
    sources : iterable of path-like
        Files and directories that are read.

    Raises
    ------
    UnsafePathError
        The target is a source, lies in one or holds one; or it lies in a log dir or a partition directory, read or not,
        where a broker would trip over it.
    """
    resolved = resolve(target)
    for source in map(resolve, sources):
        if resolved == source or resolved in source.parents or (source in resolved.parents and source.is_dir()):
            raise UnsafePathError(
                Reason.UNSAFE_PATH, f"{source} is being read, and sources are never modified", path=os.fspath(target)
            )
    for directory in (resolved, *resolved.parents):
        if what := _kafka_directory(directory):
            detail = f"{directory} is a {what}: a broker may not start, or lose data, with foreign files in it"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))


def check_stage_in(stage_in: StrPath) -> None:
    """Refuse a place to write in meanwhile where a broker would trip over it: a partition, or what lies in a log dir.

    A directory of partitions is a log dir, be it formatted or not; one that is further up is none if it holds other
    directories as well, such as ``/tmp``, since no broker starts on that.

    Raises
    ------
    UnsafePathError
        It is one, or lies in one.
    """
    check_outside(stage_in, [])
    resolved = resolve(stage_in)
    if any(part.endswith(STAGED_SUFFIX) for part in resolved.parts):
        return  # partitions that are being staged are in no log dir yet
    below = None
    for directory in (resolved, *resolved.parents):
        partition, others = _directories_in(directory)
        if partition and (below is None or not others - {below}):
            detail = (
                f"{directory} is a log dir, with partitions such as {partition}: a broker does not start with foreign"
                " directories in it; stage in another one on the same file system (stage_in)"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(stage_in))
        below = directory.name


def check_log_dir(log_dir: StrPath) -> None:
    """Refuse a place for partitions that a broker would trip over: in a partition, or below a log dir.

    Raises
    ------
    UnsafePathError
        It is one.
    """
    resolved = resolve(log_dir)
    for directory in (resolved, *resolved.parents):
        what = _kafka_directory(directory)
        if what == "partition directory" or (what and directory != resolved):
            raise UnsafePathError(Reason.UNSAFE_PATH, f"{directory} is a {what}", path=os.fspath(log_dir))


def copy_ownership(path: StrPath, like: StrPath) -> None:
    """Give files the owner of `like`: root may write what a broker of another user has to open."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        owner = os.stat(like)
        os.chown(path, owner.st_uid, owner.st_gid)
        for root, directories, names in os.walk(path):
            for name in (*directories, *names):
                os.chown(os.path.join(root, name), owner.st_uid, owner.st_gid)


def _kafka_directory(path: Path) -> str:
    """What of Kafka's a directory is; "" for none."""
    if any((path / name).exists() for name in _LOG_DIR_FILES):
        return "log dir"
    if kf.parse_partition_directory(path.name) is not None:
        with contextlib.suppress(OSError):
            names = os.listdir(path)
            if any(name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None for name in names):
                return "partition directory"
    return ""


def _directories_in(directory: Path) -> tuple[str, set[str]]:
    """A partition with segments that lies in a directory, "" for none; and directories that are no partitions."""
    partition, others = "", set()
    with contextlib.suppress(OSError):
        for name in sorted(entry.name for entry in os.scandir(directory) if entry.is_dir()):
            if kf.parse_partition_directory(name) is None:
                others.add(name)
            elif not partition and _kafka_directory(directory / name) == "partition directory":
                partition = name
    return partition, others
