"""The schemas of a Confluent Schema Registry, from its topic `_schemas`, without the registry.

Keys and values are JSON. A key says what its record is (``keytype``):

==================  =======================================================================================
``SCHEMA``          a version of a subject: id, type, text, references, whether it is deleted
``DELETE_SUBJECT``  versions of a subject up to one are deleted (they can be restored)
``CLEAR_SUBJECT``   deleted versions of a subject, or of a context (``:.context:``), are gone for good
``CONFIG``          compatibility level, alias and so on of a subject, or of all
``MODE``            mode of a subject, or of all
``NOOP``            nothing: the registry looks where the topic ends
``CONTEXT``         a context exists
``ASSOC``           a subject belongs to a resource, such as a topic
==================  =======================================================================================

A schema without a value is gone for good. Deleted schemas are known here as long as their records are in the files.
The registry's records have no GUID: it is the MD5 of what they say of the schema. Mirrors `KafkaStoreMessageHandler`,
`InMemoryCache` and `MD5.ofSchema` of the registry.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.format import SCHEMAS_TOPIC, TopicPartition
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time, check_names, name_matcher
from kafkalog.result_kinds import arrow_schema
from kafkalog.survey.next_steps import paths_read
from kafkalog.system_topics.reading import AsOf, KeyedRecord, StateList, check_known, read_records
from kafkalog.system_topics.replay import undecoded

if TYPE_CHECKING:
    from kafkalog.storage.staging import StagedDirectory

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"] | str
SUFFIXES: Final = {"AVRO": ".avsc", "PROTOBUF": ".proto", "JSON": ".json"}
"""Endings of the files that schemas are written to."""
MANIFEST: Final = "manifest.json"
_IGNORED: Final = ("NOOP", "CONTEXT", "ASSOC")


@leading_names
class SchemaReference(NamedTuple):
    """What a schema refers to: the name that it uses, and the subject and version of that schema."""

    name: str
    subject: str
    version: int


@dataclass(slots=True)
class Schema(JsonFields):
    """A version of a subject."""

    subject: str
    """With the context in front if it is not the default one: ``:.context:subject``."""
    version: int
    id: int
    type: SchemaType
    """``AVRO``, ``JSON``, ``PROTOBUF``, or what else a registry's plugin names."""
    schema: str
    """The text."""
    references: list[SchemaReference] = field(default_factory=list)
    guid: str = ""
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    """Tags, properties and rules, as they are in the record."""
    deleted: Literal["soft", "hard"] | None = None
    """``'soft'``: the registry can restore it. ``'hard'``: only these files have it."""
    offset: int = -1
    """Of the record that registered it."""
    timestamp: int = -1
    """Of the record, in ms; -1 for none."""


class Schemas(StateList[Schema]):
    """Schemas, sorted by subject and version.

    Attributes
    ----------
    configs : dict of str to dict
        By subject; an empty one for the registry's default: ``compatibilityLevel``, ``alias``, ``normalize`` and so on.
    modes : dict of str to str
        By subject.
    """

    noun = "version"

    def __init__(self) -> None:
        super().__init__()
        self.configs: dict[str, dict[str, Any]] = {}
        self.modes: dict[str, str] = {}
        self._by_id: dict[int, list[Schema]] = {}
        self._n_known = 0
        self._of_topic: Sequence[Schema] = ()

    @property
    def compatibility(self) -> dict[str, str]:
        """Compatibility levels by subject, as far as they are set."""
        levels = {subject: config.get("compatibilityLevel") for subject, config in self.configs.items()}
        return {subject: str(level) for subject, level in levels.items() if level is not None}

    def by_id(self, schema_id: int) -> Schema | None:
        """Return the schema with an id.

        Deleted ones count where no other has it; the default context comes first, and then the earliest record.
        """
        if self._n_known != len(self):
            self._by_id, self._n_known = {}, len(self)
            for one in self:
                self._by_id.setdefault(one.id, []).append(one)
        return _best(self._by_id.get(schema_id, ()))

    def candidates(self, schema_id: int) -> list[Schema]:
        """Return all versions of subjects with an id; deleted ones only where no other has it."""
        self.by_id(schema_id)
        found = self._by_id.get(schema_id, [])
        best = min((_DELETIONS.index(one.deleted) for one in found), default=0)
        return [one for one in found if _DELETIONS.index(one.deleted) == best]

    @property
    def has_ambiguous_ids(self) -> bool:
        """Whether an id stands for several schemas, as in several contexts."""
        first: dict[int, tuple[str, str]] = {}
        return any(first.setdefault(one.id, (one.type, one.schema)) != (one.type, one.schema) for one in self)

    def by_guid(self, guid: str) -> Schema | None:
        """Return the schema with a GUID."""
        return _best(one for one in self if one.guid == guid.lower())

    def find(self, subject: str, version: int) -> Schema | None:
        """Return a version of a subject, or one that these refer to; -1 for the latest that is not deleted."""
        if version == -1:
            of_subject = [one for one in self if one.subject == subject]
            return next((one for one in reversed(of_subject) if one.deleted is None), None)
        for look_in in (self.__iter__, self.referred):  # the second only where it has to be gathered
            for one in look_in():
                if (one.subject, one.version) == (subject, version):
                    return one
        return None

    def referred(self) -> list[Schema]:
        """Return what these schemas refer to, over several steps too, and is not among them; deleted or not."""
        known = {(one.subject, one.version): one for one in self._of_topic}
        for one in self:
            known.pop((one.subject, one.version), None)
        found, left = list[Schema](), list(self)
        while left:
            for _, subject, version in left.pop().references:
                other = known.pop((subject, version), None)
                if other is not None:
                    found.append(other)
                    left.append(other)
        return sorted(found, key=lambda one: (one.subject, one.version))

    def to_arrow(self) -> pa.Table:
        """The schemas as a table, a row per version of a subject."""
        rows = [{**one.as_dict(), "metadata": _json(one.metadata), "rule_set": _json(one.rule_set)} for one in self]
        return pa.Table.from_pylist(rows, schema=_ARROW)

    def write(self, output: str | os.PathLike[str]) -> None:
        """Write the schemas to a directory, as files that ``schemas=`` of a scan reads.

        ``7.avsc`` has the schema of id 7 (``.proto``, ``.json``; ``.txt`` for a type of a plugin). Subjects are no part
        of names. Where contexts have different schemas of one id, the one that `by_id` gives is ``7.avsc``, the others
        are ``7-2.avsc`` and so on. ``manifest.json`` has a row for each version of a subject with its file, and the
        settings. What these schemas refer to is written with them.

        Parameters
        ----------
        output : path-like
            It must not exist yet, and appears when all is written.

        Raises
        ------
        OutputExistsError
            It exists.
        UnsafePathError
            It would lie in a log dir.
        WriteError
            It could not be written.
        """
        # what writes cannot be imported where there are no file locks, and reading needs none
        from kafkalog.storage.output_paths import check_outside
        from kafkalog.storage.staging import staged_directory

        check_outside(output, [])
        files: dict[tuple[int, str, str], str] = {}
        n_files: Counter[int] = Counter()
        with staged_directory(output) as directory:
            referred = self.referred()
            for one in [*sorted(self, key=lambda one: one is not self.by_id(one.id)), *referred]:
                if (one.id, one.type, one.schema) in files:
                    continue
                n_files[one.id] += 1
                number = f"-{n_files[one.id]}" if n_files[one.id] > 1 else ""
                name = files[one.id, one.type, one.schema] = f"{one.id}{number}{SUFFIXES.get(one.type, '.txt')}"
                # half of a surrogate pair becomes a question mark, as in Java
                _write(directory, name, one.schema.encode("utf-8", "replace"))
            rows = []
            for one in sorted([*self, *referred], key=lambda one: (one.subject, one.version)):
                row = {"file": files[one.id, one.type, one.schema], **one.as_dict()}
                del row["schema"]
                rows.append(row)
            manifest = {"schemas": rows, "configs": self.configs, "modes": self.modes}
            _write(directory, MANIFEST, json.dumps(manifest, indent=1).encode("ascii"))


def _write(directory: StagedDirectory, name: str, data: bytes) -> None:
    with closing(directory.create(name)) as file:
        file.write(data)


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


_REFERENCE: Final = pa.struct({"name": pa.string(), "subject": pa.string(), "version": pa.int32()})
_ARROW: Final = arrow_schema(
    Schema,
    {
        "version": pa.int32(),
        "id": pa.int32(),
        "type": pa.string(),
        "references": pa.list_(_REFERENCE),
        **dict.fromkeys(("metadata", "rule_set", "deleted"), pa.string()),
    },
)


def schemas(
    path: Paths | LogDir,
    *,
    subjects: str | Sequence[str] | None = None,
    deleted: bool = False,
    topic: str = SCHEMAS_TOPIC,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    limits: Limits | None = None,
) -> Schemas:
    """Read the schemas of a registry from the topic in which it keeps them.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
        A log dir, or the directory of the topic's partition.
    subjects : str or sequence of str, optional
        Only these: names or globs such as ``orders-*``.
    deleted : bool
        Also deleted ones that are still in the files.
    topic : str
        The registry's `kafkastore.topic`.
    end_offset, end_timestamp, limits
        See `groups`.

    Returns
    -------
    Schemas
        A list of `Schema`. Damage does not raise: reading continues after it, and `findings` has it.

    Raises
    ------
    UnknownNameError
        No subject matches a name or glob, and the latest state was requested; or a topic other than the default one
        does not exist.

    Examples
    --------
    >>> kafkalog.schemas("tests/golden/log_dir")
    Schemas(0 versions)
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    as_of = AsOf.of(log_dir, [topic], end_offset, end_timestamp)
    if topic != SCHEMAS_TOPIC:
        check_names("topic", topic, log_dir.topics)
    found = read_schemas(log_dir, topic=topic, as_of=as_of)
    found._of_topic = tuple(found)
    if topic in log_dir.topics:
        check_known("subject", subjects, sorted({one.subject for one in found}), as_of, found.findings)
    is_wanted = name_matcher(subjects)
    found[:] = [one for one in found if (deleted or one.deleted is None) and is_wanted(one.subject)]
    return found


def read_schemas(log_dir: LogDir, *, topic: str = SCHEMAS_TOPIC, as_of: AsOf | None = None) -> Schemas:
    """Read all schemas of a log dir, deleted ones among them; none if it has no such topic."""
    registry = _RegistryReplay()
    registry.found.log_dirs = paths_read(log_dir)
    report = registry.found.findings.append
    for record in read_records(log_dir, topic, as_of or AsOf(), report):
        try:
            if not record.is_control:
                registry.apply(record)
        except (ValueError, RecursionError) as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))
    return registry.finished()


class _RegistryReplay:
    """Applies the records of a registry's topic, as the registry does when it starts."""

    def __init__(self) -> None:
        self.found = Schemas()
        self._by_version: dict[tuple[str, int], Schema] = {}
        self._replaced: list[Schema] = []

    def apply(self, record: KeyedRecord) -> None:
        """Apply a record; raises ValueError or RecursionError if it is not a registry's."""
        key = _object(record.key, "key")
        self._apply(key, None if record.value is None else _object(record.value, "value"), record)

    def finished(self) -> Schemas:
        # a version that was written again with another id stays after its successor: values with the first id exist
        all_versions = [*self._by_version.values(), *self._replaced]
        self.found.extend(sorted(all_versions, key=lambda one: (one.subject, one.version)))
        return self.found

    def _apply(self, key: dict[str, Any], value: dict[str, Any] | None, record: KeyedRecord) -> None:
        kind = key.get("keytype")
        if kind in _IGNORED:
            return
        subject = _get(key, "subject", str, "")
        if kind == "SCHEMA":
            self._schema(subject, _get(key, "version", int), value, record)
        elif kind == "DELETE_SUBJECT":
            last = -1 if value is None else _get(value, "version", int)
            for one in self._of(subject):
                if one.version <= last and one.deleted is None:
                    one.deleted = "soft"
        elif kind == "CLEAR_SUBJECT":
            # without a value it was compacted away, and has done its work
            for one in self._of(subject) if value is not None else ():
                if one.deleted is not None:
                    one.deleted = "hard"
        elif kind == "CONFIG":
            if value is None:
                self.found.configs.pop(subject, None)
            else:
                self.found.configs[subject] = {name: one for name, one in value.items() if name != "subject"}
        elif kind == "MODE":
            mode = None if value is None else value.get("mode")
            if mode is None:
                self.found.modes.pop(subject, None)
            else:
                self.found.modes[subject] = str(mode)
        else:
            raise ValueError(f"unknown keytype {kind!r}")

    def _of(self, subject: str) -> list[Schema]:
        """The versions of a subject, of all subjects of a context, or of all."""
        is_context = subject.startswith(":.") and subject.endswith(":")
        return [
            one
            for one in self._by_version.values()
            if not subject or one.subject == subject or (is_context and one.subject.startswith(subject))
        ]

    def _schema(self, subject: str, version: int, value: dict[str, Any] | None, record: KeyedRecord) -> None:
        known = self._by_version.get((subject, version))
        if value is None:
            if known is not None:
                known.deleted = "hard"
            return
        references = value.get("references") or ()
        if not isinstance(references, (list, tuple)) or not all(isinstance(one, dict) for one in references):
            raise ValueError("references is not a list of objects")
        made = Schema(
            subject,
            version,
            _get(value, "id", int),
            _get(value, "schemaType", str, "AVRO"),
            _get(value, "schema", str),
            [
                SchemaReference(_get(one, "name", str), _get(one, "subject", str), _get(one, "version", int))
                for one in references
            ],
            _get(value, "guid", str, "").lower() or _guid(value),
            _get(value, "metadata", dict, None),
            _get(value, "ruleSet", dict, None),
            "soft" if value.get("deleted") is True else None,
            record.offset,
            record.timestamp,
        )
        # a soft deletion writes the same version again: when it was registered is what counts
        if made.deleted and known is not None and (known.id, known.schema) == (made.id, made.schema):
            made.offset, made.timestamp = known.offset, known.timestamp
        if known is not None and known.id != made.id:
            known.deleted = "hard"
            self._replaced.append(known)
        self._by_version[subject, version] = made


_DELETIONS: Final = (None, "soft", "hard")


def _best(found: Iterable[Schema]) -> Schema | None:
    return min(
        found, key=lambda one: (_DELETIONS.index(one.deleted), one.subject.startswith(":."), one.offset), default=None
    )


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise ValueError(f"has no {what}")
    try:
        found = json.loads(data)
    except UnicodeDecodeError as error:
        raise ValueError(f"the {what} is not UTF-8: {error.reason}") from None
    except ValueError as error:
        raise ValueError(f"the {what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the {what} is not a JSON object")
    return found


_MISSING: Final = object()
_INT32_MAX: Final = 2**31 - 1


def _get(fields: dict[str, Any], name: str, kind: type[Any], default: Any = _MISSING) -> Any:
    """A field of a JSON object; null counts as missing."""
    found = fields.get(name)
    if found is None and default is not _MISSING:
        return default
    if not isinstance(found, kind) or isinstance(found, bool) or (kind is int and abs(found) > _INT32_MAX):
        wanted = {int: "a number", str: "text", dict: "an object"}[kind]
        raise ValueError(f"{name} must be {wanted}, not {str(found)[:40]!r}")
    return found


def _guid(value: dict[str, Any]) -> str:
    """The GUID of a schema: the MD5 in its record, or else of its type, text, references and rules.

    Source: MD5.ofSchema, Schema.updateHash of the registry's client.
    """
    stored = _get(value, "md5", str, "")
    try:
        digest = base64.b64decode(stored, validate=True)
    except binascii.Error:
        digest = b""
    # older registries stored none
    if len(digest) != 16:
        try:
            digest = hashlib.md5(b"".join(_hashed(value)), usedforsecurity=False).digest()
        except (AttributeError, TypeError):
            raise ValueError("metadata or ruleSet is malformed") from None
    return str(uuid.UUID(bytes=digest))


def _hashed(value: dict[str, Any]) -> Iterator[bytes]:
    yield _get(value, "schema", str).encode(errors="replace")
    for one in value.get("references") or ():
        yield from _texts(one.get("name"), one.get("subject"))
        yield (one["version"] & 0xFFFFFFFF).to_bytes(4, "big")
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    if metadata is not None:
        yield b"\1"
        yield from _texts(metadata.get("tags"), metadata.get("properties"), sorted(metadata.get("sensitive") or ()))
    if rule_set is not None:
        yield b"\1"
        for kind in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(kind) or ():
                yield from _texts(*map(rule.get, ("name", "doc", "kind", "mode", "type")))
                yield from _texts(sorted(rule.get("tags") or ()), rule.get("params"))
                yield from _texts(*map(rule.get, ("expr", "onSuccess", "onFailure")))
                if rule.get("disabled"):
                    yield b"\1"
        yield from _texts(rule_set.get("enableAt"))


def _texts(*values: Any) -> Iterator[bytes]:
    """Texts in their order, those of objects sorted by name; null is nothing."""
    for value in values:
        if isinstance(value, dict):
            for name in sorted(value):
                yield from _texts(name, sorted(value[name]) if isinstance(value[name], list) else str(value[name]))
        elif isinstance(value, list):
            yield from _texts(*value)
        elif isinstance(value, str):
            yield value.encode(errors="replace")
        elif value is not None:
            raise TypeError(value)
