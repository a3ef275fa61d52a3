"""What a file is, by its name and its place, as Kafka's tool and Java see it."""

from __future__ import annotations

import os
import re
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import LimitExceededError, Reason
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.storage.source import PreadSource

CHECKPOINT_SUFFIX: Final = ".checkpoint"


def as_file(path: str) -> str:
    """The path as Java's `File` shows it."""
    short = re.sub("/{2,}", "/", path)
    return short.rstrip("/") or short


def absolute(path: str) -> str:
    """The path as Java's `File.getAbsolutePath` shows it: nothing is resolved."""
    return as_file(path if path.startswith("/") else f"{os.getcwd()}/{path}")


def suffix_of(path: str, options: DumpOptions) -> str:
    """What kind of file it is, by its name; "" for a kind that is not known."""
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    return "" if suffix == CHECKPOINT_SUFFIX and options.is_2_8 else suffix


def open_log(path: str, options: DumpOptions) -> PreadSource:
    """Open a log, no larger than Kafka could read.

    Raises
    ------
    LimitExceededError
        It is larger than `max_segment_bytes`.
    """
    source = PreadSource(path)
    if source.size > options.limits.max_segment_bytes:
        size = source.size
        source.close()
        detail = f"the file has {size} bytes, max_segment_bytes is {options.limits.max_segment_bytes}"
        raise LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=path, length=size)
    return source


def is_last_segment(path: str) -> bool:
    """Whether no segment beside this one comes after it, so that a torn tail is normal."""
    folder, name = os.path.split(path)
    offset = kf.parse_base_offset(name)
    if offset is None or not name.endswith(kf.LOG_SUFFIX):
        return True
    others = (kf.parse_base_offset(other) for other in os.listdir(folder or ".") if other.endswith(kf.LOG_SUFFIX))
    return not any(other is not None and other > offset for other in others)
