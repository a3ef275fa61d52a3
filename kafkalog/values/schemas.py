"""Where schemas come from: the records of a registry's `_schemas` topic, a directory, or a mapping.

A registry that answers HTTP is in `kafkalog.values.registry`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kafkalog.values.frames import SchemaKey
from kafkalog.values.options import schema_text

TOPIC: Final = "_schemas"
"""The topic in which Confluent's registry keeps schemas."""

_SUFFIXES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


class Reference(NamedTuple):
    """What a schema refers to: the name that it uses, and the subject and version of that schema."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema as a registry keeps it.

    Attributes
    ----------
    type : {"AVRO", "PROTOBUF", "JSON"}
    text : str
    references : tuple of Reference
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()


class SchemaSource(Protocol):
    """Finds schemas."""

    def find(self, key: SchemaKey) -> Schema | None:
        """The schema with an id or a GUID; None if there is none."""

    def referred(self, reference: Reference) -> Schema | None:
        """The schema that another one refers to; None if there is none."""


class KnownSchemas:
    """Schemas in memory.

    Parameters
    ----------
    by_key : mapping of int or str to Schema
        By id, by GUID, or both.
    by_version : mapping of (str, int) to Schema
        By subject and version.
    """

    def __init__(self, by_key: Mapping[SchemaKey, Schema], by_version: Mapping[tuple[str, int], Schema]) -> None:
        self._by_key, self._by_version = by_key, by_version

    def find(self, key: SchemaKey) -> Schema | None:
        """See `SchemaSource.find`."""
        return self._by_key.get(key)

    def referred(self, reference: Reference) -> Schema | None:
        """See `SchemaSource.referred`."""
        return self._by_version.get((reference.subject, reference.version))


class DirectorySchemas:
    """Schemas in files: ``7.avsc`` has the schema of id 7, and a GUID may stand for the id.

    Endings are `.avsc`, `.proto` and `.json`. A schema refers to others by the names of their files, such as
    ``common/money.proto``, or to ``SUBJECT.avsc``.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        if not self._directory.is_dir():
            raise ValueError(f"schemas: {self._directory} is no directory")

    def find(self, key: SchemaKey) -> Schema | None:
        """See `SchemaSource.find`."""
        return self._read([f"{key}{suffix}" for suffix in _SUFFIXES])

    def referred(self, reference: Reference) -> Schema | None:
        """See `SchemaSource.referred`."""
        names = (reference.name, reference.subject)
        return self._read([f"{name}{suffix}" for name in names for suffix in ("", *_SUFFIXES)])

    def _read(self, names: Iterable[str]) -> Schema | None:
        root = self._directory.resolve()
        for name in names:
            path = (root / name).resolve()
            # names come out of schemas: they must not lead elsewhere
            if path.suffix in _SUFFIXES and path.is_relative_to(root) and path.is_file():
                return Schema(_SUFFIXES[path.suffix], schema_text(path))
        return None


def schemas_of_topic(records: Iterable[tuple[bytes | None, bytes | None]]) -> KnownSchemas:
    """The schemas in the records of a registry's topic, deleted ones included.

    Records that are none of the registry's are skipped.

    Notes
    -----
    Source: SchemaKey, SchemaValue, Confluent Schema Registry 8.1.
    """
    by_key: dict[SchemaKey, Schema] = {}
    by_version: dict[tuple[str, int], Schema] = {}
    for key, value in records:
        if not key or not value:
            continue
        try:
            where, what = json.loads(key), json.loads(value)
            if where.get("keytype") != "SCHEMA":
                continue
            schema = parse_schema(what)
            by_key[int(what["id"])] = schema
            if what.get("guid"):
                by_key[str(what["guid"])] = schema
            by_version[str(what["subject"]), int(what["version"])] = schema
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return KnownSchemas(by_key, by_version)


def parse_schema(found: Mapping[str, Any]) -> Schema:
    """A schema in the registry's JSON."""
    references = tuple(
        Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in found.get("references") or ()
    )
    return Schema(str(found.get("schemaType") or "AVRO"), str(found["schema"]), references)


def schema_source(schemas: Any) -> SchemaSource | None:
    """The source that `schemas=` of a scan names: a directory, a registry's URL, a mapping, or a source itself.

    Raises
    ------
    ValueError, TypeError
        It is none of these.
    """
    if schemas is None:
        return None
    if isinstance(schemas, str) and schemas.startswith(("http://", "https://")):
        from kafkalog.values.registry import Registry

        return Registry(schemas)
    if isinstance(schemas, (str, os.PathLike)):
        return DirectorySchemas(schemas)
    if isinstance(schemas, Mapping):
        by_key: dict[SchemaKey, Schema] = {}
        for key, one in schemas.items():
            kind, text, *rest = ("AVRO", one) if isinstance(one, str) else one
            by_key[key] = Schema(kind, schema_text(text), tuple(Reference(*name) for name in (rest[0] if rest else ())))
        return KnownSchemas(by_key, {})
    if hasattr(schemas, "find") and hasattr(schemas, "referred"):
        found: SchemaSource = schemas
        return found
    raise TypeError(f"schemas is a directory, a registry's URL or a mapping of id to schema, not {schemas!r}")
