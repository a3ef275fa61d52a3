"""The fields of a class of results and their types, from which JSON Schema, Arrow and Spark make theirs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, get_origin

if TYPE_CHECKING:
    import pyarrow as pa


def kinds_of(result: type) -> dict[str, str]:
    """Return the fields that `as_dict` of a class of results gives, and the kind of each.

    Kinds are ``text``, ``int``, ``number``, ``bool``, ``any``, or the name of another class of results. ``?`` stands
    after those that may be None, ``[kind]`` is a list, ``{kind}`` a dict by text. JSON Schemas, Spark's types and
    Arrow tables are made of them.
    """
    annotations: dict[str, object] = {one.name: one.type for one in fields(result)}
    properties = getattr(result, "_json_properties", ())
    for name in properties:
        annotations[name] = inspect.getattr_static(result, name).fget.__annotations__["return"]
    scope = _scope(result)
    kinds: dict[str, str] = {}
    for name in (*properties, *(one.name for one in fields(result))):
        if name == "topic_partition":
            kinds |= {"topic": "text?", "partition": "int?"}
        elif annotations[name] == "Findings":
            kinds |= {name: "[Finding]", "n_more_findings": "int"}
        elif name not in getattr(result, "_json_without", ()):
            kinds[name] = _kind(str(annotations[name]), scope)
    return kinds


def arrow_types(result: type) -> dict[str, pa.DataType]:
    """Return the type of each field of `kinds_of` in Arrow, except for those of any type; nested values are text."""
    import pyarrow as pa

    types = {"int": pa.int64(), "bool": pa.bool_(), "number": pa.float64()}
    kinds = {name: kind.rstrip("?") for name, kind in kinds_of(result).items()}
    return {name: types.get(kind, pa.string()) for name, kind in kinds.items() if kind != "any"}


def arrow_schema(result: type, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of a table of such results, in which lists of other results are lists of structs.

    `types` has those that the annotation of a field does not tell, such as narrow integers, by the field's name, also
    for fields of nested results. Times are the fields whose name ends in ``timestamp``.
    """
    import pyarrow as pa

    kinds = kinds_of(result)
    known = {**arrow_types(result), **types}
    for name, kind in kinds.items():
        item = kind.strip("[]?")
        if name.endswith("timestamp"):
            known[name] = pa.timestamp("ms", tz="UTC")
        elif kind.startswith("[") and item[0].isupper() and name not in types:
            known[name] = pa.list_(pa.struct(list(arrow_schema(_scope(result)[item], types))))
    return pa.schema({name: known[name] for name in kinds})


def _scope(result: type) -> dict[str, Any]:
    """The names that annotations of a class may use."""
    return {
        name: value for one in reversed(result.__mro__) for name, value in vars(sys.modules[one.__module__]).items()
    }


_KINDS: Final = {"int": "int", "bool": "bool", "float": "number", "str": "text"}
_LIST: Final = re.compile(r"(?:list|tuple|Sequence)\[([^,]*)(?:, \.\.\.)?\]")
_DICT: Final = re.compile(r"(?:dict|Mapping)\[str, (.*)\]")


def _kind(annotation: str, scope: Mapping[str, Any]) -> str:
    """The kind of an annotation, which is text; see `kinds_of`."""
    if annotation.endswith(" | None"):
        return _kind(annotation.removesuffix(" | None"), scope) + "?"
    if items := _LIST.fullmatch(annotation):
        return f"[{_kind(items[1], scope)}]"
    if values := _DICT.fullmatch(annotation):
        return f"{{{_kind(values[1], scope)}}}"
    if annotation in _KINDS:
        return _KINDS[annotation]
    named = scope.get(annotation.rpartition(".")[2])
    if get_origin(named) is Literal or (isinstance(named, type) and issubclass(named, Enum)):
        return "text"
    return named.__name__ if isinstance(named, type) and (is_dataclass(named) or hasattr(named, "_fields")) else "any"
