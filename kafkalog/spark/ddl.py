"""Types of JSON values as Spark's DDL writes them, such as ``a bigint, b struct<c:string>``.

The Python process in which Spark plans a query has no session, and so no parser of DDL.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>,:])")
_TYPES: Final = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
}


def parse_ddl(text: str) -> pa.DataType:
    """Parse the fields of a struct, or a single type, into an Arrow type.

    Raises
    ------
    ValueError
        The text is no DDL, or has a type that JSON has not.

    Examples
    --------
    >>> from kafkalog.spark.ddl import parse_ddl
    >>> str(parse_ddl("a bigint, b array<struct<c:string>>"))
    'struct<a: int64, b: list<item: struct<c: string>>>'
    """
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is no schema at {text[at:]!r}: {_EXPECTED}")
        tokens.append(match[1])
        at = match.end()
    parser = _Parser(text, tokens)
    kind = parser.type() if tokens[1:2] == ["<"] or len(tokens) == 1 else pa.struct(parser.fields(""))
    parser.expect("")
    return kind


_EXPECTED: Final = (
    "a bigint, b struct<c:string>, d array<double> is one; so are a JSON Schema, and the path of one. Of types JSON has"
    " boolean, bigint and smaller, float, double, string, struct and array: take others as string, and cast them"
)


class _Parser:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self._tokens = text, tokens

    def fields(self, stop: str) -> list[pa.Field]:
        found = []
        while True:
            name = self._next()
            if not name or name in "<>,:":
                self._fail(name)
            if self._tokens[:1] == [":"]:
                self._next()
            found.append(pa.field(name[1:-1].replace("``", "`") if name[0] == "`" else name, self.type()))
            if (self._tokens[0] if self._tokens else "") == stop:
                return found
            self.expect(",")

    def type(self) -> pa.DataType:
        name = self._next().lower()
        if name not in ("struct", "array"):
            if name not in _TYPES:
                self._fail(name)
            return _TYPES[name]
        self.expect("<")
        kind = pa.struct(self.fields(">")) if name == "struct" else pa.list_(self.type())
        self.expect(">")
        return kind

    def expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            self._fail(found)

    def _next(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def _fail(self, token: str) -> None:
        raise ValueError(f"{self._text!r} is no schema at {token or 'its end'!r}: {_EXPECTED}")
