"""Rows of any columns become records: their values are encoded as JSON, Avro or Protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_output import ALL_COLUMNS
from kafkalog.interchange.table_types import json_text
from kafkalog.interchange.text_input import JSON_ROW
from kafkalog.interchange.text_output import plain_values
from kafkalog.values.encoding import EncodeError, ValueEncoder
from kafkalog.values.formats.json_text import NotJson, parse

_RECORD: Final = ("key", "timestamp", "headers", "offset", "partition", "topic")
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))


@dataclass(frozen=True)
class Rows:
    """How rows become records.

    Parameters
    ----------
    encoder : ValueEncoder
    columns : mapping of str to str
        Names of columns by role, as in `kafkalog.load`.
    header_columns : sequence of str
        Columns that become headers of their names, and are not in the value.
    """

    encoder: ValueEncoder
    columns: Mapping[str, str] = field(default_factory=dict)
    header_columns: Sequence[str] = ()

    def records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Record batches with the columns of records, for those of rows.

        The value is the column `value`, or else a row without what is for its headers, and without columns that have
        the names of a record's. A column that is named as the key, or as another one, is in the value, too.
        """
        n_done = 0
        for batch in batches:
            yield self._records(batch, n_done)
            n_done += batch.num_rows

    def _records(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        names = batch.schema.names
        for name in (*self.header_columns, *self.columns.values()):
            if name not in names:
                there = ", ".join(name for name in names if name != JSON_ROW)
                raise UnwritableError(Reason.COLUMN_MISSING, f"there is no column {name!r}: there are {there}")
        made: dict[str, pa.Array] = {"value": self._values(batch, first_row)}
        for role in _RECORD:
            name = self.columns.get(role, role)
            if name in names and name not in self.header_columns:
                made[role] = _keys(batch.column(name)) if role == "key" else batch.column(name)
        if self.header_columns:
            made["headers"] = self._headers(batch, made.get("headers"))
        return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))

    def _values(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        names = batch.schema.names
        source = self.columns.get("value", "value")
        if JSON_ROW in names:
            rows = [text if text is None else parse(text.encode()) for text in batch.column(JSON_ROW).to_pylist()]
        elif source in names:
            rows = plain_values(batch.column(source))
        else:
            left_out = {*(role for role in ALL_COLUMNS if role not in self.columns.values()), *self.header_columns}
            fields = [name for name in names if name not in left_out]
            columns = [plain_values(batch.column(name)) for name in fields]
            rows = [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]
        encoded = []
        for row, value in enumerate(rows):
            try:
                if isinstance(value, NotJson):
                    raise EncodeError(value.why)
                encoded.append(self.encoder.encode(value))
            except EncodeError as error:
                at = first_row + row
                raise UnwritableError(Reason.COLUMN_VALUE, f"row {at}: {error}", row=at) from None
        return pa.array(encoded, pa.large_binary())

    def _headers(self, batch: pa.RecordBatch, known: pa.Array | None) -> pa.Array:
        columns = [_keys(batch.column(name)).to_pylist() for name in self.header_columns]
        before = [[]] * batch.num_rows if known is None else known.to_pylist()
        rows = []
        for first, row in zip(before, zip(*columns, strict=True), strict=True):
            named = zip(self.header_columns, row, strict=True)
            rows.append([*(first or []), *({"key": name, "value": one} for name, one in named)])
        return pa.array(rows, _HEADERS)


def _keys(column: pa.Array) -> pa.Array:
    """Keys and header values as bytes: text as it is, and what is neither as JSON text."""
    kind = column.type
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_string(kind) or pt.is_large_string(kind):
        return column.cast(pa.large_binary())
    texts = [one if one is None or isinstance(one, str) else json_text(one) for one in plain_values(column)]
    return pa.array([None if one is None else one.encode() for one in texts], pa.large_binary())


def in_rows(batches: Callable[..., Iterable[pa.RecordBatch]], rows: Rows) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What reads a file as records, for what reads it as rows."""
    return lambda wanted: rows.records(batches(lambda schema: schema.names))
