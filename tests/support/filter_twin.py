"""Filters, judged row by row in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kafkalog
from kafkalog import format as kf
from kafkalog.interchange.arrow_output import ALL_COLUMNS

Row = dict[str, Any]

CODECS = kf.CODEC_NAMES[:5]


def rows_of(path: Any, columns: Sequence[str] = ALL_COLUMNS, **options: Any) -> list[Row]:
    """The records of a scan, a dict each; a timestamp that there is none of is None."""
    asked = list(dict.fromkeys([*columns, "timestamp", "timestamp_type"]))
    records = kafkalog.read_numpy(path, columns=asked, **options)
    derived = [name for name in records if name not in asked]
    lists: dict[str, list[Any]] = {name: records[name][:] .tolist() if isinstance(records[name], np.ndarray)
                                   else records[name].to_pylist() for name in records}  # fmt: skip
    for name, nothing in (("partition", -1), ("topic", "")):
        lists[name] = [None if value == nothing else value for value in lists.get(name, [])]
    lists["timestamp"] = [
        None if kind == -1 and stamp == -1 else stamp
        for stamp, kind in zip(lists["timestamp"], lists["timestamp_type"], strict=True)
    ]
    if "compression" in lists:
        lists["compression"] = [CODECS[value] for value in lists["compression"]]
    wanted = [*columns, *derived]
    return [dict(zip(wanted, row, strict=True)) for row in zip(*(lists[name] for name in wanted), strict=True)]


def odd_value(offset: int, value: NDArray[np.uint8], value_is_null: bool) -> bool:
    return not value_is_null and value.size % 2 == 1


def first_of_key(key: NDArray[np.uint8], key_is_null: bool) -> int | None:
    if key_is_null or key.size == 0:
        return None
    return int(key[0])


EXTRACT = {"first": ("i2", first_of_key)}


def with_first(row: Row) -> Row:
    return {**row, "first": row["key"][0] if row["key"] else None}
