"""Topic settings out of a log dir's `__cluster_metadata-0`, as far as they are known there.

The metadata log is a log like others: its records, and those of its newest snapshot (`OFFSET-EPOCH.checkpoint`, the
same format), are read by `kafkalog.records.decode`. Mirrors `ConfigRecord`, `TopicRecord` and `RemoveTopicRecord`;
other records are passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.records.selection import Selection
from kafkalog.storage.source import open_source

BROKER, TOPIC = 4, 2
_TOPIC_RECORD, _CONFIG_RECORD, _REMOVE_TOPIC_RECORD = 2, 4, 9
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class ClusterConfigs:
    """Settings that an administrator made, by resource.

    Attributes
    ----------
    of : dict of (int, str) to dict of str to str
        By resource type (`TOPIC`, `BROKER`) and name; the name of the default for all brokers is empty.
    findings : list of Finding
        Where the metadata log could not be read.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, str], dict[str, str]] = {}
        self.findings: list[Finding] = []
        self._topic_of: dict[bytes, str] = {}

    def apply(self, value: bytes) -> None:
        """Take a record; one that cannot be understood is passed over."""
        try:
            self._apply(MetadataReader(value))
        except (IndexError, UnicodeDecodeError):
            return

    def _apply(self, reader: MetadataReader) -> None:
        _, kind, _ = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if kind == _CONFIG_RECORD:
            resource = (reader.take(1)[0], reader.string() or "")
            name, value = reader.string() or "", reader.string()
            if value is None:
                self.of.get(resource, {}).pop(name, None)
            else:
                self.of.setdefault(resource, {})[name] = value
        elif kind == _TOPIC_RECORD:
            name = reader.string() or ""
            self._topic_of[reader.take(16)] = name
        elif kind == _REMOVE_TOPIC_RECORD:
            self.of.pop((TOPIC, self._topic_of.pop(reader.take(16), "")), None)


class MetadataReader:
    """Kafka's compact types; `IndexError` where the bytes end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, n: int) -> bytes:
        """The next bytes."""
        if n < 0 or self._at + n > len(self._data):
            raise IndexError("the record ends too early")
        self._at += n
        return self._data[self._at - n : self._at]

    def uvarint(self) -> int:
        """Unsigned, of at most five bytes."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise IndexError("the number is too long")

    def int32(self) -> int:
        """Big-endian, signed."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int32s(self) -> list[int]:
        """A compact array; empty also for null."""
        return [self.int32() for _ in range(max(self.uvarint() - 1, 0))]

    def string(self) -> str | None:
        """A compact string, or null."""
        n = self.uvarint()
        return self.take(n - 1).decode() if n else None


def read_cluster_configs(log_dir: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> ClusterConfigs | None:
    """The settings that a log dir knows of; None where it has no metadata log.

    What lies behind damage is not looked at, which a finding says.
    """
    configs = ClusterConfigs()
    return configs if read_metadata(log_dir, configs.apply, configs.findings.append, limits=limits) else None


def read_metadata(
    log_dir: str | os.PathLike[str],
    apply: Callable[[bytes], object],
    report: Callable[[Finding], object],
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> bool:
    """Hand out the records of a log dir's metadata log, those of its newest snapshot first.

    Parameters
    ----------
    log_dir : path-like
    apply : callable
        Given the value of each record.
    report : callable
        Given a finding where the log is damaged; what lies behind is not looked at.
    limits : Limits

    Returns
    -------
    bool
        Whether there is one.
    """
    directory = Path(log_dir) / kf.METADATA_DIRECTORY
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return False
    checkpoints = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
    start = 0
    paths = []
    if checkpoints:
        start = int(checkpoints[-1][1])
        paths.append((directory / checkpoints[-1][0], 0))
    paths += [
        (directory / name, start)
        for name in names
        if name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None
    ]
    for path, first in paths:
        try:
            for value in _values(path, first, limits):
                apply(value)
        except KafkalogError as error:
            report(error.to_finding(damage=False))
    return True


def _values(path: Path, start: int, limits: Limits) -> Iterator[bytes]:
    with open_source(path, memory_map=False) as source:
        for window in walk(source, limits=limits):
            decoded = decode(window, ("value",), selection=Selection(start_offset=start), limits=limits)
            if decoded.columns is not None:
                yield from (value for value in decoded.columns.value if value is not None)
            if decoded.error is not None:
                raise decoded.error
            source.release(window.data, window.start)
