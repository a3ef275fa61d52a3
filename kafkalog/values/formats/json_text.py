"""Decodes JSON. The column type is the common type of all values, so the values are read once to learn it.

Numbers keep their digits. A field is double only if doubles hold its whole numbers exactly. Whole numbers beyond 64
bits become decimals, and a field with any other mixture becomes JSON text. A fraction with more digits than a double is
rounded and reported.

A known type is compiled to a program, which `kafkalog._kernels.json_text` runs over many values: once to test them,
once to fill columns. Values that it does not accept are parsed one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

import kafkalog._kernels.json_text as kernel
from kafkalog.interchange.table_types import (
    ROUNDED,
    Digits,
    LossCounts,
    LostValues,
    Path,
    json_integer,
    json_real,
    json_text,
)
from kafkalog.values.formats.json_schema import conformed, nullable_type, overlaid
from kafkalog.values.formats.program import Columns, ProgramValues
from kafkalog.values.payloads import DecodedValues, Faults, Payloads, Rows, faults_text
from kafkalog.values.types import MOST_DEPTH, CommonType, narrow_type

_INT64: Final = 2**63
_FIRST_PARSED: Final = 8
_OTHER: Final = kernel.FAILURES[200]
_WHOLE: Final = pa.decimal128(38, 0)
_EXACT: Final = 2**53
_WIDE: Final = pa.uint64()
"""Marks a 64-bit whole number that a double does not hold."""
_DIGITS: Final = pa.large_string()
"""Marks a number that only text holds."""
_OTHER_TYPE: Final = "another type than the values before have"
_UNSAID: Final = pa.null()
"""The type of values without a schema."""


class JsonType(CommonType):
    """The type of JSON values; `wide` are the fields with whole numbers that doubles do not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.wide: set[Path] = set()

    def add(self, other: pa.DataType) -> None:
        super().add(self._marked(other, ()))

    def _marked(self, kind: pa.DataType, path: Path) -> pa.DataType:
        """Record and remove `_WIDE` and `_DIGITS`, and return the type."""
        if pt.is_struct(kind):
            return pa.struct([one.with_type(self._marked(one.type, (*path, one.name))) for one in kind])
        if pt.is_list(kind):
            return pa.list_(self._marked(kind.value_type, (*path, "[]")))
        if kind == _DIGITS:
            self.as_text.add(path)
            return pa.string()
        if kind == _WIDE:
            self.wide.add(path)
            return pa.int64()
        if kind == _WHOLE:
            self.wide.add(path)
        return kind

    def _wider(self, one: pa.DataType, other: pa.DataType, path: Path) -> pa.DataType | None:
        return None if path in self.wide and pa.float64() in (one, other) else super()._wider(one, other, path)


class JsonValues:
    """Decodes JSON; `common` is the type of the values seen by `learn`."""

    def __init__(self) -> None:
        self.common = JsonType()
        self._is_open = False

    def declare(self, kind: pa.DataType) -> None:
        """Set the type instead of learning it; other fields of values are skipped."""
        self.common.add(kind)
        self._is_open = True

    def learn(self, payloads: Payloads, said: pa.DataType = _UNSAID) -> None:
        """Learn the types of values that conform to their schema; raises TooWideError for too many different fields."""
        # fields of the schema become columns even if no value has them
        self.common.add(nullable_type(said))
        rows, n = np.flatnonzero(payloads.valid), _FIRST_PARSED
        while rows.size:
            # skip values that already fit the type
            rows = rows[self._others(payloads.take(rows), said)]
            for row in rows[:n].tolist():
                value = parse(payloads.bytes(row) or b"", said, [])
                if not isinstance(value, NotJson):
                    for kind in _types_of(value):
                        self.common.add(kind)
            rows, n = rows[n:], 2 * n

    def _others(self, payloads: Payloads, said: pa.DataType) -> Rows:
        """The rows whose values a program for the current type does not accept."""
        program = self._program(said, is_look=True)
        if program is None or pt.is_null(self.common.type):
            return np.arange(len(payloads))
        return np.fromiter(program.decode(payloads).failures, np.int64)

    def _program(
        self, said: pa.DataType, paths: list[Path] | None = None, is_look: bool = False
    ) -> _JsonProgram | None:
        as_text = self.common.as_text
        if as_text and not pt.is_null(said):
            return None  # as text, a value has its own fields, but the schema defines their types
        kind = overlaid(self.common.type, said)
        wanted = None if is_look else nullable_type(narrow_type(kind, paths))
        return _JsonProgram(kind, wanted, as_text, self.common.wide, is_open=self._is_open)

    def decode(self, payloads: Payloads, paths: list[Path] | None = None, said: pa.DataType = _UNSAID) -> DecodedValues:
        """Decode values, or only the fields at some paths; only these must conform to the schema."""
        kind, said = narrow_type(self.common.type, paths), narrow_type(said, paths)
        program = self._program(said, paths)
        is_whole = paths is None and not self._is_open
        failures: dict[int, str] = {}
        lost = LossCounts()
        if program is None:
            array, rows = pa.nulls(len(payloads), kind), np.flatnonzero(payloads.valid).tolist()
        else:
            decoded = program.decode(payloads)
            array = self.common.fit(decoded.array, lost.report, kind) if decoded.array.type != kind else decoded.array
            rows = [row for row, why in decoded.failures.items() if why == _OTHER]
            failures = {row: why for row, why in decoded.failures.items() if why != _OTHER}
        if not rows:
            return DecodedValues(array, failures, {}, lost.found)
        taken, parsed = self._parsed(payloads, rows, kind, said, is_whole=is_whole)
        if taken:
            order = np.arange(len(array))
            order[taken] = np.arange(len(array), len(array) + len(taken))
            array = pa.concat_arrays([array, parsed.array]).take(pa.array(order))
        return DecodedValues(array, failures | parsed.failures, parsed.faults, lost.found + parsed.lost)

    def _parsed(
        self, payloads: Payloads, rows: list[int], kind: pa.DataType, said: pa.DataType, *, is_whole: bool
    ) -> tuple[list[int], DecodedValues]:
        """Parse values one by one; return the rows that decode, and an array of only these, with the faults of all."""
        taken, values, failures, faulty = [], [], dict[int, str](), dict[int, str]()
        cut: dict[Path, list[int]] = {}
        for row in rows:
            rounded, faults = list[Path](), Faults()
            value = parse(payloads.bytes(row) or b"", said, faults)
            shaping = _Shaping(self.common.as_text, rounded, faults, is_whole)
            if not isinstance(value, NotJson):
                value = shaping.shaped(value, kind, ())
            whole = [fault for fault in faults if not fault[0]]
            if isinstance(value, NotJson) or whole:
                failures[row] = faults_text(whole) or value.why
                continue
            taken.append(row)
            values.append(value)
            if faults:
                faulty[row] = faults_text(faults)
            for path in rounded:
                cut.setdefault(path, []).append(row)
        lost = [LostValues(path, ROUNDED, len(at), np.unique(at)) for path, at in cut.items()]
        return taken, DecodedValues(pa.array(values, kind), failures, faulty, lost)


class NotJson:
    """The reason why bytes are not accepted as JSON."""

    def __init__(self, why: str) -> None:
        self.why = why


def parse(data: bytes, said: pa.DataType = _UNSAID, faults: Faults | None = None) -> Any:
    """Parse JSON text to a value, or return `NotJson`.

    Null replaces what is no text in UTF-8, is named twice in an object, or does not conform to the schema; `faults`
    receives it. Without `faults`, such a value is not accepted. Deep nesting is refused. As with Python, DuckDB and
    Spark, NaN and Infinity are numbers. A byte order mark, which producers for .NET write, is skipped.
    """
    if faults is None:
        value = parse(data, said, refused := Faults())
        return NotJson(faults_text(refused)) if refused else value
    # Python's parser recurses: deep nesting would raise RecursionError or overflow the stack
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH and _depth(data) > MOST_DEPTH:
        return NotJson(f"JSON nested more than {MOST_DEPTH} deep")
    why = "not JSON"
    try:
        text = data.decode("utf-8-sig")
        has_halves = "\\u" in text
    except UnicodeDecodeError:
        text, has_halves, why = data.decode("utf-8-sig", "surrogateescape"), True, "not UTF-8"
    try:
        value = _DECODER.decode(text)
    except _TwiceError:
        try:
            value, has_halves = _LENIENT.decode(text), True
        except (ValueError, RecursionError):
            return NotJson(why)
    except (ValueError, RecursionError):
        return NotJson(why if data[:1] != b"\0" else _FRAMED)
    if has_halves:
        value = _cleaned(value, (), faults)
    return conformed(value, said, faults)


_FRAMED: Final = "not JSON: it begins with a schema id, as values of avro, protobuf and jsonschema do"
_TWICE: Final = object()
"""The value of a name that an object has twice."""


def _cleaned(value: Any, path: Path, faults: Faults) -> Any:
    """The value without what `parse` refuses."""
    if value is _TWICE:
        faults.append((path, "twice in a JSON object"))
        return None
    if isinstance(value, str) and not _is_text(value):
        faults.append((path, "text that is not UTF-8, or has half a pair of surrogates"))
        return None
    if isinstance(value, list):
        return [_cleaned(item, (*path, "[]"), faults) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, item in value.items():
        if _is_text(name):
            found[name] = _cleaned(item, (*path, name), faults)
        else:
            shown = name.encode("ascii", "backslashreplace").decode()
            faults.append(((*path, shown), "the name is not UTF-8, or has half a pair of surrogates"))
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _TwiceError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def _object_with_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = _TWICE if name in found else value
    return found


_NUMBERS: Final[dict[str, Any]] = {"parse_int": json_integer, "parse_float": json_real}
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, **_NUMBERS)
_LENIENT: Final = json.JSONDecoder(object_pairs_hook=_object_with_twice, **_NUMBERS)


def _depth(data: bytes) -> int:
    """Nesting depth of brackets outside of strings."""
    kinds = np.frombuffer(_STRING.sub(b"", data), np.uint8)
    steps = np.isin(kinds, [*b"[{"]).astype(np.int32) - np.isin(kinds, [*b"]}"])
    return int(np.cumsum(steps).max(initial=0))


_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _types_of(value: Any) -> list[pa.DataType]:
    """Types that combine to the value's type; several if items of a list differ."""
    if value is None:
        return [pa.null()]
    if isinstance(value, bool):
        return [pa.bool_()]
    if isinstance(value, int):
        if -_EXACT <= value <= _EXACT:
            return [pa.int64()]
        if not -_INT64 <= value < _INT64:
            return [_WHOLE]
        return [pa.int64() if int(float(value)) == value else _WIDE]
    if isinstance(value, (float, Digits)):
        return [_DIGITS if isinstance(value, Digits) and value.real is None else pa.float64()]
    if isinstance(value, str):
        return [pa.string()]
    if isinstance(value, list):
        return [pa.list_(kind) for kind in dict.fromkeys(kind for item in value for kind in _types_of(item))] or [
            pa.list_(pa.null())
        ]
    fields = {name: _types_of(item) for name, item in value.items()}
    return [
        pa.struct([pa.field(name, kinds[min(i, len(kinds) - 1)]) for name, kinds in fields.items()])
        for i in range(max(map(len, fields.values()), default=1))
    ]


@dataclass(slots=True)
class _Shaping:
    """Converts parsed values for Arrow."""

    as_text: Set[Path]
    rounded: list[Path]
    """Receives the fields that lose digits."""
    faults: Faults
    """Receives the fields that do not fit, which become null."""
    is_whole: bool
    """Whether a field that the type lacks is a fault."""

    def shaped(self, value: Any, kind: pa.DataType, path: Path) -> Any:
        if value is None or path in self.as_text:
            return None if value is None else json_text(value)
        if pt.is_struct(kind) and isinstance(value, dict):
            found = {one.name: self.shaped(value.get(one.name), one.type, (*path, one.name)) for one in kind}
            for name in value.keys() - found.keys() if self.is_whole else ():
                self.faults.append(((*path, name), "a field that the values before did not have"))
            return found
        if pt.is_list(kind) and isinstance(value, list):
            return [self.shaped(item, kind.value_type, (*path, "[]")) for item in value]
        return self._scalar(value, kind, path)

    def _scalar(self, value: Any, kind: pa.DataType, path: Path) -> Any:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if pt.is_boolean(kind) and isinstance(value, bool):
            return value
        if pt.is_integer(kind) and is_whole and -_INT64 <= value < _INT64:
            return value
        if pt.is_decimal(kind) and is_whole:
            return Decimal(value)
        if pt.is_floating(kind):
            return value if isinstance(value, float) else self._real(value, path)
        if pt.is_string(kind) and isinstance(value, str):
            return value
        self.faults.append((path, _OTHER_TYPE))
        return None

    def _real(self, value: Digits | str | int | list[Any] | dict[str, Any], path: Path) -> float | None:
        """The double of a number that is not yet one; None, and a fault, if there is none."""
        if isinstance(value, Digits) and value.real is not None:
            self.rounded.append(path)
            return value.real
        if not isinstance(value, int) or isinstance(value, bool):
            self.faults.append((path, _OTHER_TYPE))
            return None
        if float(value) == value:
            return float(value)
        self.faults.append((path, "a number with more digits than those before"))
        return None


class _JsonProgram(ProgramValues):
    """A program for values of a type, whose fields that are not nullable are required.

    It decodes the fields of `wanted`, or only tests values if that is None. Fields in `as_text` are of any type,
    returned as JSON text. Fields in `wide` may have whole numbers that doubles do not hold; a test of other fields
    rejects such numbers. If it `is_open`, objects may also have other fields.
    """

    kernel: ClassVar[Any] = kernel

    def __init__(
        self,
        kind: pa.DataType,
        wanted: pa.DataType | None,
        as_text: Set[Path],
        wide: Set[Path] = frozenset(),
        *,
        is_open: bool = False,
    ) -> None:
        self._as_text, self._is_open = as_text, is_open
        self._wide = wide if wanted is None else None
        self._nodes: list[tuple[int, ...]] = [()]
        self._names: list[str] = []
        self._built = Columns()
        self._add(0, pa.field("", kind), wanted, ())
        if wanted is None:
            self._built.add("empty", pa.null(), nullable=False)
        self._built.add_symbols(self._names)
        columns, inside, symbols, text = self._built.arrays(kernel.KINDS)
        nodes = np.array(self._nodes, np.int32)
        super().__init__(self._built, (nodes, columns, inside, symbols, text, _powers()))

    def _add(self, at: int, field: pa.Field, wanted: pa.DataType | None, path: Path) -> int:
        """Fill in a node, and add its children. Return the number of its column."""
        op = "raw" if path in self._as_text else _OPS[field.type.id]
        if op == "long" and self._wide is not None and path not in self._wide:
            op = "small"
        inside = _inside(field.type, op)
        if op == "struct" and self._is_open:
            op = "open"
        column, first, name = -1, len(self._nodes), len(self._names)
        self._nodes += [()] * len(inside)
        self._names.append(field.name)
        if wanted is not None:
            kind, width = _COLUMNS[op]
            column = self._built.add(kind, wanted, nullable=op != "null", width=width)
            self._built.all[column].raw = _compact if op == "raw" else None
        children = [
            self._add(first + i, one, _inner_type(wanted, one.name), (*path, one.name)) for i, one in enumerate(inside)
        ]
        if wanted is not None:
            self._built.all[column].children = [child for child in children if child >= 0]
        self._nodes[at] = kernel.OPS[op], column, first, len(inside), name, not field.nullable
        return column


_OPS: Final = {
    pa.null().id: "null",
    pa.bool_().id: "boolean",
    pa.int64().id: "long",
    pa.float64().id: "double",
    _WHOLE.id: "whole",
    pa.string().id: "string",
    pa.list_(pa.null()).id: "list",
    pa.struct([]).id: "struct",
}
_COLUMNS: Final = {
    "null": ("empty", 0),
    "boolean": ("flat", 1),
    "long": ("flat", 8),
    "small": ("flat", 8),
    "double": ("flat", 8),
    "whole": ("text", 0),
    "string": ("text", 0),
    "list": ("list", 0),
    "struct": ("struct", 0),
    "open": ("struct", 0),
    "raw": ("text", 0),
}


def _inside(kind: pa.DataType, op: str) -> list[pa.Field]:
    if op == "struct":
        return [*kind]
    return [pa.field("[]", kind.value_type)] if op == "list" else []


def _inner_type(wanted: pa.DataType | None, name: str) -> pa.DataType | None:
    """The type of a field or of a list's items; None if not selected."""
    if wanted is None or pt.is_list(wanted):
        return wanted and wanted.value_type
    at = wanted.get_field_index(name)
    return None if at < 0 else wanted.field(at).type


def _compact(data: bytes) -> str:
    """JSON text in this package's format."""
    return json_text(_DECODER.decode(data.decode("utf-8")))


@cache
def _powers() -> npt.NDArray[np.uint64]:
    """uint64[651, 2]: the first 128 bits of 10**-342 to 10**308, rounded up below 1 and down above."""
    found = []
    for exponent in range(-342, 309):
        power = 10 ** abs(exponent)
        bits = power.bit_length()
        first = (1 << (bits + 127)) // power + 1 if exponent < 0 else (power << 128) >> bits
        found.append((first >> 64, first & (2**64 - 1)))
    return np.array(found, np.uint64)
