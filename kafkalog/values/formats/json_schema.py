"""JSON Schemas: the types that they say, so that columns have fields which no value happens to have.

Only what says a type is read: `type`, `properties`, `items`, `$ref` within the schema, `oneOf` or `anyOf` with null.
Anything else, and a schema within itself, leaves the type to the values. Values are not checked against the schema.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from kafkalog.values.types import MOST_DEPTH, MOST_FIELDS, SchemaError

_TYPES: Final = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def schema_type(text: str) -> pa.DataType:
    """The type of the values of a schema; null where it does not say it.

    Raises
    ------
    SchemaError
        It is no JSON, or has too many fields.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    return _Reader(schema).type_of(schema, ())


class _Reader:
    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._n_types = 0

    def type_of(self, schema: Any, around: tuple[int, ...]) -> pa.DataType:
        self._n_types += 1
        if self._n_types > MOST_FIELDS:
            raise SchemaError(f"the schema has more than {MOST_FIELDS} fields")
        if not isinstance(schema, dict) or id(schema) in around or len(around) >= MOST_DEPTH:
            return pa.null()
        around = (*around, id(schema))
        if "$ref" in schema:
            return self.type_of(self._target(schema["$ref"]), around)
        for name in ("oneOf", "anyOf"):
            if isinstance(schema.get(name), list):
                others = [one for one in schema[name] if one != {"type": "null"}]
                return self.type_of(others[0], around) if len(others) == 1 else pa.null()
        kind = schema.get("type")
        if isinstance(kind, list):
            others = [one for one in kind if one != "null"]
            kind = others[0] if len(others) == 1 else None
        if kind == "object" and isinstance(schema.get("properties"), dict):
            inner = {name: self.type_of(one, around) for name, one in schema["properties"].items()}
            known = [pa.field(name, one) for name, one in inner.items() if not pa.types.is_null(one)]
            return pa.struct(known) if known else pa.null()
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = self.type_of(schema["items"], around)
            return pa.null() if pa.types.is_null(item) else pa.list_(item)
        return _TYPES.get(kind, pa.null()) if isinstance(kind, str) else pa.null()

    def _target(self, reference: Any) -> Any:
        """What a reference within the schema points at, such as ``#/definitions/Money``."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._whole
        for part in filter(None, reference[1:].split("/")):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found
