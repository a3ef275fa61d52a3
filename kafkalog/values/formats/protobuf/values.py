"""Decodes Protobuf: compiles a message to a program that `kafkalog._kernels.protobuf` runs over many values.

A message becomes a struct, a repeated field a list, a map a map, and an enum text (or the number, if it has no name).
An absent field with presence, such as a member of a oneof, is null; without presence, it has its default value.
`google.protobuf.Timestamp` becomes a time in microseconds, a wrapper its value or null. A recursive message becomes
JSON text, and so do `google.protobuf.Struct`, `Value` and `ListValue`. `google.protobuf.Any` also has its content as
JSON text, if the schema or its imports define the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

import kafkalog._kernels.protobuf as kernel
from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import Path, text_array
from kafkalog.values.formats.program import BRANCH, Around, Columns, ProgramValues, UnfitBytesError
from kafkalog.values.formats.protobuf.nested_text import ANY, DYNAMIC, TIMESTAMP, WRAPPERS, message_text
from kafkalog.values.formats.protobuf.types import TYPES, Descriptor, is_map, real_oneofs
from kafkalog.values.payloads import DecodedValues, Payloads
from kafkalog.values.types import struct_array

_VARINT, _EIGHT_BYTES, _DELIMITED, _GROUP, _FOUR_BYTES = 0, 1, 2, 3, 5
_SCALARS: Final[dict[str, tuple[str, int, int, pa.DataType]]] = {
    "bool": ("bool", _VARINT, 1, pa.bool_()),
    "int32": ("int32", _VARINT, 4, pa.int32()),
    "uint32": ("int32", _VARINT, 4, pa.uint32()),
    "sint32": ("sint32", _VARINT, 4, pa.int32()),
    "int64": ("int64", _VARINT, 8, pa.int64()),
    "uint64": ("int64", _VARINT, 8, pa.uint64()),
    "sint64": ("sint64", _VARINT, 8, pa.int64()),
    "float": ("fixed32", _FOUR_BYTES, 4, pa.float32()),
    "fixed32": ("fixed32", _FOUR_BYTES, 4, pa.uint32()),
    "sfixed32": ("fixed32", _FOUR_BYTES, 4, pa.int32()),
    "double": ("fixed64", _EIGHT_BYTES, 8, pa.float64()),
    "fixed64": ("fixed64", _EIGHT_BYTES, 8, pa.uint64()),
    "sfixed64": ("fixed64", _EIGHT_BYTES, 8, pa.int64()),
    "string": ("string", _DELIMITED, 0, pa.string()),
    "bytes": ("bytes", _DELIMITED, 0, pa.binary()),
}
CONTENT: Final = "content"
"""The field with the JSON text of a `google.protobuf.Any`."""
_TIME: Final = pa.timestamp("us", "UTC")


@dataclass(slots=True)
class _ProtobufNode:
    """The kernel's `Node`."""

    op: str
    wire: int = _DELIMITED
    column: int = -1
    list_column: int = -1
    children: list[int] = field(default_factory=list)
    a: int = 0
    b: int = 0
    number: int = 0
    label: str = "null"
    oneof: int = -1
    closed: int = 0


def _below(name: str, paths: Sequence[Path] | None, *, is_member: bool) -> list[Path] | None:
    """The selected paths inside a field, none if it is not selected; None for all of it, as for a oneof's member."""
    if paths is None:
        return None
    below = [path[1:] for path in paths if path[0] == name]
    return None if is_member or () in below else below


class _ProtobufProgram:
    def __init__(self, *, branches: bool = False) -> None:
        self._names_members = branches
        self._nodes: list[_ProtobufNode] = []
        self.columns = Columns()
        self._numbers: list[int] = []
        self._enums: dict[str, tuple[int, int]] = {}
        self._passed: dict[str, int] = {}
        self._n_oneofs = 0

    def _add(self, node: _ProtobufNode) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def message(self, one: Descriptor, *, nullable: bool, around: Around, paths: Sequence[Path] | None) -> int:
        """Add a node that appends messages to a new column, the next one."""
        if one.full_name in WRAPPERS and len(one.fields) == 1:
            column = len(self.columns.all)
            value = self._scalar(one.fields[0], nullable=nullable)
            self._nodes[value].label = "zero"
            inside = self._add(_ProtobufNode("message", column=column, children=[value]))
            return self._add(_ProtobufNode("wrapper", column=column, children=[inside]))
        if one.full_name == TIMESTAMP:
            return self._add(_ProtobufNode("timestamp", column=self.columns.add("flat", _TIME, nullable, 8)))
        if one.full_name in DYNAMIC or one.full_name in around:
            column = self.columns.add("text", pa.string(), nullable)
            self.columns.all[column].raw = partial(message_text, one)
            return self._add(_ProtobufNode("raw", column=column, children=[self._pass(one)]))
        if one.full_name == ANY:
            return self._any(one, nullable)
        return self._struct(one, nullable, (*around, one.full_name), paths)

    def _any(self, one: Descriptor, nullable: bool) -> int:
        """Add a struct of the type's name, the bytes of the message, and its JSON text."""
        column = len(self.columns.all)
        node = self._struct(one, nullable, (one.full_name,), None)
        added = self.columns.all[column]
        added.stored = added.type
        added.type = pa.struct([*added.type, pa.field(CONTENT, pa.string())])
        added.convert = partial(_with_contents, one.file.pool)
        return node

    def _struct(self, one: Descriptor, nullable: bool, around: Around, paths: Sequence[Path] | None) -> int:
        column = self.columns.add("struct", pa.null(), nullable)
        first_oneof = self._n_oneofs
        self._n_oneofs += len(one.oneofs)
        nodes, names, children = [], [], []
        passed = []
        oneofs = self._oneofs(one, paths)
        members = {name for names in oneofs.values() for name in names}
        for inner in one.fields:
            below = _below(inner.name, paths, is_member=inner.name in members)
            if below is not None and not below:
                passed.append(inner)
                continue
            names.append(inner.name)
            children.append(len(self.columns.all))
            nodes.append(self._field(inner, around, below))
            if inner.containing_oneof is not None:
                self._nodes[nodes[-1]].oneof = first_oneof + inner.containing_oneof.index
        known = {inner.containing_oneof.index for inner in one.fields if inner.containing_oneof and inner.name in names}
        # they unset a selected member
        nodes += [
            self._pass_member(inner, first_oneof)
            for inner in passed
            if inner.containing_oneof and inner.containing_oneof.index in known
        ]
        self.columns.set_struct(column, names, children)
        if oneofs:
            self.columns.name_set(column, oneofs)
        # writers use this order: the kernel expects the next field at the next node
        nodes.sort(key=lambda at: self._nodes[at].number)
        return self._add(_ProtobufNode("message", column=column, children=nodes, a=first_oneof, b=len(one.oneofs)))

    def _pass_member(self, one: Any, first_oneof: int) -> int:
        """Add a node for a member of a oneof that is not selected, of which only the presence counts."""
        at = self._pass_field(one)
        if self._nodes[at].op != "enum":
            self._nodes[at].op, self._nodes[at].children = "skip", []
        self._nodes[at].oneof = first_oneof + one.containing_oneof.index
        return at

    def _oneofs(self, one: Descriptor, paths: Sequence[Path] | None) -> dict[str, list[str]]:
        """The members of each selected oneof, by the name of the field that names the one that is set."""
        if not self._names_members:
            return {}
        found = {f"{oneof.name}{BRANCH}": [inner.name for inner in oneof.fields] for oneof in real_oneofs(one)}
        selected = None if paths is None or () in paths else {path[0] for path in paths}
        return {name: members for name, members in found.items() if selected is None or name in selected}

    def _field(self, one: Any, around: Around, paths: Sequence[Path] | None) -> int:
        if not one.is_repeated:
            at = self._item(one, one.has_presence, around, paths)
            self._nodes[at].label = "null" if one.has_presence else "zero"
            return at
        column = self.columns.add("list", pa.null(), False)
        child = len(self.columns.all)
        if is_map(one):
            at = self._entries(one, one.message_type, around)
            self.columns.set_map(column, child, *self.columns.all[child].children)
        else:
            at = self._item(one, False, around, None)
            self.columns.all[column].children = [child]
            self.columns.all[column].type = pa.list_(self.columns.all[child].type)
        self._nodes[at].list_column, self._nodes[at].label = column, "repeated"
        return at

    def _entries(self, one: Any, entry: Descriptor, around: Around) -> int:
        """Add the entries of a map; absent parts have their default value."""
        column = self.columns.add("struct", pa.null(), False)
        key, value = sorted(entry.fields, key=lambda inner: inner.number)
        inside = [len(self.columns.all)]
        nodes = [self._item(key, False, around, None)]
        inside.append(len(self.columns.all))
        nodes.append(self._item(value, False, around, None))
        for at in nodes:
            self._nodes[at].label = "zero"
        self.columns.all[column].children = inside
        return self._add(_ProtobufNode("message", _DELIMITED, column, children=nodes, number=one.number))

    def _item(self, one: Any, nullable: bool, around: Around, paths: Sequence[Path] | None) -> int:
        """Add a node for a field, or for an item of a repeated one."""
        if one.message_type is None:
            return self._scalar(one, nullable=nullable)
        at = self.message(one.message_type, nullable=nullable, around=around, paths=paths)
        self._nodes[at].number = one.number
        self._nodes[at].wire = _GROUP if TYPES[one.type] == "group" else _DELIMITED
        return at

    def _scalar(self, one: Any, *, nullable: bool) -> int:
        if one.enum_type is not None:
            column = self.columns.add("text", pa.string(), nullable)
            return self._add(self._enum(one, column))
        op, wire, width, kind = _SCALARS[TYPES[one.type]]
        column = self.columns.add("flat" if width else "text", kind, nullable, width)
        return self._add(_ProtobufNode(op, wire, column, number=one.number))

    def _enum(self, one: Any, column: int) -> _ProtobufNode:
        enum = one.enum_type
        if enum.full_name not in self._enums:
            names: dict[int, str] = {}
            for value in enum.values:  # the first of several names counts
                names.setdefault(value.number, value.name)
            numbers = sorted(names)
            # an enum's default, the symbol declared first, follows its symbols
            first = self.columns.add_symbols([*(names[number] for number in numbers), ""])
            self._numbers += [*numbers, next(iter(names))]
            self._enums[enum.full_name] = first, len(numbers)
        first, n = self._enums[enum.full_name]
        # an entry of a map whose value is unknown does not count, as in Google's libraries
        closed = enum.is_closed * (2 if one.containing_type.GetOptions().map_entry else 1)
        return _ProtobufNode("enum", _VARINT, column, a=first, b=n, number=one.number, closed=closed)

    def _pass(self, one: Descriptor) -> int:
        """Add a node that only checks messages; shared by all places with this type."""
        if one.full_name not in self._passed:
            at = self._passed[one.full_name] = self._add(_ProtobufNode("message"))
            fields = sorted(one.fields, key=lambda inner: inner.number)
            self._nodes[at].children = [self._pass_field(inner) for inner in fields]
        return self._passed[one.full_name]

    def _pass_field(self, one: Any) -> int:
        if one.enum_type is not None:
            node = self._enum(one, -1)
        elif one.message_type is None:
            op, wire, _, _ = _SCALARS[TYPES[one.type]]
            node = _ProtobufNode(op, wire)
        elif one.message_type.full_name == TIMESTAMP:
            node = _ProtobufNode("timestamp")
        else:
            inside = self._pass(one.message_type)
            node = _ProtobufNode("raw", children=[inside])
        if TYPES[one.type] == "group":
            node.wire = _GROUP
        node.number = one.number
        if one.is_repeated:
            node.label = "repeated"
        return self._add(node)

    def arguments(self, root: int) -> tuple[Any, ...]:
        """The arguments of the kernel. The first node is that of the whole value."""
        inside: list[int] = []
        rows = []
        for one in [self._nodes[root], *self._nodes]:
            rows.append(
                (
                    *(kernel.OPS[one.op], one.wire, one.column, one.list_column, len(inside), len(one.children)),
                    *(one.a, one.b, one.number, kernel.LABELS[one.label], one.oneof, one.closed),
                )
            )
            inside += [at + 1 for at in one.children]
        columns = self.columns.arrays(kernel.KINDS)
        numbers = np.array(self._numbers, np.int32)
        return np.array(rows, np.int32), np.array(inside, np.int32), *columns, numbers, self._n_oneofs


class ProtobufValues(ProgramValues):
    """Decodes values of one message, and only the fields in `paths`; raises TooWideError for too many fields.

    With `branches`, each oneof has a field with the name of the member that is set.
    """

    kernel: ClassVar[Any] = kernel

    def __init__(self, message: Descriptor, paths: Sequence[Path] | None = None, *, branches: bool = False) -> None:
        program = _ProtobufProgram(branches=branches)
        root = program.message(message, nullable=True, around=(), paths=paths)
        super().__init__(program.columns, program.arguments(root))
        self._n_cut = np.zeros(1, np.int64)
        self._counters = (self._n_cut,)
        self._has_maps = any(pt.is_map(one.type) for one in program.columns.all)

    @property
    def has_cut(self) -> bool:
        """Whether values had times finer than a microsecond, which are truncated."""
        return bool(self._n_cut[0])

    def decode(self, payloads: Payloads) -> DecodedValues:
        decoded = super().decode(payloads)
        if self._has_maps:
            decoded.array = last_of_each_key(decoded.array)
        return decoded


def _with_contents(pool: Any, array: pa.Array) -> pa.Array:
    """Messages of any type, with their JSON text if the type is known; raises UnfitBytesError for other bytes."""
    names, values = array.field(0), Payloads.of(array.field(1))
    texts: list[str | None] = [None] * len(array)
    known = names.dictionary_encode()
    codes = known.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    valid = validity(array)
    for code, name in enumerate(known.dictionary.to_pylist()):
        try:
            message = pool.FindMessageTypeByName(name.rpartition("/")[2])
        except KeyError:
            continue
        rows = np.flatnonzero((codes == code) & (True if valid is None else valid))
        checked = ProtobufValues(message, []).decode(values.take(rows))
        for at, row in enumerate(rows.tolist()):
            why = checked.failures.get(at) or checked.faults.get(at)
            if why is not None:
                raise UnfitBytesError(f"its content is not {message.full_name}: {why}")
            texts[row] = message_text(message, values.bytes(row) or b"")
    kind = pa.struct([*array.type, pa.field(CONTENT, pa.string())])
    children = [array.field(0), array.field(1), text_array(texts)]
    return pa.Array.from_buffers(kind, len(array), [bitmap(valid)], children=children)


def last_of_each_key(array: pa.Array) -> pa.Array:
    """Remove earlier entries with the same key from maps, since the last one counts."""
    kind = array.type
    if pt.is_struct(kind):
        children = [last_of_each_key(array.field(i)) for i in range(kind.num_fields)]
        return struct_array(children, kind, validity(array), len(array)) if children else array
    if not (pt.is_list(kind) or pt.is_map(kind)):
        return array
    n = len(array)
    offsets = np.frombuffer(array.buffers()[1], np.int32, n + 1, 4 * array.offset)
    valid = validity(array)
    mask = bitmap(valid)
    if pt.is_list(kind):
        return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(offsets)], children=[last_of_each_key(array.values)])
    keys, items = array.keys, last_of_each_key(array.items)
    sizes = np.diff(offsets)
    if (sizes > 1).any():
        rows = np.repeat(np.arange(n), sizes)
        codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        pairs = rows * (int(codes.max()) + 1) + codes
        # `unique` finds the first of equal entries, so reverse them
        backwards = np.unique(pairs[::-1], return_index=True)[1]
        if backwards.size < pairs.size:
            last = np.sort(pairs.size - 1 - backwards)
            keys, items = keys.take(pa.array(last)), items.take(pa.array(last))
            offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[last], minlength=n))]).astype(np.int32)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, n, [mask, pa.py_buffer(offsets)], children=[entries])
