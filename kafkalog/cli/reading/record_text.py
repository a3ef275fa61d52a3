"""Formats records as lines: as text for people, or as JSON with `kafkalog.interchange.text_output`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from kafkalog.cli.text import iso_times, quote_bytes, quote_name
from kafkalog.column_names import TEXT_COLUMNS
from kafkalog.format import TIMESTAMP_TYPE_NAMES, ControlRecordType
from kafkalog.interchange.arrow_buffers import milliseconds
from kafkalog.interchange.text_output import (
    BYTES_TYPES,
    RECORD_COLUMNS,
    Headers,
    JsonLines,
    bytes_list,
    encode_json,
    headers_list,
    plain_values,
)

CUT_AT: Final = 160
"""Bytes of a key or a value that a terminal shows."""
_WHERE: Final = ("topic", "partition", "offset")


class TextFormat:
    """A line for people: ``topic-partition@offset  time  name=value ...``.

    With `include_control`, batches may have control records, which are shown with their type. At most `cut_at` bytes of
    a key or a value are shown.
    """

    def __init__(
        self, columns: Sequence[str] | None, *, include_control: bool = False, cut_at: int | None = None
    ) -> None:
        self._shown = TEXT_COLUMNS if columns is None else columns
        self._include_control = include_control
        self.columns = list(dict.fromkeys([*self._shown, *(["is_control", "key", "value"] if include_control else [])]))
        """The columns that the batches for `lines` must have; they may have others."""
        self._cut_at = cut_at

    def lines(self, batch: pa.RecordBatch) -> str:
        """Return a line for each record."""
        n = batch.num_rows
        wheres = self._wheres(batch)
        times = iso_times(milliseconds(batch.column("timestamp"))) if "timestamp" in self._shown else None
        others = [name for name in self._shown if name not in (*_WHERE, "timestamp")]
        cells = [self._cells(batch, name) for name in others]
        markers = self._markers(batch)
        lines = []
        for row in range(n):
            parts = [wheres[row]] if wheres else []
            if times is not None:
                parts.append(times[row])
            if markers is not None and (marker := markers[row]) is not None:
                shown = [
                    column[row]
                    for name, column in zip(others, cells, strict=True)
                    if name not in ("key", "value", "headers")
                ]
                parts.append(" ".join([marker, *shown]))
            elif cells:
                parts.append(" ".join([column[row] for column in cells if column[row]]))
            lines.append("  ".join(parts) + "\n")
        return "".join(lines)

    def _wheres(self, batch: pa.RecordBatch) -> list[str]:
        """Return ``topic-partition@offset`` for each record, without the parts that are not shown or not known."""
        names = [name for name in _WHERE if name in self._shown]
        if not names:
            return []
        signs = {"topic": "", "partition": "-" if "topic" in names else "partition=", "offset": "@"}
        columns = [
            [f"{signs[name]}{value}" if value is not None else "" for value in batch.column(name).to_pylist()]
            for name in names
        ]
        return list(map("".join, zip(*columns, strict=True)))

    def _cells(self, batch: pa.RecordBatch, name: str) -> list[str]:
        """Return ``name=value`` for each record; "" for a record without headers."""
        cut_at = self._cut_at
        if batch.column(name).type in BYTES_TYPES:
            return [f"{name}={quote_bytes(value, cut_at)}" for value in bytes_list(batch.column(name))]
        if name == "headers":
            return [
                _header_text(headers, cut_at) if headers else "" for headers in headers_list(batch.column("headers"))
            ]
        if name not in RECORD_COLUMNS:
            texts = map(encode_json, plain_values(batch.column(name)))
            return [f"{name}={text if cut_at is None else _cut(text, cut_at)}" for text in texts]
        values: list[Any] = batch.column(name).to_pylist()
        if name == "timestamp_type":
            return [f"{name}={TIMESTAMP_TYPE_NAMES[value]}" for value in values]
        if name in ("is_transactional", "is_control"):
            return [f"{name}={str(value).lower()}" for value in values]
        return [f"{name}={'null' if value is None else value}" for value in values]

    def _markers(self, batch: pa.RecordBatch) -> list[str | None] | None:
        """Return texts for control records, and None for other records; None if there are no control records."""
        if not self._include_control:
            return None
        is_control = batch.column("is_control").to_pylist()
        if not any(is_control):
            return None
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        return [
            control_text(key, value, self._cut_at) if control else None
            for control, key, value in zip(is_control, keys, values, strict=True)
        ]


RecordFormat = JsonLines | TextFormat
"""Formats record batches as lines."""


def control_text(key: bytes | None, value: bytes | None, cut_at: int | None = None) -> str:
    r"""Return the content of a control record as text.

    Key: version int16, type int16. Value of ABORT and COMMIT: version int16, coordinator epoch int32. Source:
    ControlRecordType.parse, EndTransactionMarker.deserialize, Kafka 4.3.

    >>> control_text(b"\0\0\0\1", b"\0\0\0\0\0\7")
    'control=COMMIT coordinator_epoch=7'
    """
    number = int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else None
    try:
        kind = ControlRecordType(number) if number is not None else None
    except ValueError:
        kind = None
    if kind is None:
        return f"control=UNKNOWN key={quote_bytes(key, cut_at)} value={quote_bytes(value, cut_at)}"
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT) and value is not None and len(value) >= 6:
        return f"control={kind.name} coordinator_epoch={int.from_bytes(value[2:6], 'big', signed=True)}"
    return f"control={kind.name} value={quote_bytes(value, cut_at)}"


def _cut(text: str, cut_at: int) -> str:
    return text if len(text) <= cut_at else f"{text[:cut_at]}... ({len(text)} characters)"


def _header_text(headers: Headers, cut_at: int | None) -> str:
    pairs = (f"{quote_name(header['key'])}={quote_bytes(header['value'], cut_at)}" for header in headers)
    return f"headers={{{', '.join(pairs)}}}"
