"""The files of a log dir itself after a recovery: checkpoints of offsets, and the marker of a clean shutdown.

Mirrors what `LogManager.shutdown` writes, and `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, ReadError, SidecarError
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint
from kafkalog.state.properties import read_properties
from kafkalog.survey.startup_root import OFFSET_CHECKPOINTS


def root_files(root: Path, ends: Mapping[kf.TopicPartition, int], *, is_clean: bool) -> dict[str, bytes]:
    """The files of a log dir to write after its partitions were recovered, the marker last.

    `ends` has their log end offsets: all before is on disk. `is_clean` is whether every partition was recovered, so
    that the marker may exist.
    """
    files: dict[str, bytes] = {}
    try:
        known = read_offset_checkpoint(root / kf.RECOVERY_POINT_CHECKPOINT)
    except KafkalogError:
        known = None
    points = {**(known or {}), **ends}
    if points != known:
        files[kf.RECOVERY_POINT_CHECKPOINT] = encode_offset_checkpoint(dict(sorted(points.items())))
    # an empty one has no entries for a broker, which takes a log dir offline for one that is malformed
    for name in OFFSET_CHECKPOINTS[1:]:
        with contextlib.suppress(ReadError):  # it is no file
            if (root / name).exists() and is_malformed(root / name):
                files[name] = encode_offset_checkpoint({})
    # a broker lowers it to the log end, too; left as it is, it would say of the recovered log that records are missing
    with contextlib.suppress(KafkalogError):
        watermarks = read_offset_checkpoint(root / kf.HIGH_WATERMARK_CHECKPOINT) or {}
        lowered = {key: min(offset, ends.get(key, offset)) for key, offset in watermarks.items()}
        if lowered != watermarks:
            files[kf.HIGH_WATERMARK_CHECKPOINT] = encode_offset_checkpoint(lowered)
    if is_clean:
        files[kf.CLEAN_SHUTDOWN_FILE] = clean_shutdown_marker(root)
    return files


def is_malformed(path: Path) -> bool:
    """Whether an offset checkpoint cannot be read."""
    try:
        read_offset_checkpoint(path)
    except SidecarError:
        return True
    return False


def clean_shutdown_marker(root: Path) -> bytes:
    """The content of the marker of a clean shutdown.

    Only its existence counts for recovery. From Kafka 3.7 on it also names the broker's epoch, by which the controller
    can tell that the replica lost nothing. Nobody knows that of a recovered one, so the marker has no epoch.
    Source: CleanShutdownFileHandler, BrokerServer.startup, Kafka 4.3.
    """
    try:
        properties = read_properties(root / kf.META_PROPERTIES) or {}
    except KafkalogError:
        properties = {}  # a broker does not start with it, as preflight says
    return b"" if properties.get("version") == "0" else b'{"version":0,"brokerEpoch":-1}'
