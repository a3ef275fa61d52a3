"""Tells the type of a file by its name, and shows paths, as Kafka's tool and Java do."""

from __future__ import annotations

import os
import re

from kafkalog import format as kf
from kafkalog.errors import NotKafkaError, Reason
from kafkalog.log.segment import too_large
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.storage.files import open_source
from kafkalog.storage.location import AnyPath, remote_place
from kafkalog.storage.source import ByteSource


def as_file(path: AnyPath) -> AnyPath:
    """Return the path as Java's `File` shows it."""
    if not isinstance(path, str):
        return path
    short = re.sub("/{2,}", "/", path)
    return short.rstrip("/") or short


def absolute(path: AnyPath) -> AnyPath:
    """Return the path as Java's `File.getAbsolutePath` shows it: links and `..` are not resolved."""
    return as_file(f"{os.getcwd()}/{path}" if isinstance(path, str) and not path.startswith("/") else path)


def suffix_of(path: AnyPath, options: DumpOptions) -> str:
    """Return the suffix of a file's name; "" for none, and for a Raft snapshot in dialect 2.8."""
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    return "" if suffix == kf.RAFT_SNAPSHOT_SUFFIX and options.is_2_8 else suffix


def start_offset(name: str) -> int:
    """Return the offset in the name of a segment's file; raises `NotKafkaError` if it has none."""
    offset = kf.parse_base_offset(name)
    if offset is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the file name does not start with an offset", path=name)
    return offset


def beside(path: AnyPath, suffix: str) -> AnyPath:
    """Return the path of the same segment's file with another suffix."""
    folder, name = os.path.split(path)
    name = name.split(".")[0] + suffix
    place = remote_place(path)
    return os.path.join(folder, name) if place is None else place.with_name(name)


def open_file(path: AnyPath, options: DumpOptions) -> ByteSource:
    """Open a file; raises `LimitExceededError` if it is larger than `max_segment_bytes`."""
    source = open_source(path, memory_map=False)
    if source.size > options.limits.max_segment_bytes:
        raise too_large(source, options.limits)
    return source
