"""Rows of any columns become records: values and keys are encoded as JSON, Avro, Protobuf, text or numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_output import HEADER_FIELD
from kafkalog.interchange.json_fields import json_paths, restored
from kafkalog.interchange.table_types import json_text
from kafkalog.interchange.text_input import JSON_ROW, TYPE_ROLE, check_columns, columns_of_records
from kafkalog.interchange.text_output import plain_values
from kafkalog.values.encoding import EncodeError, ValueEncoder
from kafkalog.values.formats.json_text import NotJson, parse

_RECORD: Final = ("key", "timestamp", TYPE_ROLE, "headers", "offset", "partition", "topic")


@dataclass(frozen=True)
class Rows:
    """How rows become records.

    Without `encoder`, the column `value` has bytes. Without `key_encoder`, keys that are neither bytes nor text become
    JSON text. `columns` has names of columns by role. `header_columns` become headers of their names, and are not in
    the value.
    """

    encoder: ValueEncoder | None
    key_encoder: ValueEncoder | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    header_columns: Sequence[str] = ()
    of_value: Collection[str] = ()
    leaves_out: bool = False
    counts: Counter[str] = field(default_factory=Counter, compare=False)
    """How many keys and values are `undecoded`, and in how many values `nulls` may have been absent fields."""

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
        # text is read with these names already
        is_text = JSON_ROW in names
        columns = {} if is_text else self.columns
        if not is_text:
            check_columns((*self.columns.values(), *self.header_columns), names)
        made = {"value": self._values(batch, first_row), **self._other_fields(batch, columns, first_row)}
        made |= {name: batch.column(name) for name in names if name.startswith(HEADER_FIELD)}
        if not is_text:
            made |= {f"{HEADER_FIELD}{name}": _keys(batch.column(name)) for name in self.header_columns}
        kept = np.ones(batch.num_rows, np.bool_)
        if is_text or columns.get("value", "value") in names:
            for role in ("value", "key"):
                self._put_back(made, batch, role, kept)
        records = pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
        return records if kept.all() else records.filter(pa.array(kept))

    def _other_fields(self, batch: pa.RecordBatch, columns: Mapping[str, str], first_row: int) -> dict[str, pa.Array]:
        """The fields of records other than the value and the headers, by role."""
        names = batch.schema.names
        is_text = JSON_ROW in names
        made: dict[str, pa.Array] = {}
        left_out = columns_of_records(names, columns.get("value", "value"), self.of_value)
        for role in _RECORD:
            name = columns.get(role, role)
            is_own = not is_text and role not in columns and name in self.of_value and name not in left_out
            if name in names and name not in self.header_columns and not is_own:
                made[role] = self._encoded_keys(batch, name, first_row) if role == "key" else batch.column(name)
        return made

    def _encoded_keys(self, batch: pa.RecordBatch, name: str, first_row: int) -> pa.Array:
        """The keys of records, from the column of a name."""
        column = batch.column(name)
        if self.key_encoder is None:
            return _keys(column)
        values = map(_parsed, column.to_pylist()) if JSON_ROW in batch.schema.names else _json_values(batch, name)
        return _encoded(self.key_encoder, values, first_row, "key")

    def _put_back(
        self, made: dict[str, pa.Array], batch: pa.RecordBatch, role: str, kept: npt.NDArray[np.bool_]
    ) -> None:
        """Replace keys or values that did not decode by their original bytes; count those whose bytes are not there."""
        names = batch.schema.names
        if role not in made:
            return
        is_null = made[role].is_null()
        error, original = f"{role}_error", f"{role}_bytes"
        failed = batch.column(error).is_valid() if error in names else pc.and_(is_null, False)
        if original in names:
            data = batch.column(original).cast(pa.large_binary())
            takes = pc.and_(pc.or_(failed, is_null), data.is_valid())
            made[role] = pc.if_else(takes, data, made[role].cast(pa.large_binary()))
            failed = pc.and_(failed, pc.invert(takes))
        undecoded = failed.to_numpy(zero_copy_only=False)
        self.counts["undecoded"] += int(undecoded.sum())
        if self.leaves_out:
            kept &= ~undecoded

    def _values(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        names = batch.schema.names
        source = self.columns.get("value", "value")
        rows: Iterable[Any]
        if self.encoder is None:
            check_columns([source], names)
            return batch.column(source)
        if JSON_ROW in names:
            rows = map(_parsed, batch.column(JSON_ROW).to_pylist())
        elif source in names:
            rows = _json_values(batch, source)
        else:
            left_out = {*columns_of_records(names, source, self.of_value)} - {*self.columns.values()}
            left_out.update(self.header_columns)
            fields = [name for name in names if name not in left_out and not name.startswith(HEADER_FIELD)]
            columns = [plain_values(batch.column(name)) for name in fields]
            rows = [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]
        if self.encoder.format == "json" and TYPE_ROLE in names:
            rows = [*rows]
            self.counts["nulls"] += sum(isinstance(row, dict) and None in row.values() for row in rows)
        return _encoded(self.encoder, rows, first_row, "value")


def _json_values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column; what is JSON text in an export of decoded JSON is the JSON again."""
    paths = json_paths(batch.schema.field(name))
    values = plain_values(batch.column(name))
    return [restored(value, paths, _parsed) for value in values] if paths else values


def _parsed(text: str | None) -> Any:
    return text if text is None else parse(text.encode())


def _encoded(encoder: ValueEncoder, values: Iterable[Any], first_row: int, role: str) -> pa.Array:
    encoded = []
    for row, value in enumerate(values, first_row):
        try:
            if isinstance(value, NotJson):
                raise EncodeError(value.why)
            encoded.append(encoder.encode(value))
        except EncodeError as error:
            raise UnwritableError(
                Reason.COLUMN_VALUE,
                f"row {row}: {error}" if role == "value" else f"row {row}: {role}: {error}",
                row=row,
            ) from None
    return pa.array(encoded, pa.large_binary())


def _keys(column: pa.Array) -> pa.Array:
    """Keys and header values as bytes: text as it is, other values as JSON text."""
    kind = column.type
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_string(kind) or pt.is_large_string(kind):
        return column.cast(pa.large_binary())
    texts = [one if one is None or isinstance(one, str) else json_text(one) for one in plain_values(column)]
    return pa.array([None if one is None else one.encode() for one in texts], pa.large_binary())


def in_rows(batches: Callable[..., Iterable[pa.RecordBatch]], rows: Rows) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The reader of a file as records, from the reader of it as rows."""
    return lambda wanted: rows.records(batches(lambda schema: schema.names))
