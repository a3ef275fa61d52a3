"""`filters=` as tuples and text, checked and converted to a `Filter`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.column_names import CONTEXT_COLUMNS
from kafkalog.parsing import column_hint, parse_milliseconds, parse_time
from kafkalog.records.columns import ALL_COLUMNS, BINARY_COLUMNS, FIXED_COLUMNS
from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.scanning.conditions.filters import (
    BINARY_ONLY,
    MEMBERSHIP,
    NULLS,
    OPERATIONS,
    PATTERNS,
    Filter,
    Term,
)
from kafkalog.values.conditions import SAME_OPERATIONS, compares_none, groups_of, lacks_value, no_term, not_conditions

_CODECS: Final = {name: number for number, name in enumerate(kf.KNOWN_CODEC_NAMES)}
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
        raise not_conditions(filters)
    items: list[Any] = list(filters)
    if isinstance(filters, tuple) and len(items) in (2, 3) and items[0] in (*ALL_COLUMNS, *CONTEXT_COLUMNS, *derived):
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
        raise no_term(item)
    column, operation = item[0], " ".join(item[1].split())
    operation = SAME_OPERATIONS.get(operation, operation)
    value = item[2] if len(item) == 3 else None
    if column == "headers":
        return _headers_term(operation, value)
    _check_column(column, derived)
    _check_operation(column, operation)
    _check_operand(column, operation, item)
    if operation in NULLS:
        return Term.of(column, operation, value)
    if operation in MEMBERSHIP:
        return Term.of(column, operation, _listed(column, operation, value, derived, end_ms))
    if column == "timestamp":
        value = parse_time(column, value, end_ms=end_ms)
        if _is_between_milliseconds(value):
            return _between_milliseconds(operation, value)
    return Term.of(column, operation, _value(column, value, derived))


def _check_column(column: str, derived: Collection[str]) -> None:
    if not column.startswith("headers.") and column not in (*ALL_COLUMNS, *CONTEXT_COLUMNS, *derived):
        known = (*CONTEXT_COLUMNS, *ALL_COLUMNS, *derived, "headers.NAME")
        field = re.match(r"(key|value)\.", column)
        if field is not None:
            raise ValueError(
                f"no column {column!r} to filter by: a field needs the format of its {field[1]}: add"
                f" --{field[1]}-format json (decode={{{field[1]!r}: 'json'}}), or avro or protobuf"
            )
        raise ValueError(f"no column {column!r} to filter by; {column_hint(column, known)}")


def _check_operation(column: str, operation: str) -> None:
    refused: tuple[str, ...] = (*BINARY_ONLY, *PATTERNS)
    if column in BINARY_COLUMNS or column.startswith("headers."):
        refused = ()
    elif column in ("topic", "segment"):
        refused = BINARY_ONLY
    if operation not in OPERATIONS or operation in refused:
        allowed = [name for name in OPERATIONS if name not in refused]
        raise ValueError(f"no operation {operation!r} for column {column!r}; there are {', '.join(allowed)}")


def _check_operand(column: str, operation: str, item: tuple[Any, ...]) -> None:
    """Raise unless a condition has a value exactly if its operation takes one."""
    value = item[2] if len(item) == 3 else None
    if operation in NULLS:
        if value is not None:
            raise ValueError(f"{operation!r} takes no value, not {value!r}")
    elif len(item) != 3:
        raise lacks_value(column, operation)
    elif column == "compression" and operation not in ("==", "!=", *MEMBERSHIP):
        raise ValueError(f"{operation!r} is not for 'compression', whose values have no order")
    elif value is None and operation not in MEMBERSHIP:
        raise compares_none(column)


def _listed(
    column: str, operation: str, value: Any, derived: Mapping[str, np.dtype[Any]], end_ms: Callable[[], int] | None
) -> tuple[Any, ...]:
    """The values of a list, each in the type of the column."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{operation!r} needs a list of values, not {value!r}")
    values = list(value)
    if column == "timestamp":
        times = [None if time is None else parse_time(column, time, end_ms=end_ms) for time in values]
        values = [time for time in times if not _is_between_milliseconds(time)]
    return tuple(None if item is None else _value(column, item, derived) for item in values)


def _between_milliseconds(operation: str, value: Any) -> Term:
    """The condition on milliseconds that equals a comparison with a time between two of them."""
    if operation == "==":
        return Term.of("timestamp", "in", ())
    if operation == "!=":
        return Term.of("timestamp", "is not null")
    operation = {">": ">=", "<=": "<"}.get(operation, operation)
    return Term.of("timestamp", operation, _value("timestamp", value, {}))


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
        return _number_of(column, value, _CODECS)
    if column == "timestamp_type" and isinstance(value, str):
        return _number_of(column, value, _TIMESTAMP_TYPES)
    return _number(
        column, value, derived[column] if column in derived else np.dtype(FIXED_COLUMNS.get(column, np.int32))
    )


def _number_of(column: str, name: Any, numbers: Mapping[str, int]) -> int:
    """The number that stands for a name."""
    if name not in list(numbers):  # of any type, also one without a hash
        raise ValueError(f"no {column} {name!r}; there are {', '.join(numbers)}")
    return numbers[name]


def _number(column: str, value: Any, dtype: np.dtype[Any]) -> Any:
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
