"""Walks a `.log` or `.checkpoint` file as Kafka's tool does, for the text (`dump_text`) and the objects (`rows`) alike.

The kernel turns the bytes of a window into two tables: batches, and where the parts of their records lie. This module
reads windows, decompresses batches, and turns the status at which the kernel stops into an error, after the same
batches and records as in Kafka.

Mirrors `DumpLogSegments.dumpLog`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import dump_walk as kernels
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
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import Bytes, ByteSource

BATCH_DTYPE: Final = np.dtype(
    [
        ("position", np.int64),
        ("size_in_bytes", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("partition_leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("last_sequence", np.int32),
        ("records_count", np.int32),
        ("crc", np.uint32),
        ("n_records", np.int32),
        ("producer_epoch", np.int16),
        ("attributes", np.uint8),
        ("magic", np.int8),
        ("is_valid", np.uint8),
        ("is_continued", np.uint8),
    ],
    align=True,
)
"""A row of the table of batches; `n_records` rows of the table of records belong to it."""

RECORD_DTYPE: Final = np.dtype(
    [
        ("offset", np.int64),
        ("timestamp", np.int64),
        ("start", np.int32),
        ("size", np.int32),
        ("sequence", np.int32),
        ("key_start", np.int32),
        ("key_size", np.int32),
        ("value_start", np.int32),
        ("value_size", np.int32),
        ("headers_start", np.int32),
        ("headers_count", np.int32),
        ("status", np.int32),
        ("crc", np.uint32),
        ("magic", np.int8),
        ("is_valid", np.uint8),
    ],
    align=True,
)
"""A row of the table of records; starts count from the first byte of the data they were found in."""

WINDOW_BYTES: Final = 2**20
"""Bytes read at a time; small enough that they and their text stay in a core's cache."""

TABLE_ROWS: Final = 2048
"""Rows of either table; small enough to stay in a core's cache."""

_KEPT_ARENA: Final = 2**22

_OK = STATUS["OK"]
_NEED_MORE = STATUS["NEED_MORE"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]
_TOO_SMALL = (STATUS["SIZE_NEGATIVE"], STATUS["SIZE_TOO_SMALL"])
_END = kernels.STATUSES["END"]
_PAYLOAD = kernels.STATUSES["PAYLOAD"]
_TOO_LARGE = kernels.STATUSES["TOO_LARGE"]

_POSITION = kernels.STATE["position"]
_NEEDED = kernels.STATE["needed"]
_PREVIOUS = kernels.STATE["previous"]
_N_TO_REPORT = kernels.STATE["n_to_report"]

_DETAILS: Final = {
    kernels.STATUSES["CONTROL_KEY"]: (Reason.CONTROL_RECORD, "the key of a control record is invalid"),
    kernels.STATUSES["CONTROL_VALUE"]: (Reason.CONTROL_RECORD, "the value of a transaction marker is invalid"),
    kernels.STATUSES["HEADER_CUT"]: (Reason.SIZE_TOO_SMALL, "the file ends inside the header of a batch"),
}


class Table:
    """Room for rows of batches and of records, and the same as bytes for the kernels."""

    def __init__(self, n_batches: int, n_records: int) -> None:
        self.batches = np.zeros(n_batches, BATCH_DTYPE)
        self.records = np.zeros(n_records, RECORD_DTYPE)
        self.batch_bytes = self.batches.view(np.uint8)
        self.record_bytes = self.records.view(np.uint8)


class Step(NamedTuple):
    """Batches and records in their order; valid until the next step."""

    table: Table
    n_batches: int
    n_records: int
    data: Bytes
    """What the starts of records count from: a window of the file, or a decompressed batch."""
    n_to_report: int
    """How many wrong checksums and gaps between offsets there are."""

    @property
    def batches(self) -> npt.NDArray[np.void]:
        return self.table.batches[: self.n_batches]

    @property
    def records(self) -> npt.NDArray[np.void]:
        return self.table.records[: self.n_records]


class LogWalk:
    """Walks one file.

    Parameters
    ----------
    path : str
        The path to show in the lists at the end.
    is_last : bool
        Whether no other segment follows, so that a torn tail is normal.
    """

    def __init__(self, source: ByteSource, options: DumpOptions, report: Report, path: str, *, is_last: bool) -> None:
        self._source, self._options, self._report = source, options, report
        self._is_last = is_last
        self.path = path
        self._state = np.zeros(kernels.STATE["size"], np.int64)
        self._state[_PREVIOUS] = -1
        self._table = Table(TABLE_ROWS, TABLE_ROWS)
        self._payloads = Payloads(options.limits)
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)
        self._previous_offset = -1

    @property
    def position(self) -> int:
        """The position in the file that the walk has reached."""
        return int(self._state[_POSITION])

    def steps(self) -> Iterator[Step]:
        """Yield batches and their records. Who takes a step calls `report_shown` before the next.

        Raises
        ------
        CorruptionError
            Where Kafka's tool throws, after the batches and records that it has printed by then.
        LimitExceededError
            A batch is larger than a limit allows.
        UnsupportedError
            A batch has a codec that Kafka does not define.
        """
        source, limits, start = self._source, self._options.limits, 0
        window = source.window(0, min(WINDOW_BYTES, source.size))
        try:
            while True:
                status, n_batches, n_records = kernels.walk_batches(
                    window,
                    start,
                    self._stop,
                    source.size,
                    self._options.is_deep,
                    limits.max_batch_bytes,
                    limits.max_headers_per_record,
                    self._state,
                    self._table.batch_bytes,
                    self._table.record_bytes,
                )
                yield Step(self._table, n_batches, n_records, window, int(self._state[_N_TO_REPORT]))
                if status == _NEED_MORE:
                    needed = int(self._state[_NEEDED])
                    source.release(window, start)
                    start = self.position
                    window = source.window(start, min(start + max(WINDOW_BYTES, needed), source.size))
                elif status == _PAYLOAD:
                    batch = window[self.position - start :]
                    yield from self._payload(batch[: int(self._table.batches["size_in_bytes"][n_batches - 1])])
                elif status == _END:
                    return
                elif status != _OUTPUT_FULL:
                    raise self._error(status, window[self.position - start :])
        finally:
            source.release(window, start)

    def _payload(self, batch: Bytes) -> Iterator[Step]:
        """Yield the records of a compressed batch."""
        position = self.position
        payload = self._payloads.decompress(batch, position, self._source.path)
        status = _OUTPUT_FULL
        while status == _OUTPUT_FULL:
            status, n = kernels.walk_payload(
                batch,
                position,
                payload,
                self._options.limits.max_headers_per_record,
                self._state,
                self._table.batch_bytes,
                self._table.record_bytes,
            )
            yield Step(self._table, 1, n, payload, int(self._state[_N_TO_REPORT]))
        if status != _OK:
            raise self._error(status, batch)

    def report_shown(self, step: Step, n_batches: int | None = None, n_records: int | None = None) -> None:
        """Report wrong checksums and gaps between offsets in what was shown of a step: all of it, or its first rows."""
        if not step.n_to_report:
            if step.n_records:
                self._previous_offset = int(self._state[_PREVIOUS])
            return
        batches = step.batches[:n_batches]
        wrong = (batches["is_valid"] == 0) & (batches["is_continued"] == 0) & is_known(batches)
        for row in np.flatnonzero(wrong).tolist():
            self._report.add_bad_crc(self._source.path or self.path, batches[row])
        offset = step.records["offset"][:n_records]
        if not offset.size:
            return
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

    def location(self, step: Step, row: int) -> tuple[str | None, int, int]:
        """Return path, position and base offset of a batch of a step, as errors name them."""
        batch = step.batches[row]
        base_offset = batch["base_offset"] if batch["magic"] >= 2 else batch["last_offset"]
        return self._source.path, int(batch["position"]), int(base_offset)

    def _error(self, status: int, batch: Bytes) -> KafkalogError:
        """Return the error for the batch at which the kernel stopped."""
        position, path = self.position, self._source.path
        if status == kernels.STATUSES["CODEC_ID"]:
            return unknown_codec(batch, path, position)
        if status == _TOO_LARGE:
            return too_large(int(self._state[_NEEDED]), path, position, self._options.limits)
        if status in _TOO_SMALL and int.from_bytes(batch[8:12].tobytes(), "big", signed=True) < kf.MESSAGE_V0_OVERHEAD:
            return explain_end(self._source, position, self._stop, self._options)
        return error_at(status, path, position, base_offset_of(batch))


def is_known(batches: Any) -> Any:
    """Whether batches, or one of them, have a magic and a codec that Kafka prints the whole line of."""
    return (batches["magic"] >= 0) & (batches["attributes"] & kf.CODEC_MASK <= kf.Codec.ZSTD)


def walk_one(batch: Bytes, position: int) -> np.void:
    """Return the header of one batch, unchecked, as a row of the table of batches.

    Parameters
    ----------
    batch : uint8[n]
        The whole batch. From v2 on, at least 61 bytes.
    position : int
        Position of the batch in the file.
    """
    state = np.zeros(kernels.STATE["size"], np.int64)
    state[_POSITION] = position
    table, end = Table(1, 1), position + batch.size
    kernels.walk_batches(batch, position, end, end, False, batch.size, 0, state, table.batch_bytes, table.record_bytes)
    return table.batches[0]  # type: ignore[no-any-return]


class Payloads:
    """Decompresses batches, one at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._arena = Arena()

    def decompress(self, batch: Bytes, position: int, path: str | None) -> Bytes:
        """Return the records of a batch, or the messages in a v0 or v1 message; valid until the next call.

        Raises
        ------
        KafkalogError
            The compressed bytes are damaged or exceed a limit when decompressed; the error names the batch.
        """
        if self._arena.data.size > _KEPT_ARENA:
            self._arena = Arena()
        self._arena.used = 0
        magic = int(batch[16])
        is_v2 = magic >= 2
        codec = int(batch[22 if is_v2 else 17]) & kf.CODEC_MASK
        try:
            data = batch[kf.RECORD_BATCH_OVERHEAD :] if is_v2 else wrapper_value(batch, magic)
            if is_v2 and not codec:
                return data
            decompress_into(self._arena, codec, data, magic=min(magic, 2), limits=self._limits)
        except KafkalogError as error:
            base_offset = base_offset_of(batch)
            raise type(error)(
                error.reason, error.detail, path=path, position=position, base_offset=base_offset, length=batch.size
            ) from error
        return self._arena.data[: self._arena.used]

    def largest_timestamp(self, batch: Bytes, position: int, path: str | None) -> int:
        """Return the largest timestamp of the records of a batch, -1 for none.

        Raises
        ------
        KafkalogError
            The records cannot be read.
        """
        payload = self.decompress(batch, position, path)
        state = np.zeros(kernels.STATE["size"], np.int64)
        table = Table(1, TABLE_ROWS)
        largest, status = kf.NO_TIMESTAMP, _OUTPUT_FULL
        while status == _OUTPUT_FULL:
            status, n = kernels.walk_payload(
                batch,
                position,
                payload,
                self._limits.max_headers_per_record,
                state,
                table.batch_bytes,
                table.record_bytes,
            )
            largest = max(largest, int(table.records["timestamp"][:n].max(initial=kf.NO_TIMESTAMP)))
        if status != _OK:
            last_offset = int(table.batches["last_offset"][0])
            raise error_from_status(status, path=path, position=position, base_offset=last_offset)
        return largest


def error_at(status: int, path: str | None, position: int, base_offset: int) -> KafkalogError:
    """Return the error for a status of dump's kernels."""
    detail = _DETAILS.get(status)
    if detail is not None:
        return CorruptionError(*detail, path=path, position=position, base_offset=base_offset)
    # the kernels tell them apart, since Kafka prints a part of the line first; to a reader they are one
    if status == kernels.STATUSES["VALUE_CUT"]:
        status = STATUS["VALUE_LENGTH"]
    return error_from_status(status, path=path, position=position, base_offset=base_offset)


def base_offset_of(batch: Bytes) -> int:
    """Return the first field of a batch."""
    return int.from_bytes(batch[:8].tobytes(), "big", signed=True)


def unknown_codec(batch: Bytes, path: str | None, position: int) -> UnsupportedError:
    """Return the error for a batch with a codec that Kafka does not define."""
    codec = int(batch[22 if batch[16] >= 2 else 17]) & kf.CODEC_MASK
    detail = f"codec {codec}; Kafka has 0 to 4"
    return UnsupportedError(
        Reason.UNKNOWN_CODEC, detail, path=path, position=position, base_offset=base_offset_of(batch)
    )


def too_large(size: int, path: str | None, position: int, limits: Limits) -> LimitExceededError:
    """Return the error for a batch of more bytes than a limit allows."""
    detail = f"the batch has {size} bytes, max_batch_bytes is {limits.max_batch_bytes}"
    return LimitExceededError(Reason.BATCH_TOO_LARGE, detail, path=path, position=position, length=size)


def wrapper_value(batch: Bytes, magic: int) -> Bytes:
    """Return the value of a compressed v0 or v1 message: the compressed messages in it.

    Raises
    ------
    CorruptionError
        The key or the value does not fit into the message, or the value is null.
    """
    at = kf.LOG_OVERHEAD + (6 if magic == 0 else 14)
    for reason, what in ((Reason.KEY_LENGTH, "key"), (Reason.VALUE_LENGTH, "value")):
        if batch.size - at < 4:
            raise CorruptionError(reason, f"the message ends before its {what}")
        size = int.from_bytes(batch[at : at + 4].tobytes(), "big", signed=True)
        at += 4
        if size > batch.size - at:
            raise CorruptionError(reason, f"a {what} is longer than what is left of its message")
        if what == "key":
            at += max(size, 0)
    if size < 0:
        raise CorruptionError(Reason.LEGACY_NULL_WRAPPER, "a compressed message has no value")
    return batch[at : at + size]


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
