"""Tells the type of a file by its name, and shows paths, as Kafka's tool and Java do."""

from __future__ import annotations

import os
import re
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import LimitExceededError, NotKafkaError, Reason
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.storage.location import Location, plain
from kafkalog.storage.source import ByteSource, open_source

CHECKPOINT_SUFFIX: Final = ".checkpoint"


def as_file(path: str) -> str:
    """Return the path as Java's `File` shows it."""
    if isinstance(path, Location):
        return path
    short = re.sub("/{2,}", "/", path)
    return short.rstrip("/") or short


def absolute(path: str) -> str:
    """Return the path as Java's `File.getAbsolutePath` shows it: links and `..` are not resolved."""
    return as_file(path if isinstance(path, Location) or path.startswith("/") else f"{os.getcwd()}/{path}")


def suffix_of(path: str, options: DumpOptions) -> str:
    """Return the suffix of a file's name; "" for none, and for a Raft snapshot in dialect 2.8."""
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    return "" if suffix == CHECKPOINT_SUFFIX and options.is_2_8 else suffix


def start_offset(name: str) -> int:
    """Return the offset in the name of a segment's file; raises `NotKafkaError` if it has none."""
    offset = kf.parse_base_offset(name)
    if offset is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the file name does not start with an offset", path=name)
    return offset


def beside(path: str, suffix: str) -> str:
    """Return the path of the same segment's file with another suffix."""
    folder, name = os.path.split(path)
    name = name.split(".")[0] + suffix
    return plain(path.with_name(name)) if isinstance(path, Location) else os.path.join(folder, name)


def open_file(path: str, options: DumpOptions) -> ByteSource:
    """Open a file; raises `LimitExceededError` if it is larger than `max_segment_bytes`."""
    source = open_source(path, memory_map=False)
    if source.size > options.limits.max_segment_bytes:
        size = source.size
        source.close()
        detail = f"the file has {size} bytes, max_segment_bytes is {options.limits.max_segment_bytes}"
        raise LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=path, length=size)
    return source
