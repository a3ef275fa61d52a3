"""Turns the files of a dump into objects: one dict for each batch, record or entry.

Dicts include the values of headers, which the text omits. Field names are those of the batch table and the record
columns. Sizes, timestamps and offsets are numbers; keys and values are `bytes`, or the result of the decoder in the
options. Records are decoded batch by batch; a damaged batch yields none of its records.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, LimitExceededError, Reason
from kafkalog.interchange.arrow_output import java_string
from kafkalog.operations.dumping import control, sidecars
from kafkalog.operations.dumping.files import CHECKPOINT_SUFFIX, absolute, is_last_segment, open_log, suffix_of
from kafkalog.operations.dumping.headers import add_sequence, is_valid, read_header
from kafkalog.operations.dumping.logs import WINDOW_BYTES, explain_end, unknown_codec
from kafkalog.operations.dumping.options import DECODERS, DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.operations.dumping.time_index import dump_time_index
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import Decoded, decode
from kafkalog.records.header_walk import whole_batches
from kafkalog.records.selection import Selection
from kafkalog.storage.source import Bytes, ByteSource

Row = dict[str, Any]

_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "sequence", "key", "value", "headers")
_TORN_ENVELOPE: Final = 17  # HEADER_SIZE_UP_TO_MAGIC in FileLogInputStream: Kafka ignores a rest of this size or less
_SMALLEST_MESSAGE: Final = kf.LOG_OVERHEAD + kf.MESSAGE_V0_OVERHEAD
_EVERYTHING: Final = Selection(include_control=True)
_HEADER_FIELDS: Final = (
    "base_offset",
    "last_offset",
    "partition_leader_epoch",
    "magic",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
_ATTRIBUTES: Final = ("timestamp_type", "is_transactional", "is_control", "delete_horizon_ms", "codec", "crc")
_RECORDS_AT_A_TIME: Final = 8192
_PAIRS: Final = {
    "offset": ("mismatch", "indexed_offset", "log_offset"),
    "timestamp": ("timestamp_mismatch", "indexed_timestamp", "log_timestamp"),
    "order": ("out_of_order", "indexed_timestamp", "previous_timestamp"),
    "missing": ("not_found", "indexed_offset", "log_offset"),
    "gap": ("non_consecutive", "offset", "next_offset"),
}


def rows_of_file(
    path: str, options: DumpOptions, report: Report, progress: Callable[[int], None] | None
) -> Iterator[Row]:
    """Yield the objects of one file; raises the same errors as the text."""
    yield {"kind": "file", "path": path, "base_offset": kf.parse_base_offset(os.path.basename(path))}
    suffix = suffix_of(path, options)
    key = absolute(path)
    if suffix in (kf.LOG_SUFFIX, CHECKPOINT_SUFFIX):
        with open_log(path, options) as source:
            yield from _Log(source, options, report, key, is_last=is_last_segment(path)).rows(progress)
    elif suffix == kf.INDEX_SUFFIX:
        yield from _entries(
            "offset_index_entry", ("offset", "position"), sidecars.dump_index(path, key, options, report)
        )
    elif suffix == kf.TIME_INDEX_SUFFIX:
        lines = dump_time_index(path, key, options, report)
        yield from _entries("time_index_entry", ("timestamp", "offset"), lines)
    elif suffix == kf.TRANSACTION_INDEX_SUFFIX:
        names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        yield from _entries("aborted_transaction", names, sidecars.dump_transaction_index(path, options))
    elif suffix == kf.PRODUCER_SNAPSHOT_SUFFIX:
        for entry in sidecars.snapshot_entries(path, report):
            yield {"kind": "producer", **entry}
    else:
        report.notes.append(f"Ignoring unknown file {path}")


def rows_of_report(report: Report) -> Iterator[Row]:
    """Yield the mismatches that the tool lists at the end."""
    for kind, path, first, second in report.pairs():
        name, of_first, of_second = _PAIRS[kind]
        yield {"kind": "mismatch", "what": name, "path": path, of_first: first, of_second: second}


def _entries(kind: str, names: tuple[str, ...], chunks: Iterator[bytes]) -> Iterator[Row]:
    """Parse the numbers out of lines of `name: number` pairs."""
    for chunk in chunks:
        for line in chunk.decode(errors="surrogateescape").splitlines():
            if line.endswith(" passed sanity check."):
                yield {"kind": "sanity", "passed": True}
            elif not line.endswith(" is empty."):
                yield {"kind": kind, **dict(zip(names, map(int, line.split()[1::2]), strict=True))}


class _Log:
    """Batches and records of one log, in a walk that accepts every size that Kafka's tool accepts.

    Runs of batches with plausible headers are decoded together; any other batch is read alone, as Kafka's tool does it.
    """

    def __init__(self, source: ByteSource, options: DumpOptions, report: Report, path: str, *, is_last: bool) -> None:
        self._source, self._options, self._report = source, options, report
        self._path, self._is_last = path, is_last
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)
        self._previous = -1

    def rows(self, progress: Callable[[int], None] | None) -> Iterator[Row]:
        source, stop = self._source, self._stop
        position = start = 0
        data = source.window(0, min(WINDOW_BYTES, stop))
        try:
            while stop - position > _TORN_ENVELOPE:
                window = Window(data, start, self._unsuspicious(data[position - start :], position))
                n_done = yield from self._run(window)
                if n_done:
                    position = int(window.batches.next_position[n_done - 1])
                else:
                    size = self._size_at(position)
                    if position > start and position + size > start + data.size < stop:
                        # the window ends inside the batch: read a window that begins with it
                        source.release(data, start)
                        data, start = source.window(position, min(position + WINDOW_BYTES, stop)), position
                        continue
                    if size > stop - position:
                        break
                    yield from self._batch_alone(position, size)
                    position += size
                if progress is not None:
                    progress(position)
        finally:
            source.release(data, start)
        yield from self._tail(position)

    def _unsuspicious(self, data: Bytes, position: int) -> BatchTable:
        """Return the batches at the start of a window up to the first whose header is not plausible.

        A v0 or v1 batch that is compressed has no record count, and ends the run too.
        """
        batches = whole_batches(data, position)
        is_fine = (batches.codec <= kf.Codec.ZSTD) & (batches.records_count >= 0)
        is_fine &= batches.size_in_bytes <= self._options.limits.max_batch_bytes
        return batches if is_fine.all() else batches[: int(np.argmin(is_fine))]

    def _run(self, window: Window) -> Generator[Row, None, int]:
        """Yield the rows of many batches, up to the first that cannot be decoded; return the number of batches."""
        batches = window.batches
        valid = valid_crcs(window)
        ends = np.cumsum(batches.records_count, dtype=np.int64)
        first = 0
        while first < len(batches):
            before = int(ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + _RECORDS_AT_A_TIME, side="right")))
            records: Iterator[Row] = iter(())
            if self._options.is_deep:
                decoded = self._decode(window, first, stop)
                stop = first + decoded.n_batches
                if stop == first:
                    break
                records = self._record_rows(decoded.columns, batches[first:stop])
            for number, row in enumerate(self._batch_rows(batches[first:stop], valid[first:stop].tolist()), first):
                if not valid[number]:
                    place = int(batches.position[number]) - window.start
                    batch = window.data[place : place + int(batches.size_in_bytes[number])]
                    self._report.add_bad_crc(self._source.path or self._path, row["position"], batch)
                yield row
                yield from itertools.islice(records, row["records_count"])
            first = stop
        return first

    def _size_at(self, position: int) -> int:
        """Return the size of the batch at a position according to its size field."""
        head = self._source.window(position, position + kf.LOG_OVERHEAD)
        size = kf.LOG_OVERHEAD + int.from_bytes(head[8:].tobytes(), "big", signed=True)
        self._source.release(head, position)
        if size < kf.LOG_OVERHEAD + kf.MESSAGE_V0_OVERHEAD:
            raise explain_end(self._source, position, self._stop, self._options)
        return size

    def _batch_alone(self, position: int, size: int) -> Iterator[Row]:
        """Yield the rows of one batch that `_run` cannot decode, then raise the error if it is damaged."""
        limit = self._options.limits.max_batch_bytes
        if size > limit:
            detail = f"the batch has {size} bytes, max_batch_bytes is {limit}"
            raise LimitExceededError(
                Reason.BATCH_TOO_LARGE, detail, path=self._source.path, position=position, length=size
            )
        head = self._source.window(position, position + _TORN_ENVELOPE)
        is_v2 = 2 <= int(head[16]) <= 127
        self._source.release(head, position)
        room = max(size, kf.RECORD_BATCH_OVERHEAD) if is_v2 else size
        if room > self._source.size - position:
            detail = "the file ends inside the header of a batch"
            raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=self._source.path, position=position)
        data = self._source.window(position, position + room)
        yield from self._batch(data, position, size)
        self._source.release(data, position)

    def _tail(self, position: int) -> Iterator[Row]:
        if position == self._stop or self._options.max_bytes is not None:
            return
        yield {"kind": "trailing_bytes", "position": position, "size_in_bytes": self._stop - position}
        error = explain_end(self._source, position, self._stop, self._options)
        self._report.add_tail(error, is_last=self._is_last)

    def _batch(self, data: Bytes, position: int, size: int) -> Iterator[Row]:
        table = read_header(data, position)
        batch = data[:size]
        magic = int(table.magic[0])
        codec = int(table.codec[0])
        if codec > kf.Codec.ZSTD:
            raise unknown_codec(data, self._source.path, position)
        if magic < 0:
            detail = "the magic byte is not 0, 1 or 2"
            raise CorruptionError(Reason.BAD_MAGIC, detail, path=self._source.path, position=position)
        valid = is_valid(batch, table)
        if not valid:
            self._report.add_bad_crc(self._source.path or self._path, position, batch)
        yield from self._batch_rows(table, [valid])
        if self._options.is_deep:
            if magic >= 2 and size < kf.RECORD_BATCH_OVERHEAD:
                detail = "the size field is smaller than any batch of this magic"
                raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=self._source.path, position=position)
            if magic < 2 and size < _SMALLEST_MESSAGE:
                detail = "the size field is smaller than any message of this magic"
                raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=self._source.path, position=position)
            if magic > 2:
                # Kafka's tool reads a batch of a later magic as v2
                table.magic[0] = 2
            decoded = self._decode(Window(batch, position, table), 0, 1)
            yield from self._record_rows(decoded.columns, table)
            if decoded.error is not None:
                raise decoded.error

    def _batch_rows(self, batches: BatchTable, valid: list[int] | list[bool]) -> Iterator[Row]:
        fields = zip(*(getattr(batches, name).tolist() for name in _HEADER_FIELDS), strict=True)
        for place, header, others, valid_crc in zip(
            zip(batches.position.tolist(), batches.size_in_bytes.tolist(), strict=True),
            fields,
            zip(*(getattr(batches, name).tolist() for name in _ATTRIBUTES), strict=True),
            valid,
            strict=True,
        ):
            found: Row = {"kind": "batch", "position": place[0], "size_in_bytes": place[1]}
            found.update(zip(_HEADER_FIELDS, header, strict=True))
            if found["magic"] < 2:
                # a compressed message of v0 or v1 has neither field
                for name in ("base_offset", "records_count"):
                    found[name] = None if found[name] < 0 else found[name]
            elif found["base_sequence"] != -1:
                delta = found["last_offset"] - found["base_offset"]
                found["last_sequence"] = add_sequence(found["base_sequence"], delta)
            timestamp_type, is_transactional, is_control, horizon, codec, crc = others
            found["timestamp_type"] = timestamp_type
            found["is_transactional"] = is_transactional
            found["is_control"] = is_control
            found["delete_horizon_ms"] = None if horizon == -1 else horizon
            found["compression"] = kf.codec_name(codec)
            found["crc"] = crc
            found["is_valid"] = bool(valid_crc)
            yield found

    def _decode(self, window: Window, first: int, stop: int) -> Decoded:
        return decode(
            window,
            _COLUMNS,
            first=first,
            stop=stop,
            selection=_EVERYTHING,
            check_crcs=False,
            limits=self._options.limits,
            path=self._source.path,
        )

    def _record_rows(self, columns: RecordColumns | None, batches: BatchTable) -> Iterator[Row]:
        """Yield the records of batches; offset gaps are reported at the first record of a batch."""
        if columns is None:
            return
        options = self._options
        has_metadata, shows_contents = not options.skip_record_metadata, options.shows_contents
        counts = batches.records_count if len(batches) > 1 else columns.n_records
        batch_row = np.repeat(np.arange(len(batches)), counts)
        is_control = batches.is_control.tolist()
        gaps = self._gaps(columns.offset, batch_row)
        for number, (row, offset, timestamp, kind, sequence, key, value, headers) in enumerate(
            _values(columns, batch_row)
        ):
            if number in gaps:
                self._report.add_pairs("gap", self._path, gaps[number])
            found: Row = {"kind": "record", "offset": offset}
            if has_metadata:
                found["timestamp"] = timestamp
                found["timestamp_type"] = kind
                found["key_size"] = -1 if key is None else len(key)
                found["value_size"] = -1 if value is None else len(value)
                found["sequence"] = sequence
                if is_control[row]:
                    found["control"] = self._control(key, value, batches[row : row + 1])
            if shows_contents and not is_control[row]:
                found["key"] = _decoded(key, options.key_decoder, offset)
                found["value"] = _decoded(value, options.value_decoder, offset)
            if has_metadata or shows_contents:
                found["headers"] = [(java_string(name), content) for name, content in headers]
            yield found

    def _control(self, key: bytes | None, value: bytes | None, batch: BatchTable) -> Row:
        try:
            return _control_fields(key, value)
        except CorruptionError as error:
            error.path, error.position = self._source.path, int(batch.position[0])
            error.base_offset = int(batch.base_offset[0])
            raise

    def _gaps(self, offset: npt.NDArray[np.int64], batch_row: npt.NDArray[np.int64]) -> dict[int, Any]:
        """Return pairs of non-consecutive offsets, by the number of the first record of their batch."""
        before = np.concatenate([[self._previous], offset[:-1]]).astype(np.int64)
        gaps = np.flatnonzero(offset != before + 1)
        if self._options.is_2_8 and self._previous == -1:
            gaps = gaps[before[gaps] != -1]
        self._previous = int(offset[-1])
        if not gaps.size:
            return {}
        firsts = np.searchsorted(batch_row, batch_row[gaps])
        changes = np.flatnonzero(np.diff(firsts)) + 1
        pairs = np.split(np.stack([before[gaps], offset[gaps]]), changes, axis=1)
        return dict(zip([int(firsts[0]), *firsts[changes].tolist()], pairs, strict=True))


def _values(columns: RecordColumns, batch_row: npt.NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
    """Yield the row of its batch and the values of each record; converts a limited number to objects at a time."""
    for start in range(0, columns.n_records, _RECORDS_AT_A_TIME):
        some = columns.slice(start, start + _RECORDS_AT_A_TIME)
        yield from zip(
            batch_row[start : start + some.n_records].tolist(),
            some.offset.tolist(),
            some.timestamp.tolist(),
            some.timestamp_type.tolist(),
            some.sequence.tolist(),
            some.key.to_pylist(),
            some.value.to_pylist(),
            some.headers.to_pylist(),
            strict=True,
        )


def _control_fields(key: bytes | None, value: bytes | None) -> Row:
    """Parse a control record."""
    if key is None or len(key) < 4 or key[0] > 127:
        raise CorruptionError(Reason.CONTROL_RECORD, "a control record's key is not one")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in (kf.ControlRecordType.ABORT, kf.ControlRecordType.COMMIT):
        known = kind in kf.ControlRecordType.__members__.values()
        name = kf.ControlRecordType(kind).name if known else f"UNKNOWN({kind})"
        return {"type": name, **control.parse(kind, value)}
    if value is None or len(value) < 6 or value[0] > 127:
        raise CorruptionError(Reason.CONTROL_RECORD, "the value of a transaction's marker is not one")
    epoch = int.from_bytes(value[2:6], "big", signed=True)
    return {"type": kf.ControlRecordType(kind).name, "coordinator_epoch": epoch}


def _decoded(value: bytes | None, decoder: str | None, offset: int) -> Any:
    """Decode bytes; without a decoder return them as they are.

    Raises
    ------
    ValueError
        There are fewer bytes than the decoder needs.
    """
    if value is None or decoder is None:
        return value
    name = DECODERS[decoder]
    if name == "string":
        return java_string(value)
    size = 4 if name == "integer" else 8
    if len(value) < size:
        raise ValueError(f"offset {offset}: {len(value)} bytes where the {name} decoder needs {size}")
    return int.from_bytes(value[:size], "big", signed=True)
