"""Walks a `.log` or `.checkpoint` file as Kafka's tool does, for the text (`dump_text`) and the objects (`rows`) alike.

Good batches are read in windows, by the decoder that all readers use. A batch that this decoder does not take is read
here, alone: Kafka's tool shows the records before the damage, and records under a wrong checksum.

Mirrors `DumpLogSegments.dumpLog`, `FileLogInputStream` and the iterators of `DefaultRecordBatch` and
`AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.decode as kernels
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    CorruptionError,
    KafkalogError,
    LimitExceededError,
    Limits,
    Reason,
    UnsupportedError,
    error_from_status,
)
from kafkalog.operations.dumping.batch_chain import WINDOW, Found, find_batch, wrapped
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.records.batch_table import BatchTable, HeaderParser, Window, valid_crcs
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.records.columns import BinaryColumn, HeadersColumn
from kafkalog.records.decode import decode, fill_spans
from kafkalog.records.header_walk import walk
from kafkalog.records.selection import Selection
from kafkalog.records.spans import Spans, too_many_records
from kafkalog.storage.source import Bytes, ByteSource

_OK = STATUS["OK"]
_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
_ALL: Final = Selection(include_control=True)
_ROWS_OF_MESSAGES: Final = 8192
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_INT_MAX: Final = 2**31 - 1

Printed = Literal["line", "metadata", "nothing"]


@dataclass(slots=True)
class Records:
    """Records of some batches."""

    counts: npt.NDArray[np.int64]
    """Number of records of each batch."""
    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    key_size: npt.NDArray[np.int64]
    value_size: npt.NDArray[np.int64]
    key: BinaryColumn
    value: BinaryColumn
    headers: HeadersColumn
    magic: npt.NDArray[np.int64]
    crc: npt.NDArray[np.int64]
    is_valid: npt.NDArray[np.bool_]
    """Format, checksum, and whether that is right: of each message of v0 and v1, or of the batch."""
    last: Printed = "line"
    """How much Kafka's tool prints of the last record, before it throws."""

    def __len__(self) -> int:
        return self.offset.size


class Part(NamedTuple):
    """Batches that follow each other, all of v2 or later, or all older."""

    batches: BatchTable
    is_valid: npt.NDArray[np.bool_]
    """Whether each batch has the right checksum."""
    records: Records | None = None
    """None if records are not read."""
    is_known: bool = True
    """False for a batch with a magic or a codec that Kafka's tool prints only the beginning of a line for."""

    @property
    def is_v2(self) -> bool:
        return bool(self.batches.magic[0] >= 2)


class Message(NamedTuple):
    """A record of v0 or v1."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    key: bytes | None
    value: bytes | None
    magic: int
    crc: int
    is_valid: bool


class LogWalk:
    """Walks one file.

    Parameters
    ----------
    path : str
        The path to show in the lists at the end.
    is_last : bool
        Whether no other segment follows, so that a torn tail is normal.
    prints_fields, prints_values : bool
        Whether sizes of keys and values are shown, and whether the bytes of values are: Kafka's tool throws only at
        what it prints.

    Attributes
    ----------
    position : int
        The position in the file that the walk has reached.
    """

    def __init__(
        self,
        source: ByteSource,
        options: DumpOptions,
        report: Report,
        path: str,
        *,
        is_last: bool,
        prints_fields: bool = True,
        prints_values: bool = True,
    ) -> None:
        self._source, self._options, self._report = source, options, report
        self._is_last, self._prints_fields, self._prints_values = is_last, prints_fields, prints_values
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)
        self._previous_offset = -1
        self._batches = BatchReader(options.limits, source.path)
        self.path = path
        self.position = 0

    def parts(self) -> Iterator[Part]:
        """Yield batches and their records. Who takes a part calls `report_shown` before the next.

        Raises
        ------
        CorruptionError
            Where Kafka's tool throws, after the batches and records that it has printed by then.
        LimitExceededError
            A batch is larger than a limit allows.
        UnsupportedError
            A batch has a codec that Kafka does not define.
        """
        source, parser = self._source, HeaderParser()
        needed = 0
        while self.position < self._stop:
            start = self.position
            window = source.window(start, min(start + max(WINDOW, needed), source.size))
            needed = 0
            try:
                while True:
                    begin = self.position
                    data = window[begin - start : max(self._stop - start, 0)]
                    for table in parser.parse(data, begin, -1)[0]:
                        yield from self._table(Window(data, begin, table))
                        if self.position != table.end_position:
                            break
                    if self.position == begin:
                        needed = self._needed(window, start)
                        if needed < 0:
                            return
                        if needed > start + window.size - begin:
                            break
                        yield from self._odd_batch(window[begin - start :][:needed])
                    if self.position >= start + window.size:
                        break
            finally:
                source.release(window, start)

    def _table(self, window: Window) -> Iterator[Part]:
        """Yield the batches of a window that has only batches of v0, v1 and v2."""
        batches, limits = window.batches, self._options.limits
        is_v2, codec = batches.magic >= 2, batches.attributes & kf.CODEC_MASK
        # what neither the tool nor the decoder takes; the walk reads it alone
        ends = np.flatnonzero((batches.size_in_bytes > limits.max_batch_bytes) | (codec > kf.Codec.ZSTD))
        end = int(ends[0]) if ends.size else len(batches)
        changes = np.flatnonzero(np.diff(is_v2[:end])) + 1
        for first, stop in zip([0, *changes.tolist()], [*changes.tolist(), end], strict=True):
            if not self._options.is_deep:
                rows = batches[first:stop]
                if len(rows):
                    self.position = rows.end_position
                    yield Part(rows, valid_crcs(window, rows))
            elif is_v2[first] or not codec[first:stop].any():
                yield from self._decoded(window, first, stop)
            else:
                yield from self._messages(window, first, stop)

    def _decoded(self, window: Window, first: int, stop: int) -> Iterator[Part]:
        while first < stop:
            decoded = decode(
                window,
                _COLUMNS,
                first=first,
                stop=stop,
                selection=_ALL,
                check_crcs=False,
                limits=self._options.limits,
                path=self._source.path,
            )
            rows = window.batches[first : first + decoded.n_batches]
            first += decoded.n_batches
            if len(rows):
                is_valid = valid_crcs(window, rows)
                records = (
                    no_records(len(rows)) if decoded.columns is None else _records(rows, is_valid, decoded.columns)
                )
                if rows.magic[0] < 2:
                    records.key_size, records.value_size = _declared_sizes(window, rows)
                self.position = rows.end_position
                yield Part(rows, is_valid, records)
            if decoded.error is not None:
                at = self.position - window.start
                yield from self._odd_batch(window.data[at : at + int(window.batches.size_in_bytes[first])])
                first += 1
            elif not decoded.n_batches:
                raise AssertionError("the decoder neither takes a batch nor refuses it")

    def _needed(self, window: Bytes, start: int) -> int:
        """Return how many bytes the batch at the position takes, -1 if the log ends there.

        Raises
        ------
        KafkalogError
            Kafka's tool throws there.
        """
        source, position = self._source, self.position
        at, left_in_file = position - start, source.size - position
        if window.size - at < min(kf.RECORD_BATCH_OVERHEAD, left_in_file):
            return kf.RECORD_BATCH_OVERHEAD
        found, needed, _ = find_batch(memoryview(window), at, self._stop - position, left_in_file)
        if found is Found.END:
            return -1
        if found is Found.BAD_SIZE:
            raise explain_end(source, position, self._stop, self._options)
        if found is Found.BATCH and int(window[at + 16].view(np.int8)) >= 2:
            # a whole v2 header is read, however small the size field is
            needed = max(needed, kf.RECORD_BATCH_OVERHEAD)
        if needed > self._options.limits.max_batch_bytes:
            raise too_large(needed, source.path, position, self._options.limits)
        if found is Found.CUT_HEADER or needed > left_in_file:
            detail = "the file ends inside the header of a batch"
            base_offset = int.from_bytes(window[at : at + 8].tobytes(), "big", signed=True)
            raise CorruptionError(
                Reason.SIZE_TOO_SMALL, detail, path=source.path, position=position, base_offset=base_offset
            )
        return needed

    def _odd_batch(self, batch: Bytes) -> Iterator[Part]:
        """Yield a batch that is not good, or not what the decoder expects, up to where Kafka's tool throws."""
        row, is_valid = header_row(batch, self.position), np.array([has_valid_crc(batch)])
        magic, codec = int(row.magic[0]), int(row.attributes[0]) & kf.CODEC_MASK
        if magic < 0 or codec > kf.Codec.ZSTD:
            yield Part(row, is_valid, is_known=False)
            raise self._batches.error(STATUS["BAD_MAGIC"], row) if magic < 0 else unknown_codec(row, self._source.path)
        if not self._options.is_deep:
            self.position = row.end_position
            yield Part(row, is_valid)
            return
        if magic < 2:
            yield from self._messages(Window(batch, self.position, row), 0, 1)
            return
        spans, error = self._batches.spans(batch, row)
        if error is None:
            self.position = row.end_position
        yield Part(row, is_valid, no_records(1) if spans is None else _records_of_spans(row, is_valid, spans))
        if error is not None:
            raise error

    def _messages(self, window: Window, first: int, stop: int) -> Iterator[Part]:
        """Yield messages of v0 and v1, one by one: compressed ones, and such as are shorter than their own fields."""
        messages: list[Message] = []
        counts: list[int] = []
        base_offsets: list[int] = []
        for number in range(first, stop):
            row = window.batches[number : number + 1]
            at, n_before = int(row.position[0]) - window.start, len(messages)
            last, error = self._add_messages(messages, window.data[at : at + int(row.size_in_bytes[0])], row)
            counts.append(len(messages) - n_before)
            base_offsets.append(messages[n_before].offset if counts[-1] else int(row.base_offset[0]))
            if error is not None or number == stop - 1 or len(messages) >= _ROWS_OF_MESSAGES:
                rows = window.batches[number + 1 - len(counts) : number + 1]
                rows = replace(rows, base_offset=np.array(base_offsets, np.int64))
                self.position = int(row.position[0]) if error is not None else row.end_position
                yield Part(rows, valid_crcs(window, rows), _records_of_messages(counts, messages, last))
                messages, counts, base_offsets = [], [], []
            if error is not None:
                raise error

    def _add_messages(
        self, messages: list[Message], batch: Bytes, row: BatchTable
    ) -> tuple[Printed, KafkalogError | None]:
        """Add the messages of a batch; return how the last one is printed, and the error at which the tool throws."""
        try:
            for message, status in self._batches.messages(batch, row):
                messages.append(message)
                if status == _OK:
                    continue
                is_cut = status == STATUS["VALUE_LENGTH"] and message.value_size > 0
                if is_cut and self._prints_values:
                    return "metadata" if self._options.prints_metadata else "nothing", self._batches.error(status, row)
                if not is_cut and self._prints_fields:
                    return "nothing", self._batches.error(status, row)
        except KafkalogError as error:
            return "line", error
        return "line", None

    def report_shown(self, part: Part, n_batches: int | None = None, n_records: int | None = None) -> None:
        """Report wrong checksums and gaps between offsets in what was shown of a part: all of it, or its first rows."""
        if part.is_known:
            for row in np.flatnonzero(~part.is_valid[:n_batches]).tolist():
                batch = part.batches[row : row + 1]
                self._report.add_bad_crc(self._source.path or self.path, batch, base_offset_of(batch))
        if part.records is None or not len(part.records):
            return
        offset = part.records.offset[:n_records]
        before = np.concatenate([[self._previous_offset], offset[:-1]])
        self._previous_offset = int(offset[-1])
        gaps = np.flatnonzero(offset != before + 1)
        if self._options.is_2_8:
            gaps = gaps[before[gaps] != -1]
        if gaps.size:
            self._report.add_pairs("gap", self.path, np.stack([before[gaps], offset[gaps]]))

    def trailing_bytes(self) -> int:
        """Report bytes after the last batch, and return how many there are."""
        n = self._stop - self.position
        if n <= 0 or self._options.max_bytes is not None:
            return 0
        error = explain_end(self._source, self.position, self._stop, self._options)
        self._report.add_tail(error, is_last=self._is_last)
        return n

    def locate(self, error: CorruptionError, part: Part, row: int) -> CorruptionError:
        """Add path, position and base offset of a batch of a part to an error about it; return the error."""
        error.path, error.position = self._source.path, int(part.batches.position[row])
        error.base_offset = base_offset_of(part.batches, row)
        return error


class BatchReader:
    """Reads the records of one batch at a time, as Kafka's iterators do, up to the first one that is damaged."""

    def __init__(self, limits: Limits, path: str | None) -> None:
        self._limits, self._path = limits, path

    def error(self, status: int, row: BatchTable) -> KafkalogError:
        """Return the error for a kernel's status about a batch."""
        return error_from_status(
            status, path=self._path, position=int(row.position[0]), base_offset=base_offset_of(row)
        )

    def largest_timestamp(self, batch: Bytes, row: BatchTable) -> int:
        """Return the largest timestamp of the records of a batch, -1 for none.

        Raises
        ------
        KafkalogError
            The records cannot be read.
        """
        if row.magic[0] < 2:
            return max((message.timestamp for message, _ in self.messages(batch, row)), default=kf.NO_TIMESTAMP)
        spans, error = self.spans(batch, row)
        if error is not None:
            raise error
        return kf.NO_TIMESTAMP if spans is None else int(spans.timestamp.max(initial=kf.NO_TIMESTAMP))

    def spans(self, batch: Bytes, row: BatchTable) -> tuple[Spans | None, KafkalogError | None]:
        """Return the records of a v2 batch that Kafka's tool shows, and the error at which it throws.

        Of a compressed batch it shows no record before it has read all.
        """
        count, codec = int(row.records_count[0]), int(row.attributes[0]) & kf.CODEC_MASK
        if int(row.size_in_bytes[0]) < kf.RECORD_BATCH_OVERHEAD:
            return None, self.error(STATUS["SIZE_TOO_SMALL"], row)
        if not count:
            return None, None
        try:
            payload = self._decompressed(codec, batch[kf.RECORD_BATCH_OVERHEAD :], row)
        except KafkalogError as error:
            return None, error
        room = min(count, payload.size // kf.MIN_RECORD_BYTES)
        if count < 0 or (codec and count > room):
            return None, self.error(STATUS["RECORD_COUNT"], row)
        if room > self._limits.max_records_per_batch:
            return None, too_many_records(row, 0, self._limits, self._path)
        # a record that was not walked starts after the damage
        starts = [np.full(room, _INT_MAX, np.int32) for _ in range(6)]
        offset, timestamp = np.empty(room, np.int64), np.empty(room, np.int64)
        status, _, n, where, _ = kernels.walk_records(
            payload,
            np.zeros(1, np.int64),
            np.array([payload.size]),
            row.base_offset,
            row.base_timestamp,
            row.max_timestamp,
            row.attributes,
            np.array([room], np.int32),
            row.crc,
            False,
            self._limits.max_headers_per_record,
            self._limits.max_headers_per_batch,
            offset,
            timestamp,
            *starts,
        )
        if status == _OK and room < count:
            status = STATUS["VARINT_TRUNCATED"]
        elif status != _OK:
            if codec:
                return None, self.error(status, row)
            n = int(np.searchsorted(starts[0], where))
            if status == STATUS["RECORD_TRAILING_BYTES"] and room == count:
                # Kafka looks for them before it returns the last record
                n -= 1
        n_headers = int(starts[5][:n].sum(dtype=np.int64))
        columns: list[Any] = [offset[:n], timestamp[:n], *(column[:n] for column in starts), n_headers]
        spans = Spans(payload, row, np.array([n]), *columns)
        return spans, None if status == _OK else self.error(status, row)

    def messages(self, batch: Bytes, row: BatchTable) -> Iterator[tuple[Message, int]]:
        """Yield the messages of a batch of v0 or v1, each with a status: whether its fields fit into it.

        Raises
        ------
        KafkalogError
            A compressed message cannot be read.
        """
        codec = int(row.attributes[0]) & kf.CODEC_MASK
        if not codec:
            yield _message(batch.tobytes(), int(row.last_offset[0]), row, in_wrapper=False)
            return
        data = self._decompressed(codec, wrapper_value(batch, row, self._path), row).tobytes()
        sets, status, shift = _inner_messages(data, row)
        if status != _OK:
            raise self.error(status, row)
        for at, size in sets:
            if data[at + 17] & kf.CODEC_MASK:
                raise self.error(STATUS["LEGACY_NESTED"], row)
            offset = wrapped(int.from_bytes(data[at : at + 8], "big", signed=True) + shift)
            yield _message(data[at : at + size], offset, row, in_wrapper=True)

    def _decompressed(self, codec: int, data: Bytes, row: BatchTable) -> Bytes:
        if not codec:
            return data
        arena = Arena()
        try:
            decompress_into(arena, codec, data, magic=min(int(row.magic[0]), 2), limits=self._limits)
        except KafkalogError as error:
            error.path, error.position, error.base_offset = self._path, int(row.position[0]), base_offset_of(row)
            raise
        return arena.data[: arena.used]


def _inner_messages(data: bytes, row: BatchTable) -> tuple[Sequence[tuple[int, int]], int, int]:
    """Return where the messages in a wrapper lie, a status, and what their relative offsets lack."""
    found: list[tuple[int, int]] = []
    at = 0
    while len(data) - at >= kf.LOG_OVERHEAD:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < kf.MESSAGE_V0_OVERHEAD:
            return found, STATUS["SIZE_NEGATIVE" if size < 0 else "SIZE_TOO_SMALL"], 0
        if size > len(data) - at - kf.LOG_OVERHEAD:
            break
        found.append((at, size + kf.LOG_OVERHEAD))
        at += size + kf.LOG_OVERHEAD
    if not found:
        return found, STATUS["LEGACY_EMPTY_WRAPPER"], 0
    wrapper_offset = int(row.last_offset[0])
    # a wrapper offset of 0 is produce data as librdkafka writes it: the base is 0
    if row.magic[0] != 1 or not wrapper_offset:
        return found, _OK, 0
    last = int.from_bytes(data[found[-1][0] :][:8], "big", signed=True)
    if wrapper_offset < last:
        return found, STATUS["LEGACY_WRAPPER_OFFSET"], 0
    return found, _OK, wrapped(wrapper_offset - last)


def _message(data: bytes, offset: int, row: BatchTable, *, in_wrapper: bool) -> tuple[Message, int]:
    """Read a message of v0 or v1; the status says whether its fields fit into it."""
    crc, magic = struct.unpack_from(">Ib", data, 12)
    is_valid = zlib.crc32(data[16:]) == crc
    if magic == 0:
        timestamp = kf.NO_TIMESTAMP
    elif magic == 1 and in_wrapper and row.magic[0] == 1 and row.attributes[0] & kf.TIMESTAMP_TYPE_BIT:
        timestamp = int(row.max_timestamp[0])
    else:
        timestamp = int.from_bytes(data[18:26], "big", signed=True)
    key = value = None
    key_size = value_size = -1
    at, status = 18 if magic == 0 else 26, STATUS["KEY_LENGTH"]
    if len(data) - at >= 4:
        key_size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        key = None if key_size < 0 else data[at : at + key_size]
        if key_size <= len(data) - at:
            at += max(key_size, 0)
            status = STATUS["VALUE_LENGTH"]
            if len(data) - at >= 4:
                value_size = int.from_bytes(data[at : at + 4], "big", signed=True)
                at += 4
                value = None if value_size < 0 else data[at : at + value_size]
                if value_size <= len(data) - at:
                    status = _OK
    return Message(offset, timestamp, key_size, value_size, key, value, magic, crc, is_valid), status


def header_row(batch: Bytes, position: int) -> BatchTable:
    """Return the header of one batch, unchecked: the whole of it from v2 on, as much as a v0 message has before."""
    data = batch.tobytes()
    size = int.from_bytes(data[8:12], "big", signed=True) + kf.LOG_OVERHEAD
    magic = int(batch[16].view(np.int8))
    if magic >= 2:
        base, _, epoch, _, crc, attributes, delta, *times, producer_id, producer_epoch, sequence, count = (
            _HEADER.unpack_from(data)
        )
        last = wrapped(base + delta)
    else:
        base, crc, attributes = (
            int.from_bytes(data[:8], "big", signed=True),
            int.from_bytes(data[12:16], "big"),
            data[17],
        )
        timestamp = kf.NO_TIMESTAMP if magic == 0 else int.from_bytes(data[18:26], "big", signed=True)
        epoch, last, times, producer_id, producer_epoch, sequence, count = -1, base, [timestamp] * 2, -1, -1, -1, 1
    values = (position, size, base, last, epoch, magic, crc, attributes, *times, producer_id, producer_epoch, sequence)
    table = BatchTable.empty(1)
    for column, value in zip(_STORED, (*values, count), strict=True):
        getattr(table, column)[0] = value
    return table


_STORED: Final = (
    *("position", "size_in_bytes", "base_offset", "last_offset", "partition_leader_epoch", "magic", "crc"),
    *("attributes", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"),
    "records_count",
)


def base_offset_of(row: BatchTable, number: int = 0) -> int:
    """Return the first field of a batch."""
    return int((row.base_offset if row.magic[number] >= 2 else row.last_offset)[number])


def has_valid_crc(batch: Bytes) -> bool:
    """Whether a batch has the right checksum; false for one that is shorter than its own header."""
    size = int.from_bytes(batch[8:12].tobytes(), "big", signed=True) + kf.LOG_OVERHEAD
    row = header_row(batch, 0)
    if row.magic[0] >= 2:
        # of a magic that does not exist yet, the checksum is taken to be where v2 has it
        row.magic[0] = 2
        if size < kf.RECORD_BATCH_OVERHEAD:
            return False
    return bool(valid_crcs(Window(batch, 0, row))[0])


# --- records ----------------------------------------------------------------------------------------------------------


def no_records(n_batches: int) -> Records:
    """Return the records of batches that have none."""
    empty = np.zeros(0, np.int64)
    strings = _strings([])
    none = HeadersColumn.none(0)
    counts = np.zeros(n_batches, np.int64)
    return Records(counts, empty, empty, empty, empty, strings, strings, none, empty, empty, np.zeros(0, np.bool_))


def _records(batches: BatchTable, is_valid: npt.NDArray[np.bool_], columns: Any, counts: Any = None) -> Records:
    """Return the records of batches whose own checksums cover them."""
    counts = batches.records_count.astype(np.int64) if counts is None else counts
    key, value = columns["key"], columns["value"]
    return Records(
        counts,
        columns["offset"],
        columns["timestamp"],
        _sizes(key),
        _sizes(value),
        key,
        value,
        columns["headers"],
        np.repeat(batches.magic.astype(np.int64), counts),
        np.repeat(batches.crc.astype(np.int64), counts),
        np.repeat(is_valid, counts),
    )


def _records_of_spans(batches: BatchTable, is_valid: npt.NDArray[np.bool_], spans: Spans) -> Records:
    return _records(batches, is_valid, fill_spans(spans, _COLUMNS), spans.counts)


def _records_of_messages(counts: Sequence[int], messages: Sequence[Message], last: Printed) -> Records:
    columns: list[Any] = list(zip(*messages, strict=True)) or [()] * len(Message._fields)
    offset, timestamp, key_size, value_size, key, value, magic, crc, is_valid = columns
    return Records(
        np.array(counts, np.int64),
        np.array(offset, np.int64),
        np.array(timestamp, np.int64),
        np.array(key_size, np.int64),
        np.array(value_size, np.int64),
        _strings(key),
        _strings(value),
        HeadersColumn.none(len(messages)),
        np.array(magic, np.int64),
        np.array(crc, np.int64),
        np.array(is_valid, np.bool_),
        last,
    )


def _strings(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int64)
    validity = np.array([value is not None for value in values], np.bool_)
    return BinaryColumn(offsets, np.frombuffer(b"".join(filter(None, values)), np.uint8), validity)


def _sizes(column: BinaryColumn) -> npt.NDArray[np.int64]:
    size = np.diff(column.offsets).astype(np.int64, copy=False)
    return size if column.validity is None else np.where(column.validity, size, -1)


def _declared_sizes(window: Window, rows: BatchTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the size fields of keys and values of plain messages of v0 and v1: any negative number stands for null."""
    fields = np.lib.stride_tricks.sliding_window_view(window.data, 4)
    at = rows.position - window.start + np.where(rows.magic == 0, 18, 26)
    key_size = np.ascontiguousarray(fields[at]).view(">i4")[:, 0].astype(np.int64)
    value_size = np.ascontiguousarray(fields[at + 4 + np.maximum(key_size, 0)]).view(">i4")[:, 0].astype(np.int64)
    return key_size, value_size


def batch_rows(records: Records) -> npt.NDArray[np.int64]:
    """Return the row of the batch of each record."""
    return np.repeat(np.arange(records.counts.size), records.counts)


def record_sequences(batches: BatchTable, records: Records) -> npt.NDArray[np.int32]:
    """Return the sequence of each record, -1 for none."""
    rows = batch_rows(records)
    base = batches.base_sequence[rows]
    found: npt.NDArray[np.int32] = add_sequence(base, records.offset - batches.base_offset[rows])
    found[base < 0] = -1
    return found


def add_sequence(sequence: npt.NDArray[Any], delta: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Add in Java's int arithmetic, going on at 0 after 2^31 - 1 (`DefaultRecordBatch.incrementSequence`)."""
    total = sequence.astype(np.int64) + delta
    last = (2**31 - 1 - delta).astype(np.int32)
    return np.where(sequence > last, total - 2**31, total).astype(np.int32)


# --- errors -----------------------------------------------------------------------------------------------------------


def unknown_codec(row: BatchTable, path: str | None) -> UnsupportedError:
    """Return the error for a batch with a codec that Kafka does not define."""
    detail = f"codec {int(row.attributes[0]) & kf.CODEC_MASK}; Kafka has 0 to 4"
    position = int(row.position[0])
    return UnsupportedError(Reason.UNKNOWN_CODEC, detail, path=path, position=position, base_offset=base_offset_of(row))


def too_large(size: int, path: str | None, position: int, limits: Limits) -> LimitExceededError:
    """Return the error for a batch of more bytes than a limit allows."""
    detail = f"the batch has {size} bytes, max_batch_bytes is {limits.max_batch_bytes}"
    return LimitExceededError(Reason.BATCH_TOO_LARGE, detail, path=path, position=position, length=size)


def wrapper_value(batch: Bytes, row: BatchTable, path: str | None) -> Bytes:
    """Return the value of a compressed v0 or v1 message: the compressed messages in it.

    Raises
    ------
    CorruptionError
        The key or the value does not fit into the message, or the value is null.
    """
    message, status = _message(batch.tobytes(), int(row.last_offset[0]), row, in_wrapper=False)
    place: dict[str, Any] = {"path": path, "position": int(row.position[0]), "base_offset": base_offset_of(row)}
    if status != _OK:
        raise error_from_status(status, **place)
    if message.value is None:
        raise CorruptionError(Reason.LEGACY_NULL_WRAPPER, "a compressed message has no value", **place)
    return np.frombuffer(message.value, np.uint8)


def explain_end(source: ByteSource, position: int, stop: int, options: DumpOptions) -> KafkalogError:
    """Return the error that the rest of kafkalog raises at a position: a torn tail, zeros, or damage."""
    try:
        for window in walk(source, start=position, stop=stop, limits=options.limits):
            source.release(window.data, window.start)
            break
    except KafkalogError as error:
        return error
    return CorruptionError(
        Reason.SIZE_EXCEEDS_FILE,
        f"the last {stop - position} bytes are not a batch",
        path=source.path,
        position=position,
        length=stop - position,
    )
