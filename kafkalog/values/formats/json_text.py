"""JSON values. Their type is what all of them have in common, so the values are read once to learn it.

Most values are read by Arrow's JSON reader, many in one call. Where that refuses any of them, or could read them
otherwise than they stand, they are parsed one by one.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from kafkalog._kernels.columns import join_lines
from kafkalog.values.formats.json_schema import UnfitError, conformed, lacking, nullable_type, overlaid
from kafkalog.values.payloads import Decoded, Payloads
from kafkalog.values.types import MOST_DEPTH, CommonType, Path, json_text, narrow_type, struct_array

_INT64: Final = 2**63
_OPEN, _CLOSE = ord("{"), ord("}")
_BLOCK_BYTES: Final = 2**30
_UNSAID: Final = pa.null()
"""The type of values without a schema."""


class JsonValues:
    """Decodes JSON.

    Attributes
    ----------
    common : CommonType
        The type of the values that were given to `learn`.
    """

    def __init__(self) -> None:
        self.common = CommonType()

    def learn(self, payloads: Payloads, said: pa.DataType = _UNSAID) -> None:
        """Take note of the types of some values, of those that conform to what their schema says.

        Raises
        ------
        TooWideError
            They have too many different fields.
        """
        self.common.add(nullable_type(said))
        table = _read_by_arrow(payloads, nullable_type(said) if pt.is_struct(said) else None, "infer")
        if table is not None:
            self.common.add(_without_times(pa.struct(list(table.schema))))
            return
        for row in np.flatnonzero(payloads.valid).tolist():
            value = parse(payloads.bytes(row) or b"", said)
            if not isinstance(value, NotJson):
                for kind in _types_of(value):
                    self.common.add(kind)

    def decode(self, payloads: Payloads, paths: list[Path] | None = None, said: pa.DataType = _UNSAID) -> Decoded:
        """Decode values, with only the fields at some paths; only these have to conform to what their schema says."""
        kind, said = narrow_type(self.common.type, paths), narrow_type(said, paths)
        if pt.is_struct(kind) and not self.common.as_text and "list<item: null>" not in str(kind):
            # of lists of nothing but nulls Arrow's reader loses the length
            own = overlaid(kind, said)
            table = _read_by_arrow(payloads, own, "error" if paths is None else "ignore")
            if table is not None:
                array = _spread(table, payloads, own)
                failures = lacking(array, said)
                if not failures:
                    return Decoded(self.common.fit(array, kind))
                array = array.take(pa.array(np.arange(len(array)), mask=np.isin(np.arange(len(array)), [*failures])))
                return Decoded(self.common.fit(array, kind), failures)
        failures = {}
        values: list[Any] = [None] * len(payloads)
        for row in np.flatnonzero(payloads.valid).tolist():
            value = parse(payloads.bytes(row) or b"", said)
            if not isinstance(value, NotJson):
                value = _shaped(value, kind, (), self.common.as_text, is_whole=paths is None)
            if isinstance(value, NotJson):
                failures[row] = value.why
            else:
                values[row] = value
        return Decoded(pa.array(values, kind), failures)


class NotJson:
    """Why bytes are not taken as JSON."""

    def __init__(self, why: str) -> None:
        self.why = why


def parse(data: bytes, said: pa.DataType = _UNSAID) -> Any:
    """The value that JSON text stands for, or `NotJson`.

    Stricter than Python's parser: no NaN, no name twice in an object, no half of a surrogate pair, no deep nesting; and
    it conforms to what its schema says.
    """
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH and _depth(data) > MOST_DEPTH:
        return NotJson(f"JSON nested more than {MOST_DEPTH} deep")
    try:
        text = data.decode("utf-8")
        value = _DECODER.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return conformed(value, said)
    except UnicodeError:
        return NotJson("not UTF-8")
    except UnfitError as error:
        return NotJson(str(error))
    except _TwiceError:
        return NotJson("a JSON object with the same name twice")
    except (ValueError, RecursionError):
        return NotJson("not JSON")


class _TwiceError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _integer(text: str) -> int | float:
    # a number of a million digits would take minutes
    return int(text) if len(text) <= 20 else float(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, parse_int=_integer)


def _depth(data: bytes | npt.NDArray[np.uint8]) -> int:
    """How deeply brackets are nested; those in texts count too, so it is no less than the depth."""
    kinds = np.frombuffer(data, np.uint8)
    steps = ((kinds == 0x5B) | (kinds == _OPEN)).astype(np.int32) - ((kinds == 0x5D) | (kinds == _CLOSE))
    return int(np.cumsum(steps).max())


def _types_of(value: Any) -> list[pa.DataType]:
    """Types that together are the value's; more than one where items of a list differ."""
    if value is None:
        return [pa.null()]
    if isinstance(value, bool):
        return [pa.bool_()]
    if isinstance(value, int):
        return [pa.int64() if -_INT64 <= value < _INT64 else pa.float64()]
    if isinstance(value, float):
        return [pa.float64()]
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


def _shaped(value: Any, kind: pa.DataType, path: Path, as_text: set[Path], *, is_whole: bool) -> Any:
    """A parsed value as Arrow takes it for a type, or `NotJson`."""
    if path in as_text:
        return None if value is None else json_text(value)
    if value is None:
        return None
    if pt.is_struct(kind) and isinstance(value, dict):
        found = {}
        for field in kind:
            one = _shaped(value.get(field.name), field.type, (*path, field.name), as_text, is_whole=is_whole)
            if isinstance(one, NotJson):
                return one
            found[field.name] = one
        if is_whole and len(value.keys() - found.keys()):
            return NotJson("a field that the values before did not have")
        return found
    if pt.is_list(kind) and isinstance(value, list):
        items = [_shaped(item, kind.value_type, (*path, "[]"), as_text, is_whole=is_whole) for item in value]
        return next((item for item in items if isinstance(item, NotJson)), items)
    if pt.is_boolean(kind) and isinstance(value, bool):
        return value
    if pt.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return value
    if pt.is_floating(kind) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if pt.is_string(kind) and isinstance(value, str):
        return value
    return NotJson("another type than the values before have")


def _read_by_arrow(payloads: Payloads, kind: pa.DataType | None, others: str) -> pa.Table | None:
    """The values that are not null as rows of a table; None if they are to be parsed one by one.

    Each of them has to begin and end with a brace. Then none of them can continue in the next one: between the two
    there is no comma. So if there are as many objects as values, each value is one object.

    `others` is what Arrow's reader does about fields that the type does not have.
    """
    valid = payloads.valid
    rows = np.flatnonzero(valid)
    if not rows.size or (payloads.stop - payloads.start)[rows].min() < 2:
        return None
    start, stop = payloads.start[rows], payloads.stop[rows]
    if (payloads.data[start] != _OPEN).any() or (payloads.data[stop - 1] != _CLOSE).any():
        return None
    lines = np.empty(int((stop - start).sum()) + rows.size, np.uint8)
    _, most_open, has_newlines, has_letters = join_lines(start, stop, payloads.data, lines)
    # a value that opens more than it closes cannot go on in the next one either
    if lines.size > _BLOCK_BYTES or (most_open > MOST_DEPTH and _depth(lines) > MOST_DEPTH):
        return None
    if has_letters and _has_odd_numbers(lines.tobytes()):
        return None
    import pyarrow.json as pj

    options = pj.ParseOptions(
        newlines_in_values=has_newlines,
        explicit_schema=None if kind is None else pa.schema(list(kind)),
        unexpected_field_behavior=others,
    )
    try:
        if lines.max() >= 0x80:
            lines.tobytes().decode("utf-8")
        table = pj.read_json(
            pa.BufferReader(pa.py_buffer(lines)),
            parse_options=options,
            read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    return table if table.num_rows == rows.size else None


def _has_odd_numbers(text: bytes) -> bool:
    """Whether any of the numbers that Arrow takes and JSON has not stands outside of a string: NaN, Inf, Infinity."""
    for word in (b"NaN", b"Inf"):
        at = text.find(word)
        while at >= 0:
            # behind anything else it is within a string, or nothing that Arrow takes
            if text[at - 1] in b" \t\r\n:,[-":
                line = text[text.rfind(b"\n", 0, at) + 1 : at]  # strings have no newlines
                if line.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') % 2 == 0:
                    return True
            at = text.find(word, at + 1)
    return False


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with text where Arrow took text for a time."""
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pt.is_temporal(kind) else kind


def _spread(table: pa.Table, payloads: Payloads, kind: pa.DataType) -> pa.Array:
    """The rows of a table as structs, with null where there was no value."""
    batch = table.combine_chunks().to_batches()[0] if table.num_columns else None
    arrays = [] if batch is None else [batch.column(field.name).cast(field.type) for field in kind]
    whole = struct_array(arrays, kind, None, table.num_rows)
    valid = payloads.valid
    if valid.all():
        return whole
    rows = np.where(valid, np.cumsum(valid) - 1, -1)
    return whole.take(pa.array(rows, pa.int64(), mask=~valid))
