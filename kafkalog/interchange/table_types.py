"""What each target stores of each Arrow type, and arrays converted to it without a silent change.

The table, for the values of decoded columns; what is not named is stored as it is:

=====================  ==============  ==============  ===============  ===============  ==============
Arrow                  Parquet         Delta           Iceberg          Spark            DuckDB
=====================  ==============  ==============  ===============  ===============  ==============
struct without fields  JSON text       JSON text       JSON text        JSON text        JSON text
null                                   left out        left out         text
int8, int16                                            int32
uint8, uint16                          int32           int32            int64
uint32                                 int64           int64            int64
uint64                                 decimal(20, 0)  decimal(20, 0)   decimal(20, 0)
float16                                float32         float32          float32          float32
decimal256                             decimal, text   decimal, text    decimal, text    decimal, text
timestamp                              microseconds    microseconds     microseconds     us, ns
time32, time64                         text            microseconds     text
fixed_size_binary      binary if of 0  binary          binary if of 0   binary           binary if of 0
dictionary                             its values      its values       its values       its values
=====================  ==============  ==============  ===============  ===============  ==============

Delta stores no date, and Iceberg no date or time, outside of the years 1 to 9999. Arrow files have every type. CSV,
JSON lines and terminals have text, which `kafkalog.interchange.text_output.plain_values` makes. A value that a column
cannot hold becomes null; the caller learns how many, where and why. If a column exists already, and new values may have
a type that it cannot hold, a field NAME__text next to it has the text of these.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from kafkalog.errors import Finding, Reason, UnwritableError
from kafkalog.interchange.arrow_buffers import numbers_of, validity
from kafkalog.interchange.arrow_output import bitmap
from kafkalog.interchange.file_types import TABLE_FORMATS
from kafkalog.interchange.json_fields import in_storage
from kafkalog.interchange.text_output import plain_values
from kafkalog.text import counted

Path = tuple[str, ...]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Report = Callable[[Path, str, Counts], None]
"""Called with a field, what happened to values of it, and int64[n]: to how many in each row."""

TARGETS: Final = ("parquet", *TABLE_FORMATS, "spark", "duckdb")

_MICROSECONDS: Final = pa.time64("us")
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST_DAY: Final = int(np.datetime64("0001-01-01", "D").astype(np.int64))
LAST_DAY: Final = int(np.datetime64("9999-12-31", "D").astype(np.int64))
_DAY_SECONDS: Final = 86_400
BESIDE: Final = "__text"
"""The end of the name of a field with values that the field before it cannot hold."""
ROUNDED: Final = "more digits than the type has: rounded"
_FAR: Final = "not in the years 1 to 9999"
EMPTIED: Final = "null list or map of objects: pyiceberg writes an empty one"


def stored_type(kind: pa.DataType, target: str) -> pa.DataType:
    """The type in which a target stores values of a type; null for a field that a table gets later.

    The target "polars" has all types except decimal256.
    """
    if target == "polars" and not pt.is_decimal256(kind) and not kind.num_fields:
        return kind
    for is_of, stored in _WITH_PARTS if target == "parquet" else (*_WITH_PARTS, *_PLAIN):
        if is_of(kind):
            return stored(kind, target)
    return kind


def _stored_struct(kind: pa.DataType, target: str) -> pa.DataType:
    fields = [field.with_type(stored_type(field.type, target)) for field in kind]
    if target in TABLE_FORMATS:
        fields = [field for field in fields if not pt.is_null(field.type)]
    return pa.struct(fields) if fields else pa.string()


def _stored_dictionary(kind: pa.DataType, target: str) -> pa.DataType:
    return kind if target == "parquet" else stored_type(kind.value_type, target)


def _stored_fixed_size(kind: pa.DataType, target: str) -> pa.DataType:
    return pa.binary() if target in ("delta", "spark") or not kind.byte_width else kind


def _stored_null(kind: pa.DataType, target: str) -> pa.DataType:
    return pa.string() if target == "spark" else kind


def _stored_integer(kind: pa.DataType, target: str) -> pa.DataType:
    if target == "duckdb":
        return kind
    if pt.is_unsigned_integer(kind):
        if kind.bit_width == 64:
            return pa.decimal128(20, 0)
        return pa.int64() if kind.bit_width == 32 or target == "spark" else pa.int32()
    return pa.int32() if target == "iceberg" and kind.bit_width < 32 else kind


def _stored_decimal(kind: pa.DataType, target: str) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.string()


def _stored_timestamp(kind: pa.DataType, target: str) -> pa.DataType:
    if target == "duckdb" and kind.unit == "ns":
        return kind
    return pa.timestamp("us", kind.tz and "UTC" if target == "spark" else kind.tz)


def _stored_time(kind: pa.DataType, target: str) -> pa.DataType:
    if target == "duckdb":
        return kind
    return _MICROSECONDS if target == "iceberg" else pa.string()


def _stored_items(kind: pa.DataType, target: str) -> pa.DataType:
    def inner(item: pa.DataType) -> pa.DataType:
        # an item cannot be left out
        stored = stored_type(item, target)
        return pa.string() if pt.is_null(stored) and target not in ("parquet", "polars") else stored

    if pt.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    make = pa.large_list if pt.is_large_list(kind) and target == "parquet" else pa.list_
    return make(kind.value_field.with_type(inner(kind.value_type)))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))


def _text(kind: pa.DataType, target: str) -> pa.DataType:
    return pa.string()


def _binary(kind: pa.DataType, target: str) -> pa.DataType:
    return pa.binary()


_StoredTypes = tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], pa.DataType]], ...]
_WITH_PARTS: Final[_StoredTypes] = (
    (pt.is_struct, _stored_struct),
    (_is_list, _stored_items),
    (pt.is_map, _stored_items),
    (pt.is_dictionary, _stored_dictionary),
    (pt.is_fixed_size_binary, _stored_fixed_size),
)
"""How each target stores types with parts, and bytes of a fixed size."""
_PLAIN: Final[_StoredTypes] = (
    (pt.is_large_string, _text),
    (pt.is_string_view, _text),
    (pt.is_large_binary, _binary),
    (pt.is_binary_view, _binary),
    (pt.is_null, _stored_null),
    (pt.is_integer, _stored_integer),
    (pt.is_float16, lambda kind, target: pa.float32()),
    (pt.is_decimal256, _stored_decimal),
    (pt.is_timestamp, _stored_timestamp),
    (pt.is_time, _stored_time),
)
"""How targets other than Parquet store the remaining types."""


def stored_schema(schema: pa.Schema, target: str) -> pa.Schema:
    """The columns of a target for those of a scan.

    Raises UnwritableError for names that a target does not have.
    """
    _check_nul(schema)
    fields = [in_storage(field, stored_type(field.type, target), has_metadata=target == "parquet") for field in schema]
    if target in TABLE_FORMATS:
        fields = [field for field in fields if not pt.is_null(field.type)]
    if target == "delta":
        for one, other in same_but_case(fields):
            raise UnwritableError(
                Reason.COLUMN_TWICE,
                f"Delta does not allow two field names that differ only by case: {one} and {other}. Choose fields with"
                " columns (--columns), or export to Parquet or Iceberg",
            )
    if target == "iceberg":
        _check_iceberg_names(fields)
    return pa.schema(fields)


def _check_nul(fields: Iterable[pa.Field], around: Path = ()) -> None:
    """Raise UnwritableError for a name with the character NUL, which ends it in libraries in C."""
    for field in fields:
        path = (*around, field.name)
        if "\0" in field.name:
            shown = ".".join(path).replace("\0", "\\0")
            raise UnwritableError(
                Reason.COLUMN_UNKNOWN,
                f"tables and data frames have no name with the character NUL: {shown}. Choose fields with columns"
                " (--columns), or export to JSON lines",
            )
        _check_nul(_fields_in(field.type), path)


def unnamed(fields: Iterable[pa.Field], around: Path = ()) -> Iterator[tuple[str, str]]:
    """Fields with an empty name, and the name that DuckDB gives them: ``element`` and their number."""
    for number, field in enumerate(fields, 1):
        name = field.name or f"element{number}"
        if not field.name:
            yield ".".join((*around, '""')), ".".join((*around, name))
        yield from unnamed(_fields_in(field.type), (*around, name))


def _fields_in(kind: pa.DataType) -> Iterable[pa.Field]:
    """The fields of a struct, also of one in lists and maps."""
    while _is_list(kind) or pt.is_map(kind):
        kind = kind.item_type if pt.is_map(kind) else kind.value_type
    return kind if pt.is_struct(kind) else ()


def _check_iceberg_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnwritableError for fields that Iceberg does not tell apart, or whose name is empty."""
    advice = "Choose fields with columns (--columns), or export to Parquet or Delta"
    names: dict[str, Path] = {}
    for path in _iceberg_paths(fields):
        if not all(path):
            shown = ".".join(step or '""' for step in path)
            raise UnwritableError(Reason.COLUMN_UNKNOWN, f"Iceberg has no field with an empty name: {shown}. {advice}")
        # Iceberg finds fields by joined names, and data files have names of letters, digits and _ alone
        for name in {".".join(path), ".".join(map(_avro_name, path))}:
            other = names.setdefault(name, path)
            if other != path:
                both = " and ".join(
                    ".".join(f'"{step}"' if "." in step else step for step in one) for one in (other, path)
                )
                detail = f"Iceberg does not tell two fields apart: {both}. {advice}"
                raise UnwritableError(Reason.COLUMN_TWICE, detail)


def _iceberg_paths(fields: Iterable[pa.Field], around: Path = ()) -> Iterator[Path]:
    """The paths of all fields, with Iceberg's names for the parts of lists and maps."""
    for field in fields:
        path = (*around, field.name)
        yield path
        kind = field.type
        if pt.is_struct(kind):
            yield from _iceberg_paths(kind, path)
        elif _is_list(kind):
            yield from _iceberg_paths([kind.value_field.with_name("element")], path)
        elif pt.is_map(kind):
            yield from _iceberg_paths([kind.key_field.with_name("key"), kind.item_field.with_name("value")], path)


def _avro_name(name: str) -> str:
    """The name of a field in a data file. Source: `AvroSchemaUtil.sanitize`, Iceberg 1.10."""
    first = f"_{name[0]}" if name[0].isdigit() else _SPECIAL.sub(_as_hex, name[0])
    return first + _SPECIAL.sub(_as_hex, name[1:])


_SPECIAL: Final = re.compile(r"\W")


def _as_hex(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):X}"


def same_but_case(fields: Iterable[pa.Field], around: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of fields whose names differ only by case."""
    names: dict[str, str] = {}
    for field in fields:
        other = names.setdefault(field.name.lower(), field.name)
        if other != field.name:
            yield f"{around}{other}", f"{around}{field.name}"
        yield from same_but_case(_fields_in(field.type), f"{around}{field.name}.")


def evolved(known: pa.DataType, seen: pa.DataType, *, widens: bool = False) -> pa.DataType:
    """The type of a column that exists, with the fields that new values have in addition.

    Other types stay. With `widens`, as in Iceberg, numbers of the same kind become as wide as the new ones.
    """
    if pt.is_null(known):
        return seen
    if pt.is_struct(known) and pt.is_struct(seen):
        return pa.struct([*evolved_schema(pa.schema(known), pa.schema(seen), widens=widens)])
    if pt.is_list(known) and pt.is_list(seen):
        return pa.list_(known.value_field.with_type(evolved(known.value_type, seen.value_type, widens=widens)))
    if pt.is_map(known) and pt.is_map(seen):
        return pa.map_(known.key_type, evolved(known.item_type, seen.item_type, widens=widens))
    return seen if widens and _is_wider(known, seen) else known


def _is_wider(known: pa.DataType, seen: pa.DataType) -> bool:
    """Whether Iceberg promotes a type to another one."""
    if pt.is_decimal(known) and pt.is_decimal(seen):
        return bool(known.scale == seen.scale and known.precision < seen.precision)
    return (known, seen) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def evolved_schema(known: pa.Schema, seen: pa.Schema, *, widens: bool = False) -> pa.Schema:
    """The schema of a table after an append: its columns, then the new ones; see `evolved`."""
    at = {field.name: field for field in seen}
    fields = [
        one.with_type(evolved(one.type, at[one.name].type, widens=widens)) if one.name in at else one for one in known
    ]
    old = {field.name: field.type for field in fields}
    fields = [
        in_storage(at[one.name], one.type, has_metadata=True).with_nullable(one.nullable) if one.name in at else one
        for one in fields
    ]
    fields += [field.with_nullable(True) for field in seen if field.name not in known.names]
    names = {field.name for field in fields}
    texts = [
        pa.field(f"{name}{BESIDE}", pa.string())
        for name, kind in old.items()
        if name in at and f"{name}{BESIDE}" not in names and _may_not_fit(kind, at[name].type)
    ]
    return pa.schema([*fields, *texts])


def without_nulls(kind: pa.DataType) -> pa.DataType:
    """A struct without fields that have no value, and so no type yet."""
    if not pt.is_struct(kind):
        return kind
    return pa.struct([one.with_type(without_nulls(one.type)) for one in kind if not pt.is_null(one.type)])


def _may_not_fit(known: pa.DataType, seen: pa.DataType) -> bool:
    """Whether values of a type have another meaning than those of a column. Parts of structs are looked at alone."""
    if pt.is_dictionary(seen):
        seen = seen.value_type
    if known == seen or pt.is_null(known) or pt.is_null(seen) or _is_text(known):
        return False
    if _is_list(known) and _is_list(seen):
        return _may_not_fit(known.value_type, seen.value_type)
    if pt.is_map(known) and pt.is_map(seen):
        return _may_not_fit(known.item_type, seen.item_type)
    return not any(is_of(known) and is_of(seen) for is_of in _ALIKE) and not _holds_numbers(known, seen)


def _holds_numbers(known: pa.DataType, seen: pa.DataType) -> bool:
    """Whether a column of numbers has room for numbers of another type."""
    if pt.is_integer(known) and pt.is_integer(seen):
        has_same_sign = pt.is_unsigned_integer(seen) == pt.is_unsigned_integer(known)
        return bool(has_same_sign and seen.bit_width <= known.bit_width)
    return bool(pt.is_floating(known) and (pt.is_integer(seen) or pt.is_floating(seen)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


_ALIKE: Final = (pt.is_struct, pt.is_timestamp, pt.is_time, pt.is_date, _is_bytes)
"""Kinds of types. A value of one of them means the same in each column of that kind."""


class LostValues(NamedTuple):
    """Values of a field that are null, or have fewer digits, since its type does not hold them."""

    path: Path
    what: str
    n: int
    rows: npt.NDArray[np.int64]


class LossCounts:
    """Collects what `converted` reports."""

    def __init__(self) -> None:
        self.found: list[LostValues] = []

    def report(self, path: Path, what: str, counts: Counts) -> None:
        self.found.append(LostValues(path, what, int(counts.sum()), np.flatnonzero(counts)))

    def counts(self) -> Counter[tuple[Path, str]]:
        """How many values there are, by field and what happened."""
        counts: Counter[tuple[Path, str]] = Counter()
        for one in self.found:
            counts[one.path, one.what] += one.n
        return counts


class Conversion:
    """Converts record batches to the columns of a target, and counts what the columns cannot hold.

    `lost` says how many values are null or have fewer digits, by field and what happened.
    """

    def __init__(self, schema: pa.Schema, target: str) -> None:
        self.schema, self._target = schema, target
        self.lost: Counter[tuple[Path, str]] = Counter()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the columns of the target; null for those that it lacks."""
        if batch.schema == self.schema and self._target not in TABLE_FORMATS:
            return batch
        table = batch.to_struct_array()
        found = converted(table, pa.struct(list(self.schema)), self._count, target=self._target)
        return pa.RecordBatch.from_arrays(found.flatten(), schema=self.schema)

    def _count(self, path: Path, what: str, counts: Counts) -> None:
        self.lost[path, what] += int(counts.sum())


def lost_findings(lost: Mapping[tuple[Path, str], int], where: str | None) -> list[Finding]:
    """What the columns of an output do not hold, a finding for each field and reason; `where` is its path."""
    return [replace(lost_finding(path, what, n, " there"), path=where) for (path, what), n in lost.items()]


def field_name(path: Path) -> str:
    """A field as users name it, such as ``value.items[].price``."""
    return ".".join(path).replace(".[]", "[]").replace(".{}", "{}")


def lost_finding(path: Path, what: str, n: int, where: str) -> Finding:
    """A finding about values that became null or were cut."""
    outcome = "" if what in (ROUNDED, EMPTIED) or what.endswith(BESIDE) else f", so null{where}"
    return Finding(Reason.COLUMN_VALUE, f"{counted(n, 'value')} of {field_name(path)}: {what}{outcome}", damage=False)


def converted(
    array: pa.Array,
    to: pa.DataType,
    report: Report,
    path: Path = (),
    *,
    as_text: Collection[Path] = (),
    target: str | None = None,
    exact: bool = False,
) -> pa.Array:
    """An array in another type: what the type cannot hold is null, and reported.

    Fields that the array lacks are null; fields that it has and the type lacks are left out. Fields in `as_text` become
    JSON text. A `target` may not hold each value of the type. With `exact`, times finer than the unit are null instead
    of rounded.
    """
    return _converted(array, to, report, path, _ConversionOptions(as_text, target, exact))


class _ConversionOptions(NamedTuple):
    """The options of `converted`."""

    as_text: Collection[Path]
    name: str | None
    exact: bool

    def changes(self, kind: pa.DataType, path: Path) -> bool:
        """Whether values that have the type already may be out of its range, or contain fields that become text."""
        if pt.is_nested(kind):
            return self.name in TABLE_FORMATS or any(field[: len(path)] == path for field in self.as_text)
        return self.name in TABLE_FORMATS and (pt.is_date(kind) or (pt.is_timestamp(kind) and self.name == "iceberg"))


def _converted(array: pa.Array, to: pa.DataType, report: Report, path: Path, target: _ConversionOptions) -> pa.Array:
    kind = array.type
    if path in target.as_text:
        return text_array([None if value is None else json_text(value) for value in plain_values(array)])
    if kind == to and not target.changes(to, path):
        return array
    if pt.is_null(kind):
        return pa.nulls(len(array), to)
    if pt.is_dictionary(kind):
        return _converted(array.dictionary_decode(), to, report, path, target)
    if pt.is_struct(kind) and pt.is_struct(to):
        return _struct(array, to, report, path, target)
    if _is_list(kind) and _is_list(to):
        items = array.values if array.type.num_fields else array.flatten()
        return _items(array, to, report, [_Items(items, to.value_type, (*path, "[]"))], target)
    if pt.is_map(kind) and pt.is_map(to):
        keys = _Items(array.keys, to.key_type, (*path, "{key}"))
        return _items(array, to, report, [keys, _Items(array.items, to.item_type, (*path, "{}"))], target)
    return _without_parts(array, to, report, path, target)


def _without_parts(
    array: pa.Array, to: pa.DataType, report: Report, path: Path, target: _ConversionOptions
) -> pa.Array:
    """An array in a type without parts, such as text or a number."""
    kind = array.type
    if pt.is_string(to) and not _is_text(kind):
        return text_array([_as_text(value) for value in plain_values(array)])
    if pt.is_date(kind) and pt.is_date(to):
        days = array.cast(pa.date32())
        numbers = numbers_of(days)
        return _without(days, (numbers < FIRST_DAY) | (numbers > LAST_DAY), _FAR, report, path)
    if (pt.is_timestamp(kind) and pt.is_timestamp(to)) or (pt.is_time(kind) and pt.is_time(to)):
        is_near = target.name == "iceberg" and pt.is_timestamp(to)
        return _moments(array, to, report, path, is_near=is_near, exact=target.exact)
    return _cast(array, to, report, path)


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)


def _struct(array: pa.Array, to: pa.DataType, report: Report, path: Path, target: _ConversionOptions) -> pa.Array:
    kind, valid, n = array.type, validity(array), len(array)

    def within(where: Path, what: str, counts: Counts) -> None:
        # the number at a null has no meaning
        if valid is not None:
            counts = np.where(valid, counts, 0)
        if counts.any():
            report(where, what, counts)

    lost: dict[str, Mask] = {}

    def beside(name: str) -> Report:
        """Takes note of values of a field that go to the one next to it."""

        def report_beside(where: Path, what: str, counts: Counts) -> None:
            if what not in (ROUNDED, EMPTIED) and not what.endswith(BESIDE):
                lost[name] = lost.get(name, np.zeros(n, np.bool_)) | (counts > 0)
                what = f"{what}, so in {name}{BESIDE}"
            within(where, what, counts)

        return report_beside

    children = []
    for field in to:
        name, at = field.name, kind.get_field_index(field.name)
        base = name.removesuffix(BESIDE)
        if at >= 0:
            has_text = to.get_field_index(f"{name}{BESIDE}") >= 0 > kind.get_field_index(f"{name}{BESIDE}")
            below = beside(name) if has_text else within
            children.append(_converted(array.field(at), field.type, below, (*path, name), target))
        elif base != name and base in lost and pt.is_string(field.type):
            values: list[Any] = [None] * n
            for row in np.flatnonzero(lost[base]).tolist():
                (values[row],) = plain_values(array.field(base).slice(row, 1))
            children.append(text_array([_as_text(value) for value in values]))
        else:
            children.append(pa.nulls(n, field.type))
    return pa.Array.from_buffers(to, n, [bitmap(valid)], children=children)


class _Items(NamedTuple):
    """The items of lists, or the keys or values of maps, with their type in a target."""

    items: pa.Array
    kind: pa.DataType
    path: Path


def _items(
    array: pa.Array, to: pa.DataType, report: Report, parts: Sequence[_Items], target: _ConversionOptions
) -> pa.Array:
    """A list or a map, whose items are converted."""
    around = parts[0].path[:-1]
    n, valid = len(array), validity(array)
    width = np.int64 if pt.is_large_list(array.type) else np.int32
    buffer = array.buffers()[1]
    offsets = np.zeros(1, width)
    if buffer is not None and buffer.size:
        offsets = np.frombuffer(buffer, width, n + 1, array.offset * np.dtype(width).itemsize)
    first, last = int(offsets[0]), int(offsets[-1])

    def within(where: Path, what: str, counts: Counts) -> None:
        # of the lists that the items are in
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        counts = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
        if valid is not None:
            counts = np.where(valid, counts, 0)
        if counts.any():
            report(where, what, counts)

    children = [
        _converted(part.items.slice(first, last - first), part.kind, within, part.path, target) for part in parts
    ]
    has_objects = pt.is_struct(to.item_type if pt.is_map(to) else to.value_type)
    if target.name == "iceberg" and valid is not None and has_objects:
        report(around, EMPTIED, (~valid).astype(np.int64))
    if pt.is_map(to):
        if children[0].null_count:  # a map has no entry without a key
            detail = f"keys of the map {field_name(around)} do not fit {to.key_type}"
            raise UnwritableError(Reason.COLUMN_TYPE, detail)
        children = [pa.StructArray.from_arrays(children, fields=[to.key_field, to.item_field])]
    begins = (offsets - first).astype(np.int64 if pt.is_large_list(to) else np.int32)
    buffers = [bitmap(valid), pa.py_buffer(begins)]
    return pa.Array.from_buffers(to, n, buffers, children=children)


def _without(array: pa.Array, lost: Mask, what: str, report: Report, path: Path) -> pa.Array:
    """The array with null for some of its values."""
    valid = validity(array)
    lost = lost if valid is None else lost & valid
    if not lost.any():
        return array
    report(path, what, lost.astype(np.int64))
    kept = bitmap(~lost if valid is None else valid & ~lost)
    data = array.buffers()[1].slice(array.offset * array.type.bit_width // 8)
    return pa.Array.from_buffers(array.type, len(array), [kept, data])


def n_lost(array: pa.Array, unit: str) -> int:
    """How many timestamps another unit cannot hold: those out of its range, or finer."""
    if not pt.is_timestamp(array.type):
        return 0
    numbers, valid = numbers_of(array), validity(array)
    have, want = _PER_SECOND[array.type.unit], _PER_SECOND[unit]
    if want > have:
        most = (2**63 - 1) // (want // have)
        lost = (numbers > most) | (numbers < -most)
    else:
        lost = numbers % (have // want) != 0
    return int(np.count_nonzero(lost if valid is None else lost & valid))


def _moments(array: pa.Array, to: pa.DataType, report: Report, path: Path, *, is_near: bool, exact: bool) -> pa.Array:
    kind, n = array.type, len(array)
    numbers = numbers_of(array).astype(np.int64)
    valid = validity(array)
    have, want = _PER_SECOND[kind.unit], _PER_SECOND[to.unit]
    lost = np.zeros(n, np.bool_)
    cut = np.zeros(n, np.bool_)
    what = f"out of range for 64 bits of {to.unit}"
    if want > have:
        most = (2**63 - 1) // (want // have)
        lost = (numbers > most) | (numbers < -most)
        numbers = np.where(lost, 0, numbers) * (want // have)
    elif have > want:
        numbers, rest = np.divmod(numbers, have // want)
        cut = rest != 0
    if is_near:
        days = numbers // (_DAY_SECONDS * want)
        lost, what = lost | (days < FIRST_DAY) | (days > LAST_DAY), _FAR
    cut &= ~lost if valid is None else valid & ~lost
    if cut.any() and exact:
        lost, what = lost | cut, f"finer than {to.unit}"
    elif cut.any():
        report(path, ROUNDED, cut.astype(np.int64))
    numbers = numbers.astype(f"i{to.bit_width // 8}")
    whole = pa.Array.from_buffers(to, n, [bitmap(valid), pa.py_buffer(numbers)])
    return _without(whole, lost, what, report, path)


def _cast(array: pa.Array, to: pa.DataType, report: Report, path: Path) -> pa.Array:
    try:
        return array.cast(to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass  # some values do not fit, or none does
    lost = np.zeros(len(array), np.bool_)
    found = pa.concat_arrays(_cast_parts(array, to, lost, 0))
    if lost.any():
        report(path, f"{_short(array.type)} that does not fit {_short(to)}", lost.astype(np.int64))
    return found


def _short(kind: pa.DataType) -> str:
    return "struct" if pt.is_struct(kind) else "map" if pt.is_map(kind) else str(kind)


def _cast_parts(array: pa.Array, to: pa.DataType, lost: Mask, at: int) -> list[pa.Array]:
    """The array in parts that can be cast, and nulls; halves until it is one of these."""
    n = len(array)
    try:
        return [array.cast(to)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if n > 1:
            return [*_cast_parts(array[: n // 2], to, lost, at), *_cast_parts(array[n // 2 :], to, lost, at + n // 2)]
    value = array[0].as_py()
    # Arrow refuses whole numbers above 2**53, also those that a double holds
    if isinstance(value, int) and pt.is_floating(to) and float(value) == value:
        return [pa.array([float(value)], to)]
    lost[at] = value is not None
    return [pa.nulls(1, to)]


def text_array(texts: Sequence[str | None]) -> pa.Array:
    """Texts as an array; none of them may hold half of a surrogate pair."""
    parts = [b"" if text is None else text.encode("utf-8") for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    valid = np.array([text is not None for text in texts], np.bool_)
    return pa.Array.from_buffers(
        pa.string(), len(parts), [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    )


class Digits:
    """A number of JSON with more digits than Python's numbers keep, as `text`.

    `real` is the double next to a fraction; None for a whole number, and where a double is infinite or 0.
    """

    __slots__ = ("real", "text")

    def __init__(self, text: str) -> None:
        real = None if text.lstrip("-").isdecimal() else float(text)
        self.text, self.real = text, real if real and math.isfinite(real) else None


def json_integer(text: str) -> int | Digits:
    # a number of a million digits would take minutes
    return int(text) if len(text) < 39 else Digits(text)


def json_real(text: str) -> float | Digits:
    """A number of JSON with a fraction or an exponent."""
    number = float(text)
    is_kept = math.isfinite(number) and (number != 0 or not _NOT_ZERO.match(text))
    # a double tells numbers of 17 digits apart
    if is_kept and (len(text) <= 17 or Decimal(text) == Decimal(repr(number))):
        return number
    return Digits(text)


_NOT_ZERO: Final = re.compile(r"-?[0.]*[1-9]")


def json_text(value: Any) -> str:
    """A value as compact JSON."""
    try:
        return _dumps(value)
    except TypeError:  # of `Digits`, which have no other form
        if isinstance(value, Digits):
            return value.text
        if isinstance(value, dict):
            return "{" + ",".join(f"{_dumps(name)}:{json_text(one)}" for name, one in value.items()) + "}"
        return "[" + ",".join(map(json_text, value)) + "]"


_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
