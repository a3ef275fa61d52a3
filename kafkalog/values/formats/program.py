"""Programs compiled from schemas for the decoding kernels, and arrays of their results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import Path, text_array
from kafkalog.values.payloads import DecodedValues, Faults, Payloads, Rows, faults_text
from kafkalog.values.types import MOST_FIELDS, SchemaError, TooWideError

Numbers = npt.NDArray[np.int32]
Around = tuple[int | str, ...]
"""The enclosing types of a type, by `id` or full name."""

BRANCH: Final = "__branch"
"""The field with the name of a union's branch that is set; of a oneof, its name is in front."""
_COLUMNS: Final = 2
"""Which argument of a kernel with `FAULTS` is the table of columns."""
_NULLABLE: Final = 4
_FAULTS: Final = 8
"""Room for this many faults per value."""
_SLACK: Final = 64 * 2**20
_MOST_TIMES: Final = 64
_MOST_ROOM: Final = 2**31


class UnfitBytesError(ValueError):
    """Bytes are not a value of their logical type."""


@dataclass(slots=True)
class Column:
    """A column of a program, and its Arrow type."""

    kind: str
    """A name in the kernels' `KINDS`."""
    type: pa.DataType
    """Null type for the entries of a map."""
    nullable: bool = False
    width: int = 0
    children: list[int] = field(default_factory=list)
    raw: Callable[[bytes], str] | None = None
    """Converts the column's bytes to JSON text."""
    stored: pa.DataType | None = None
    """The type that the kernel fills, if `convert` makes the final one of it."""
    convert: Callable[[pa.Array], pa.Array] | None = None
    never_null: bool = False
    """Whether Arrow has no null here: the keys and the entries of a map."""


class Columns:
    """The columns of a program; the first is that of the whole value."""

    def __init__(self) -> None:
        self.all: list[Column] = []
        self._symbols: list[bytes] = []

    def add(self, kind: str, type: pa.DataType, nullable: bool, width: int = 0) -> int:
        """Add a column. Return its number; raises TooWideError if there are too many."""
        if len(self.all) >= MOST_FIELDS:
            raise TooWideError(f"the schema has more than {MOST_FIELDS} fields")
        self.all.append(Column(kind, type, nullable, width))
        return len(self.all) - 1

    def add_symbols(self, symbols: Sequence[str]) -> int:
        """Add names for a kernel to copy. Return the number of the first one."""
        self._symbols += [symbol.encode("utf-8", "replace") for symbol in symbols]
        return len(self._symbols) - len(symbols)

    def add_converted(
        self, kind: str, stored: pa.DataType, nullable: bool, width: int, convert: Callable[[pa.Array], pa.Array]
    ) -> int:
        """Add a column whose values become text."""
        column = self.add(kind, pa.string(), nullable, width)
        self.all[column].stored, self.all[column].convert = stored, convert
        return column

    def set_struct(self, column: int, names: Sequence[str], children: Sequence[int]) -> None:
        one = self.all[column]
        one.children = [*children]
        one.type = pa.struct([(name, self.all[child].type) for name, child in zip(names, children, strict=True)])

    def name_set(self, column: int, groups: Mapping[str, Sequence[str]]) -> None:
        """Add a text field to a struct for each `oneof`: the name of the field that is set.

        `groups` are these fields by the name of the new one.
        """
        one = self.all[column]
        one.stored = one.type
        new = [pa.field(name, pa.string()) for name in groups]
        if taken := {field.name for field in one.type} & groups.keys():
            raise SchemaError(f"it has a field {min(taken)!r}, which branches would add")
        one.type = pa.struct([*one.type, *new])
        numbers = [[one.stored.get_field_index(name) for name in names] for names in groups.values()]
        one.convert = functools.partial(_with_names_of_set, one.type, numbers)

    def set_map(self, column: int, entries: int, key: int, value: int) -> None:
        self.all[column].children, self.all[entries].children = [entries], [key, value]
        self.all[entries].never_null = self.all[key].never_null = True
        self.all[column].type = pa.map_(self.all[key].type, self.all[value].type)

    def arrays(self, kinds: dict[str, int]) -> tuple[Numbers, Numbers, Numbers, npt.NDArray[np.uint8]]:
        """The arguments of a kernel: columns, their children, the offsets of symbols, their bytes."""
        inside: list[int] = []
        columns = []
        for one in self.all:
            columns.append((kinds[one.kind], one.width, len(inside), len(one.children), one.nullable))
            inside += one.children
        symbols = np.cumsum([0, *map(len, self._symbols)], dtype=np.int32)
        text = np.frombuffer(b"".join(self._symbols), np.uint8)
        return np.array(columns, np.int32), np.array(inside, np.int32), symbols, text


def _with_names_of_set(kind: pa.DataType, numbers: Sequence[Sequence[int]], array: pa.Array) -> pa.Array:
    """A struct with fields that name the ones that are set; `numbers` has a list for each new field."""
    children = [array.field(at) for at in range(array.type.num_fields)]
    for group in numbers:
        codes = np.full(len(array), -1, np.int64)
        for at in group:
            valid = validity(children[at])
            codes[slice(None) if valid is None else valid] = at
        names = pa.array([field.name for field in array.type], pa.string())
        children.append(names.take(pa.array(codes, mask=codes < 0)))
    return pa.Array.from_buffers(kind, len(array), [bitmap(validity(array))], children=children)


def _add_faults(decoded: DecodedValues, by_row: Mapping[int, Faults]) -> None:
    """Add the faults of values; a fault of the whole value is a failure."""
    for row, faults in by_row.items():
        at_top = [fault for fault in faults if not fault[0]]
        if at_top:
            decoded.failures.setdefault(row, at_top[0][1])
        elif row not in decoded.failures:
            decoded.faults[row] = faults_text(faults)


def _raw_texts(convert: Callable[[bytes], str], filled: Any) -> pa.Array:
    """A column of JSON text, converted from its bytes."""
    n, valid, offsets, data = filled
    bounds, data = np.frombuffer(offsets, np.int32).tolist(), bytes(data)
    return text_array(
        [convert(data[bounds[i] : bounds[i + 1]]) if valid is None or valid[i] else None for i in range(n)]
    )


class ProgramValues:
    """Decodes values with a program: `arguments` are those of the kernel's `decode` before the values.

    A value with a field that does not decode is decoded again, to null in this field.
    """

    kernel: ClassVar[Any]
    """The kernel: a module with `decode` and `FAILURES`; and with `FAULTS`, those of single fields."""

    def __init__(self, columns: Columns, arguments: Sequence[Any]) -> None:
        self.type: pa.DataType = columns.all[0].type
        self._columns, self._arguments = columns.all, arguments
        self._counters: tuple[npt.NDArray[np.int64], ...] = ()

    def decode(self, payloads: Payloads) -> DecodedValues:
        faults = np.zeros((0, 3), np.int32)
        whole = self._decoded(payloads, self._arguments, faults)
        if whole is None:
            return self._in_halves(payloads, self.decode)
        array, codes, unfit = whole
        reasons = self.kernel.FAILURES
        again: frozenset[int] = getattr(self.kernel, "FAULTS", frozenset())
        failures = {row: codes[row] for row in np.flatnonzero(codes).tolist()}
        rows = np.array([row for row, code in failures.items() if code in again], np.int64)
        decoded = DecodedValues(array, {row: reasons[code] for row, code in failures.items()})
        if unfit:
            _add_faults(decoded, {0: unfit})
        return self._with_faults(decoded, payloads, rows) if rows.size else decoded

    def _with_faults(self, decoded: DecodedValues, payloads: Payloads, rows: Rows) -> DecodedValues:
        """Replace the values of some rows, which did not decode, by those with null for the fields that do not."""
        part = self._decode_fields(payloads.take(rows))
        for at, row in enumerate(rows.tolist()):
            if at in part.failures:
                decoded.failures[row] = part.failures[at]
            else:
                del decoded.failures[row]
                if at in part.faults:
                    decoded.faults[row] = part.faults[at]
        order = np.arange(len(payloads))
        order[rows] = len(payloads) + np.arange(rows.size)
        decoded.array = pa.concat_arrays([decoded.array, part.array]).take(pa.array(order))
        return decoded

    def _decode_fields(self, payloads: Payloads) -> DecodedValues:
        """Decode values of which fields do not decode."""
        faults = np.full((_FAULTS * len(payloads), 3), -1, np.int32)
        arguments = list(self._arguments)
        arguments[_COLUMNS] = columns = arguments[_COLUMNS].copy()
        columns[:, _NULLABLE] = [not one.never_null and one.kind != "empty" for one in self._columns]
        whole = self._decoded(payloads, arguments, faults)
        if whole is None or (faults[-1, 0] >= 0 and len(payloads) > 1):
            return self._in_halves(payloads, self._decode_fields)
        array, codes, unfit = whole
        reasons = self.kernel.FAILURES
        by_row: dict[int, Faults] = {0: unfit} if unfit else {}
        for row, column, code in faults[faults[:, 0] >= 0].tolist():
            by_row.setdefault(row, []).append((self._paths[column], reasons[code]))
        decoded = DecodedValues(array, {row: reasons[codes[row]] for row in np.flatnonzero(codes).tolist()})
        _add_faults(decoded, by_row)
        return decoded

    def _decoded(
        self, payloads: Payloads, arguments: Sequence[Any], faults: Numbers
    ) -> tuple[pa.Array, Numbers, Faults] | None:
        """The values and, for each, its failure; and of a single value, the fields whose bytes are of no logical type.

        None if several values cannot be decoded at once.
        """
        failures = np.zeros(len(payloads), np.int32)
        data = payloads.data if payloads.data.size else np.zeros(1, np.uint8)
        n_bytes = int((payloads.stop - payloads.start).sum())
        # a few bytes may encode many items, such as a million nulls in an Avro array
        room = min(_MOST_TIMES * n_bytes + _SLACK, _MOST_ROOM)
        more = (faults,) if hasattr(self.kernel, "FAULTS") else ()
        try:
            columns = self.kernel.decode(
                *arguments, data, payloads.start, payloads.stop, room, failures, *more, *self._counters
            )
        except MemoryError:
            return None
        unfit = Faults()
        try:
            return self._array(0, columns, None), failures, unfit
        except UnfitBytesError:
            return None if len(payloads) > 1 else (self._array(0, columns, unfit), failures, unfit)

    @functools.cached_property
    def _paths(self) -> list[Path]:
        """The field of each column."""
        paths: list[Path] = [()] * len(self._columns)
        for at, column in enumerate(self._columns):
            if pa.types.is_null(column.type):  # the entries of a map
                names = ["{key}", "{}"][: len(column.children)]
            elif column.kind == "struct":
                names = [one.name for one in column.stored or column.type]
            else:
                names = ["" for _ in column.children] if pa.types.is_map(column.type) else ["[]"] * len(column.children)
            for child, name in zip(column.children, names, strict=True):
                paths[child] = (*paths[at], name) if name else paths[at]
        return paths

    def _in_halves(
        self,
        payloads: Payloads,
        decode: Callable[[Payloads], DecodedValues],
        why: str = "the value takes too much memory",
    ) -> DecodedValues:
        n = len(payloads)
        if n == 1:
            return DecodedValues(pa.nulls(1, self.type), {0: why})
        first, second = (decode(payloads.take(rows)) for rows in np.array_split(np.arange(n), 2))
        half = len(first.array)
        failures = first.failures | {row + half: why for row, why in second.failures.items()}
        faults = first.faults | {row + half: why for row, why in second.faults.items()}
        return DecodedValues(pa.concat_arrays([first.array, second.array]), failures, faults)

    def _array(self, at: int, columns: Sequence[Any], unfit: Faults | None) -> pa.Array:
        """A column; `unfit` receives the fields whose bytes are of no logical type, which otherwise raise."""
        column = self._columns[at]
        if column.convert is None:
            return self._stored_array(column, column.type, columns[at], columns, unfit)
        stored = self._stored_array(column, column.stored, columns[at], columns, unfit)
        try:
            return column.convert(stored)
        except UnfitBytesError as error:
            if unfit is None:
                raise
            unfit.append((self._paths[at], str(error)))
            return pa.nulls(len(stored), column.type)

    def _stored_array(
        self, column: Column, kind: pa.DataType, filled: Any, columns: Sequence[Any], unfit: Faults | None
    ) -> pa.Array:
        n, valid, offsets, data = filled
        mask = None if valid is None else bitmap(np.frombuffer(valid, np.bool_))
        if column.kind == "empty":
            return pa.nulls(n)
        if column.raw is not None:
            return _raw_texts(column.raw, filled)
        if column.kind == "flat":
            if kind == pa.bool_():
                data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
            return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(data)])
        if column.kind == "text":
            is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
            text = kind if is_text else pa.string()
            return pa.Array.from_buffers(text, n, [mask, pa.py_buffer(offsets), pa.py_buffer(data)]).cast(kind)
        children = [self._array(child, columns, unfit) for child in column.children]
        if column.kind == "list":
            return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(offsets)], children=children)
        if pa.types.is_null(kind):  # the entries of a map
            key, value = (child.type for child in children)
            kind = pa.struct([pa.field("key", key, nullable=False), pa.field("value", value)])
        return pa.Array.from_buffers(kind, n, [mask], children=children)
