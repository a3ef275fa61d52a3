"""Implements `decode=` of a scan: converts record batches with bytes to record batches with values.

The type of a column depends on its values: on the schemas they name, or on the fields of JSON. So the records are read
twice, unless the format determines the type: `learn` finds the type, `decode` returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalog.column_names import ALL_COLUMNS, DEFAULT_COLUMNS
from kafkalog.errors import Finding, LimitExceededError, Reason
from kafkalog.interchange.arrow_output import HEADER_FIELD, extend_schema, header_values, record_schema
from kafkalog.interchange.json_fields import numbers_of_json, with_json
from kafkalog.interchange.table_types import LostValues, Path, field_name, lost_finding, text_array
from kafkalog.parsing import check_once, column_hint, derived_column, field_column, field_path
from kafkalog.text import near
from kafkalog.values.columns import SchemaColumn, column_decoder
from kafkalog.values.conditions import AllOf, ArrowCondition, Conditions, columns_of, matching
from kafkalog.values.options import ColumnFormat
from kafkalog.values.payloads import DecodedValues, Payloads
from kafkalog.values.schemas import SchemaSource
from kafkalog.values.types import TooWideError, field_at, narrow_type

_SHOWN_OFFSETS: Final = 5
_MOST_REASONS: Final = 100
OTHER_REASONS: Final = "for other reasons"
"""Stands for reasons after so many different ones."""


class DecodeWarning(UserWarning):
    """Keys or values did not decode (`decode=`) and are null; the findings list them, with reasons."""


@dataclass(slots=True)
class _UndecodedValues:
    n: int = 0
    first: list[int] = field(default_factory=list)
    last: int = -1


class Decoding:
    """The computed columns of a scan: decoded columns, and single headers.

    `columns` are those of the result: columns of a scan; ``value.a.b`` for a single field; `value_error` for the reason
    why a value did not decode; `value_bytes` for the original bytes. The same for `key`. ``headers.NAME`` is the value
    of the last header of that name. `derived` are columns computed from undecoded records; they follow the others.
    `learn` and `decode` need `record_columns` in batches.

    Raises ValueError or TypeError if a column does not exist, or is named twice.
    """

    def __init__(
        self,
        formats: Mapping[str, ColumnFormat],
        source: SchemaSource | None,
        columns: Sequence[str] | None,
        conditions: Conditions | None,
        derived: Mapping[str, np.dtype[Any]] | None = None,
    ) -> None:
        self._formats, self.conditions, self._derived = formats, conditions, derived or {}
        if isinstance(columns, str):
            raise TypeError(f"columns must be a sequence of names, not a string; did you mean columns=[{columns!r}]?")
        self.columns = DEFAULT_COLUMNS if columns is None else tuple(columns)
        check_once(self.columns)
        for name in self.columns:
            if name in self._derived:
                raise derived_column(name)
        self._source = source
        self.record_columns, self._wanted = self._needed()
        self._decoders = {name: column_decoder(name, formats[name], source) for name in self._wanted}
        self._read = tuple(self._wanted)
        """The columns to decode, of those that have a decoder."""
        self._types: dict[str, pa.DataType] | None = None
        self._path: str | None = None
        self._failures: dict[tuple[str, str, bool, str], _UndecodedValues] = {}
        self._notes: dict[str, Reason] = {}
        self._lost: dict[tuple[str, Path, str], _UndecodedValues] = {}
        self.leaves_out = False
        """Whether records are left out if a value, or a field of one, does not decode."""

    def _needed(self) -> tuple[tuple[str, ...], dict[str, list[Path] | None]]:
        """The columns of records to read, and those to decode, each with the fields wanted, or None for all."""
        formats = self._formats
        needed = ["offset"]
        wanted: dict[str, list[Path] | None] = {}
        extra = [f"{name}{suffix}" for name in formats for suffix in ("_error", "_bytes")]
        for column in (*self.columns, *columns_of(self.conditions)):
            name, *path = field_path(column)
            if name in formats and column not in extra:
                paths = wanted.setdefault(name, [])
                if not path:
                    wanted[name] = None
                elif paths is not None:
                    paths.append(tuple(path))
                needed.append(name)
            elif column in extra:
                name = column.rpartition("_")[0]
                if column.endswith("_error"):
                    wanted[name] = None  # the reasons are those of all fields
                needed.append(name)
            elif column.startswith(HEADER_FIELD):
                needed.append("headers")
            elif column in ALL_COLUMNS:
                needed.append(column)
            elif column not in self._derived:
                known = (*ALL_COLUMNS, *extra, f"{HEADER_FIELD}NAME")
                raise ValueError(f"no column {column!r}; {column_hint(column, known)}")
        # newer Confluent clients write the schema id to a header
        if any(formats[name].has_frames for name in wanted):
            needed.append("headers")
            # if ids are ambiguous, the topic's subject decides
            if getattr(self._source, "has_ambiguous_ids", False):
                needed.append("topic")
        return tuple(dict.fromkeys(needed)), {name: paths or None for name, paths in wanted.items()}

    @property
    def decoded(self) -> frozenset[str]:
        return frozenset(self._formats)

    def select(self, columns: Sequence[str]) -> Decoding:
        """Return a copy with some of the columns."""
        one = copy(self)
        one.columns = tuple(columns)
        one._read_less()
        return one

    def where(self, condition: ArrowCondition) -> Decoding:
        """Return a copy with an additional filter expression over its columns."""
        one = copy(self)
        known = self.conditions
        parts = () if known is None else known.parts if isinstance(known, AllOf) else (known,)
        one.conditions = AllOf((*parts, condition))
        one._read_less()
        return one

    def _read_less(self) -> None:
        """Read and decode what the columns and conditions need, once the types of all are known."""
        if self._types is not None and not self.leaves_out:
            self.record_columns, wanted = self._needed()
            self._read = tuple(wanted)

    def for_pass(self) -> Decoding:
        """Return a copy that counts what does not decode by itself: engines run several passes at a time."""
        one = copy(self)
        one._failures, one._lost = {}, {}
        self._notes = {}  # those of the copy now
        return one

    @property
    def needs_to_learn(self) -> bool:
        """Whether `learn` must read the records before `schema` is known."""
        return self._types is None and not self.has_types

    @property
    def has_types(self) -> bool:
        """Whether the formats determine all types without reading records."""
        return all(one.has_type for one in self._decoders.values())

    @property
    def typed(self) -> frozenset[str]:
        """Columns whose type follows from the format without reading records."""
        return frozenset(name for name, decoder in self._decoders.items() if decoder.has_type)

    @property
    def mixed(self) -> frozenset[str]:
        """Columns whose type depends on schemas in ways that the type does not show, as with JSON text."""
        return frozenset(name for name, decoder in self._decoders.items() if decoder.needs_values)

    @property
    def mixed_paths(self) -> frozenset[Path]:
        """The fields that are JSON text because their values have no common type, as far as types are learned."""
        return frozenset((name, *path) for name, decoder in self._decoders.items() for path in decoder.mixed)

    def declare(self, types: Mapping[str, pa.DataType]) -> None:
        """Set the types of columns instead of learning them.

        Values that do not fit become null, and other fields are left out. JSON values have the types bool, int64,
        float64, string, list and struct.
        """
        for name in types.keys() & self._decoders.keys():
            self._decoders[name].declare(types[name])

    def learn(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        """Learn types from all records. Reads them twice if schemas have times in several units.

        Raises LimitExceededError if the values have too many different fields.
        """
        for batch in read():
            headers, topic = _place(batch)
            for name, decoder in self._decoders.items():
                try:
                    decoder.learn(Payloads.of(batch.column(name)), headers, topic)
                except TooWideError as error:
                    detail = f"{name}: {error}; read it as utf8, or not decoded"
                    raise LimitExceededError(Reason.VALUE_UNDECODED, detail) from None
        mixed = {
            name: one for name, one in self._decoders.items() if isinstance(one, SchemaColumn) and one.has_mixed_units
        }
        for batch in read() if mixed else ():
            headers, topic = _place(batch)
            for name, column in mixed.items():
                column.learn_units(Payloads.of(batch.column(name)), headers, topic)
        for column in mixed.values():
            column.choose_units()
        self._settle()

    def _settle(self) -> dict[str, pa.DataType]:
        if self._types is not None:
            return self._types
        types = {}
        for name, decoder in self._decoders.items():
            paths, whole = self._wanted[name], decoder.full_type()
            for column in (*self.columns, *columns_of(self.conditions)):
                first, *path = field_path(column)
                if first != name or not path:
                    continue
                kind = _field_type(name, path, whole, is_known=decoder.has_type and not decoder.mixed)
                mixed = next((tuple(path[:i]) for i in range(len(path)) if tuple(path[:i]) in decoder.mixed), None)
                if mixed is not None:  # conditions look into the text
                    if column in self.columns:
                        self._notes[_in_text(name, path, mixed)] = Reason.COLUMN_MISSING
                elif pa.types.is_null(kind) and not pa.types.is_null(whole):
                    self._notes[_missing((name, *path), whole)] = Reason.COLUMN_MISSING
            decoder.narrow(paths)
            types[name] = narrow_type(whole, paths)
        self._types = types
        return types

    def schema(self, binary_type: pa.DataType | None = None) -> pa.Schema:
        """The schema of the result; raises ValueError if a column names a field that no value has."""
        types = self._settle()
        fields = []
        for column in self.columns:
            name, *path = field_path(column)
            if column.startswith(HEADER_FIELD):
                fields.append(record_schema(["value"], binary_type).field(0).with_name(column))
            elif column.endswith("_error"):
                fields.append(pa.field(column, pa.string()))
            elif column.endswith("_bytes"):
                fields.append(record_schema([column.rpartition("_")[0]], binary_type).field(0).with_name(column))
            elif name in types:
                fields.append(self._decoded_field(column, _field_type(name, path, types[name])))
            else:
                fields.append(record_schema([column], binary_type).field(0))
        return extend_schema(pa.schema(fields), self._derived)

    def _decoded_field(self, column: str, kind: pa.DataType) -> pa.Field:
        """The field of a decoded column. That of JSON says which of its text is JSON."""
        name, *path = field_path(column)
        field = pa.field(column, kind)
        if self._formats[name].format not in ("json", "jsonschema"):
            return field
        n = len(path)
        mixed = {tuple(one[n:]) for one in self._decoders[name].mixed if list(one[:n]) == path}
        return with_json(field, {*mixed, *numbers_of_json(kind)})

    def decode(self, batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
        """Decode the records for which the conditions hold; `path` is the segment, for findings."""
        n = batch.num_rows
        headers, topic = _place(batch)
        self._path = path
        columns: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
        mask = np.ones(n, np.bool_)
        for name in self._read:
            decoder = self._decoders[name]
            columns[f"{name}_bytes"] = raw = batch.column(name)
            decoded = decoder.decode(Payloads.of(raw), headers, topic)
            columns[name] = decoded.array
            for part, failures in ((False, decoded.failures), (True, decoded.faults)):
                self._count((path, name, part), failures, batch.column("offset"))
            for lost in decoded.lost:
                self._count_lost(path, (name, *lost.path), lost, batch.column("offset"))
            if self.leaves_out:
                mask[
                    [*decoded.failures, *decoded.faults, *(row for lost in decoded.lost for row in lost.rows.tolist())]
                ] = False
            if f"{name}_error" in (*self.columns, *columns_of(self.conditions)):
                columns[f"{name}_error"] = text_array(_reasons(decoded, n))
        for name in self._formats:
            columns.setdefault(f"{name}_bytes", columns.get(name, pa.nulls(0)))
        for name in (*self.columns, *columns_of(self.conditions)):
            if name.startswith(HEADER_FIELD):
                columns[name] = header_values(batch.column("headers"), name.removeprefix(HEADER_FIELD))
        found = pa.RecordBatch.from_arrays(_arrays(schema, columns, n), schema=schema)
        if self.conditions is not None:
            mask &= matching(self.conditions, columns, n, self.mixed_paths)
        return found if mask.all() else found.filter(pa.array(mask))

    def _count(self, place: tuple[str, str, bool], failures: Mapping[int, str], offsets: pa.Array) -> None:
        if not failures:
            return
        numbers = offsets.to_numpy()
        for row, reason in sorted(failures.items()):
            key = *place, reason
            # reasons may contain values: bound their number
            if key not in self._failures and len(self._failures) >= _MOST_REASONS:
                key = *place, OTHER_REASONS
            known = self._failures.setdefault(key, _UndecodedValues())
            known.n += 1
            known.last = int(numbers[row])
            if len(known.first) < _SHOWN_OFFSETS:
                known.first.append(known.last)

    def _count_lost(self, path: str, field_path: Path, lost: LostValues, offsets: pa.Array) -> None:
        known = self._lost.setdefault((path, field_path, lost.what), _UndecodedValues())
        known.n += lost.n
        numbers = offsets.to_numpy()
        known.last = int(numbers[lost.rows[-1]])
        if not known.first:
            known.first.append(int(numbers[lost.rows[0]]))

    def n_undecoded(self) -> int:
        """How many values, and fields of decoded values, did not decode since the last call of `take_findings`."""
        return sum(one.n for one in (*self._failures.values(), *self._lost.values()))

    def take_findings(self) -> list[Finding]:
        """Findings about values that did not decode since the last call, per segment, column or field, and reason."""
        found = [
            replace(
                lost_finding(field_path, what, one.n, ""), path=path, base_offset=one.first[0], last_offset=one.last
            )
            for (path, field_path, what), one in self._lost.items()
        ]
        self._lost = {}
        for decoder in self._decoders.values():
            self._notes |= dict.fromkeys(sorted(decoder.notes), Reason.VALUE_UNDECODED)
            decoder.notes.clear()
        found += [Finding(reason, note, path=self._path, damage=False) for note, reason in self._notes.items()]
        self._notes = {}
        for (path, name, is_part, reason), one in self._failures.items():
            shown = ", ".join(map(str, one.first)) + (", ..." if one.n > len(one.first) else "")
            outcome = "left out of the result" if self.leaves_out else "null in the result"
            if is_part:
                what = f"{one.n} {name}s have" if one.n > 1 else f"a {name} has"
                what = f"{what} fields that do not decode, {outcome}"
            else:
                what = f"{one.n} {name}s are" if one.n > 1 else f"a {name} is"
                what = f"{what} not {self._formats[name].format}, and {outcome}"
            detail = f"{what} (offsets {shown}): {reason}"
            found.append(
                Finding(
                    Reason.VALUE_UNDECODED,
                    detail,
                    path=path,
                    base_offset=one.first[0],
                    last_offset=one.last,
                    damage=False,
                )
            )
        self._failures = {}
        return found


def _arrays(schema: pa.Schema, columns: Mapping[str, pa.Array], n: int) -> list[pa.Array]:
    """The column, or the field of a column, for each item of the schema; null for a field that no value has."""
    arrays = []
    for item in schema:
        if item.name in columns:
            arrays.append(columns[item.name])
        elif pa.types.is_null(item.type):
            arrays.append(pa.nulls(n))
        else:
            name, *fields = field_path(item.name)
            arrays.append(field_at(columns[name], fields))
    return arrays


def _reasons(decoded: DecodedValues, n: int) -> list[str | None]:
    """Reasons why values, or fields of values, differ from the bytes."""
    reasons: list[str | None] = [decoded.failures.get(row) or decoded.faults.get(row) for row in range(n)]
    for lost in decoded.lost:
        where = f"{field_name(lost.path)}: " if lost.path else ""
        for row in lost.rows.tolist():
            reasons[row] = "; ".join(filter(None, [reasons[row], f"{where}{lost.what}"]))
    return reasons


def _missing(path: Path, kind: pa.DataType) -> str:
    """A note on a field that is absent or null in all values."""
    known = [one.name for one in kind] if pa.types.is_struct(kind) else []
    close = near(path[1], known) if len(path) == 2 else None
    hint = f"; did you mean {path[0]}.{close}?" if close and close != path[1] else ""
    return f"no value of the chosen records has a field {field_column(path[0], path[1:])}, so it is null{hint}"


def _in_text(name: str, path: Sequence[str], mixed: Path) -> str:
    """A note on a field within a mixed one."""
    whole = field_column(name, mixed)
    return f"{whole} has values of several types, so it is JSON text, and {field_column(name, path)} is null"


def _place(batch: pa.RecordBatch) -> tuple[pa.Array | None, str | None]:
    """The headers and topic of a batch, if present."""
    names = batch.schema.names
    headers = batch.column("headers") if "headers" in names else None
    return headers, batch.column("topic")[0].as_py() if "topic" in names and batch.num_rows else None


def _field_type(name: str, path: Sequence[str], kind: pa.DataType, *, is_known: bool = False) -> pa.DataType:
    """The type of a nested field; null if no value has it, or ValueError if the type `is_known` without values."""
    if pa.types.is_null(kind):
        return kind
    try:
        return field_at(pa.nulls(0, kind), path).type
    except KeyError as error:
        if is_known:
            raise ValueError(f"no column {'.'.join((name, *path))!r}: {error.args[0]}") from None
        return pa.null()
