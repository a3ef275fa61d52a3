"""Filters, judged row by row in Python."""

import operator
from datetime import UTC, datetime, timedelta

import numpy as np

import kafkalog
from kafkalog import format as kf
from kafkalog.column_names import ALL_COLUMNS

CODECS = kf.CODEC_NAMES[:5]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BINARY = ("key", "value")
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "starts_with": bytes.startswith,
    "contains": bytes.__contains__,
}


def rows_of(path, columns=ALL_COLUMNS, **options):
    """The records of a scan, a dict each; a timestamp that there is none of is None."""
    asked = list(dict.fromkeys([*columns, "timestamp", "timestamp_type"]))
    records = kafkalog.read_numpy(path, columns=asked, **options)
    derived = [name for name in records if name not in asked]
    lists = {name: records[name][:] .tolist() if isinstance(records[name], np.ndarray)
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


def odd_value(offset, value, value_is_null):
    return not value_is_null and value.size % 2 == 1


def first_of_key(key, key_is_null):
    if key_is_null or key.size == 0:
        return None
    return int(key[0])


EXTRACT = {"first": ("i2", first_of_key)}


def with_first(row):
    return {**row, "first": row["key"][0] if row["key"] else None}


def plain(column, value):
    """A filter's value as rows have it; times in microseconds, as exact as datetimes are."""
    if column == "timestamp":
        return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value * 1000
    return value.encode() if column in BINARY and isinstance(value, str) else value


def term_holds(row, term):
    """One condition, by the letter."""
    column, operation = term[0], term[1]
    value = term[2] if len(term) == 3 else None
    if column == "headers":
        wanted = value.encode() if isinstance(value, str) else value
        return any(name == wanted for name, _ in row["headers"]) == (operation == "has")
    if column.startswith("headers."):
        name = column.partition(".")[2].encode()
        return any(known_holds("key", one, operation, value) for key, one in row["headers"] if key == name)
    mine = row[column]
    return known_holds(column, mine * 1000 if column == "timestamp" and mine is not None else mine, operation, value)


def known_holds(column, mine, operation, value):
    if operation in ("is null", "is not null"):
        return (mine is None) == (operation == "is null")
    if operation in ("in", "not in"):
        return (mine in [None if one is None else plain(column, one) for one in value]) == (operation == "in")
    return mine is not None and COMPARISONS[operation](mine, plain(column, value))


def holds(row, groups):
    return any(all(term_holds(row, term) for term in group) for group in groups)


def in_ranges(row, bounds):
    lower = [
        (column, ">=", bounds[f"start_{column}"]) for column in ("offset", "timestamp") if f"start_{column}" in bounds
    ]
    upper = [(column, "<", bounds[f"end_{column}"]) for column in ("offset", "timestamp") if f"end_{column}" in bounds]
    return holds(row, [[*lower, *upper]])
