"""Programs compiled from schemas for the decoding kernels, and arrays of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import text_array
from kafkalog.values.payloads import Decoded, Payloads
from kafkalog.values.types import MOST_FIELDS, TooWideError

Numbers = npt.NDArray[np.int32]
Around = tuple[int | str, ...]
"""The enclosing types of a type, by `id` or full name."""

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

    def set_map(self, column: int, entries: int, key: int, value: int) -> None:
        self.all[column].children, self.all[entries].children = [entries], [key, value]
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


class ProgramValues:
    """Decodes values with a program: `arguments` are those of the kernel's `decode` before the values."""

    kernel: ClassVar[Any]
    """The kernel: a module with `decode` and `FAILURES`."""

    def __init__(self, columns: Columns, arguments: Sequence[Any]) -> None:
        self.type: pa.DataType = columns.all[0].type
        self._columns, self._arguments = columns.all, arguments
        self._counters: tuple[npt.NDArray[np.int64], ...] = ()

    def decode(self, payloads: Payloads) -> Decoded:
        failures = np.zeros(len(payloads), np.int32)
        data = payloads.data if payloads.data.size else np.zeros(1, np.uint8)
        n_bytes = int((payloads.stop - payloads.start).sum())
        # a few bytes may encode many items, such as a million nulls in an Avro array
        room = min(_MOST_TIMES * n_bytes + _SLACK, _MOST_ROOM)
        try:
            columns = self.kernel.decode(
                *self._arguments, data, payloads.start, payloads.stop, room, failures, *self._counters
            )
        except MemoryError:
            return self._in_halves(payloads)
        found = np.flatnonzero(failures)
        reasons = self.kernel.FAILURES
        try:
            array = self._array(0, columns)
        except UnfitBytesError as error:
            return self._in_halves(payloads, str(error))
        return Decoded(array, {row: reasons[failures[row]] for row in found.tolist()})

    def _in_halves(self, payloads: Payloads, why: str = "the value takes too much memory") -> Decoded:
        n = len(payloads)
        if n == 1:
            return Decoded(pa.nulls(1, self.type), {0: why})
        first, second = (self.decode(payloads.take(rows)) for rows in np.array_split(np.arange(n), 2))
        failures = first.failures | {row + len(first.array): why for row, why in second.failures.items()}
        return Decoded(pa.concat_arrays([first.array, second.array]), failures)

    def _array(self, at: int, columns: Sequence[Any]) -> pa.Array:
        column = self._columns[at]
        if column.convert is None:
            return self._stored_array(column, column.type, columns[at], columns)
        return column.convert(self._stored_array(column, column.stored, columns[at], columns))

    def _stored_array(self, column: Column, kind: pa.DataType, filled: Any, columns: Sequence[Any]) -> pa.Array:
        n, valid, offsets, data = filled
        mask = None if valid is None else bitmap(np.frombuffer(valid, np.bool_))
        if column.kind == "empty":
            return pa.nulls(n)
        if column.raw is not None:
            bounds, data = np.frombuffer(offsets, np.int32).tolist(), bytes(data)
            return text_array(
                [column.raw(data[bounds[i] : bounds[i + 1]]) if valid is None or valid[i] else None for i in range(n)]
            )
        if column.kind == "flat":
            if kind == pa.bool_():
                data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
            return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(data)])
        if column.kind == "text":
            is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
            text = kind if is_text else pa.string()
            return pa.Array.from_buffers(text, n, [mask, pa.py_buffer(offsets), pa.py_buffer(data)]).cast(kind)
        children = [self._array(child, columns) for child in column.children]
        if column.kind == "list":
            return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(offsets)], children=children)
        if pa.types.is_null(kind):  # the entries of a map
            key, value = (child.type for child in children)
            kind = pa.struct([pa.field("key", key, nullable=False), pa.field("value", value)])
        return pa.Array.from_buffers(kind, n, [mask], children=children)
