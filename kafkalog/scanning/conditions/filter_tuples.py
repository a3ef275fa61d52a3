"""`filters=` as tuples and text, checked and converted to a `Filter`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.parsing import parse_milliseconds, parse_time
from kafkalog.records.columns import ALL_COLUMNS, BINARY_COLUMNS, FIXED_COLUMNS
from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.scanning.conditions.filters import (
    BINARY_ONLY,
    MEMBERSHIP,
    NULLS,
    OPERATIONS,
    PATTERNS,
    PLACE_COLUMNS,
    Filter,
    Term,
)
from kafkalog.text import near
from kafkalog.values.conditions import SAME_OPERATIONS, groups_of

_TIMESTAMP_TYPES: Final = {name: number for number, name in kf.TIMESTAMP_TYPE_NAMES.items()}

Filters = str | Sequence[tuple[Any, ...] | str] | Sequence[Sequence[tuple[Any, ...] | str]]


def parse_filters(
    filters: Filters, derived: Mapping[str, np.dtype[Any]] | None = None, end_ms: Callable[[], int] | None = None
) -> Filter:
    """Check and convert the conditions that the caller gave; for their notation see `kafkalog.scan` and `OPERATIONS`.

    `end_ms` returns the latest timestamp, for times relative to it.
    """
    derived = derived or {}
    if isinstance(filters, str):
        filters = [filters]
    if isinstance(filters, (bytes, Mapping)) or not isinstance(filters, Iterable):
        raise TypeError(f"filters must be a list of (column, operation, value) tuples, not {type(filters).__name__}")
    items: list[Any] = list(filters)
    if isinstance(filters, tuple) and len(items) in (2, 3) and items[0] in (*ALL_COLUMNS, *PLACE_COLUMNS, *derived):
        raise TypeError(f"filters must be a list of tuples; did you mean filters=[{tuple(filters)!r}]?")
    whole = groups_of(items, lambda text: parse_filter(text, derived))
    return Filter(
        tuple(tuple(_parse_term(term, derived, end_ms) for term in group) for group in whole), frozenset(derived)
    )


def check_term(item: tuple[Any, ...]) -> None:
    """Raise what `parse_filters` would raise for one condition, without derived columns."""
    _parse_term(item, {}, lambda: 0)


def _parse_term(item: Any, derived: Mapping[str, np.dtype[Any]], end_ms: Callable[[], int] | None) -> Term:
    if not isinstance(item, tuple) or not 2 <= len(item) <= 3 or not all(isinstance(part, str) for part in item[:2]):
        raise TypeError(f"a filter must be a (column, operation, value) tuple, not {item!r}")
    column, operation = item[0], " ".join(item[1].split())
    operation = SAME_OPERATIONS.get(operation, operation)
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
    refused: tuple[str, ...] = (*BINARY_ONLY, *PATTERNS)
    if is_binary or column in ("topic", "segment"):
        refused = () if is_binary else BINARY_ONLY
    if operation not in OPERATIONS or operation in refused:
        allowed = [name for name in OPERATIONS if name not in refused]
        raise ValueError(f"no operation {operation!r} for column {column!r}; there are {', '.join(allowed)}")
    if operation in NULLS:
        if value is not None:
            raise ValueError(f"{operation!r} takes no value, not {value!r}")
    elif len(item) != 3:
        raise ValueError(f"{column!r} {operation!r} needs a value")
    elif column == "compression" and operation not in ("==", "!=", *MEMBERSHIP):
        raise ValueError(f"{operation!r} is not for 'compression', whose values have no order")
    elif operation in MEMBERSHIP:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(f"{operation!r} needs a list of values, not {value!r}")
        ones = list(value)
        if column == "timestamp":
            times = [None if one is None else parse_time(column, one, end_ms=end_ms) for one in ones]
            ones = [one for one in times if not _is_between_milliseconds(one)]
        value = tuple(None if one is None else _value(column, one, derived) for one in ones)
    elif value is None:
        raise ValueError(f"nothing compares with None; write ({column!r}, 'is null') or ({column!r}, 'is not null')")
    else:
        if column == "timestamp":
            value = parse_time(column, value, end_ms=end_ms)
        if column == "timestamp" and _is_between_milliseconds(value):
            if operation in ("==", "!="):
                return Term.of(column, "in", ()) if operation == "==" else Term.of(column, "is not null")
            operation = {">": ">=", "<=": "<"}.get(operation, operation)
        value = _value(column, value, derived)
    return Term.of(column, operation, value)


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
    return Term.of("headers", operation, _bytes("headers", value))


def _value(column: str, value: Any, derived: Mapping[str, np.dtype[Any]]) -> Any:
    """A value in the type of a column."""
    if column in BINARY_COLUMNS or column.startswith("headers."):
        return _bytes(column, value)
    if column in ("topic", "segment"):
        if not isinstance(value, str):
            raise TypeError(f"{column} must be text, not {value!r}")
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
            raise TypeError(f"{column} must be True or False, not {value!r}")
        return bool(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{column} must be a number, not {value!r}")
    if dtype.kind != "f" and not isinstance(value, (int, np.integer)):
        raise TypeError(f"{column} must be a whole number, not {value!r}")
    return value


def _bytes(column: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{column} must be bytes, or text (as UTF-8), not {value!r}")
    return bytes(value)
