"""Filters as text, such as ``key == abc and not (offset < 5 or value is null)``, for the command line and Python.

A text becomes groups of conditions, of which all of one have to hold. A value without quotes ends where another
condition follows ``and`` or ``or``, so ``key == rock and roll`` is one condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kafkalog.parsing import is_to_end, parse_time
from kafkalog.records.columns import BINARY_COLUMNS, FIXED_COLUMNS
from kafkalog.values.conditions import Bare, Groups, all_of, any_of, bytes_literal
from kafkalog.values.mixed_fields import TEXT_OPERATIONS

_TEXT: Final = "|".join(TEXT_OPERATIONS)
_NAME: Final = r"""(?:(?:headers|key|value)(?:\.(?:"[^"]+"|[^\s=!<>".]+))+|\w+)"""
_CONDITION: Final = re.compile(
    rf"""\s*(?P<column>{_NAME})
    (?:\s*(?P<sign>==|!=|<=|>=|=|<|>|!~|~)|\s+(?P<word>(?i:is\s+not\s+null|is\s+null|(?:not\s+)?(?:in|between|{_TEXT})|has\s+not|has))(?![^\s()]))
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

_WORD: Final = re.compile(r"\s*(?:(?P<and>(?i:and)(?![^\s(])|&&)|(?P<or>(?i:or)(?![^\s(])|\|\|))")
_NOT: Final = re.compile(rf"\s*(?i:not)(?=\s+[\w(]|\()(?!\s+(?:in|between|{_TEXT})\b)")
_START: Final = re.compile(r"\s*(?:(?i:not)\b\s*)?(?:\(\s*)*", re.DOTALL)
_NEGATED: Final = {
    "==": "!=", "=": "!=", "<": ">=", "<=": ">", "in": "not in", "is null": "is not null", "has": "has not",
    **{name: f"not {name}" for name in TEXT_OPERATIONS},
}  # fmt: skip
_NEGATED_BACK: Final = {one: other for other, one in _NEGATED.items() if other != "="}
_MOST_DEPTH: Final = 50
_SECOND_SIGN: Final = re.compile(r"[=<>!~]=?(?=\s)")
_JOINED: Final = re.compile(r"\s([&|])\s+\(*[\w.]+\s*(?:[=<>!~]|(?:in|is|like|between|contains|matches|has)\s)")
"""What pandas has between two conditions."""
_QUOTED: Final = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_IN_QUOTES: Final = re.compile(r"""(?<![^\s,(\[])(?:"[^"]*"|'[^']*')""")
_AFTER_QUOTES: Final = re.compile(rf"""\s*(?:[&|]|(?i:and|or)(?![^\s("'])|\(*{_NAME}\s*[=<>!~])""", re.VERBOSE)
"""Another condition, or what is meant as one: an unknown column, or a value without any."""


def parse_condition(text: str, derived: Mapping[str, np.dtype[Any]] | None = None) -> tuple[Any, ...]:
    """Parse ``COLUMN OP VALUE`` into a tuple as `parse_filters` takes it.

    >>> parse_condition("key == abc"), parse_condition("offset in 1,2"), parse_condition("value is null")
    (('key', '==', 'abc'), ('offset', 'in', [1, 2]), ('value', 'is null'))
    """
    groups = parse_filter(text, derived)
    if len(groups) != 1 or len(groups[0]) != 1:
        raise ValueError(f"expected one condition, not {text!r}; a value in quotes is text")
    return groups[0][0]


def _no_condition(text: str) -> str:
    """The message about a text that is no condition."""
    if "$." in text:  # a path of JSON, as jq and JSONPath have it
        meant = re.sub(r"\$\.(?=\w)", "value.", text)
        return f"{text!r}: a field of JSON values is {meant!r}, with --value-format json"
    if found := re.match(r"headers?\[['\"]?([\w.-]+)['\"]?\](.*)", text):
        return f"{text!r}: a header is {f'headers.{found[1]}{found[2]}'!r}"
    return (
        f"expected COLUMN OP VALUE, such as 'key == abc' or 'timestamp >= 2026-11-21T08:00Z', not {text!r};"
        " OP is one of ==, !=, <, <=, >, >=, in, between, like, matches, contains, starts_with, each with not, has,"
        " has not, is null, is not null; conditions are joined by and, or, not and parentheses"
    )


def _check_value(match: re.Match[str]) -> None:
    """Raise ValueError for a value that begins with an operator, or has another condition in it."""
    value = match["value"] or ""
    if second := _SECOND_SIGN.match(value if match["sign"] else ""):
        raise ValueError(f"{second[0]!r} follows an operator; put a text that begins so in quotes")
    if joined := _JOINED.search(_IN_QUOTES.sub('""', value)):
        word = "and" if joined[1] == "&" else "or"
        raise ValueError(f"{joined[1]!r} joins no conditions; write {word}, or put the text in quotes")
    first = _IN_QUOTES.match(value) if _QUOTED.fullmatch(value) else None
    if first is not None and _AFTER_QUOTES.match(value, first.end()):
        raise ValueError(
            f"after {first[0]}, {value[first.end() :].strip()!r} is no condition on a column; conditions are joined by"
            " and, or; a text with quotes in it stands in the other kind of quotes"
        )


def _single(text: str, derived: Mapping[str, np.dtype[Any]] | None = None) -> tuple[Any, ...]:
    """A condition whose end is known."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(_no_condition(text))
    _check_value(match)
    column = match["column"]
    column = column.replace('"', "") if column.startswith("headers") else column
    operation = match["sign"] or " ".join(match["word"].lower().split())
    operation = {"~": "matches", "!~": "not matches"}.get(operation, operation)
    if operation.startswith("is "):
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
        raise ValueError(f"null does not compare; write '{column} is{negated} null', or put the text in quotes")
    return column, operation, _value(column, match["value"], dtype)


def parse_filter(text: str, derived: Mapping[str, np.dtype[Any]] | None = None) -> Groups:
    """Parse a text into groups of conditions; a record matches if all conditions of one group hold.

    >>> parse_filter("offset between 5 and 9 and not (key == a or value is null)")
    [[('offset', '>=', 5), ('offset', '<=', 9), ('key', '!=', 'a'), ('value', 'is not null')]]
    """
    return _ConditionParser(text, derived).parsed()


class _ConditionParser:
    def __init__(self, text: str, derived: Mapping[str, np.dtype[Any]] | None) -> None:
        self._text, self._derived, self._at, self._depth = text, derived, 0, 0

    def parsed(self) -> Groups:
        found = self._either(negated=False)
        rest = self._text[self._at :].strip()
        if rest:
            raise ValueError(f"expected 'and', 'or' or the end of the filter, not {rest!r}")
        return found

    def _either(self, *, negated: bool) -> Groups:
        """Conditions joined with or. With a negation, or becomes and, and the other way round."""
        parts = [self._both(negated=negated)]
        while self._takes("or"):
            parts.append(self._both(negated=negated))
        return all_of(parts) if negated else any_of(parts)

    def _both(self, *, negated: bool) -> Groups:
        parts = [self._one(negated=negated)]
        while self._takes("and"):
            parts.append(self._one(negated=negated))
        return any_of(parts) if negated else all_of(parts)

    def _takes(self, word: str) -> bool:
        found = _WORD.match(self._text, self._at)
        if found is None or found[word] is None:
            return False
        self._at = found.end()
        return True

    def _one(self, *, negated: bool) -> Groups:
        found = _NOT.match(self._text, self._at)
        if found is not None and not self._is_condition(self._at):
            self._at = found.end()
            return self._one(negated=not negated)
        start = len(self._text[self._at :]) - len(self._text[self._at :].lstrip()) + self._at
        if self._text[start : start + 1] != "(":
            return self._condition(negated=negated)
        if self._depth >= _MOST_DEPTH:
            raise ValueError("the filter is nested too deeply")
        self._at, self._depth = start + 1, self._depth + 1
        inner = self._either(negated=negated)
        closing = re.compile(r"\s*\)").match(self._text, self._at)
        if closing is None:
            raise ValueError(f"the filter {self._text!r} lacks a closing parenthesis")
        self._at, self._depth = closing.end(), self._depth - 1
        return inner

    def _is_condition(self, at: int) -> bool:
        """Whether a condition on a column that there is begins here."""
        found = _CONDITION.match(self._text, at)
        if found is None:
            return False
        column = found["column"]
        return column in _COLUMNS or column in (self._derived or {}) or column.startswith(("headers.", *DECODED_FIELDS))

    def _condition(self, *, negated: bool) -> Groups:
        begin = self._at
        found = _CONDITION.match(self._text, begin)
        if found is None:
            return [[_single(self._text[begin:], self._derived)]]  # raises
        word = " ".join((found["word"] or "").lower().split())
        self._at = value = found.start("value")
        if word in ("between", "not between"):
            return self._between(found["column"], value, negated=negated == (word == "between"))
        self._at = value if word.startswith("is ") else self._end_of_value(value)
        term = _single(self._text[begin : self._at], self._derived)
        return [[_opposite(term) if negated else term]]

    def _between(self, column: str, value: int, *, negated: bool) -> Groups:
        middle = self._end_of_value(value, is_first=True)
        if not self._takes_at("and", middle):
            raise ValueError(f"{column} between: 'LEAST and MOST' is expected")
        begin = self._at
        self._at = self._end_of_value(begin)
        terms = [
            _single(f"{column} {sign} {one}", self._derived)
            for sign, one in ((">=", self._text[value:middle]), ("<=", self._text[begin : self._at]))
        ]
        return [[_opposite(term)] for term in terms] if negated else [terms]

    def _takes_at(self, word: str, at: int) -> bool:
        self._at = at
        return self._takes(word)

    def _end_of_value(self, at: int, *, is_first: bool = False) -> int:
        """Where a value ends: after its quotes or brackets, or before what cannot be of it."""
        text, n = self._text, len(self._text)
        at += len(text[at:]) - len(text[at:].lstrip())
        whole = _WHOLE.match(text, at)
        if whole is not None and self._ends_here(whole.end(), is_first):
            return whole.end()
        position = at
        while position < n and not self._ends_here(position, is_first):
            position += 1
        return position

    def _ends_here(self, at: int, is_first: bool) -> bool:
        rest = self._text[at:]
        if not rest.strip():
            return True
        if self._depth and rest.lstrip()[0] == ")":
            return True
        word = _WORD.match(self._text, at)
        # a word of its own: after a space, quotes or a bracket
        if word is None or not (rest[:1].isspace() or self._text[at - 1 : at] in "\"')]"):
            return False
        if is_first:
            return word["and"] is not None
        start = _START.match(self._text, word.end())
        return self._is_condition(word.end()) or (start is not None and self._is_condition(start.end()))


_WHOLE: Final = re.compile(rf"""(?:"[^"]*"|'[^']*'|{_LIST.pattern})""", re.DOTALL)


def _opposite(term: tuple[Any, ...]) -> tuple[Any, ...]:
    column, operation, *value = term
    if str(column).startswith("headers."):
        raise ValueError(
            f"'not' does not work with {column}, since several headers may have the name; write {column} != ..."
        )
    return column, _NEGATED.get(operation) or _NEGATED_BACK[operation], *value


def _value(column: str, text: str, derived: np.dtype[Any] | None) -> Any:
    """Parse a value of a column's type; raises ValueError with what was expected."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return quoted[2]
    if column.startswith(DECODED_FIELDS):
        return Bare(text)  # the type of the field decides what it means
    if column in BINARY_COLUMNS or column.startswith("headers."):
        return bytes_literal(text)
    if column == "timestamp":
        return text if is_to_end(text) else parse_time(column, text)
    if derived is None and (column == "compression" or column not in (*FIXED_COLUMNS, "partition")):
        return text
    if column == "timestamp_type" and text[:1].isalpha():
        return text
    if column.startswith("is_") if derived is None else derived.kind == "b":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{column} must be true or false, not {text!r}")
        return text.lower() == "true"
    is_whole = derived is None or derived.kind != "f"
    try:
        return int(text) if is_whole else float(text)
    except ValueError:
        kind = "whole number" if is_whole else "number"
        raise ValueError(f"{column} must be a {kind}, such as {column} >= 42, not {text!r}") from None
