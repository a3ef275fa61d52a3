"""The same files as objects: a dict a batch, a record, an entry, with the values of headers, which the text leaves out.

Names are those of the batch table and of record columns; sizes, timestamps and offsets are numbers, keys and values
`bytes`, decoded as far as a decoder was asked for. Records come out batch by batch: of one that is damaged none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.arrow import java_string
from kafkalog.batches import BatchTable, Window
from kafkalog.columns import RecordColumns
from kafkalog.dumper import control, sidecars
from kafkalog.dumper.files import CHECKPOINT_SUFFIX, absolute, is_last_segment, open_log, suffix_of
from kafkalog.dumper.headers import add_sequence, is_valid, read_header
from kafkalog.dumper.logs import explain_end, unknown_codec
from kafkalog.dumper.options import DECODERS, DumpOptions
from kafkalog.dumper.report import Report
from kafkalog.dumper.times import dump_time_index
from kafkalog.errors import CorruptionError, LimitExceededError, Reason
from kafkalog.records import decode
from kafkalog.selection import Selection
from kafkalog.source import Bytes, ByteSource

Row = dict[str, Any]

_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "sequence", "key", "value", "headers")
_TORN_ENVELOPE: Final = 17
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
    """Objects of one file; the errors are those of the text."""
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
    """What the tool lists at the end."""
    for kind, path, first, second in report.pairs():
        name, of_first, of_second = _PAIRS[kind]
        yield {"kind": "mismatch", "what": name, "path": path, of_first: first, of_second: second}


def _entries(kind: str, names: tuple[str, ...], chunks: Iterator[bytes]) -> Iterator[Row]:
    """The numbers in lines of `name: number` pairs."""
    for chunk in chunks:
        for line in chunk.decode(errors="surrogateescape").splitlines():
            if line.endswith(" passed sanity check."):
                yield {"kind": "sanity", "passed": True}
            elif not line.endswith(" is empty."):
                yield {"kind": kind, **dict(zip(names, map(int, line.split()[1::2]), strict=True))}


class _Log:
    """Batches and records of one log, in a walk that believes every size that Kafka's tool believes."""

    def __init__(self, source: ByteSource, options: DumpOptions, report: Report, path: str, *, is_last: bool) -> None:
        self._source, self._options, self._report = source, options, report
        self._path, self._is_last = path, is_last
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)
        self._previous = -1

    def rows(self, progress: Callable[[int], None] | None) -> Iterator[Row]:
        position = 0
        while self._stop - position > _TORN_ENVELOPE:
            head = self._source.window(position, position + _TORN_ENVELOPE + 1)
            size = kf.LOG_OVERHEAD + int.from_bytes(head[8:12].tobytes(), "big", signed=True)
            is_v2 = 2 <= int(head[16]) <= 127
            self._source.release(head, position)
            if size < kf.LOG_OVERHEAD + kf.MESSAGE_V0_OVERHEAD:
                raise explain_end(self._source, position, self._stop, self._options)
            if size > self._stop - position:
                break
            limit = self._options.limits.max_batch_bytes
            if size > limit:
                detail = f"the batch has {size} bytes, max_batch_bytes is {limit}"
                raise LimitExceededError(
                    Reason.BATCH_TOO_LARGE, detail, path=self._source.path, position=position, length=size
                )
            room = max(size, kf.RECORD_BATCH_OVERHEAD) if is_v2 else size
            if room > self._source.size - position:
                detail = "the file ends inside the header of a batch"
                raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=self._source.path, position=position)
            data = self._source.window(position, position + room)
            yield from self._batch(data, position, size)
            self._source.release(data, position)
            position += size
            if progress is not None:
                progress(position)
        yield from self._tail(position)

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
        yield self._batch_row(table, valid)
        if self._options.is_deep:
            if magic >= 2 and size < kf.RECORD_BATCH_OVERHEAD:
                detail = "the size field is smaller than any batch of this magic"
                raise CorruptionError(Reason.SIZE_TOO_SMALL, detail, path=self._source.path, position=position)
            yield from self._records(Window(batch, position, table))

    def _batch_row(self, table: BatchTable, valid: bool) -> Row:
        fields = {name: int(getattr(table, name)[0]) for name in _HEADER_FIELDS}
        if int(table.magic[0]) < 2:
            # before v2 a compressed message tells neither
            for name in ("base_offset", "records_count"):
                fields[name] = None if fields[name] < 0 else fields[name]  # type: ignore[assignment]
        elif fields["base_sequence"] != -1:
            delta = fields["last_offset"] - fields["base_offset"]
            fields["last_sequence"] = add_sequence(fields["base_sequence"], delta)
        horizon = int(table.delete_horizon_ms[0]) if table.delete_horizon_ms[0] != -1 else None
        return {
            "kind": "batch",
            "position": int(table.position[0]),
            "size_in_bytes": int(table.size_in_bytes[0]),
            **fields,
            "timestamp_type": int(table.timestamp_type[0]),
            "is_transactional": bool(table.is_transactional[0]),
            "is_control": bool(table.is_control[0]),
            "delete_horizon_ms": horizon,
            "compression": kf.codec_name(int(table.codec[0])),
            "crc": int(table.crc[0]),
            "is_valid": valid,
        }

    def _records(self, window: Window) -> Iterator[Row]:
        first = 0
        while first < len(window.batches):
            decoded = decode(
                window,
                _COLUMNS,
                first=first,
                selection=_EVERYTHING,
                check_crcs=False,
                limits=self._options.limits,
                path=self._source.path,
            )
            if decoded.columns is not None:
                yield from self._record_rows(decoded.columns, is_control=bool(window.batches.is_control[0]))
            if decoded.error is not None:
                raise decoded.error
            first += max(decoded.n_batches, 1)

    def _record_rows(self, columns: RecordColumns, *, is_control: bool) -> Iterator[Row]:
        self._note_gaps(columns.offset)
        options = self._options
        for offset, timestamp, kind, sequence, key, value, headers in zip(
            columns.offset.tolist(),
            columns.timestamp.tolist(),
            columns.timestamp_type.tolist(),
            columns.sequence.tolist(),
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            columns.headers.to_pylist(),
            strict=True,
        ):
            found: Row = {"kind": "record", "offset": offset}
            if not options.skip_record_metadata:
                found |= {
                    "timestamp": timestamp,
                    "timestamp_type": kind,
                    "key_size": -1 if key is None else len(key),
                    "value_size": -1 if value is None else len(value),
                    "sequence": sequence,
                }
                if is_control:
                    found["control"] = self._control(key, value)
            if options.shows_contents and not is_control:
                found["key"] = _decoded(key, options.key_decoder, offset)
                found["value"] = _decoded(value, options.value_decoder, offset)
            if not options.skip_record_metadata or options.shows_contents:
                found["headers"] = [(java_string(name), content) for name, content in headers]
            yield found

    def _control(self, key: bytes | None, value: bytes | None) -> Row:
        if key is None or len(key) < 4 or key[0] > 127:
            detail = "a control record's key is not one"
            raise CorruptionError(Reason.CONTROL_RECORD, detail, path=self._source.path)
        kind = int.from_bytes(key[2:4], "big", signed=True)
        if kind not in (kf.ControlRecordType.ABORT, kf.ControlRecordType.COMMIT):
            known = kind in kf.ControlRecordType.__members__.values()
            name = kf.ControlRecordType(kind).name if known else f"UNKNOWN({kind})"
            return {"type": name, **control.parse(kind, value)}
        if value is None or len(value) < 6 or value[0] > 127:
            detail = "the value of a transaction's marker is not one"
            raise CorruptionError(Reason.CONTROL_RECORD, detail, path=self._source.path)
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return {"type": kf.ControlRecordType(kind).name, "coordinator_epoch": epoch}

    def _note_gaps(self, offset: Any) -> None:
        before = np.concatenate([[self._previous], offset[:-1]]).astype(np.int64)
        gaps = np.flatnonzero(offset != before + 1)
        if self._options.is_2_8 and self._previous == -1:
            gaps = gaps[before[gaps] != -1]
        if gaps.size:
            self._report.add_pairs("gap", self._path, np.stack([before[gaps], offset[gaps]]))
        self._previous = int(offset[-1])


def _decoded(value: bytes | None, decoder: str | None, offset: int) -> Any:
    """Bytes, or what the decoder that was asked for makes of them.

    Raises
    ------
    ValueError
        They are too few.
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
