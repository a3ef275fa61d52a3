"""Fields whose text is JSON: of mixed type, numbers of many digits, and objects without fields.

A column with decoded JSON names them in the metadata of its Arrow field, which Parquet and Arrow files keep. Lines of
text have the JSON itself in their place. So a load finds the values that the source had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

Path = tuple[str, ...]

_KEY: Final = b"kafkalog.json"
ITEM: Final = "[]"
"""The step of a path to the items of a list."""


def numbers_of_json(kind: pa.DataType, path: Path = ()) -> Iterator[Path]:
    """The paths of numbers that JSON lines show as text: those of more digits than 64 bits have."""
    if pt.is_decimal(kind):
        yield path
    elif pt.is_struct(kind):
        for field in kind:
            yield from numbers_of_json(field.type, (*path, field.name))
    elif pt.is_list(kind):
        yield from numbers_of_json(kind.value_type, (*path, ITEM))


def stored_as_text(kind: pa.DataType, stored: pa.DataType, path: Path = ()) -> Iterator[Path]:
    """The paths of values that are not text, and whose stored type is text."""
    is_text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_null(kind)
    if pt.is_string(stored) and not is_text:
        yield path
    elif pt.is_struct(kind) and pt.is_struct(stored):
        for field in kind:
            at = stored.get_field_index(field.name)
            if at >= 0:
                yield from stored_as_text(field.type, stored.field(at).type, (*path, field.name))
    elif pt.is_list(kind) and pt.is_list(stored):
        yield from stored_as_text(kind.value_type, stored.value_type, (*path, ITEM))


def with_json(field: pa.Field, paths: Iterable[Path]) -> pa.Field:
    """The field with the paths of its JSON text."""
    return field.with_metadata({_KEY: json.dumps(sorted(map(list, paths)))})


def json_paths(field: pa.Field) -> frozenset[Path] | None:
    """The paths of JSON text in a column of decoded JSON; None for another column."""
    text = (field.metadata or {}).get(_KEY)
    return None if text is None else frozenset(map(tuple, json.loads(text)))


def in_storage(field: pa.Field, stored: pa.DataType, *, has_metadata: bool) -> pa.Field:
    """The field with the type in which it is stored, and with the paths that are text there."""
    paths = json_paths(field) if has_metadata else None
    if paths is None:
        return field.with_type(stored).remove_metadata()
    return with_json(field.with_type(stored), paths.union(stored_as_text(field.type, stored)))


def restored(value: Any, paths: Collection[Path], parse: Callable[[str], Any], path: Path = ()) -> Any:
    """A plain value with what `parse` makes of the text at the paths."""
    if path in paths:
        return parse(value) if isinstance(value, str) else value
    if not any(one[: len(path)] == path for one in paths):
        return value
    if isinstance(value, dict):
        return {name: restored(one, paths, parse, (*path, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [restored(one, paths, parse, (*path, ITEM)) for one in value]
    return value


def text_with_json(value: Any, paths: Collection[Path], encode: Callable[[Any], str], path: Path = ()) -> str:
    """A plain value as JSON, with the text at the paths as it is."""
    if path in paths:
        return value if isinstance(value, str) else encode(value)
    if not any(one[: len(path)] == path for one in paths):
        return encode(value)
    if isinstance(value, dict):
        items = (f"{encode(name)}: {text_with_json(one, paths, encode, (*path, name))}" for name, one in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_with_json(one, paths, encode, (*path, ITEM)) for one in value) + "]"
    return encode(value)
