"""Decodes Avro to a reader's schema: fields by name or alias, defaults, wider numbers, and symbols of enums.

Values are decoded by the writer's schema with the logical types of the reader's, and the arrays are then made those of
the reader's schema. A field that cannot be is null with a reason. Neither schema may be recursive.

Source: Schema Resolution in the Avro specification 1.12; Resolver, Avro 1.12.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import Path
from kafkalog.protocol.encoder import uvarint
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.formats.avro_types import DAY_MS, VARIABLE_SCALE, AvroType, parse_schema
from kafkalog.values.payloads import DecodedValues, Faults, Payloads, Rows, faults_text
from kafkalog.values.types import MOST_FIELDS, SchemaError, narrow_array, narrow_type, struct_array

_Mask = npt.NDArray[np.bool_]
_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED: Final = ("record", "enum", "fixed")


class ReaderSchema:
    """A schema to which values of other schemas are decoded; raises SchemaError if it is invalid or recursive.

    With `branches`, unions have a field with the name of the branch that is set.
    """

    def __init__(self, text: str, *, branches: bool = False) -> None:
        self.schema = parse_schema(text)
        _check_tree(self.schema)
        self.type: pa.DataType = AvroValues(self.schema, branches=branches).type
        self._defaults: dict[tuple[int, str], pa.Array] = {}
        for one in _records(self.schema):
            for name, kind in one.fields:
                if name in one.defaults:
                    decoder = AvroValues(kind, branches=branches)
                    self._defaults[id(one), name] = _default(kind, decoder, one.defaults[name], f"{one.name}.{name}")

    def __getstate__(self) -> tuple[AvroType, pa.DataType, list[tuple[AvroType, str, pa.Array]]]:
        by_id = {id(one): one for one in _records(self.schema)}
        return self.schema, self.type, [(by_id[key], name, array) for (key, name), array in self._defaults.items()]

    def __setstate__(self, state: tuple[AvroType, pa.DataType, list[tuple[AvroType, str, pa.Array]]]) -> None:
        self.schema, self.type, defaults = state
        self._defaults = {(id(one), name): array for one, name, array in defaults}

    def default(self, record: AvroType, name: str) -> pa.Array | None:
        """The default of a field, as an array of one value; None if it has none."""
        return self._defaults.get((id(record), name))


class ResolvedValues:
    """Decodes values of a writer's schema to a reader's, and only the fields in `paths`.

    Raises SchemaError for a writer's schema that is invalid or recursive.
    """

    union_paths: frozenset[Path] = frozenset()

    def __init__(
        self,
        text: str,
        referred: Iterable[str],
        reader: ReaderSchema,
        paths: Sequence[Path] | None = None,
        *,
        is_framed: bool = False,
    ) -> None:
        writer = parse_schema(text, referred)
        _check_tree(writer)
        self._reader, self._paths = reader, paths
        self._whole = reader.type
        self.type: pa.DataType = narrow_type(reader.type, paths)
        self._writer = _with_logical_types(writer, reader.schema)
        self._values = AvroValues(self._writer, (), self._fields_read(), is_framed=is_framed)

    def _fields_read(self) -> list[Path] | None:
        """The fields of the writer's record for those in `paths`; None for all."""
        writer, reader = self._writer, self._reader.schema
        if self._paths is None or writer.kind != "record" or reader.kind != "record":
            return None
        numbers = [_field_of(writer, reader, path[0]) for path in self._paths]
        return [(writer.fields[number][0],) for number in numbers if number is not None]

    def decode(self, payloads: Payloads) -> DecodedValues:
        decoded = self._values.decode(payloads)
        resolution = _Resolution(self._reader, self._paths)
        live = payloads.valid
        live[[*decoded.failures]] = False
        rows = np.arange(len(payloads))
        array = resolution.resolved(decoded.array, self._writer, self._reader.schema, self._whole, _Place(rows, live))
        for row, faults in resolution.faults.items():
            whole = [fault for fault in faults if not fault[0]]
            if whole:
                decoded.failures[row] = faults_text(whole)
                decoded.faults.pop(row, None)
            else:
                decoded.faults[row] = "; ".join(filter(None, [decoded.faults.get(row), faults_text(faults)]))
        decoded.array = narrow_array(array, self.type)
        return decoded


def _check_tree(schema: AvroType) -> None:
    """Raise SchemaError for a schema with recursive types, or too many."""
    n = 0
    left: list[tuple[AvroType, tuple[int, ...]]] = [(schema, ())]
    while left:
        one, around = left.pop()
        n += 1
        if n > MOST_FIELDS:
            raise SchemaError(f"the schema has more than {MOST_FIELDS} fields")
        if id(one) in around:
            raise SchemaError(f"{one.name} is recursive: such schemas cannot be used with a reader's schema")
        left += [(inner, (*around, id(one))) for inner in _inner(one)]


def _inner(one: AvroType) -> list[AvroType]:
    return [inner for _, inner in one.fields] if one.kind == "record" else one.inner


def _records(schema: AvroType) -> Iterator[AvroType]:
    if schema.kind == "record":
        yield schema
    for inner in _inner(schema):
        yield from _records(inner)


def _branches(one: AvroType) -> list[AvroType]:
    """The types of a union but null, or the type itself."""
    return [inner for inner in (one.inner if one.kind == "union" else [one]) if inner.kind != "null"]


def _has_null(one: AvroType) -> bool:
    return one.kind == "null" or any(inner.kind == "null" for inner in one.inner if one.kind == "union")


def _matching(writer: AvroType, reader: AvroType) -> int | None:
    """Which of the reader's branches is for a type of the writer: one of the same type, else a wider one."""
    branches = _branches(reader)
    in_union = reader.kind == "union"
    for at, one in enumerate(branches):
        if one.kind == writer.kind and _has_same_name(writer, one, in_union=in_union):
            return at
    for at, one in enumerate(branches):
        if one.kind in _PROMOTIONS.get(writer.kind, ()) and not (one.kind == "bytes" and one.logical):
            return at
    return None


def _has_same_name(writer: AvroType, reader: AvroType, *, in_union: bool) -> bool:
    if writer.kind == "fixed" and writer.size != reader.size:
        return False
    # as in Java, the name of a record outside of unions does not matter
    if writer.kind not in _NAMED or (writer.kind == "record" and not in_union):
        return True
    short = writer.name.rpartition(".")[2]
    names = [reader.name.rpartition(".")[2], *reader.aliases]
    return short in names or writer.name in names


def _field_of(writer: AvroType, reader: AvroType, name: str) -> int | None:
    """The number of the writer's field for a field of the reader's record."""
    names = [field_name for field_name, _ in writer.fields]
    taken = {own for own, _ in reader.fields}
    for one in [name, *(alias for alias in reader.field_aliases.get(name, ()) if alias not in taken)]:
        if one in names:
            return names.index(one)
    return None


def _with_logical_types(writer: AvroType, reader: AvroType | None) -> AvroType:
    """A copy of the writer's schema with the logical types of the reader's."""
    if writer.kind == "union":
        return replace(writer, inner=[_with_logical_types(one, reader) for one in writer.inner])
    at = None if reader is None else _matching(writer, reader)
    other = None if at is None or reader is None else _branches(reader)[at]
    if other is not None and other.kind != writer.kind:
        other = None
    if writer.kind == "record":
        inner = {} if other is None else _fields_by_number(writer, other)
        fields = [(name, _with_logical_types(one, inner.get(i))) for i, (name, one) in enumerate(writer.fields)]
        return replace(writer, fields=fields)
    if writer.kind in ("array", "map"):
        return replace(writer, inner=[_with_logical_types(writer.inner[0], other.inner[0] if other else None)])
    if other is None:
        return replace(writer, logical=None)
    return replace(writer, logical=other.logical, precision=other.precision, scale=other.scale)


def _fields_by_number(writer: AvroType, reader: AvroType) -> dict[int, AvroType]:
    """The types of the reader's fields, by the number of the writer's field."""
    numbers = {name: _field_of(writer, reader, name) for name, _ in reader.fields}
    return {number: inner for name, inner in reader.fields if (number := numbers[name]) is not None}


class _Place(NamedTuple):
    """The place of values: the rows of the whole values that contain them, and the path inside."""

    rows: Rows
    live: _Mask
    """Which of them exist, and are resolved here."""
    path: Path = ()

    def among(self, mask: _Mask) -> _Place:
        """The same place, with fewer values."""
        return self._replace(live=self.live & mask)

    def inside(self, name: str) -> _Place:
        """The place of a field of these values."""
        return self._replace(path=(*self.path, name))


class _Resolution:
    """Makes arrays of the writer's types those of the reader's; `faults` are by row of the whole value."""

    def __init__(self, reader: ReaderSchema, paths: Sequence[Path] | None) -> None:
        self._reader, self._paths = reader, paths
        self.faults: dict[int, Faults] = {}

    def _is_selected(self, path: Path) -> bool:
        return self._paths is None or any(path[: len(one)] == one[: len(path)] for one in self._paths)

    def _fault(self, place: _Place, why: str, bad: _Mask | None = None) -> None:
        """Note a fault of the values at a place, or of those of them that are `bad`."""
        if not self._is_selected(place.path):
            return
        for row in np.unique(place.rows[place.live if bad is None else place.live & bad]).tolist():
            self.faults.setdefault(row, []).append((place.path, why))

    def resolved(
        self, array: pa.Array, writer: AvroType, reader: AvroType, kind: pa.DataType, place: _Place
    ) -> pa.Array:
        """Resolve a type that may be a union."""
        branches = _branches(writer)
        valid = validity(array)
        is_null = np.zeros(len(array), np.bool_) if valid is None else ~valid
        if _has_null(writer) and not _has_null(reader):
            self._fault(place, "{} is null, which the reader's schema does not allow", is_null)
        place = place.among(~is_null)
        if not branches:
            return pa.nulls(len(array), kind)
        if len(branches) == 1:
            return self._branch(array, branches[0], reader, kind, place)
        parts = [pa.nulls(1, kind)]
        order = np.zeros(len(array), np.int64)
        for branch, part in zip(branches, array.flatten(), strict=True):
            own = validity(part)
            chosen = place if own is None else place.among(own)
            order[chosen.live] = sum(map(len, parts)) + np.flatnonzero(chosen.live)
            parts.append(self._branch(part, branch, reader, kind, chosen))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _branch(
        self, array: pa.Array, writer: AvroType, reader: AvroType, kind: pa.DataType, place: _Place
    ) -> pa.Array:
        at = _matching(writer, reader)
        if at is None:
            why = f"{{}} is of type {writer.name or writer.kind}, which the reader's schema does not take"
            self._fault(place, why)
            return pa.nulls(len(array), kind)
        branches = _branches(reader)
        if len(branches) == 1:
            return self._value(array, writer, branches[0], kind, place)
        inside = place.inside(kind.field(at).name)
        children = [pa.nulls(len(array), one.type) for one in kind]
        children[at] = self._value(array, writer, branches[at], kind.field(at).type, inside)
        if kind.num_fields > len(branches):
            name = pa.array([kind.field(at).name, None])
            children[-1] = name.take(pa.array(array.is_null().cast(pa.int64())))
        return struct_array(children, kind, validity(array), len(array))

    def _value(self, array: pa.Array, writer: AvroType, reader: AvroType, kind: pa.DataType, place: _Place) -> pa.Array:
        """Resolve a type that is no union to one that matches it."""
        if writer.kind == "record":
            return self._record(array, writer, reader, kind, place)
        if writer.kind in ("array", "map"):
            return self._items(array, writer, reader, kind, place)
        if writer.kind == "enum":
            return self._enum(array, reader, place)
        if array.type == kind:
            return array
        if reader.kind == "string":
            return self._text(array, place)
        if reader.form.per_ms:
            too_large = pc.greater_equal(array, DAY_MS * reader.form.per_ms)
            outside = pc.or_(pc.less(array, 0), too_large).fill_null(False)
            bad = outside.to_numpy(zero_copy_only=False)
            self._fault(place, "a time is not within a day", bad)
            array = pc.if_else(outside, pa.scalar(None, array.type), array)
        if reader.kind == "long":
            return array.cast(pa.int64()).cast(kind)
        return array.cast(kind, safe=False)

    def _record(
        self, array: pa.Array, writer: AvroType, reader: AvroType, kind: pa.DataType, place: _Place
    ) -> pa.Array:
        if VARIABLE_SCALE in (writer.logical, reader.logical):
            if writer.logical == reader.logical:
                return array
            self._fault(place, "{} is not a decimal with a scale of its own in both schemas")
            return pa.nulls(len(array), kind)
        children = []
        for (name, inner), field in zip(reader.fields, kind, strict=True):
            number, inside = _field_of(writer, reader, name), place.inside(name)
            if not self._is_selected(inside.path):
                children.append(pa.nulls(len(array), field.type))
                continue
            if number is not None:
                own_name, own = writer.fields[number]
                part = array.field(array.type.get_field_index(own_name))
                children.append(self.resolved(part, own, inner, field.type, inside))
                continue
            default = self._reader.default(reader, name)
            if default is None:
                self._fault(inside, "{} is missing, and has no default in the reader's schema")
                children.append(pa.nulls(len(array), field.type))
            else:
                children.append(default.take(pa.array(np.zeros(len(array), np.int64))))
        return struct_array(children, kind, validity(array), len(array))

    def _items(self, array: pa.Array, writer: AvroType, reader: AvroType, kind: pa.DataType, place: _Place) -> pa.Array:
        is_map = writer.kind == "map"
        valid = validity(array)
        offsets = array.offsets.to_numpy().astype(np.int64)
        sizes = np.where(place.live, np.diff(offsets), 0)
        at = np.repeat(offsets[:-1] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        chosen = pa.array(at)
        items = (array.items if is_map else array.values).take(chosen)
        path = (*place.path, "{}" if is_map else "[]")
        inside = _Place(np.repeat(place.rows, sizes), np.ones(len(items), np.bool_), path)
        inner = kind.item_type if is_map else kind.value_type
        found = self.resolved(items, writer.inner[0], reader.inner[0], inner, inside)
        bounds = pa.py_buffer(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        child = found
        if is_map:
            keys = array.keys.take(chosen)
            child = pa.StructArray.from_arrays([keys, found], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), [bitmap(valid), bounds], children=[child])

    def _enum(self, array: pa.Array, reader: AvroType, place: _Place) -> pa.Array:
        """Keep the symbols that the reader has; others become its default."""
        known = array.dictionary_encode()
        texts = known.dictionary.to_pylist()
        mapped = [text if text in reader.symbols else reader.default for text in texts]
        codes = known.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        unknown = np.array([*(text is None for text in mapped), False], np.bool_)
        self._fault(place, "{} is a symbol that the reader's schema does not have", unknown[codes])
        return pa.array([*mapped, None], pa.string()).take(pa.array(codes))

    def _text(self, array: pa.Array, place: _Place) -> pa.Array:
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            bad = np.array([data is not None and not _is_text(data) for data in array.to_pylist()], np.bool_)
            self._fault(place, "a string is not UTF-8", bad)
            return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array).cast(pa.string())


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _default(kind: AvroType, decoder: AvroValues, value: Any, where: str) -> pa.Array:
    """The default of a field, decoded from its bytes so that it has the form of other values."""
    try:
        data = _default_bytes(kind, value)
    except _NOT_OF_TYPE:
        raise SchemaError(f"the default of {where} is not of its type") from None
    decoded = decoder.decode(Payloads.of(pa.array([data], pa.binary())))
    if decoded.failures or decoded.faults:
        raise SchemaError(f"the default of {where} is not of its type: {[*decoded.failures.values()]}")
    return decoded.array


_NOT_OF_TYPE: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error)


def _default_bytes(kind: AvroType, value: Any) -> bytes:
    """The bytes of a default; raises one of `_NOT_OF_TYPE` if it is not of its type."""
    if kind.kind == "union":
        for at, one in enumerate(kind.inner):
            try:
                return uvarint(2 * at) + _default_bytes(one, value)
            except _NOT_OF_TYPE:
                continue
        raise ValueError
    if kind.kind == "enum":
        return uvarint(2 * kind.symbols.index(value))
    expected, encode = _DEFAULTS[kind.kind]
    if not isinstance(value, expected) or (isinstance(value, bool) and kind.kind != "boolean"):
        raise TypeError
    return encode(kind, value)


def _record_default(kind: AvroType, value: dict[str, Any]) -> bytes:
    return b"".join(_default_bytes(one, value.get(name, kind.defaults.get(name))) for name, one in kind.fields)


def _blocks(items: list[bytes]) -> bytes:
    return (uvarint(2 * len(items)) if items else b"") + b"".join(items) + b"\0"


def _sized(data: bytes) -> bytes:
    return uvarint(2 * len(data)) + data


def _zigzag(value: int) -> bytes:
    return uvarint(((value << 1) ^ (value >> 63)) & (2**64 - 1))


_DEFAULTS: Final[dict[str, tuple[Any, Callable[[AvroType, Any], bytes]]]] = {
    "null": (type(None), lambda kind, value: b""),
    "boolean": (bool, lambda kind, value: b"\1" if value else b"\0"),
    "int": (int, lambda kind, value: _zigzag(value)),
    "long": (int, lambda kind, value: _zigzag(value)),
    "float": ((int, float, str), lambda kind, value: struct.pack("<f", float(value))),
    "double": ((int, float, str), lambda kind, value: struct.pack("<d", float(value))),
    "string": (str, lambda kind, value: _sized(value.encode())),
    "bytes": (str, lambda kind, value: _sized(value.encode("latin-1"))),
    "fixed": (str, lambda kind, value: value.encode("latin-1")),
    "record": (dict, _record_default),
    "array": (list, lambda kind, value: _blocks([_default_bytes(kind.inner[0], one) for one in value])),
    "map": (
        dict,
        lambda kind, value: _blocks(
            [_sized(name.encode()) + _default_bytes(kind.inner[0], one) for name, one in value.items()]
        ),
    ),
}
"""The types of JSON of defaults, and their bytes."""
