"""Decodes Avro: compiles a schema to a program that `kafkalog._kernels.avro` runs over many values.

A record becomes a struct, an array a list, a map a map, and an enum text. A union of null and one type becomes that
type, nullable. Any other union becomes a struct with a field for each branch, one of them not null. A recursive record
becomes JSON text, with bytes in base64 and logical types as plain numbers.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

import kafkalog._kernels.avro as kernel
from kafkalog.interchange.table_types import Path, json_text
from kafkalog.interchange.text_output import NOT_FINITE
from kafkalog.protocol.encoder import uvarint
from kafkalog.values.formats.avro_texts import decimal_texts, variable_scale_texts
from kafkalog.values.formats.avro_types import DURATION, VARIABLE_SCALE, AvroType, least_bytes, parse_schema
from kafkalog.values.formats.program import BRANCH, Around, Columns, ProgramValues
from kafkalog.values.payloads import DecodedValues, Payloads
from kafkalog.values.types import SchemaError

_SCALARS: Final[dict[str, tuple[str, int, pa.DataType]]] = {
    "boolean": ("boolean", 1, pa.bool_()),
    "int": ("int", 4, pa.int32()),
    "long": ("long", 8, pa.int64()),
    "float": ("fixed", 4, pa.float32()),
    "double": ("fixed", 8, pa.float64()),
}
_MOST_DIGITS: Final = 76
"""Maximum digits of Arrow's decimals; a wider one becomes text."""


class _AvroProgram:
    """`unions` are the paths that are a union in any version of the schema: a single type there becomes one, too."""

    def __init__(self, unions: Collection[Path] = (), *, branches: bool = False) -> None:
        self._unions, self._names_branches = unions, branches
        self.union_paths: set[Path] = set()
        self._nodes: list[tuple[str, int, list[int], int, int]] = []
        self.columns = Columns()
        self._passed: dict[int, int] = {}
        self._least: dict[int, int] = {}

    def _node(self, op: str, column: int = -1, children: Iterable[int] = (), a: int = 0, b: int = 0) -> int:
        self._nodes.append((op, column, list(children), a, b))
        return len(self._nodes) - 1

    def _set_node(self, at: int, op: str, column: int, children: Iterable[int], a: int = 0, b: int = 0) -> None:
        self._nodes[at] = (op, column, list(children), a, b)

    def read(
        self,
        one: AvroType,
        *,
        nullable: bool,
        path: Path = (),
        around: Around = (),
        paths: Sequence[Path] | None = None,
    ) -> int:
        """Add a node that appends values to a new column, the next one; `path` is that of the column."""
        if one.kind == "union":
            return self._union(one, nullable, path, around, paths)
        if one.kind == "null":
            return self._node("null", self.columns.add("empty", pa.null(), False))
        if path in self._unions:
            column = self.columns.add("struct", pa.null(), nullable)
            name = branch_names([one])[0]
            child = len(self.columns.all)
            node = self._one(one, True, (*path, name), around, None)
            self._set_branches(column, [name], [child])
            return self._node("record", column, [node])
        return self._one(one, nullable, path, around, paths)

    def _one(self, one: AvroType, nullable: bool, path: Path, around: Around, paths: Sequence[Path] | None) -> int:
        """Add a node for a type that is no union."""
        if one.logical == "decimal":
            return self._decimal(one, nullable)
        if one.form.to_text is not None:
            # bytes are nullable, so that no empty ones stand for nothing under a null
            return self._text_of(one, nullable or one.kind == "bytes", one.form.to_text)
        if one.logical == "duration":
            return self._duration(nullable)
        if one.logical == VARIABLE_SCALE:
            return self._variable_scale()
        if one.kind in _SCALARS:
            op, width, kind = _SCALARS[one.kind]
            column = self.columns.add("flat", one.form.arrow or kind, nullable, width)
            return self._node(op, column, a=width, b=one.form.per_ms)
        if one.kind == "fixed":
            if not one.size:  # few formats of tables have byte strings of size 0
                return self._node("raw", self.columns.add("text", pa.binary(), nullable), [self._pass(one)])
            return self._node("fixed", self.columns.add("flat", pa.binary(one.size), nullable, one.size), a=one.size)
        if one.kind in ("bytes", "string"):
            kind = pa.binary() if one.kind == "bytes" else pa.string()
            return self._node(one.kind, self.columns.add("text", kind, nullable))
        if one.kind == "enum":
            column = self.columns.add("text", pa.string(), nullable)
            return self._node("enum", column, a=self.columns.add_symbols(one.symbols), b=len(one.symbols))
        if one.kind == "record":
            return self._record(one, nullable, path, around, paths)
        return self._items(one, nullable, path, around)

    def _text_of(self, one: AvroType, nullable: bool, convert: Callable[[pa.Array], pa.Array]) -> int:
        """Add a column of bytes that become text."""
        if one.kind == "bytes":
            return self._node("bytes", self.columns.add_converted("text", pa.binary(), nullable, 0, convert))
        column = self.columns.add_converted("flat", pa.binary(one.size), nullable, one.size, convert)
        return self._node("fixed", column, a=one.size)

    def _decimal(self, one: AvroType, nullable: bool) -> int:
        """Add a column of decimals; of text, for those too wide for Arrow."""
        if one.precision > _MOST_DIGITS:
            return self._text_of(one, nullable, partial(decimal_texts, one.scale))
        wide = one.precision > 38
        kind = (pa.decimal256 if wide else pa.decimal128)(one.precision, one.scale)
        column = self.columns.add("flat", kind, nullable, 32 if wide else 16)
        return self._node("decimal", column, a=one.size if one.kind == "fixed" else -1, b=one.precision)

    def _duration(self, nullable: bool) -> int:
        column = self.columns.add("struct", pa.null(), nullable)
        children = [self.columns.add("flat", pa.uint32(), False, 4) for _ in DURATION]
        self.columns.set_struct(column, DURATION, children)
        return self._node("record", column, [self._node("fixed", child, a=4) for child in children])

    def _variable_scale(self) -> int:
        """Add a column of Debezium's decimals, as text."""
        stored = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
        # nullable, so that no empty bytes stand for nothing under a null
        column = self.columns.add_converted("struct", stored, True, 0, variable_scale_texts)
        scale, value = self.columns.add("flat", pa.int32(), False, 4), self.columns.add("text", pa.binary(), False)
        self.columns.all[column].children = [scale, value]
        return self._node("record", column, [self._node("int", scale, a=4), self._node("bytes", value)])

    def _record(self, one: AvroType, nullable: bool, path: Path, around: Around, paths: Sequence[Path] | None) -> int:
        # a recursive type would need columns without end
        if id(one) in around:
            # nullable, so that no empty bytes stand for nothing under a null
            column = self.columns.add("text", pa.string(), True)
            self.columns.all[column].raw = partial(_raw_text, one)
            return self._node("raw", column, [self._pass(one)])
        around = (*around, id(one))
        column = self.columns.add("struct", pa.null(), nullable)
        nodes, names, children = [], [], []
        for name, inner in one.fields:
            mine = None if paths is None else [wanted[1:] for wanted in paths if wanted[0] == name]
            if mine is not None and not mine:
                nodes.append(self._pass(inner))
                continue
            child = len(self.columns.all)
            inside = None if not mine or () in mine else mine
            nodes.append(self.read(inner, nullable=False, path=(*path, name), around=around, paths=inside))
            names.append(name)
            children.append(child)
        self.columns.set_struct(column, names, children)
        return self._node("record", column, nodes)

    def _union(self, one: AvroType, nullable: bool, path: Path, around: Around, paths: Sequence[Path] | None) -> int:
        null_at = next((i for i, branch in enumerate(one.inner) if branch.kind == "null"), -1)
        others = [branch for branch in one.inner if branch.kind != "null"]
        if not others:
            return self._node("nullable", self.columns.add("empty", pa.null(), False), [self._node("null")], a=0)
        if len(others) == 1 and path not in self._unions:
            column = len(self.columns.all)
            node = self._one(others[0], nullable or null_at >= 0, path, around, paths)
            null = self._node("null")
            branches = [null if i == null_at else node for i in range(len(one.inner))]
            return self._node("nullable", column, branches, a=null_at)
        if len(others) > 1:
            self.union_paths.add(path)
        column = self.columns.add("struct", pa.null(), nullable or null_at >= 0)
        names = branch_names(others)
        nodes: list[int] = []
        children = []
        for branch, name in zip(others, names, strict=True):
            children.append(len(self.columns.all))
            nodes.append(self._one(branch, True, (*path, name), around, None))
        self._set_branches(column, names, children)
        if null_at >= 0:
            nodes.insert(null_at, self._node("null"))
        return self._node("union", column, nodes, a=null_at)

    def _set_branches(self, column: int, names: Sequence[str], children: Sequence[int]) -> None:
        self.columns.set_struct(column, names, children)
        if self._names_branches:
            self.columns.name_set(column, {BRANCH: names})

    def _items(self, one: AvroType, nullable: bool, path: Path, around: Around) -> int:
        column = self.columns.add("list", pa.null(), nullable)
        # the kernel checks a block's count against the remaining bytes
        least = least_bytes(one.inner[0], self._least)
        if one.kind == "array":
            child = len(self.columns.all)
            node = self.read(one.inner[0], nullable=False, path=(*path, "[]"), around=around)
            self.columns.all[column].children = [child]
            self.columns.all[column].type = pa.list_(self.columns.all[child].type)
            return self._node("array", column, [node], a=least)
        entries = self.columns.add("struct", pa.null(), False)
        key = self.columns.add("text", pa.string(), False)
        keys = self._node("string", key)
        child = len(self.columns.all)
        node = self.read(one.inner[0], nullable=False, path=(*path, "{}"), around=around)
        self.columns.set_map(column, entries, key, child)
        return self._node("map", column, [keys, node], a=least + 1)

    def _pass(self, one: AvroType) -> int:
        """Add a node that skips values; shared by all places that skip this type."""
        if id(one) in self._passed:
            return self._passed[id(one)]
        # register it before its fields: the type may be recursive
        at = self._passed[id(one)] = self._node("null")
        # values out of range do not decode, even if not selected
        if one.logical == "decimal" and one.precision <= _MOST_DIGITS:
            self._set_node(at, "decimal", -1, [], one.size if one.kind == "fixed" else -1, one.precision)
        elif one.kind == "record":
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
            self._set_node(at, op, -1, [], width, one.form.per_ms)
        elif one.kind != "null":
            self._set_node(at, one.kind, -1, [])
        return at

    def arguments(self, root: int) -> tuple[Any, ...]:
        """The arguments of the kernel. The first node is that of the whole value."""
        children: list[int] = []
        rows = []
        for op, column, inner, a, b in [self._nodes[root], *self._nodes]:
            rows.append((kernel.OPS[op], column, len(children), len(inner), a, b))
            children += [at + 1 for at in inner]
        return np.array(rows, np.int32), np.array(children, np.int32), *self.columns.arrays(kernel.KINDS)


def branch_names(branches: Sequence[AvroType]) -> list[str]:
    """The names of a union's branches as fields; raises SchemaError for a type that occurs twice."""
    names = [branch.name.rpartition(".")[2] or branch.kind for branch in branches]
    if len(set(names)) < len(names):
        # two records may have the same name in different namespaces
        names = [branch.name or branch.kind for branch in branches]
    if len(set(names)) < len(names):
        raise SchemaError("a union has the same type twice")
    return names


class AvroValues(ProgramValues):
    """Decodes values of one schema, and only the fields in `paths`; others are checked and skipped.

    `referred` are the schemas that it refers to. `unions` are the paths that become a struct of branches, even if this
    schema has a single type there; with `branches`, these structs name the one that is set. With a frame, a schema that
    is just `bytes` has no length: the value is the rest. Raises SchemaError, or TooWideError for too many fields.
    """

    kernel: ClassVar[Any] = kernel

    def __init__(
        self,
        schema: str | AvroType,
        referred: Iterable[str] = (),
        paths: Sequence[Path] | None = None,
        *,
        unions: Collection[Path] = (),
        is_framed: bool = False,
        branches: bool = False,
    ) -> None:
        if isinstance(schema, str):
            schema = parse_schema(schema, referred)
        program = _AvroProgram(unions, branches=branches)
        root = program.read(schema, nullable=True, paths=paths)
        self.union_paths = frozenset(program.union_paths)
        # Source: AbstractKafkaAvroDeserializer.DeserializationContext.read, Confluent Schema Registry 8.1
        self._is_rest = is_framed and schema.kind == "bytes"
        super().__init__(program.columns, program.arguments(root))

    def decode(self, payloads: Payloads) -> DecodedValues:
        return super().decode(_with_lengths(payloads) if self._is_rest else payloads)


def _with_lengths(payloads: Payloads) -> Payloads:
    """The same byte strings as Avro writes them: each after its length."""
    parts = []
    start, stop = payloads.start.copy(), payloads.stop.copy()
    at = 0
    for row in np.flatnonzero(payloads.valid).tolist():
        data = payloads.bytes(row) or b""
        parts += [uvarint(2 * len(data)), data]
        start[row] = at
        stop[row] = at = at + len(parts[-2]) + len(data)
    return Payloads(np.frombuffer(b"".join(parts), np.uint8), start, stop)


def _raw_text(one: AvroType, data: bytes) -> str:
    """A recursive record as JSON text. The kernel has checked the bytes."""
    return json_text(_plain(one, data, 0)[0])


def _plain(one: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    """A value in JSON's form, and the position after it."""
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
    return number if np.isfinite(number) else NOT_FINITE[str(number)], at + (4 if one.kind == "float" else 8)


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
