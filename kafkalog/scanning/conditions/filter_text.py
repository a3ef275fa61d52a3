"""Filters as text, such as ``key == abc``: the notation of the command line, which Python and Spark take as well."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kafkalog.parsing import parse_time
from kafkalog.records.columns import BINARY_COLUMNS, FIXED_COLUMNS

_CONDITION: Final = re.compile(
    r"""\s*(?P<column>(?:headers|key|value)\.(?:"[^"]+"|[^\s=!<>"]+)|\w+)
    (?:\s*(?P<sign>==|!=|<=|>=|=|<|>)|\s+(?P<word>(?i:is\s+not\s+null|is\s+null|not\s+in|in|has\s+not|has|starts_with|contains))(?!\S))
    \s*(?P<value>.*?)\s*""",
    re.VERBOSE | re.DOTALL,
)
_COLUMNS: Final = frozenset(
    (*FIXED_COLUMNS, *BINARY_COLUMNS, "topic", "partition", "segment", "compression", "headers")
)
DECODED_FIELDS: Final = ("key.", "value.")
"""How the names of fields of decoded columns begin."""

_ITEM: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|\Z)""", re.DOTALL)
_LIST: Final = re.compile(r"""\((?:"[^"]*"|'[^']*'|[^()"'])*\)|\[(?:"[^"]*"|'[^']*'|[^]["'])*\]""")
"""A list as SQL and Python write it."""

_JOINED: Final = re.compile(
    r"""(?:"[^"]*"|'[^']*'|[^"'].*?)\s+(?P<word>(?i:and|or)|&&|\|\|)\s+(?P<rest>.*)""", re.DOTALL
)
_QUOTED: Final = re.compile(r"""(["'])(.*)\1""", re.DOTALL)


def parse_condition(text: str, derived: Mapping[str, np.dtype[Any]] | None = None) -> tuple[Any, ...]:
    """Parse ``COLUMN OP VALUE`` into a tuple as `parse_filters` takes it.

    Examples
    --------
    >>> parse_condition("key == abc"), parse_condition("offset in 1,2"), parse_condition("value is null")
    (('key', '==', 'abc'), ('offset', 'in', [1, 2]), ('value', 'is null'))
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"COLUMN OP VALUE is expected, such as 'key == abc' or 'timestamp >= 2026-11-21T08:00Z', not {text!r};"
            " OP is one of ==, !=, <, <=, >, >=, in, not in, contains, starts_with, has, has not, is null, is not null"
        )
    column = match["column"].replace('"', "")
    operation = match["sign"] or " ".join(match["word"].lower().split())
    is_about_null = operation.startswith("is ")
    _check_single(f"null {match['value']}" if is_about_null else match["value"])
    if is_about_null:
        if match["value"]:
            raise ValueError(f"{operation!r} takes no value")
        return column, operation
    dtype = (derived or {}).get(column)
    if operation in ("in", "not in"):
        listed = match["value"][1:-1] if _LIST.fullmatch(match["value"]) else match["value"]
        items = [item for item in _ITEM.findall(listed) if item]
        if not items:
            raise ValueError("a list of values is expected, such as a,b,c")
        return column, operation, [None if item in ("null", "NULL") else _value(column, item, dtype) for item in items]
    if not match["value"]:
        raise ValueError('a value is expected; the empty one is ""')
    if match["value"] in ("null", "NULL"):
        negated = " not" if operation == "!=" else ""
        raise ValueError(f"nothing compares with null; write '{column} is{negated} null', or in quotes for the text")
    return column, operation, _value(column, match["value"], dtype)


def _check_single(value: str) -> None:
    """Raise ValueError for a value such as ``a and offset > 5``: as text it would match nothing, without a word."""
    joined = _JOINED.fullmatch(value)
    following = None if joined is None else _CONDITION.fullmatch(joined["rest"])
    if joined is None or following is None:
        return
    column = following["column"]
    if column in _COLUMNS or column.startswith(("headers.", *DECODED_FIELDS)):
        how = (
            "give each condition on its own, then all must hold"
            if joined["word"] in ("and", "AND", "&&")
            else ("in Python, a list of lists says that one of several must hold")
        )
        raise ValueError(f"one condition is expected, not {joined['word']!r}: {how}; a value in quotes is text")


def _value(column: str, text: str, derived: np.dtype[Any] | None) -> Any:
    """Parse a value of a column's type; raises ValueError with what was expected."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return quoted[2]
    if column.startswith(DECODED_FIELDS):
        return text  # the type of the field decides what it means
    if column in BINARY_COLUMNS or column.startswith("headers."):
        return _bytes(text)
    if column == "timestamp":
        return parse_time(column, text)
    if derived is None and (column == "compression" or column not in (*FIXED_COLUMNS, "partition")):
        return text
    if column == "timestamp_type" and text[:1].isalpha():
        return text
    if column.startswith("is_") if derived is None else derived.kind == "b":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{column} is true or false, not {text!r}")
        return text.lower() == "true"
    is_whole = derived is None or derived.kind != "f"
    try:
        return int(text) if is_whole else float(text)
    except ValueError:
        raise ValueError(f"{column} is a {'whole number' if is_whole else 'number'}, not {text!r}") from None


def _bytes(text: str) -> str | bytes:
    if text[:2] in ("0x", "0X"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ValueError(f"{text!r} is not hex; in quotes it is text as it stands") from None
    if text.startswith("base64:"):
        try:
            return base64.b64decode(text[7:], validate=True)
        except binascii.Error:
            raise ValueError(f"{text!r} is not base64; in quotes it is text as it stands") from None
    return text
