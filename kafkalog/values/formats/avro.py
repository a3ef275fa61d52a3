"""Avro values: a schema becomes a program, which `kafkalog._kernels.avro` runs over the bytes of many values.

A record becomes a struct, an array a list, a map a map, an enum text; null and another type that other type, nullable;
any other union a struct with a field for each branch, of which one is not null. A record within itself becomes JSON
text, in which bytes are base64 and logical types the numbers that stand for them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog._kernels import avro as kernel
from kafkalog.values.formats.avro_types import AvroType, SchemaError, least_bytes, parse_schema
from kafkalog.values.payloads import Decoded, Payloads, bitmap
from kafkalog.values.types import MOST_FIELDS, Path, TooWideError, json_text, text_array

_SCALARS: Final[dict[str, tuple[str, int, pa.DataType]]] = {
    "boolean": ("boolean", 1, pa.bool_()),
    "int": ("int", 4, pa.int32()),
    "long": ("long", 8, pa.int64()),
    "float": ("fixed", 4, pa.float32()),
    "double": ("fixed", 8, pa.float64()),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_DAYS: Final = {"time-millis": 1, "time-micros": 2}
_SLACK: Final = 64 * 2**20
_MOST_TIMES: Final = 64
_MOST_ROOM: Final = 2**31


Numbers = npt.NDArray[np.int32]
Around = tuple[int, ...]
"""The records that a type is in."""


@dataclass(slots=True)
class _Column:
    """A column of the program, and the Arrow type that is made of it."""

    kind: str
    type: pa.DataType
    nullable: bool = False
    width: int = 0
    children: list[int] = field(default_factory=list)
    raw: AvroType | None = None


class _Program:
    """Nodes and columns, as the kernel takes them."""

    def __init__(self) -> None:
        self._nodes: list[tuple[str, int, list[int], int, int]] = []
        self.columns: list[_Column] = []
        self._symbols: list[bytes] = []
        self._passed: dict[int, int] = {}
        self._least: dict[int, int] = {}

    def _node(self, op: str, column: int = -1, children: Iterable[int] = (), a: int = 0, b: int = 0) -> int:
        self._nodes.append((op, column, list(children), a, b))
        return len(self._nodes) - 1

    def _set_node(self, at: int, op: str, column: int, children: Iterable[int], a: int = 0, b: int = 0) -> None:
        self._nodes[at] = (op, column, list(children), a, b)

    def _column(self, kind: str, type: pa.DataType, nullable: bool, width: int = 0) -> int:
        if len(self.columns) >= MOST_FIELDS:
            raise TooWideError(f"the schema has more than {MOST_FIELDS} fields")
        self.columns.append(_Column(kind, type, nullable, width))
        return len(self.columns) - 1

    def read(self, one: AvroType, *, nullable: bool, around: Around = (), paths: Sequence[Path] | None = None) -> int:
        """A node that appends values to a new column, which is the next one."""
        if one.kind == "union":
            return self._union(one, nullable, around, paths)
        if one.kind == "null":
            return self._node("null", self._column("empty", pa.null(), False))
        if one.logical == "decimal":
            wide = one.precision > 38
            kind = (pa.decimal256 if wide else pa.decimal128)(one.precision, one.scale)
            column = self._column("flat", kind, nullable, 32 if wide else 16)
            return self._node("decimal", column, a=one.size if one.kind == "fixed" else -1, b=one.precision)
        if one.kind in _SCALARS:
            op, width, kind = _SCALARS[one.kind]
            column = self._column("flat", _LOGICAL.get(one.logical or "", kind), nullable, width)
            return self._node(op, column, a=width, b=_DAYS.get(one.logical or "", 0))
        if one.kind == "fixed":
            if not one.size:  # Arrow has no bytes strings of size 0
                return self._node("fixed", self._column("flat", pa.binary(0), nullable, 0), a=0)
            return self._node("fixed", self._column("flat", pa.binary(one.size), nullable, one.size), a=one.size)
        if one.kind in ("bytes", "string"):
            kind = pa.binary() if one.kind == "bytes" else pa.string()
            return self._node(one.kind, self._column("text", kind, nullable))
        if one.kind == "enum":
            return self._enum(one, self._column("text", pa.string(), nullable))
        if one.kind == "record":
            return self._record(one, nullable, around, paths)
        return self._items(one, nullable, around)

    def _record(self, one: AvroType, nullable: bool, around: Around, paths: Sequence[Path] | None) -> int:
        if id(one) in around:
            column = self._column("text", pa.string(), nullable)
            self.columns[column].raw = one
            return self._node("raw", column, [self._pass(one)])
        around = (*around, id(one))
        column = self._column("struct", pa.null(), nullable)
        nodes, fields = [], []
        for name, inner in one.fields:
            mine = None if paths is None else [path[1:] for path in paths if path[0] == name]
            if mine is not None and not mine:
                nodes.append(self._pass(inner))
                continue
            child = len(self.columns)
            inside = None if not mine or () in mine else mine
            nodes.append(self.read(inner, nullable=False, around=around, paths=inside))
            self.columns[column].children.append(child)
            fields.append(pa.field(name, self.columns[child].type))
        self.columns[column].type = pa.struct(fields)
        return self._node("record", column, nodes)

    def _union(self, one: AvroType, nullable: bool, around: Around, paths: Sequence[Path] | None) -> int:
        null_at = next((i for i, branch in enumerate(one.inner) if branch.kind == "null"), -1)
        others = [branch for branch in one.inner if branch.kind != "null"]
        if not others:
            return self._node("nullable", self._column("empty", pa.null(), False), [self._node("null")], a=0)
        if len(others) == 1:
            column = len(self.columns)
            node = self.read(others[0], nullable=nullable or null_at >= 0, around=around, paths=paths)
            null = self._node("null")
            branches = [null if i == null_at else node for i in range(len(one.inner))]
            return self._node("nullable", column, branches, a=null_at)
        column = self._column("struct", pa.null(), nullable or null_at >= 0)
        names = [branch.name.rpartition(".")[2] or branch.kind for branch in others]
        if len(set(names)) < len(names):
            names = [branch.name or branch.kind for branch in others]
        if len(set(names)) < len(names):
            raise SchemaError("a union has the same type twice")
        nodes: list[int] = []
        fields = []
        for name, branch in zip(names, others, strict=True):
            child = len(self.columns)
            nodes.append(self.read(branch, nullable=True, around=around))
            self.columns[column].children.append(child)
            fields.append(pa.field(name, self.columns[child].type))
        self.columns[column].type = pa.struct(fields)
        if null_at >= 0:
            nodes.insert(null_at, self._node("null"))
        return self._node("union", column, nodes, a=null_at)

    def _items(self, one: AvroType, nullable: bool, around: Around) -> int:
        column = self._column("list", pa.null(), nullable)
        least = least_bytes(one.inner[0], self._least)
        if one.kind == "array":
            child = len(self.columns)
            node = self.read(one.inner[0], nullable=False, around=around)
            self.columns[column].children = [child]
            self.columns[column].type = pa.list_(self.columns[child].type)
            return self._node("array", column, [node], a=least)
        entries = self._column("struct", pa.null(), False)
        key = self._column("text", pa.string(), False)
        keys = self._node("string", key)
        child = len(self.columns)
        node = self.read(one.inner[0], nullable=False, around=around)
        self.columns[column].children = [entries]
        self.columns[entries].children = [key, child]
        self.columns[column].type = pa.map_(pa.string(), self.columns[child].type)
        return self._node("map", column, [keys, node], a=least + 1)

    def _enum(self, one: AvroType, column: int) -> int:
        first = len(self._symbols)
        if column >= 0:
            self._symbols += [symbol.encode("utf-8", "replace") for symbol in one.symbols]
        return self._node("enum", column, a=first, b=len(one.symbols))

    def _pass(self, one: AvroType) -> int:
        """A node that passes over values; the same one wherever the type is passed over."""
        if id(one) in self._passed:
            return self._passed[id(one)]
        at = self._passed[id(one)] = self._node("null")
        if one.kind == "record":
            self._set_node(at, "record", -1, [self._pass(inner) for _, inner in one.fields])
        elif one.kind == "union":
            null_at = next((i for i, branch in enumerate(one.inner) if branch.kind == "null"), -1)
            self._set_node(at, "nullable", -1, [self._pass(inner) for inner in one.inner], null_at)
        elif one.kind == "array":
            self._set_node(at, "array", -1, [self._pass(one.inner[0])], least_bytes(one.inner[0], self._least))
        elif one.kind == "map":
            children = [self._node("string"), self._pass(one.inner[0])]
            self._set_node(at, "map", -1, children, least_bytes(one.inner[0], self._least) + 1)
        elif one.kind == "enum":
            self._set_node(at, "enum", -1, [], 0, len(one.symbols))
        elif one.kind == "fixed":
            self._set_node(at, "fixed", -1, [], one.size)
        elif one.kind in _SCALARS:
            op, width, _ = _SCALARS[one.kind]
            self._set_node(at, op, -1, [], width)
        elif one.kind != "null":
            self._set_node(at, one.kind, -1, [])
        return at

    def arrays(self, root: int) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers, npt.NDArray[np.uint8]]:
        """The arguments of the kernel. The node that is the value's is the first one."""
        children: list[int] = []
        rows = []
        for op, column, inner, a, b in [self._nodes[root], *self._nodes]:
            rows.append((kernel.OPS[op], column, len(children), len(inner), a, b))
            children += [at + 1 for at in inner]
        inside: list[int] = []
        columns = []
        for one in self.columns:
            columns.append((kernel.KINDS[one.kind], one.width, len(inside), len(one.children), one.nullable))
            inside += one.children
        symbols = np.cumsum([0, *map(len, self._symbols)], dtype=np.int32)
        return (
            np.array(rows, np.int32),
            np.array(children, np.int32),
            np.array(columns, np.int32),
            np.array(inside, np.int32),
            symbols,
            np.frombuffer(b"".join(self._symbols), np.uint8),
        )


class AvroValues:
    """Decodes values that are written with one schema.

    Parameters
    ----------
    text : str
        The schema.
    referred : iterable of str
        Schemas whose names it uses.
    paths : sequence of tuple of str, optional
        Only these fields are decoded; the others are checked and passed over.

    Attributes
    ----------
    type : pyarrow.DataType

    Raises
    ------
    SchemaError
        The schema is invalid.
    TooWideError
        It has too many fields.
    """

    def __init__(self, text: str, referred: Iterable[str] = (), paths: Sequence[Path] | None = None) -> None:
        program = _Program()
        root = program.read(parse_schema(text, referred), nullable=True, paths=paths)
        self.type: pa.DataType = program.columns[0].type
        self._columns = program.columns
        self._arrays = program.arrays(root)

    def decode(self, payloads: Payloads) -> Decoded:
        """The values as an array of `type`."""
        failures = np.zeros(len(payloads), np.int32)
        data = payloads.data if payloads.data.size else np.zeros(1, np.uint8)
        n_bytes = int((payloads.stop - payloads.start).sum())
        room = min(_MOST_TIMES * n_bytes + _SLACK, _MOST_ROOM)
        try:
            columns = kernel.decode(*self._arrays, data, payloads.start, payloads.stop, room, failures)
        except MemoryError:
            return self._in_halves(payloads)
        found = np.flatnonzero(failures)
        return Decoded(self._array(0, columns), {row: kernel.FAILURES[failures[row]] for row in found.tolist()})

    def _in_halves(self, payloads: Payloads) -> Decoded:
        n = len(payloads)
        if n == 1:
            return Decoded(pa.nulls(1, self.type), {0: "the value takes too much memory"})
        first, second = (self.decode(payloads.take(rows)) for rows in np.array_split(np.arange(n), 2))
        failures = first.failures | {row + len(first.array): why for row, why in second.failures.items()}
        return Decoded(pa.concat_arrays([first.array, second.array]), failures)

    def _array(self, at: int, columns: Sequence[Any]) -> pa.Array:
        column = self._columns[at]
        n, valid, offsets, data = columns[at]
        mask = None if valid is None else bitmap(np.frombuffer(valid, np.bool_))
        if column.kind == "empty":
            return pa.nulls(n)
        if column.raw is not None:
            return _raw_texts(column.raw, n, valid, np.frombuffer(offsets, np.int32), data)
        if column.kind == "flat":
            if column.type == pa.bool_():
                data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
            return pa.Array.from_buffers(column.type, n, [mask, pa.py_buffer(data)])
        if column.kind == "text":
            return pa.Array.from_buffers(column.type, n, [mask, pa.py_buffer(offsets), pa.py_buffer(data)])
        children = [self._array(child, columns) for child in column.children]
        if column.kind == "list":
            return pa.Array.from_buffers(column.type, n, [mask, pa.py_buffer(offsets)], children=children)
        kind = column.type
        if pa.types.is_null(kind):  # the entries of a map
            kind = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", children[1].type)])
        return pa.Array.from_buffers(kind, n, [mask], children=children)


def _raw_texts(one: AvroType, n: int, valid: Any, offsets: npt.NDArray[np.int32], raw: bytes) -> pa.Array:
    """The values of a record within itself as JSON text. The kernel has checked the bytes."""
    texts = []
    for row in range(n):
        is_valid = valid is None or valid[row]
        texts.append(json_text(_plain(one, raw, int(offsets[row]))[0]) if is_valid else None)
    return text_array(texts)


def _plain(one: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    """A value as JSON has it, and the position behind it."""
    if one.kind in ("int", "long", "enum", "union", "bytes", "string"):
        number, at = _long(data, at)
        if one.kind == "union":
            return _plain(one.inner[number], data, at)
        if one.kind == "enum":
            return one.symbols[number], at
        if one.kind in ("bytes", "string"):
            value = data[at : at + number]
            return value.decode() if one.kind == "string" else base64.b64encode(value).decode(), at + number
        return number, at
    if one.kind == "record":
        found = {}
        for name, inner in one.fields:
            found[name], at = _plain(inner, data, at)
        return found, at
    if one.kind in ("array", "map"):
        return _plain_items(one, data, at)
    if one.kind == "fixed":
        return base64.b64encode(data[at : at + one.size]).decode(), at + one.size
    if one.kind == "boolean":
        return data[at] == 1, at + 1
    if one.kind == "null":
        return None, at
    number = struct.unpack_from("<f" if one.kind == "float" else "<d", data, at)[0]
    return number if np.isfinite(number) else str(number), at + (4 if one.kind == "float" else 8)


def _plain_items(one: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    items: list[Any] = []
    pairs: dict[str, Any] = {}
    while True:
        count, at = _long(data, at)
        if count == 0:
            return (items if one.kind == "array" else pairs), at
        if count < 0:
            count, (_, at) = -count, _long(data, at)
        for _ in range(count):
            if one.kind == "map":
                size, at = _long(data, at)
                name, at = data[at : at + size].decode(), at + size
                pairs[name], at = _plain(one.inner[0], data, at)
            else:
                item, at = _plain(one.inner[0], data, at)
                items.append(item)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 2**64 - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7
