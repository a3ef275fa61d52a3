"""Reads types from JSON Schemas, so that columns also have fields that no value has.

It uses only the keywords `type`, `properties`, `required`, `items`, local `$ref`, and `oneOf` or `anyOf` with null. For
other keywords and recursive schemas, the values decide the type. Values are checked only against this type. Null counts
as a missing field.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from kafkalog.interchange.table_types import Digits, Path
from kafkalog.values.payloads import Faults
from kafkalog.values.types import MOST_DEPTH, MOST_FIELDS, SchemaError

_TYPES: Final = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def schema_type(text: str) -> pa.DataType:
    """The type that a schema defines; null where it defines none. Required fields are not nullable.

    Raises SchemaError if it is not JSON, or has too many fields.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}; it begins {text[:30]!r}") from None
    return _Reader(schema).type_of(schema, ())[0]


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type with all fields nullable."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(one.name, nullable_type(one.type)) for one in kind])
    return pa.list_(nullable_type(kind.value_type)) if pt.is_list(kind) else kind


def overlaid(kind: pa.DataType, said: pa.DataType) -> pa.DataType:
    """The type, with the parts replaced that a schema defines."""
    if pt.is_struct(kind) and pt.is_struct(said):
        at = {one.name: one for one in said}
        return pa.struct(
            [
                one.with_type(overlaid(one.type, at[one.name].type)).with_nullable(at[one.name].nullable)
                if one.name in at
                else one
                for one in kind
            ]
        )
    if pt.is_list(kind) and pt.is_list(said):
        return pa.list_(overlaid(kind.value_type, said.value_type))
    return kind if pt.is_null(said) else said


def conformed(value: Any, kind: pa.DataType, faults: Faults, path: Path = ()) -> Any:
    """A parsed value that conforms to a type, with int in integer fields.

    What does not conform is null, and `faults` receives it.
    """
    if value is None or pt.is_null(kind):
        return value
    expected, name = _PYTHON_TYPES[kind.id]
    if pt.is_integer(kind) and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        faults.append((path, NOT_OF_TYPE.format("{}", name)))
        return None
    if isinstance(value, list):
        return [conformed(item, kind.value_type, faults, (*path, "[]")) for item in value]
    if not isinstance(value, dict):
        return value
    found = value.copy()
    for field in kind:
        if value.get(field.name) is not None:
            found[field.name] = conformed(value[field.name], field.type, faults, (*path, field.name))
        elif not field.nullable:
            faults.append(((*path, field.name), MISSING))
    return found


MISSING: Final = "does not match its schema: {} is missing"
NOT_OF_TYPE: Final = "does not match its schema: {} is not of type {}"
_PYTHON_TYPES: Final[dict[int, tuple[Any, str]]] = {
    pa.int64().id: (int, "integer"),
    pa.float64().id: ((int, float, Digits), "number"),
    pa.string().id: (str, "string"),
    pa.bool_().id: (bool, "boolean"),
    pa.struct([]).id: (dict, "object"),
    pa.list_(pa.null()).id: (list, "array"),
}


class _Reader:
    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._n_types = 0

    def type_of(self, schema: Any, around: tuple[int, ...]) -> tuple[pa.DataType, bool]:
        """The type that a schema defines, and whether it allows null."""
        self._n_types += 1
        if self._n_types > MOST_FIELDS:
            raise SchemaError(f"the schema has more than {MOST_FIELDS} fields")
        # where the schema defines nothing, values decide
        if not isinstance(schema, dict) or id(schema) in around or len(around) >= MOST_DEPTH:
            return pa.null(), True
        around = (*around, id(schema))
        if "$ref" in schema:
            return self.type_of(self._target(schema["$ref"]), around)
        for name in ("oneOf", "anyOf"):
            if isinstance(schema.get(name), list):
                others = [one for one in schema[name] if one != {"type": "null"}]
                if len(others) != 1:
                    return pa.null(), True
                inner, allows_null = self.type_of(others[0], around)
                return inner, allows_null or len(others) < len(schema[name])
        kind, allows_null = schema.get("type"), False
        if isinstance(kind, list):
            others = [one for one in kind if one != "null"]
            allows_null = len(others) < len(kind)
            kind = others[0] if len(others) == 1 else None
        return self._of_kind(kind, schema, around), allows_null

    def _of_kind(self, kind: Any, schema: dict[str, Any], around: tuple[int, ...]) -> pa.DataType:
        if kind == "object" and isinstance(schema.get("properties"), dict):
            required = schema.get("required")
            needed = required if isinstance(required, list) else []
            inner = {name: self.type_of(one, around) for name, one in schema["properties"].items()}
            known = [
                pa.field(name, one, nullable=allows_null or name not in needed)
                for name, (one, allows_null) in inner.items()
                if not pt.is_null(one)
            ]
            return pa.struct(known) if known else pa.null()
        if kind == "array" and isinstance(schema.get("items"), dict):
            item, _ = self.type_of(schema["items"], around)
            return pa.null() if pt.is_null(item) else pa.list_(item)
        return _TYPES.get(kind, pa.null()) if isinstance(kind, str) else pa.null()

    def _target(self, reference: Any) -> Any:
        """The target of a local reference, such as ``#/definitions/Money``."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._whole
        for part in filter(None, reference[1:].split("/")):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found
