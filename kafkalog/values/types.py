"""Finds the common Arrow type of several types, and converts arrays to it.

Versions of a schema differ: a field is new, an int became a long. The common record has the fields of all versions,
null where a version lacks them, and numbers have the wider type. If types do not combine, such as a number and text,
the values become JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kafkalog.interchange.arrow_buffers import validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.table_types import Path, Report, converted, n_lost

MOST_FIELDS: Final = 4096
"""Maximum fields of a type, including nested ones. A short schema can define 2**64."""
MOST_DEPTH: Final = 64
"""Maximum nesting of fields."""

_UNITS: Final = ("s", "ms", "us", "ns")


class SchemaError(ValueError):
    """A schema is invalid, or cannot become a table."""


class TooWideError(ValueError):
    """A type exceeds `MOST_FIELDS` or `MOST_DEPTH`."""


class CommonType:
    """A type that can hold the values of several types; it starts as null.

    Fields in `as_text` are JSON text because their types do not combine. `units` has the timestamps in several units,
    with the number of values that each unit would lose, coarsest first.
    """

    def __init__(self) -> None:
        self.type: pa.DataType = pa.null()
        self.as_text: set[Path] = set()
        self.units: dict[Path, list[int]] = {}

    def add(self, other: pa.DataType) -> None:
        """Widen the type so that values of another one fit; raises TooWideError for too many fields."""
        self.type = self._both(self.type, other, ())
        check_width(self.type)

    def _both(self, one: pa.DataType, other: pa.DataType, path: Path) -> pa.DataType:
        if path in self.as_text:
            return pa.string()
        if one == other or pt.is_null(other):
            return one
        if pt.is_null(one):
            return other
        if pt.is_struct(one) and pt.is_struct(other):
            return self._struct_of_both(one, other, path)
        if pt.is_list(one) and pt.is_list(other):
            return pa.list_(self._both(one.value_type, other.value_type, (*path, "[]")))
        if pt.is_map(one) and pt.is_map(other) and one.key_type == other.key_type:
            return pa.map_(one.key_type, self._both(one.item_type, other.item_type, (*path, "{}")))
        wide = self._wider(one, other, path)
        if wide is None:
            self.as_text.add(path)
            return pa.string()
        return wide

    def _struct_of_both(self, one: pa.DataType, other: pa.DataType, path: Path) -> pa.DataType:
        fields = {field.name: field.type for field in one}
        for field in other:
            known = fields.get(field.name, pa.null())
            fields[field.name] = self._both(known, field.type, (*path, field.name))
        return pa.struct([pa.field(name, kind) for name, kind in fields.items()])

    def _wider(self, one: pa.DataType, other: pa.DataType, path: Path) -> pa.DataType | None:
        if pt.is_timestamp(one) and pt.is_timestamp(other) and one.unit != other.unit:
            # use the finest unit for now: values are counted once all schemas are known
            finest = max(map(_UNITS.index, (one.unit, other.unit)))
            self.units[path] = [0] * (finest + 1)
        return wider(one, other)

    def count_units(self, array: pa.Array) -> None:
        """Count how many timestamps of an array each unit would lose."""
        for path, counts in self.units.items():
            for i in range(len(counts)):
                counts[i] += n_lost(leaf_at(array, path), _UNITS[i])

    def choose_units(self) -> None:
        """Choose for each timestamp the unit that loses the fewest values; the finest of several."""
        for path, counts in self.units.items():
            unit = min(reversed(range(len(counts))), key=counts.__getitem__)
            self.type = with_unit(self.type, path, _UNITS[unit])

    def fit(self, array: pa.Array, report: Report, to: pa.DataType | None = None) -> pa.Array:
        """Convert an array of an added type to the common type, or to a type with some of its fields.

        Values that do not fit become null and are reported: see `kafkalog.interchange.table_types.converted`.
        """
        return converted(array, self.type if to is None else to, report, as_text=self.as_text, exact=bool(self.units))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of numbers, times or bytes that holds both; None if there is none."""
    if one == other:
        return one
    pair = (one, other)
    for are_of, widest in _COMBINED:
        if all(any(is_of(kind) for is_of in are_of) for kind in pair):
            return widest(pair)
    return None


_Pair = tuple[pa.DataType, pa.DataType]


def _wider_integer(pair: _Pair) -> pa.DataType:
    # a signed type needs a bit more than an unsigned one has
    bits = max(kind.bit_width + pt.is_unsigned_integer(kind) for kind in pair)
    if all(map(pt.is_unsigned_integer, pair)):
        return max(pair, key=lambda kind: kind.bit_width)
    return next((kind for size, kind in _INTEGERS if bits <= size), pa.decimal128(20, 0))


def _wider_time(pair: _Pair) -> pa.DataType:
    return pa.time64("ns" if "ns" in (pair[0].unit, pair[1].unit) else "us")


def _wider_timestamp(pair: _Pair) -> pa.DataType | None:
    one, other = pair
    return pa.timestamp(max(one.unit, other.unit, key=_UNITS.index), one.tz) if one.tz == other.tz else None


def _wider_decimal(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The decimal that holds decimals and integers; None if it would need too many digits."""
    scale = max(kind.scale for kind in kinds if pt.is_decimal(kind))
    digits = max(map(_whole_digits, kinds)) + scale
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale) if digits <= 76 else None


def leaf_at(array: pa.Array, path: Path) -> pa.Array:
    """All values at a path, which may go through lists (``[]``) and maps (``{}``); empty if the path does not exist."""
    for name in path:
        if name == "[]" and pt.is_list(array.type):
            array = array.flatten()
        elif name == "{}" and pt.is_map(array.type):
            array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))).flatten().field(1)
        elif pt.is_struct(array.type) and array.type.get_field_index(name) >= 0:
            array = field_at(array, [name])
        else:
            return pa.nulls(0)
    return array


def with_unit(kind: pa.DataType, path: Path, unit: str) -> pa.DataType:
    """The type with a different unit for the timestamp at a path."""
    if not path:
        return pa.timestamp(unit, kind.tz) if pt.is_timestamp(kind) else kind
    name, rest = path[0], path[1:]
    if name == "[]":
        return pa.list_(with_unit(kind.value_type, rest, unit))
    if name == "{}":
        return pa.map_(kind.key_type, with_unit(kind.item_type, rest, unit))
    return pa.struct([one.with_type(with_unit(one.type, rest, unit)) if one.name == name else one for one in kind])


def _whole_digits(kind: pa.DataType) -> int:
    """Maximum digits of an integer type."""
    if pt.is_decimal(kind):
        return int(kind.precision - kind.scale)
    return len(str(2 ** (kind.bit_width - pt.is_signed_integer(kind)) - 1))


_INTEGERS: Final = ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))
_COMBINED: Final[
    tuple[tuple[tuple[Callable[[pa.DataType], bool], ...], Callable[[_Pair], pa.DataType | None]], ...]
] = (
    ((pt.is_integer,), _wider_integer),
    ((pt.is_integer, pt.is_floating), lambda pair: pa.float64()),
    ((pt.is_string, pt.is_binary, pt.is_fixed_size_binary), lambda pair: pa.binary()),
    ((pt.is_decimal, pt.is_integer), _wider_decimal),
    ((pt.is_time,), _wider_time),
    ((pt.is_timestamp,), _wider_timestamp),
)
"""Kinds of types that combine, and the type that holds values of two of them."""


def check_width(kind: pa.DataType) -> None:
    """Raise `TooWideError` for a type with too many or too deeply nested fields."""
    n = 0
    stack = [(kind, 0)]
    while stack:
        one, depth = stack.pop()
        n += 1
        if n > MOST_FIELDS:
            raise TooWideError(f"there are more than {MOST_FIELDS} fields")
        if depth > MOST_DEPTH:
            raise TooWideError(f"fields are nested more than {MOST_DEPTH} deep")
        stack += [(one.field(i).type, depth + 1) for i in range(one.num_fields)]


def narrow_type(kind: pa.DataType, paths: Iterable[Path] | None) -> pa.DataType:
    """The type with only the fields at some paths, with their content; None for all."""
    if paths is None or () in (paths := list(paths)) or not pt.is_struct(kind):
        return kind
    fields = []
    for field in kind:
        inner = [path[1:] for path in paths if path[0] == field.name]
        if inner:
            fields.append(field.with_type(narrow_type(field.type, inner)))
    return pa.struct(fields)


def narrow_array(array: pa.Array, to: pa.DataType) -> pa.Array:
    """The struct with only the fields of a type from `narrow_type`."""
    if array.type == to or not pt.is_struct(to):
        return array
    children = [narrow_array(array.field(array.type.get_field_index(one.name)), one.type) for one in to]
    return struct_array(children, to, validity(array))


def field_at(array: pa.Array, path: Sequence[str]) -> pa.Array:
    """A nested field of a struct, or the value of a key of a map; null where what is around it is.

    Raises KeyError if there is no such field; the argument lists the fields.
    """
    for name in path:
        if pt.is_map(array.type) and pt.is_string(array.type.key_type):
            array = pc.map_lookup(array, name, "last")
            continue
        if not pt.is_struct(array.type) or array.type.get_field_index(name) < 0:
            there = ", ".join(field.name for field in array.type) if pt.is_struct(array.type) else str(array.type)
            raise KeyError(f"no field {name!r}; there are {there}")
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def with_field(array: pa.Array, path: Sequence[str]) -> pa.Array:
    """The struct with a nested field added as null if it is missing."""
    if not path or pt.is_null(array.type):
        return array if not path else with_field(pa.nulls(len(array), pa.struct([])), path)
    if not pt.is_struct(array.type):
        return array
    fields = {field.name: array.field(i) for i, field in enumerate(array.type)}
    fields[path[0]] = with_field(fields.get(path[0], pa.nulls(len(array))), path[1:])
    kind = pa.struct([(name, one.type) for name, one in fields.items()])
    return struct_array(list(fields.values()), kind, validity(array))


def struct_array(children: Sequence[pa.Array], kind: pa.DataType, valid: np.ndarray | None, n: int = 0) -> pa.Array:
    """A struct of some columns; `n` is its length if it has none."""
    n = len(children[0]) if children else n if valid is None else valid.size
    return pa.Array.from_buffers(kind, n, [bitmap(valid)], children=list(children))
