"""Where schemas come from: a directory, or a mapping.

A registry that answers HTTP is in `kafkalog.values.registry`, its topic `_schemas` in `kafkalog.system_topics.schemas`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kafkalog.system_topics.schemas import MANIFEST, SUFFIXES, SchemaReference
from kafkalog.values.frames import SchemaKey
from kafkalog.values.options import schema_text

_SUFFIXES: Final = {suffix: name for name, suffix in SUFFIXES.items()}


class Schema(NamedTuple):
    """A schema as a registry keeps it."""

    type: str
    """One of "AVRO", "PROTOBUF", "JSON"."""
    schema: str
    """The text."""
    references: Sequence[SchemaReference] = ()


class SchemaSource(Protocol):
    """Finds schemas; `kafkalog.schemas` gives one, too."""

    def by_id(self, schema_id: int) -> Any:
        """The schema with an id, with the attributes of `Schema`; None if there is none."""

    def by_guid(self, guid: str) -> Any:
        """The schema with a GUID."""

    def find(self, subject: str, version: int) -> Any:
        """A version of a subject."""


def find_schema(source: SchemaSource, key: SchemaKey) -> Schema | None:
    """The schema that a frame names."""
    found: Schema | None = source.by_id(key) if isinstance(key, int) else source.by_guid(key)
    return found


def find_reference(source: SchemaSource, reference: SchemaReference) -> Schema | None:
    """The schema that another one refers to."""
    found: Schema | None = source.find(reference.subject, reference.version)
    if found is None and isinstance(source, DirectorySchemas):
        found = source.named(reference.name)
    return found


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

    def by_id(self, schema_id: int) -> Schema | None:
        return self._by_key.get(schema_id)

    def by_guid(self, guid: str) -> Schema | None:
        return self._by_key.get(guid)

    def find(self, subject: str, version: int) -> Schema | None:
        return self._by_version.get((subject, version))


class DirectorySchemas:
    """Schemas in files: ``7.avsc`` has the schema of id 7, and a GUID may stand for the id.

    Endings are `.avsc`, `.proto` and `.json`. A schema refers to others by the names of their files, such as
    ``common/money.proto``, or to ``SUBJECT.avsc``. With the manifest that `Schemas.write` leaves, it refers to subjects
    and versions, and has its GUID.

    Raises
    ------
    ValueError
        There is no such directory, or its manifest is none.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        if not self._directory.is_dir():
            raise ValueError(f"schemas: {self._directory} is no directory")
        self._files: dict[str | tuple[str, int], str] = {}
        self._references: dict[str, Sequence[SchemaReference]] = {}
        manifest = self._directory / MANIFEST
        if manifest.is_file():
            try:
                for row in json.loads(schema_text(manifest))["schemas"]:
                    file, references = str(row["file"]), _references(row)
                    self._files[str(row["subject"]), int(row["version"])] = file
                    self._files.setdefault(str(row["guid"]), file)
                    self._references.setdefault(file, references)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(f"schemas: {manifest} is no manifest of schemas: {error!r}") from None

    def by_id(self, schema_id: int) -> Schema | None:
        return self.named(str(schema_id))

    def by_guid(self, guid: str) -> Schema | None:
        return self.named(self._files.get(guid, guid))

    def find(self, subject: str, version: int) -> Schema | None:
        """See `SchemaSource`; without a manifest a file has no version."""
        return self.named(self._files.get((subject, version), subject))

    def named(self, name: str) -> Schema | None:
        """The schema in a file of a name, with or without its ending."""
        return self._read([f"{name}{suffix}" for suffix in ("", *_SUFFIXES)])

    def _read(self, names: Iterable[str]) -> Schema | None:
        root = self._directory.resolve()
        for name in names:
            path = (root / name).resolve()
            # names come out of schemas: they must not lead elsewhere
            if path.suffix in _SUFFIXES and path.is_relative_to(root) and path.is_file():
                return Schema(_SUFFIXES[path.suffix], schema_text(path), self._references.get(name, ()))
        return None


def _references(found: Mapping[str, Any]) -> tuple[SchemaReference, ...]:
    return tuple(
        SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in found.get("references") or ()
    )


def parse_schema(found: Mapping[str, Any]) -> Schema:
    """A schema in the registry's JSON."""
    return Schema(str(found.get("schemaType") or "AVRO"), str(found["schema"]), _references(found))
