"""Reads the records of a topic that holds state, in the order of each partition's offsets.

Damage is passed over and reported; what lies behind it is read. One thread reads: what is done with the records takes
longer than decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Finding, KafkalogError, ReadError
from kafkalog.html import Item, ReportList
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import latest_of, partitions_of
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import ReadOptions, SegmentWindow
from kafkalog.parsing import Time, check_names, parse_milliseconds
from kafkalog.records.batch_columns import Form
from kafkalog.records.byte_columns import BinaryColumn, ViewColumn
from kafkalog.records.columns import Column, RecordColumns
from kafkalog.records.decode import decode_all
from kafkalog.records.header_walk import WINDOW_BYTES
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.records.readers.record_windows import ALL_OFFSETS, WindowOptions
from kafkalog.records.selection import Selection
from kafkalog.survey.next_steps import Advised

COLUMNS: Final = ("offset", "timestamp", "key", "value")
OF_TRANSACTIONS: Final = ("producer_id", "is_transactional", "is_control")
"""Further columns where there are transactional batches or control batches."""

Report = Callable[[Finding], None]


class StateList(Advised, ReportList[Item]):
    """Objects read from internal topics, as a list.

    Attributes
    ----------
    findings : list of Finding
        Damage, and records that could not be decoded.
    log_dirs : list of str
        What was read.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        super().__init__(items)
        self.findings: list[Finding] = []
        self.log_dirs: list[str] = []


@dataclass(frozen=True, slots=True)
class AsOf:
    """Up to where a topic is read; None for its end."""

    end_offset: int | None = None
    """Records below this offset, of each partition."""
    end_timestamp: int | None = None
    """Records before this time, in ms."""

    @classmethod
    def of(cls, log_dir: LogDir, topics: Sequence[str], end_offset: int | None, end_timestamp: Time | None) -> AsOf:
        """Check what a caller gave. A time may be relative to the end of some topics."""
        if end_offset is not None and end_offset < 0:
            raise ValueError(f"end_offset is at least 0, not {end_offset}")
        time = None
        if end_timestamp is not None:
            there = sorted({key.topic for key in log_dir} & set(topics))
            time = parse_milliseconds(
                "end_timestamp", end_timestamp, end_ms=lambda: latest_of(partitions_of(log_dir, there)) if there else 0
            )
        return cls(end_offset, time)


def check_known(
    what: str, wanted: str | Sequence[str] | None, known: Sequence[str], as_of: AsOf, findings: Sequence[Finding]
) -> None:
    """Raise UnknownNameError for a name that is not there, unless it may come later, or what has it is damaged."""
    if as_of == AsOf() and not findings:
        check_names(what, wanted, known)


class KeyedRecord(NamedTuple):
    """A record of a topic that holds state."""

    partition: int
    offset: int
    timestamp: int
    """In ms; -1 for none."""
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


class TopicRecords(NamedTuple):
    """Records of a partition, in the order of their offsets."""

    partition: int
    columns: RecordColumns
    """`COLUMNS`, and `OF_TRANSACTIONS` unless no record is of a transaction or a control record."""


def read_topic(
    log_dir: LogDir, topic: str, as_of: AsOf, report: Report, *, views: bool = False
) -> Iterator[TopicRecords]:
    """Read a topic's partitions one after the other, control records included.

    With `views`, keys and values may be views, which hold until the next records are asked for.
    """
    for key in [one for one in log_dir if one.topic == topic]:
        try:
            partition = log_dir[key]
            selection = Selection(
                start_offset=partition.log_start_offset or None,
                end_offset=as_of.end_offset,
                end_timestamp=as_of.end_timestamp,
                include_control=True,
            )
        except KafkalogError as error:
            report(error.to_finding())
            continue
        # its checkpoints are read on first access, and add findings then
        for finding in partition.findings:
            report(finding)
        reader_for = partial(_reader, selection) if views else lambda segment: None
        try:
            options = ReadOptions(on_corruption="skip", report=report, reader_for=reader_for)
            for window in partition.reader.windows(selection, options):
                for columns in _decoded(window, selection, report, views=views):
                    yield TopicRecords(key.partition, columns)
                    # freed before the next window is decoded: two of them may be large
                    del columns
                window.release()
                del window
        except ReadError as error:  # a running broker removed the partition
            report(error.to_finding())


def _reader(selection: Selection, segment: Segment) -> RecordReader | None:
    """The reader of a segment's good batches; None if records have to be selected one by one."""
    if not selection.is_by_batch:
        return None
    start, stop = ALL_OFFSETS
    if selection.end_offset is not None:
        stop = selection.end_offset - 1  # the batch that ends there ends the reading, too
    return RecordReader(
        WindowOptions(
            names=COLUMNS,
            form="views",
            offsets=(selection.start_offset or start, stop),
            window_bytes=WINDOW_BYTES,
            check_crcs=True,
            limits=segment.limits,
        )
    )


def _decoded(window: SegmentWindow, selection: Selection, report: Report, *, views: bool) -> Iterator[RecordColumns]:
    """The columns of a window's records; batches that cannot be decoded are reported."""
    batches = window.batches
    is_plain = not (batches.is_transactional | batches.is_control).any()
    records = window.window.records
    if records is not None and is_plain:
        yield records
        return
    names = COLUMNS if is_plain else (*COLUMNS, *OF_TRANSACTIONS)
    path, limits = str(window.segment.path), window.segment.limits
    form: Form = "views" if views and is_plain else "numpy"
    for decoded in decode_all(window.window, names, selection=selection, form=form, limits=limits, path=path):
        if decoded.columns is not None:
            yield decoded.columns
        if decoded.error is not None:
            report(window.lost(decoded.error))
        del decoded


def read_records(log_dir: LogDir, topic: str, as_of: AsOf, report: Report) -> Iterator[KeyedRecord]:
    """Read a topic's records one by one, control records included; see `read_topic`."""
    for part in read_topic(log_dir, topic, as_of, report):
        yield from records_of(part)


def records_of(part: TopicRecords) -> Iterator[KeyedRecord]:
    """The records of a part one by one."""
    return map(KeyedRecord, repeat(part.partition), *map(listed, part.columns.values()))


def of_each_version(part: TopicRecords) -> TopicRecords:
    """The first record of each version of keys and values, by their first two bytes; without control records."""
    keys, values = part.columns["key"], part.columns["value"]
    assert isinstance(keys, BinaryColumn)
    assert isinstance(values, BinaryColumn)
    codes = _versions(keys) << _VERSION_BITS | _versions(values)
    rows = np.arange(codes.size)
    if "is_control" in part.columns:
        rows = np.flatnonzero(~np.asarray(part.columns["is_control"]))
    _, first = np.unique(codes[rows], return_index=True)
    return part._replace(columns=part.columns.take(rows[np.sort(first)]))


def _versions(column: BinaryColumn) -> npt.NDArray[np.int64]:
    """int64[n]: the size of each value up to two bytes, and these bytes; 3 for null."""
    start, sizes = column.offsets[:-1], np.diff(column.offsets)
    codes: npt.NDArray[np.int64] = np.minimum(sizes, 2).astype(np.int64)
    if column.validity is not None:
        codes[~column.validity] = 3
    for at in range(2):
        found, has = np.zeros(codes.size, np.int64), sizes > at
        found[has] = column.data[start[has] + at]
        codes = codes << 8 | found
    return codes


_VERSION_BITS: Final = 18


def listed(column: Column) -> list[Any]:
    """The values of a column."""
    assert not isinstance(column, ViewColumn)
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return values


def name_of(names: Mapping[int, str], number: int) -> str:
    """The name of a number in a record; a newer Kafka may write others."""
    return names.get(number, f"unknown({number})")
