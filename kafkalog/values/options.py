"""Parses `decode=`: the formats of key and value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from kafkalog.parsing import hint
from kafkalog.storage.files import size_of

NUMBERS: Final = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
"""The layout of numbers by their format, for `struct` and NumPy."""
FORMATS: Final = ("utf8", "json", *NUMBERS, "uuid", "avro", "protobuf", "jsonschema", "connectjson")
WITH_SCHEMAS: Final = ("avro", "protobuf", "jsonschema")
"""Formats whose values have frames of schema registries."""
WITH_FIELDS: Final = ("json", *WITH_SCHEMAS, "connectjson")
"""Formats whose values have fields."""
WITH_BRANCHES: Final = ("avro", "protobuf")
"""Formats with unions."""
_OF_FORMATS: Final = {
    **dict.fromkeys(("schema", "framed", "id_size"), (WITH_SCHEMAS, "schema")),
    "message": (("protobuf",), "message"),
    "reader_schema": (("avro",), "reader's schema"),
    "branches": (WITH_BRANCHES, "branches"),
}
"""The formats that have an attribute, and what it is."""
COLUMNS: Final = ("key", "value")

Decode = str | Mapping[str, Any]
"""The format of a column: its name, or a mapping with the attributes of `ColumnFormat`."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How the bytes of a column are written."""

    format: str
    """One of `FORMATS`."""
    schema: str | None = None
    """The text of one schema for all values; None if each value names its own."""
    framed: bool = True
    """Whether values start with schema ids, or have them in headers."""
    message: str | None = None
    """Name of the Protobuf message of all values; default: the one that values select, or the first one."""

    id_size: int | None = None
    """Bytes of a schema id in a frame, 4 or 8; default: 4 with `schema`, else recognized."""

    reader_schema: str | None = None
    """The text of an Avro schema to which values of all schemas are resolved."""
    branches: bool = False
    """Whether fields name the branch of a union (Avro), or the member of a oneof (Protobuf), that is set."""

    @property
    def has_frames(self) -> bool:
        """Whether the values have frames, or headers in place of them."""
        return self.format in WITH_SCHEMAS and self.framed


def parse_decode(decode: Mapping[str, Decode] | None) -> dict[str, ColumnFormat]:
    """Check `decode=`, and return the format of each column it names. A schema may be a path; this function reads it.

    Raises ValueError or TypeError for an unknown column, format or attribute, or attributes that exclude each other.
    """
    if decode is None:
        return {}
    if not isinstance(decode, Mapping):
        raise TypeError(f"decode is a mapping such as {{'value': 'json'}}, not {decode!r}")
    found = {}
    for column, one in decode.items():
        if column not in COLUMNS:
            raise ValueError(f"decode takes {' and '.join(COLUMNS)}, not {column!r}")
        if one is not None:
            found[column] = _column_format(column, one)
    return found


def _column_format(column: str, given: Any) -> ColumnFormat:
    if isinstance(given, ColumnFormat):
        return given
    if isinstance(given, str):
        given = {"format": given}
    if not isinstance(given, Mapping):
        raise TypeError(f"decode[{column!r}] is a format or a mapping with one, not {given!r}")
    known = [one.name for one in fields(ColumnFormat)]
    for name in given:
        if name not in known:
            raise ValueError(f"decode[{column!r}] has no {name!r}; {hint(str(name), known)}")
    name = given.get("format")
    if name not in FORMATS:
        raise ValueError(f"no format {name!r} to decode the {column} by; there are {', '.join(FORMATS)}")
    for attribute, (formats, what) in _OF_FORMATS.items():
        if given.get(attribute) not in (None, "") and name not in formats:
            raise ValueError(f"{name} has no {what}; formats with {what} are {', '.join(formats)}")
    if given.get("id_size") not in (None, 4, 8):
        raise ValueError(f"id_size is 4 or 8, not {given['id_size']!r}")
    one = ColumnFormat(
        name,
        schema=_text_of(given.get("schema")),
        framed=bool(given.get("framed", True)),
        message=given.get("message"),
        id_size=given.get("id_size"),
        reader_schema=_text_of(given.get("reader_schema")),
        branches=bool(given.get("branches")),
    )
    if not one.has_frames and one.schema is None and name in ("avro", "protobuf"):
        raise ValueError(f"decode[{column!r}]: values without a frame name no schema, so give one")
    return one


def _text_of(schema: Any) -> str | None:
    return None if schema is None else schema_text(schema)


def schema_text(schema: str | os.PathLike[str] | Mapping[str, Any] | list[Any]) -> str:
    """The text of a schema, or of the file that it names; of a dict or a list, as JSON.

    Raises ValueError for a file that is unreadable or too large, and TypeError for what is none of these.
    """
    if isinstance(schema, (Mapping, list)):
        named = {**schema} if isinstance(schema, Mapping) else schema
        return json.dumps(named, default=str)
    if not isinstance(schema, (str, os.PathLike)):
        is_message = hasattr(schema, "DESCRIPTOR")
        instead = "the .proto file of the message, as text or a path" if is_message else "text, a path or a dict"
        raise TypeError(f"a schema is {instead}, not {schema!r}")
    if isinstance(schema, str) and (schema.lstrip()[:1] in ("{", "[", '"') or "\n" in schema or ";" in schema):
        return schema
    try:
        path = Path(schema)
        if size_of(path) > MOST_SCHEMA_BYTES:
            raise ValueError(f"the schema {path} is larger than {MOST_SCHEMA_BYTES} bytes")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise ValueError(f"cannot read the schema file {schema}: {detail}") from None


MOST_SCHEMA_BYTES: Final = 4 * 2**20
"""Maximum size of a schema's text."""
