"""The files of a log dir itself after a recovery: checkpoints of offsets, and the marker of a clean shutdown.

Mirrors what `LogManager.shutdown` writes, and `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, ReadError, Reason, SidecarError
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint, read_properties

_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"


def partition_directories(root: Path) -> Iterator[Path | Finding]:
    """Yield the partition directories of a log dir by name, and a finding for each other directory.

    Directories that a broker has renamed (`-delete`, `-future`, `-stray`) are among them: it loads them too.
    Source: LogManager.loadLogs, Kafka 4.3.
    """
    try:
        with os.scandir(root) as entries:
            found = sorted((entry.name, entry.is_symlink()) for entry in entries if entry.is_dir())
    except OSError as error:
        raise ReadError(Reason.FILE_UNREADABLE, error.strerror or str(error), path=root) from error
    for name, is_link in found:
        path = root / name
        if kf.parse_partition_directory(name) is None:
            if name != _REMOTE_INDEX_CACHE:
                detail = "a directory that is not named after a partition: a broker does not start; move it away"
                yield Finding(Reason.UNKNOWN_FILE, detail, path=str(path))
        elif is_link and not path.resolve().is_relative_to(root.resolve()):
            detail = "a link out of the log dir is not followed; name its target to recover it"
            yield Finding(Reason.LINK_OUTSIDE, detail, path=str(path))
        else:
            yield path


def root_files(root: Path, ends: Mapping[kf.TopicPartition, int], *, is_clean: bool) -> dict[str, bytes]:
    """The files of a log dir that have to be written after its partitions were recovered, the marker last.

    Parameters
    ----------
    root : Path
    ends : dict of TopicPartition to int
        Log end offsets of the recovered partitions: all before is on disk.
    is_clean : bool
        Whether every partition was recovered, so that the marker may say so.
    """
    files: dict[str, bytes] = {}
    try:
        known = read_offset_checkpoint(root / kf.RECOVERY_POINT_CHECKPOINT)
    except KafkalogError:
        known = None
    points = {**(known or {}), **ends}
    if points != known:
        files[kf.RECOVERY_POINT_CHECKPOINT] = encode_offset_checkpoint(dict(sorted(points.items())))
    try:
        read_offset_checkpoint(root / kf.LOG_START_OFFSET_CHECKPOINT)
    except SidecarError:
        files[kf.LOG_START_OFFSET_CHECKPOINT] = encode_offset_checkpoint({})  # a broker goes on without, too
    if is_clean:
        files[kf.CLEAN_SHUTDOWN_FILE] = clean_shutdown_marker(root)
    return files


def clean_shutdown_marker(root: Path) -> bytes:
    """The content of the marker of a clean shutdown.

    Only its existence counts for recovery. From Kafka 3.7 on it also names the broker's epoch, by which the controller
    can tell that the replica lost nothing. That cannot be said of a recovered one, so no epoch is named.
    Source: CleanShutdownFileHandler, BrokerServer.startup, Kafka 4.3.
    """
    properties = read_properties(root / kf.META_PROPERTIES) or {}
    return b"" if properties.get("version") == "0" else b'{"version":0,"brokerEpoch":-1}'
