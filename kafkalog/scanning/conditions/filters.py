"""`filters=`: conditions on records, applied to walked spans before any record is copied.

The notation is that of `pyarrow.parquet`: a list of ``(column, operation, value)`` that all have to hold, or a list of
such lists of which one has to hold. Conditions on columns with one value per batch, segment or partition rule those
out without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import filters as kernels
from kafkalog.parsing import near, parse_milliseconds, parse_time
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.columns import ALL_COLUMNS, BINARY_COLUMNS, FIXED_COLUMNS
from kafkalog.records.decode import batch_column, sequences
from kafkalog.records.selection import FunctionFailure, Mask, no_timestamp
from kafkalog.records.spans import Spans
from kafkalog.scanning.conditions.filter_text import parse_condition

PLACE_COLUMNS: Final = ("topic", "partition", "segment")
"""Columns with one value per segment."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_MEMBERSHIP = ("in", "not in")
_NULLS = ("is null", "is not null")
_BINARY_ONLY = ("starts_with", "contains")
_TIMESTAMP_TYPES = {name: number for number, name in kf.TIMESTAMP_TYPE_NAMES.items()}
_SAME = {"=": "==", "startswith": "starts_with", "is_null": "is null", "is_not_null": "is not null"}
OPERATIONS: Final = (*_COMPARISONS, *_MEMBERSHIP, *_NULLS, *_BINARY_ONLY)

# Columns with one value per batch, known from its header. Not the base offset: the messages in a compressed v0 or v1
# message each have their own.
_OF_BATCH: Final = frozenset(
    {"leader_epoch", "producer_id", "producer_epoch", "is_transactional", "is_control", "compression", "batch_position"}
)

Filters = str | Sequence[tuple[Any, ...] | str] | Sequence[Sequence[tuple[Any, ...] | str]]


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: a column, an operation, a value.

    Attributes
    ----------
    column : str
        A record column, a derived one, or ``headers.NAME``.
    operation : str
        One of `OPERATIONS`; for ``headers`` also `has` and `has not`.
    value : object
        A value in the type of the column: int, bool, bytes, str. A tuple of them for `in` and `not in`.
    """

    column: str
    operation: str
    value: Any = None
    texts: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        if self.operation in _NULLS:
            return f"{self.column} {self.operation}"
        value = self.value
        if self.column == "compression":
            value = tuple(map(_codec_name, value)) if self.operation in _MEMBERSHIP else _codec_name(value)
        return f"{self.column} {self.operation} {list(value) if isinstance(value, tuple) else value!r}"

    @property
    def is_of_batch(self) -> bool:
        """Whether the batch header decides the condition for all records of the batch."""
        return self.column in _OF_BATCH

    @property
    def reads_headers(self) -> bool:
        """Whether the condition reads record headers."""
        return self.column == "headers" or self.column.startswith("headers.")

    def holds_for(self, value: Any) -> bool:
        """Whether the condition holds for a value."""
        return bool(_compare(np.array([value], object), None, self)[0])

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """bool[n]: batches that may hold a matching record; None if their headers rule out none."""
        if self.is_of_batch:
            return _compare(batch_column(self.column, batches), None, self)
        if self.column == "offset" and self.operation in (">", ">=", "==", "<", "<="):
            # librdkafka leaves the offset of a compressed v1 message 0: then its last offset is only known inside
            unknown = (batches.magic == 1) & (batches.codec != 0) & (batches.last_offset == 0)
            mask = np.ones(len(batches), np.bool_)
            if self.operation in (">", ">=", "=="):
                mask &= (
                    _COMPARISONS[">=" if self.operation == "==" else self.operation](batches.last_offset, self.value)
                    | unknown
                )
            if self.operation in ("<", "<=", "=="):
                first = np.where(batches.base_offset >= 0, batches.base_offset, np.int64(-1))
                mask &= _COMPARISONS["<=" if self.operation == "==" else self.operation](first, self.value)
            return mask
        if self.column == "timestamp" and self.operation in (">", ">=", "=="):
            unknown = (batches.magic == 0) & (batches.codec != 0)
            compare = _COMPARISONS[">=" if self.operation == "==" else self.operation]
            may: npt.NDArray[np.bool_] = compare(batches.max_timestamp, self.value) | unknown
            return may
        return None

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> None:
        """Clear the records in `mask` that do not match."""
        if self.column in BINARY_COLUMNS:
            self._narrow_binary(spans, mask)
        elif self.reads_headers:
            self._narrow_headers(spans, mask)
        elif self.column in derived:
            column = derived[self.column]
            null = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None
            mask &= _compare(np.ma.getdata(column), null, self)
        elif self.column == "timestamp":
            mask &= _compare(spans.timestamp, no_timestamp(spans), self)
        elif self.column == "offset":
            mask &= _compare(spans.offset, None, self)
        elif self.column == "sequence":
            mask &= _compare(sequences(spans.offset, spans.batches, spans.batch_row()), None, self)
        else:
            own: dict[str, npt.NDArray[Any] | None] = {
                "timestamp_type": spans.timestamp_type,
                "batch_base_offset": spans.batch_base_offset,
            }
            mine = own.get(self.column)
            if mine is not None:
                mask &= _compare(mine, None, self)
                return
            matches = _compare(batch_column(self.column, spans.batches), None, self)
            if not matches.all():
                mask &= np.repeat(matches, spans.counts)

    def _narrow_binary(self, spans: Spans, mask: Mask) -> None:
        is_key = self.column == "key"
        start = spans.key_start if is_key else spans.value_start
        size = spans.key_size if is_key else spans.value_size
        if self.operation in _MEMBERSHIP:
            texts, null_is_in = self.texts
            kernels.match_set(spans.data, start, size, texts, null_is_in, self.operation == "not in", mask)
        else:
            kernels.match_bytes(spans.data, start, size, kernels.OPERATIONS[self.operation], self.texts[0], mask)

    def _narrow_headers(self, spans: Spans, mask: Mask) -> None:
        has_not = self.operation == "has not"
        if spans.headers_start is None or spans.headers_count is None:
            if not has_not:
                mask[:] = 0
            return
        any_value = self.operation in ("has", "has not")
        operation = kernels.OPERATIONS["==" if any_value else self.operation]
        name, value = self.texts
        kernels.match_header(
            spans.data, spans.headers_start, spans.headers_count, name, operation, value, any_value, has_not, mask
        )


def _codec_name(number: int | None) -> str | None:
    return None if number is None else kf.CODEC_NAMES[number]


def _compare(column: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None, term: Term) -> npt.NDArray[np.bool_]:
    """Compare as Arrow does: comparisons with null are false; null is `in` a list only if the list has None."""
    operation, value = term.operation, term.value
    if operation == "is null":
        return np.zeros(column.shape, np.bool_) if null is None else null
    if operation == "is not null":
        return np.ones(column.shape, np.bool_) if null is None else ~null
    if operation in _MEMBERSHIP:
        known = [one for one in value if one is not None]
        if column.dtype.kind in "iu":
            known = [one for one in known if np.iinfo(column.dtype).min <= one <= np.iinfo(column.dtype).max]
        kind = np.dtype(np.float64) if column.dtype.kind == "f" else column.dtype
        found = np.isin(column, np.array(known, kind)) if known else np.zeros(column.shape, np.bool_)
        if null is not None:
            found = np.where(null, None in value, found)
        return ~found if operation == "not in" else found
    if column.dtype == np.float32:
        column = column.astype(np.float64)  # else the value would be rounded to float32, and match other numbers
    matches: npt.NDArray[np.bool_] = _COMPARISONS[operation](column, value).astype(np.bool_)
    return matches if null is None else matches & ~null


@dataclass(frozen=True, slots=True)
class Filter:
    """Groups of terms. A record matches if all terms of one group hold.

    Attributes
    ----------
    groups : tuple of tuple of Term
        Without groups no record matches. An empty group matches every record.
    derived : frozenset of str
        Names of the derived columns (`extract=`).
    """

    groups: tuple[tuple[Term, ...], ...]
    derived: frozenset[str] = frozenset()

    def __str__(self) -> str:
        texts = [" and ".join(str(term) for term in group) or "true" for group in self.groups]
        return " or ".join(f"({text})" if len(texts) > 1 else text for text in texts) or "false"

    @property
    def reads_headers(self) -> bool:
        """Whether any term reads record headers."""
        return any(term.reads_headers for group in self.groups for term in group)

    @property
    def reads_derived(self) -> bool:
        """Whether any term reads a derived column."""
        return any(term.column in self.derived for group in self.groups for term in group)

    def split(self) -> tuple[Filter, ...]:
        """Filters that together equal this one; terms on derived columns come in a filter of their own.

        So columns are derived only for records that the other terms leave.
        """
        if len(self.groups) != 1 or not self.reads_derived:
            return (self,)
        parts = [tuple(term for term in self.groups[0] if (term.column in self.derived) == late) for late in (0, 1)]
        return tuple(Filter((part,), self.derived) for part in parts if part)

    def bind(self, place: Mapping[str, Any]) -> Filter | Literal[True] | None:
        """The filter that remains where topic, partition or segment are known; None if no record there can match.

        True if every record there matches.
        """
        groups = []
        for group in self.groups:
            rest = []
            for term in group:
                if term.column not in place:
                    rest.append(term)
                elif not _holds_in_place(term, place[term.column]):
                    break
            else:
                if not rest:
                    return True
                groups.append(tuple(rest))
        return Filter(tuple(groups), self.derived) if groups else None

    def bounds(self) -> dict[str, int]:
        """Bounds that hold for every matching record: `start_offset`, `end_offset`, `start_timestamp`."""
        found: dict[str, list[int | None]] = {"start_offset": [], "end_offset": [], "start_timestamp": []}
        for group in self.groups:
            starts = [_start(term) for term in group if term.column == "offset"]
            ends = [_end(term) for term in group if term.column == "offset"]
            stamps = [_start(term) for term in group if term.column == "timestamp"]
            found["start_offset"].append(max((one for one in starts if one is not None), default=None))
            found["end_offset"].append(min((one for one in ends if one is not None), default=None))
            found["start_timestamp"].append(max((one for one in stamps if one is not None), default=None))
        bounds = {}
        for name, values in found.items():
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                bounds[name] = max(known) if name == "end_offset" else min(known)
        return bounds

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """bool[n]: batches that may hold a matching record; None for all."""
        whole: npt.NDArray[np.bool_] | None = None
        for group in self.groups:
            masks = [mask for term in group if (mask := term.batch_mask(batches)) is not None]
            if not masks:
                return None
            mask = np.logical_and.reduce(masks)
            whole = mask if whole is None else whole | mask
        return whole

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        """Clear the records in `mask` that match no group."""
        if len(self.groups) == 1:
            self._narrow_group(self.groups[0], spans, mask, derived)
            return []
        left = mask.copy()
        mask[:] = 0
        for group in self.groups:
            mine = left.copy()
            self._narrow_group(group, spans, mine, derived)
            mask |= mine
            left &= ~mine & 1
        return []

    def _narrow_group(
        self, group: Sequence[Term], spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        # cheap terms first: numbers, then bytes, then headers; each reads only the records that are left
        for term in sorted(group, key=lambda term: (term.reads_headers, term.column in BINARY_COLUMNS)):
            term.narrow(spans, mask, derived)


def _holds_in_place(term: Term, value: Any) -> bool:
    if value is None:
        if term.operation in _MEMBERSHIP:
            return (None in term.value) == (term.operation == "in")
        return term.operation == "is null"
    if term.operation in _NULLS:
        return term.operation == "is not null"
    return term.holds_for(value)


def _start(term: Term) -> int | None:
    if term.operation in (">=", "=="):
        return int(term.value)
    if term.operation == ">":
        return int(term.value) + 1
    if term.operation == "in" and term.value and None not in term.value:
        return int(min(term.value))
    return None


def _end(term: Term) -> int | None:
    if term.operation in ("<=", "=="):
        return int(term.value) + 1
    if term.operation == "<":
        return int(term.value)
    if term.operation == "in" and term.value and None not in term.value:
        return int(max(term.value)) + 1
    return None


def parse_filters(filters: Filters, derived: Mapping[str, np.dtype[Any]] | None = None) -> Filter:
    """Check and convert the conditions that the caller gave.

    Parameters
    ----------
    filters : str, list of str or tuple, or list of lists of these
        ``(column, operation, value)``, or the same as text (``"key == abc"``); see `OPERATIONS`. The value is left out
        for `is null` and `is not null`.
        ``("headers", "has", name)`` and ``("headers.NAME", operation, value)`` are for headers; the latter holds if
        any header of that name matches.
    derived : mapping of str to dtype
        Names of derived columns.

    Raises
    ------
    ValueError, TypeError
        A condition is invalid. The message has the allowed values.
    """
    derived = derived or {}
    if isinstance(filters, str):
        filters = [filters]
    if isinstance(filters, (bytes, Mapping)) or not isinstance(filters, Iterable):
        raise TypeError(f"filters must be a list of (column, operation, value) tuples, not {type(filters).__name__}")
    items: list[Any] = list(filters)
    if isinstance(filters, tuple) and len(items) in (2, 3) and items[0] in (*ALL_COLUMNS, *PLACE_COLUMNS, *derived):
        raise TypeError(f"filters must be a list of tuples; did you mean filters=[{tuple(filters)!r}]?")
    items = [_from_text(item) for item in items]
    if all(isinstance(item, tuple) for item in items):
        items = [items]
    groups = []
    for group in items:
        if isinstance(group, bytes) or not isinstance(group, Sequence):
            raise TypeError(f"a filter must be a (column, operation, value) tuple or a list of them, not {group!r}")
        groups.append(tuple(_parse_term(_from_text(item), derived) for item in group))
    return Filter(tuple(groups), frozenset(derived))


def _from_text(item: Any) -> Any:
    """The condition that a text such as ``key == abc`` says; anything else as it is."""
    return parse_condition(item) if isinstance(item, str) else item


def check_term(item: tuple[Any, ...]) -> None:
    """Raise what `parse_filters` would raise for one condition, without derived columns."""
    _parse_term(item, {})


def _parse_term(item: Any, derived: Mapping[str, np.dtype[Any]]) -> Term:
    if not isinstance(item, tuple) or not 2 <= len(item) <= 3 or not all(isinstance(part, str) for part in item[:2]):
        raise TypeError(f"a filter must be a (column, operation, value) tuple, not {item!r}")
    column, operation = item[0], " ".join(item[1].split())
    operation = _SAME.get(operation, operation)
    value = item[2] if len(item) == 3 else None
    if column == "headers":
        return _headers_term(operation, value)
    is_header = column.startswith("headers.")
    if not is_header and column not in (*ALL_COLUMNS, *PLACE_COLUMNS, *derived):
        known = (*PLACE_COLUMNS, *ALL_COLUMNS, *derived, "headers.NAME")
        close = near(column, known)
        there = f"did you mean {close!r}? There are" if close else "there are"
        raise ValueError(f"no column {column!r} to filter by; {there} {', '.join(known)}")
    is_binary = column in BINARY_COLUMNS or is_header
    if operation not in OPERATIONS or (operation in _BINARY_ONLY and not is_binary):
        allowed = [name for name in OPERATIONS if is_binary or name not in _BINARY_ONLY]
        raise ValueError(f"no operation {operation!r} for column {column!r}; there are {', '.join(allowed)}")
    if operation in _NULLS:
        if value is not None:
            raise ValueError(f"{operation!r} takes no value, not {value!r}")
    elif len(item) != 3:
        raise ValueError(f"{column!r} {operation!r} needs a value")
    elif column == "compression" and operation not in ("==", "!=", *_MEMBERSHIP):
        raise ValueError(f"{operation!r} is not for 'compression', whose values have no order")
    elif operation in _MEMBERSHIP:
        if is_header:
            raise ValueError(f"{operation!r} is not for headers; write a group for each value")
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(f"{operation!r} needs a list of values, not {value!r}")
        ones = list(value)
        if column == "timestamp":
            times = [None if one is None else parse_time(column, one) for one in ones]
            ones = [one for one in times if not _is_between_milliseconds(one)]
        value = tuple(None if one is None else _value(column, one, derived) for one in ones)
    elif value is None:
        raise ValueError(f"nothing compares with None; write ({column!r}, 'is null') or ({column!r}, 'is not null')")
    else:
        if column == "timestamp":
            value = parse_time(column, value)
        if column == "timestamp" and _is_between_milliseconds(value):
            if operation in ("==", "!="):
                return Term(column, "in", ()) if operation == "==" else Term(column, "is not null")
            operation = {">": ">=", "<=": "<"}.get(operation, operation)
        value = _value(column, value, derived)
    return Term(column, operation, value, _texts(column, operation, value))


def _is_between_milliseconds(value: Any) -> bool:
    return isinstance(value, datetime) and value.microsecond % 1000 != 0


def _headers_term(operation: str, value: Any) -> Term:
    if operation == "not has":
        operation = "has not"
    if operation not in ("has", "has not"):
        raise ValueError(
            f"no operation {operation!r} for 'headers'; there are ('headers', 'has', name), "
            "('headers', 'has not', name) and ('headers.NAME', operation, value)"
        )
    name = _bytes("headers", value)
    return Term("headers", operation, name, (np.frombuffer(name, np.uint8), np.empty(0, np.uint8)))


def _texts(column: str, operation: str, value: Any) -> tuple[Any, ...]:
    """The operands of a term for the kernels: uint8 arrays; for a set, its texts and whether null is in it."""
    if column.startswith("headers."):
        name = column.removeprefix("headers.").encode()
        return np.frombuffer(name, np.uint8), np.frombuffer(value or b"", np.uint8)
    if column not in BINARY_COLUMNS:
        return ()
    if operation not in _MEMBERSHIP:
        return (np.frombuffer(value or b"", np.uint8),)
    known = sorted({one for one in value if one is not None})
    offsets = np.cumsum([0, *map(len, known)], dtype=np.int64)
    return kernels.TextSet(np.frombuffer(b"".join(known), np.uint8), offsets), None in value


def _value(column: str, value: Any, derived: Mapping[str, np.dtype[Any]]) -> Any:
    """A value in the type of a column."""
    if column in BINARY_COLUMNS or column.startswith("headers."):
        return _bytes(column, value)
    if column in ("topic", "segment"):
        if not isinstance(value, str):
            raise TypeError(f"{column} is text, not {value!r}")
        return value
    if column == "timestamp":
        return parse_milliseconds("timestamp", value)
    if column == "compression":
        if value not in kf.CODEC_NAMES[:5]:
            raise ValueError(f"no compression {value!r}; there are {', '.join(kf.CODEC_NAMES[:5])}")
        return kf.CODEC_NAMES.index(value)
    if column == "timestamp_type" and isinstance(value, str):
        if value not in _TIMESTAMP_TYPES:
            raise ValueError(f"no timestamp_type {value!r}; there are {', '.join(_TIMESTAMP_TYPES)}")
        return _TIMESTAMP_TYPES[value]
    dtype = derived[column] if column in derived else np.dtype(FIXED_COLUMNS.get(column, np.int32))
    if dtype == np.bool_:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{column} is True or False, not {value!r}")
        return bool(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{column} is a number, not {value!r}")
    if dtype.kind != "f" and not isinstance(value, (int, np.integer)):
        raise TypeError(f"{column} is a whole number, not {value!r}")
    return value


def _bytes(column: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{column} is bytes (or text, taken as UTF-8), not {value!r}")
    return bytes(value)
