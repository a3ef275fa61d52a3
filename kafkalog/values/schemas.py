"""Sources of schemas: a directory, or a mapping.

A registry over HTTP is in `kafkalog.values.registry`, its topic `_schemas` in `kafkalog.system_topics.schemas`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.storage.location import kind_of
from kafkalog.system_topics.schemas import MANIFEST, SUFFIXES, SchemaReference
from kafkalog.values.frames import SchemaKey
from kafkalog.values.options import schema_text

_SUFFIXES: Final = {suffix: name for name, suffix in SUFFIXES.items()}


class SchemaText(NamedTuple):
    """A schema as a registry keeps it."""

    type: str
    """One of "AVRO", "PROTOBUF", "JSON"."""
    schema: str
    """The text."""
    references: Sequence[SchemaReference] = ()
    subject: str = ""


class SchemaSource(Protocol):
    """Finds schemas; a result of `kafkalog.schemas` is one as well."""

    def by_id(self, schema_id: int) -> Any:
        """The schema with an id, with the attributes of `SchemaText`; None if there is none."""

    def by_guid(self, guid: str) -> Any:
        """The schema with a GUID."""

    def find(self, subject: str, version: int) -> Any:
        """A version of a subject."""


SchemasOption = str | os.PathLike[str] | Mapping[Any, Any] | SchemaSource
"""What `schemas=` names: a directory, a registry's URL, a mapping of id to schema, or a source itself."""


class Chosen(NamedTuple):
    """The schema that a frame names."""

    schema: SchemaText | None
    """None if there is none, or if the id is ambiguous."""
    note: str | None = None
    """Note about its id."""


def find_schema(source: SchemaSource, key: SchemaKey, topic: str | None = None, column: str = "value") -> Chosen:
    """Find the schema that a frame names in the key or value of a topic's records.

    If an id has several schemas, as in contexts of a registry, the one of the topic's subject counts. The subject
    follows TopicNameStrategy, else TopicRecordNameStrategy, else RecordNameStrategy.
    """
    found: SchemaText | None = source.by_id(key) if isinstance(key, int) else source.by_guid(key)
    if not isinstance(key, int) or not hasattr(source, "candidates"):
        return Chosen(found)
    candidates = source.candidates(key)
    if len({(one.type, one.schema) for one in candidates}) < 2:
        return Chosen(found)
    by_rank: dict[int, list[Any]] = {}
    for one in candidates:
        by_rank.setdefault(_rank(one, topic, column), []).append(one)
    best = by_rank[min(by_rank)]
    subjects = ", ".join(one.subject for one in candidates)
    if min(by_rank) == _OF_OTHERS or len({(one.type, one.schema) for one in best}) > 1:
        return Chosen(None, f"schema id {key} is ambiguous ({subjects}): choose a context (schema_context)")
    return Chosen(best[0], f"schema id {key} has several schemas ({subjects}): using that of {best[0].subject}")


_OF_OTHERS: Final = 3


def _rank(schema: Any, topic: str | None, column: str) -> int:
    subject, name = split_subject(schema.subject)[1], _record_name(schema)
    if topic is None:
        return _OF_OTHERS
    return {f"{topic}-{column}": 0, f"{topic}-{name}": 1, name: 2}.get(subject, _OF_OTHERS)


def split_subject(subject: str) -> tuple[str, str]:
    """The context of a subject, ``.`` for the default one, and its name there: ``:.context:name``."""
    if subject.startswith(":."):
        context, _, name = subject[1:].partition(":")
        return context, name
    return ".", subject


def _record_name(schema: Any) -> str:
    """The full name of the record that a schema defines, as in RecordNameStrategy."""
    if schema.type == "PROTOBUF":
        package, message = (re.search(rf"\b{word}\s+([\w.]+)", schema.schema) for word in ("package", "message"))
        return ".".join(one[1] for one in (package, message) if one is not None)
    try:
        found = json.loads(schema.schema)
        if schema.type == "JSON":
            return str(found.get("title", ""))
        name, space = str(found.get("name", "")), found.get("namespace")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f"{space}.{name}" if space and "." not in name else name


def find_reference(source: SchemaSource, reference: SchemaReference, subject: str = "") -> SchemaText | None:
    """Find a referenced schema. An unqualified subject is first looked up in the context of the referring one."""
    context, name = split_subject(subject)[0], reference.subject
    qualified = f":{context}:{name}" if context != "." and not name.startswith(":.") else name
    found: SchemaText | None = source.find(qualified, reference.version)
    if found is None and qualified != name:
        found = source.find(name, reference.version)
    if found is None and isinstance(source, DirectorySchemas):
        found = source.named(reference.name)
    return found


def in_context(source: SchemaSource | None, context: str | None) -> SchemaSource | None:
    """A source with only the schemas of a context of the registry; raises ValueError if the source has no contexts."""
    if source is None or context is None:
        return source
    context = f".{context.strip(':').removeprefix('.')}"
    if hasattr(source, "in_context"):
        found: SchemaSource = source.in_context(context)
        return found
    if not hasattr(source, "candidates"):
        raise ValueError(
            "schema_context needs the schemas of a registry: its topic, its URL or the output of 'kafkalog schemas -o'"
        )
    return _InContext(source, context)


class _InContext:
    def __init__(self, source: Any, context: str) -> None:
        self._source, self._context = source, context
        self.named = getattr(source, "named", None)

    @property
    def has_ambiguous_ids(self) -> bool:
        return bool(self._source.has_ambiguous_ids)

    def candidates(self, schema_id: int) -> list[Any]:
        return [one for one in self._source.candidates(schema_id) if split_subject(one.subject)[0] == self._context]

    def by_id(self, schema_id: int) -> Any:
        return next(iter(self.candidates(schema_id)), None)

    def by_guid(self, guid: str) -> Any:
        return self._source.by_guid(guid)

    def find(self, subject: str, version: int) -> Any:
        context = "" if subject.startswith(":.") or self._context == "." else f":{self._context}:"
        return self._source.find(context + subject, version) or self._source.find(subject, version)


class KnownSchemas:
    """Schemas in memory, by id or GUID; subjects have no versions."""

    def __init__(self, by_key: Mapping[SchemaKey, SchemaText]) -> None:
        self._by_key = by_key

    def by_id(self, schema_id: int) -> SchemaText | None:
        return self._by_key.get(schema_id)

    def by_guid(self, guid: str) -> SchemaText | None:
        return self._by_key.get(guid)

    def find(self, subject: str, version: int) -> SchemaText | None:
        return None


class DirectorySchemas:
    """Schemas in files: ``7.avsc`` has the schema with id 7. A GUID may replace the id.

    Suffixes are `.avsc`, `.proto` and `.json`. A schema refers to others by file name, such as ``common/money.proto``,
    or to ``SUBJECT.avsc``. With the manifest that `Schemas.write` leaves, references use subjects and versions, and
    GUIDs are known. Raises ValueError if there is no such directory, or its manifest is invalid.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        if re.fullmatch(rf"{SCHEMAS_TOPIC}-\d+", self._directory.name):
            raise ValueError(
                f"schemas: {self._directory} is a partition of {SCHEMAS_TOPIC}: by default, that of the log dir"
                " is read; kafkalog schemas writes a directory of schemas from it"
            )
        if kind_of(self._directory) != "directory":
            raise ValueError(
                f"schemas: {self._directory} is neither a directory nor a URL such as http://localhost:8081"
            )
        self._files: dict[str | tuple[str, int], str] = {}
        self._references: dict[str, Sequence[SchemaReference]] = {}
        self._subjects: dict[int, list[tuple[str, str]]] = {}
        manifest = self._directory / MANIFEST
        if kind_of(manifest) == "file":
            try:
                for row in json.loads(schema_text(manifest))["schemas"]:
                    file, references = str(row["file"]), _references(row)
                    self._files[str(row["subject"]), int(row["version"])] = file
                    self._files.setdefault(str(row["guid"]), file)
                    self._references.setdefault(file, references)
                    self._subjects.setdefault(int(row["id"]), []).append((str(row["subject"]), file))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(f"schemas: {manifest} is not a manifest of schemas: {error!r}") from None

    def by_id(self, schema_id: int) -> SchemaText | None:
        return self.named(str(schema_id))

    @property
    def has_ambiguous_ids(self) -> bool:
        return any(len({file for _, file in those}) > 1 for those in self._subjects.values())

    def candidates(self, schema_id: int) -> list[SchemaText]:
        """The schemas with an id and their subjects; only those in the manifest."""
        found = ((subject, self.named(file)) for subject, file in self._subjects.get(schema_id, ()))
        return [one._replace(subject=subject) for subject, one in found if one is not None]

    def by_guid(self, guid: str) -> SchemaText | None:
        return self.named(self._files.get(guid, guid))

    def find(self, subject: str, version: int) -> SchemaText | None:
        """See `SchemaSource`; without a manifest, files have no version."""
        return self.named(self._files.get((subject, version), subject))

    def named(self, name: str) -> SchemaText | None:
        """The schema in a file of this name, with or without suffix."""
        return self._read([f"{name}{suffix}" for suffix in ("", *_SUFFIXES)])

    def _read(self, names: Iterable[str]) -> SchemaText | None:
        root = Path(os.path.realpath(self._directory))
        for name in names:
            path = Path(os.path.realpath(root / name))
            # names come from schemas: they must not lead out of the directory
            if path.suffix in _SUFFIXES and path.is_relative_to(root) and kind_of(path) == "file":
                return SchemaText(_SUFFIXES[path.suffix], schema_text(path), self._references.get(name, ()))
        return None


def _references(found: Mapping[str, Any]) -> tuple[SchemaReference, ...]:
    return tuple(
        SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in found.get("references") or ()
    )


def imports_beside(schema: Any) -> Callable[[str], str | None]:
    """Return a function that finds imports of a schema file, in its directory."""
    directory = Path(schema).parent if schema is not None and "\n" not in str(schema) else None

    def find(name: str) -> str | None:
        if directory is None or kind_of(directory) != "directory":
            return None
        found = DirectorySchemas(directory).named(name)
        return None if found is None else found.schema

    return find


def parse_schema(found: Mapping[str, Any]) -> SchemaText:
    return SchemaText(str(found.get("schemaType") or "AVRO"), str(found["schema"]), _references(found))
