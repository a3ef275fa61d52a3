"""Statistics of a data file for Delta's log, by which readers skip files; from the footer of a Parquet file.

There are bounds of whole numbers, text, dates and times. Floats have none, as Parquet leaves out NaN. Decimals have
none, as readers of JSON round them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

_MOST_COLUMNS: Final = 32
"""As Delta's default of `delta.dataSkippingNumIndexedCols`."""
_MOST_CHARACTERS: Final = 256
_EPOCH: Final = datetime(1970, 1, 1)


def statistics_of(metadata: FileMetaData, schema: pa.Schema) -> str:
    """The JSON text of a file's statistics."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for number, (path, kind) in enumerate(_leaves(pa.struct(list(schema)), ())):
        if path is None or number >= _MOST_COLUMNS:
            continue
        groups = [metadata.row_group(at).column(number).statistics for at in range(metadata.num_row_groups)]
        if not groups or any(one is None or not one.has_null_count for one in groups):
            continue
        _put(nulls, path, sum(one.null_count for one in groups))
        # a group of nulls alone has no bounds
        bounded = [one for one in groups if one.has_min_max]
        if any(one.num_values and not one.has_min_max for one in groups):
            continue
        for where, bounds in ((lowest, [one.min_raw for one in bounded]), (highest, [one.max_raw for one in bounded])):
            value = _shown(min(bounds) if where is lowest else max(bounds), kind) if bounds else None
            if value is not None:
                _put(where, path, value)
    found = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(found)


def _leaves(kind: pa.DataType, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, pa.DataType]]:
    """The columns of Parquet that a type becomes, in order; without a path if several values may belong to a row."""
    if pt.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, None if path is None else (*path, field.name))
    elif pt.is_map(kind):
        yield from _leaves(kind.key_type, None)
        yield from _leaves(kind.item_type, None)
    elif pt.is_list(kind):
        yield from _leaves(kind.value_type, None)
    else:
        yield path, kind


def _put(where: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        where = where.setdefault(name, {})
    where[path[-1]] = value


def _shown(raw: Any, kind: pa.DataType) -> Any:
    """A bound as Delta writes it; None if it has no form there, so that readers skip nothing."""
    if pt.is_integer(kind):
        return raw
    if pt.is_string(kind):
        text = raw.decode() if isinstance(raw, bytes) else raw
        return text if len(text) <= _MOST_CHARACTERS else None
    try:
        if pt.is_date32(kind):
            return (date(1970, 1, 1) + timedelta(days=raw)).isoformat()
        if pt.is_timestamp(kind):
            moment = _EPOCH + timedelta(microseconds=raw)
            return moment.isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    except OverflowError:
        return None  # not in the years 1 to 9999
    return None
