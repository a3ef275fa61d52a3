"""Turns what a dump reads into the lines that Kafka's tool prints.

Lines are made column by column, of a template each: the lines of all batches of a part, and those of its records, which
are then put between them.

Mirrors `DumpLogSegments`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, KafkalogError, NotKafkaError, Reason
from kafkalog.interchange.arrow_output import binary_array, java_string
from kafkalog.operations.dumping.decoders import describe, number_size, too_short
from kafkalog.operations.dumping.files import start_offset
from kafkalog.operations.dumping.log_walk import BatchRun, LogWalk
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.protocol.printed import printed_record
from kafkalog.records.batch_table import sequences
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import RecordColumns

_TEXT: Final = pa.large_string()
_BYTES: Final = pa.large_binary()
_NUMBER: Final = pa.int64()

_BATCH: Final = (
    "baseOffset: {base_offset} lastOffset: {last_offset} count: {records_count} baseSequence: {base_sequence}"
    " lastSequence: {last_sequence} producerId: {producer_id} producerEpoch: {producer_epoch}"
    " partitionLeaderEpoch: {partition_leader_epoch} isTransactional: {is_transactional} isControl: {is_control}"
)
_HORIZON: Final = " deleteHorizonMs: {delete_horizon}"
_MESSAGE: Final = "offset: {last_offset}"
_REST: Final = (
    " position: {position} {timestamp_type}: {max_timestamp} size: {size_in_bytes} magic: {magic}"
    " compresscodec: {codec} crc: {crc} isvalid: {is_valid}\n"
)
_RECORD: Final = (
    "| offset: {offset} {timestamp_type}: {timestamp} keySize: {key_size} valueSize: {value_size}"
    " sequence: {sequence} headerKeys: [{header_keys}]"
)
_MESSAGE_RECORD: Final = (
    "| offset: {offset} {timestamp_type}: {timestamp} keySize: {key_size} valueSize: {value_size}"
    " isValid: {is_valid} crc: {crc}"
)
_RECORD_2_8: Final = (
    "| offset: {offset} isValid: true crc: null keySize: {key_size} valueSize: {value_size}"
    " {timestamp_type}: {timestamp} baseOffset: {batch_base_offset}{of_batch} sequence: {sequence}"
    " headerKeys: [{header_keys}]"
)
_MESSAGE_RECORD_2_8: Final = (
    "| offset: {offset} isValid: {is_valid} crc: {crc} keySize: {key_size} valueSize: {value_size}"
    " {timestamp_type}: {timestamp} baseOffset: {batch_base_offset}{of_batch} crc: {crc} isvalid: {is_valid}"
)
_BATCH_IN_RECORD_2_8: Final = (
    " lastOffset: {last_offset} baseSequence: {base_sequence} lastSequence: {last_sequence}"
    " producerEpoch: {producer_epoch} partitionLeaderEpoch: {partition_leader_epoch} batchSize: {size_in_bytes}"
    " magic: {magic} compressType: {codec} position: {position}"
)

_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")
_BOOLS: Final = ("false", "true")


def title(name: str, *, is_2_8: bool) -> str:
    """Return the line after ``Dumping``: the start offset of a log, or the end offset and epoch of a Raft snapshot.

    Raises NotKafkaError if the name of the file has no offset.
    """
    if name.endswith(kf.LOG_SUFFIX):
        offset = start_offset(name)
        return f"Starting offset: {offset}" if is_2_8 else f"Log starting offset: {offset}"
    if name == kf.BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    snapshot = kf.parse_raft_snapshot(name)
    if snapshot is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the name is not that of a Raft snapshot", path=name)
    return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def text_of_log(walk: LogWalk, options: DumpOptions) -> Iterator[bytes]:
    """Yield the lines of a log's batches and records, in pieces of whole lines.

    Damage raises after the lines of the batches before. So does a key or a value that is shorter than its decoder
    needs, as a ValueError.
    """
    for found in walk.parts():
        part, tails, error = found, _Tails(), None
        if found.records is not None:
            tails, bad, error = _tails(found, found.records, options)
            if error is not None:
                part = found.first(int(found.batch_rows()[bad]))
        if len(part.batches):
            columns = _batch_columns(part, is_2_8=options.is_2_8)
            first = _MESSAGE if not part.is_v2 else _BATCH if options.is_2_8 else _BATCH + _HORIZON
            batch_lines = _lines(first + _REST, columns)
            if part.records is None:
                yield _bytes(batch_lines)
            else:
                yield _in_turns(batch_lines, _record_lines(part, part.records, columns, tails, options), part.counts)
            walk.report_shown(part)
        if isinstance(error, KafkalogError):
            raise walk.locate(error, found, len(part.batches))
        if error is not None:
            raise error
    if walk.trailing_bytes:
        yield f"Found {walk.trailing_bytes} invalid bytes at the end of {os.path.basename(walk.path)}\n".encode()


# --- records ----------------------------------------------------------------------------------------------------------

_Tails = dict[int, str]
"""The ends of the lines of some records, after their metadata, by row."""


def _record_lines(
    part: BatchRun, records: RecordColumns, of_batches: Mapping[str, Any], tails: _Tails, options: DumpOptions
) -> pa.Array:
    """Return the lines of the records of a part; `tails` replace keys and values of these records."""
    n, rows = records.n_records, [row for row in tails if row < records.n_records]
    contents = _contents(records, options) if options.shows_contents and options.topic is None else ["\n"]
    if rows:
        order = np.arange(n)
        order[rows] = n + np.arange(len(rows))
        both = pa.concat_arrays([_join(_repeat("", n), *contents), _strings([f"{tails[row]}\n" for row in rows])])
        contents = [both.take(_numbers(order))]
    if options.skip_record_metadata:
        return _join(_repeat("", n), *contents)
    return _join(*_metadata(part, records, of_batches, options.is_2_8), *contents)


def _metadata(part: BatchRun, records: RecordColumns, of_batches: Mapping[str, Any], is_2_8: bool) -> list[Any]:
    """Return what the line of each record says besides its key and value, in pieces to join."""
    rows = _numbers(part.batch_rows())
    types = of_batches["timestamp_type"]
    columns: dict[str, Any] = {
        "offset": records.offset,
        "batch_base_offset": records.batch_base_offset,
        "timestamp_type": types if isinstance(types, str) else types.take(rows),
        "timestamp": records.timestamp,
        "key_size": _sizes(records.key),
        "value_size": _sizes(records.value),
    }
    if part.is_v2:
        columns |= {"sequence": records.sequence, "header_keys": _header_keys(records.headers)}
    else:
        crc, is_valid = part.checksums()
        columns |= {"is_valid": _choice(_BOOLS, is_valid), "crc": crc}
    if not is_2_8:
        return _filled(_RECORD if part.is_v2 else _MESSAGE_RECORD, columns)
    columns["of_batch"] = _lines(_BATCH_IN_RECORD_2_8, of_batches).take(rows)
    return _filled(_RECORD_2_8 if part.is_v2 else _MESSAGE_RECORD_2_8, columns)


def _tails(
    part: BatchRun, records: RecordColumns, options: DumpOptions
) -> tuple[_Tails, int, CorruptionError | ValueError | None]:
    """Return the tails of control records and of an internal topic's, and the first row that has none, with the error.

    The error is a ValueError for a key or value that is shorter than its decoder needs.
    """
    is_control = part.batches.is_control[part.batch_rows()]
    tails: _Tails = {}
    errors = [] if options.topic else _too_short(records, is_control, options)
    for row in range(records.n_records) if options.topic else np.flatnonzero(is_control).tolist():
        key, value = records.key[row], records.value[row]
        try:
            if is_control[row]:
                tails[row] = "" if options.skip_record_metadata else describe(key, value, is_2_8=options.is_2_8)
            else:
                tails[row] = _internal(key, value, int(records.offset[row]), options)
        except CorruptionError as error:
            errors.append((row, error))
            break
    return tails, *min(errors, key=lambda one: one[0], default=(0, None))


def _too_short(
    records: RecordColumns, is_control: npt.NDArray[np.bool_], options: DumpOptions
) -> list[tuple[int, CorruptionError | ValueError]]:
    """Return the first rows with a key or a value that is shorter than its decoder needs, and the errors."""
    found: list[tuple[int, CorruptionError | ValueError]] = []
    for column, decoder in ((records.key, options.key_decoder), (records.value, options.value_decoder)):
        size = _sizes(column)
        short = np.flatnonzero((size >= 0) & (size < number_size(decoder)) & ~is_control)
        if short.size:
            row = int(short[0])
            found.append((row, too_short(column[row] or b"", decoder, int(records.offset[row]))))
    return found


def _internal(key: bytes | None, value: bytes | None, offset: int, options: DumpOptions) -> str:
    """Return the tail of a record of an internal topic."""
    assert options.topic is not None
    shown = printed_record(options.topic, offset, key, value, is_2_8=options.is_2_8)
    parts = [f"{name}: {text}" for name, text in zip(("key", "payload"), shown, strict=True) if text is not None]
    # 2.8 has no bar in front of a payload
    if not options.skip_record_metadata or (options.is_2_8 and shown[0] is None):
        return "".join(f" {part}" for part in parts)
    return f"| {' '.join(parts)}" if parts else ""


def _contents(records: RecordColumns, options: DumpOptions) -> list[Any]:
    """Return key and value of each record, and the end of its line, in pieces to join; of null there is nothing."""
    key = _shown(records.key, options.key_decoder)
    value = _shown(records.value, options.value_decoder)
    before_key, before_value = " key: ", " payload: "
    if options.skip_record_metadata:
        before_key = "| key: "
        # 2.8 has no bar in front of a payload
        if not options.is_2_8 and key.null_count:
            before_value = pc.if_else(key.is_null(), _literal("| payload: "), _literal(before_value))
    return [*_unless_null(before_key, key), *_unless_null(before_value, value), "\n"]


def _unless_null(label: Any, column: pa.Array) -> list[Any]:
    return [_join(label, column).fill_null("")] if column.null_count else [label, column]


def _shown(column: BinaryColumn, decoder: str | None) -> pa.Array:
    size = number_size(decoder)
    if size:
        numbers = [None if value is None else int.from_bytes(value[:size], "big", signed=True) for value in column]
        return _strings([None if number is None else str(number) for number in numbers])
    return _text(column)


def _sizes(column: BinaryColumn) -> npt.NDArray[np.int64]:
    size = np.diff(column.offsets).astype(np.int64, copy=False)
    return size if column.validity is None else np.where(column.validity, size, -1)


def _header_keys(headers: HeadersColumn) -> Any:
    """Return the keys of the headers of each record, with commas between them."""
    if not len(headers.key):
        return ""
    offsets = pa.Array.from_buffers(_NUMBER, headers.offsets.size, [None, pa.py_buffer(headers.offsets)])
    return pc.binary_join(pa.LargeListArray.from_arrays(offsets, _text(headers.key)), _literal(","))


# --- columns of text --------------------------------------------------------------------------------------------------


def _batch_columns(part: BatchRun, *, is_2_8: bool) -> dict[str, Any]:
    """Return the columns that the templates of batches name."""
    batches = part.batches
    attributes = batches.attributes
    codecs = [name.upper() for name in kf.KNOWN_CODEC_NAMES] if is_2_8 else kf.KNOWN_CODEC_NAMES
    has_horizon = attributes & kf.DELETE_HORIZON_BIT != 0
    horizon: Any = "OptionalLong.empty"
    if has_horizon.any():
        some = _join("OptionalLong[", _digits(batches.base_timestamp), "]")
        horizon = pc.if_else(_bools(has_horizon), some, _literal(horizon))
    return {
        **{name: getattr(batches, name) for name in _PLAIN},
        "last_sequence": sequences(batches.last_offset, batches, np.arange(len(batches))),
        "is_transactional": _choice(_BOOLS, attributes & kf.TRANSACTIONAL_BIT != 0),
        "is_control": _choice(_BOOLS, attributes & kf.CONTROL_BIT != 0),
        "delete_horizon": horizon,
        "timestamp_type": _choice(_TIMESTAMP_TYPES, batches.timestamp_type + 1),
        "codec": _choice(codecs, batches.codec),
        "is_valid": _choice(_BOOLS, part.is_valid),
    }


_PLAIN: Final = (
    *("base_offset", "last_offset", "records_count", "base_sequence", "producer_id", "producer_epoch"),
    *("partition_leader_epoch", "position", "max_timestamp", "size_in_bytes", "magic", "crc"),
)


def _lines(template: str, columns: Mapping[str, Any]) -> pa.Array:
    """Fill a template for each row."""
    return _join(*_filled(template, columns))


def _filled(template: str, columns: Mapping[str, Any]) -> list[Any]:
    """Return a template as pieces to join: numbers, strings of Arrow, and texts that all rows have."""
    pieces: list[Any] = []
    for number, part in enumerate(re.split(r"\{(\w+)\}", template)):
        column = columns[part] if number % 2 else part
        if isinstance(column, np.ndarray):
            # most numbers of a batch are the same in all rows; the first column says how many rows there are
            is_same = number > 1 and bool((column == column[0]).all())
            column = str(int(column[0])) if is_same else _digits(column)
        pieces.append(column)
    return pieces


def _join(*pieces: Any) -> pa.Array:
    """Concatenate strings row by row; a text stands for as many of them. Null makes null."""
    arguments: list[Any] = []
    for is_text, run in itertools.groupby(pieces, lambda piece: isinstance(piece, str)):
        # fewer pieces take less time
        same = list(run)
        arguments += [_literal("".join(same))] if is_text else same
    return pc.binary_join_element_wise(*arguments, _literal(""))


def _choice(names: Sequence[str], numbers: npt.NDArray[Any]) -> Any:
    """Return the name of each number, or the one that all have."""
    if (numbers == numbers[0]).all():
        return names[int(numbers[0])]
    return _strings(names).take(_numbers(numbers))


def _text(column: BinaryColumn) -> pa.Array:
    """Return bytes as Java makes text of them."""
    array = binary_array(column, _BYTES).view(_TEXT)
    if column.data.size and column.data.max() >= 0x80:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            array = _strings([None if value is None else java_string(value) for value in column])
    return array


def _strings(values: Sequence[str | None]) -> pa.Array:
    # pa.array() imports pandas if it is installed; arrays built from buffers do not
    texts = [(value or "").encode() for value in values]
    validity = None
    if None in values:
        validity = np.array([value is not None for value in values])
    column = BinaryColumn(np.cumsum([0, *map(len, texts)]), np.frombuffer(b"".join(texts), np.uint8), validity)
    return binary_array(column, _BYTES).view(_TEXT)


def _repeat(text: str, n: int) -> pa.Array:
    return _strings([text]).take(_numbers(np.zeros(n, np.int64)))


@lru_cache(256)
def _literal(text: str) -> pa.Scalar:
    return _strings([text])[0]


def _digits(column: npt.NDArray[Any]) -> pa.Array:
    return _numbers(column).cast(_TEXT)


def _numbers(column: npt.NDArray[Any]) -> pa.Array:
    numbers = np.ascontiguousarray(column, np.int64)
    return pa.Array.from_buffers(_NUMBER, numbers.size, [None, pa.py_buffer(numbers)])


def _bools(column: npt.NDArray[np.bool_]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(column, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), column.size, [None, bits])


def _in_turns(batch_lines: pa.Array, record_lines: pa.Array, counts: npt.NDArray[np.int64]) -> bytes:
    """Return the lines of batches, each before those of its records; `counts` has their number for each batch."""
    if (counts == 1).all():
        return _bytes(_join(batch_lines, record_lines))
    of_batches, batches = _buffers(batch_lines)
    of_records, records = _buffers(record_lines)
    at, stops = of_batches.tolist(), of_records[np.cumsum(counts)].tolist()
    pieces: list[memoryview] = []
    done = 0
    for start, end, stop in zip(at[:-1], at[1:], stops, strict=True):
        pieces.append(batches[start:end])
        pieces.append(records[done:stop])
        done = stop
    return b"".join(pieces)


def _bytes(lines: pa.Array) -> bytes:
    """Return the text of all rows."""
    offsets, data = _buffers(lines)
    return bytes(data[offsets[0] : offsets[-1]])


def _buffers(lines: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    _, offsets, data = lines.buffers()
    places = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return places, memoryview(data or b"")
