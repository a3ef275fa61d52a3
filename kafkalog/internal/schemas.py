"""The schemas of a Confluent Schema Registry, out of its topic `_schemas`, without the registry.

Keys and values are JSON. A key says what its record is (``keytype``):

==================  =======================================================================================
``SCHEMA``          a version of a subject: id, type, text, references, whether it is deleted
``DELETE_SUBJECT``  versions of a subject up to one are deleted (they can be restored)
``CLEAR_SUBJECT``   deleted versions of a subject are gone for good
``CONFIG``          compatibility level of a subject, or of all
``MODE``            mode of a subject, or of all
``NOOP``            nothing: the registry looks where the topic ends
==================  =======================================================================================

A schema without a value is gone for good. What was deleted is known here as long as its records are in the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Finding, Limits
from kafkalog.format import SCHEMAS_TOPIC, TopicPartition
from kafkalog.internal.reading import AsOf, KeyedRecord, read_records
from kafkalog.internal.replay import undecoded
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time, name_matcher

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"] | str
_IGNORED: Final = ("NOOP", "CONTEXT")


class SchemaReference(NamedTuple):
    """A schema that another one imports."""

    name: str
    subject: str
    version: int


@dataclass(slots=True)
class Schema:
    """A version of a subject.

    Attributes
    ----------
    subject : str
        With the context in front if it is not the default one: ``:.context:subject``.
    version, id : int
    type : str
        ``AVRO``, ``JSON``, ``PROTOBUF``, or what else a registry's plugin names.
    schema : str
        The text.
    references : list of SchemaReference
    guid : str or None
        If the registry has stored one.
    deleted : {'soft', 'hard'} or None
        ``'soft'``: the registry can restore it. ``'hard'``: only these files have it.
    offset : int
        Of the record that registered it.
    timestamp : int
        Of the record, in ms; -1 for none.
    """

    subject: str
    version: int
    id: int
    type: SchemaType
    schema: str
    references: list[SchemaReference] = field(default_factory=list)
    guid: str | None = None
    deleted: Literal["soft", "hard"] | None = None
    offset: int = -1
    timestamp: int = -1

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**asdict(self), "references": [one._asdict() for one in self.references]}


class Schemas(list[Schema]):
    """Schemas, sorted by subject and version.

    Attributes
    ----------
    compatibility, modes : dict of str to str
        By subject; an empty one for the registry's default.
    findings : list of Finding
        Damage, and records that are not a registry's.
    """

    def __init__(self, schemas: Iterable[Schema] = ()) -> None:
        super().__init__(schemas)
        self.compatibility: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.findings: list[Finding] = []

    def by_id(self, schema_id: int) -> Schema | None:
        """Return the schema with an id. Deleted ones count where no other has it; the default context comes first."""
        return _best(one for one in self if one.id == schema_id)

    def by_guid(self, guid: str) -> Schema | None:
        """Return the schema with a GUID."""
        return _best(one for one in self if one.guid is not None and one.guid.lower() == guid.lower())

    def find(self, subject: str, version: int) -> Schema | None:
        """Return a version of a subject; -1 for its latest version that is not deleted."""
        of_subject = [one for one in self if one.subject == subject]
        if version == -1:
            return next((one for one in reversed(of_subject) if one.deleted is None), None)
        return next((one for one in of_subject if one.version == version), None)

    def to_arrow(self) -> pa.Table:
        """The schemas as a table, a row a version of a subject."""
        return pa.Table.from_pylist([one.as_dict() for one in self], schema=_ARROW)


_ARROW: Final = pa.schema(
    {
        "subject": pa.string(),
        "version": pa.int32(),
        "id": pa.int32(),
        "type": pa.string(),
        "schema": pa.string(),
        "references": pa.list_(pa.struct({"name": pa.string(), "subject": pa.string(), "version": pa.int32()})),
        "guid": pa.string(),
        "deleted": pa.string(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
    }
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
    """Read the schemas of a registry out of the topic in which it keeps them.

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
    end_offset : int, optional
        The state right before this offset.
    end_timestamp : int (ms), str or aware datetime, optional
        The state right before this time.
    limits : Limits, optional

    Returns
    -------
    Schemas
        A list of `Schema`. Damage does not raise: what lies behind it is read, and `findings` has it.

    Examples
    --------
    >>> kafkalog.schemas("tests/golden/log_dir")
    []
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    found = read_schemas(log_dir, topic=topic, as_of=AsOf.of(end_offset, end_timestamp))
    is_wanted = name_matcher(subjects)
    found[:] = [one for one in found if (deleted or one.deleted is None) and is_wanted(one.subject)]
    return found


def read_schemas(log_dir: LogDir, *, topic: str = SCHEMAS_TOPIC, as_of: AsOf | None = None) -> Schemas:
    """Read all schemas of a log dir, deleted ones among them; none if it has no such topic."""
    registry = _Registry()
    report = registry.found.findings.append
    for record in read_records(log_dir, topic, as_of or AsOf(), report):
        try:
            if not record.is_control:
                registry.apply(record)
        except (ValueError, RecursionError) as error:
            report(undecoded(log_dir, TopicPartition(topic, record.partition), record.offset, error))
    return registry.finished()


class _Registry:
    """Applies the records of a registry's topic, as the registry does when it starts."""

    def __init__(self) -> None:
        self.found = Schemas()
        self._by_version: dict[tuple[str, int], Schema] = {}

    def apply(self, record: KeyedRecord) -> None:
        """Apply a record; raises ValueError or RecursionError if it is not a registry's."""
        key = _object(record.key, "key")
        self._apply(key, None if record.value is None else _object(record.value, "value"), record)

    def finished(self) -> Schemas:
        self.found.extend(self._by_version[key] for key in sorted(self._by_version))
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
            for one in self._of(subject):
                if one.deleted is not None:
                    one.deleted = "hard"
        elif kind in ("CONFIG", "MODE"):
            settings = self.found.compatibility if kind == "CONFIG" else self.found.modes
            given = None if value is None else value.get("compatibilityLevel" if kind == "CONFIG" else "mode")
            if given is None:
                settings.pop(subject, None)
            else:
                settings[subject] = str(given)
        else:
            raise ValueError(f"a record of keytype {kind!r} is not known")

    def _of(self, subject: str) -> list[Schema]:
        return [one for one in self._by_version.values() if one.subject == subject]

    def _schema(self, subject: str, version: int, value: dict[str, Any] | None, record: KeyedRecord) -> None:
        known = self._by_version.get((subject, version))
        if value is None:
            if known is not None:
                known.deleted = "hard"
            return
        references = value.get("references") or ()
        if not isinstance(references, (list, tuple)) or not all(isinstance(one, dict) for one in references):
            raise ValueError("references is no list of objects")
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
            _get(value, "guid", str, "") or None,
            "soft" if value.get("deleted") is True else None,
            record.offset,
            record.timestamp,
        )
        if made.deleted and known is not None and (known.id, known.schema) == (made.id, made.schema):
            made.offset, made.timestamp = known.offset, known.timestamp
        self._by_version[subject, version] = made


def _best(found: Iterable[Schema]) -> Schema | None:
    order = (None, "soft", "hard")
    return min(found, key=lambda one: (order.index(one.deleted), one.subject.startswith(":.")), default=None)


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise ValueError(f"has no {what}")
    try:
        found = json.loads(data)
    except UnicodeDecodeError as error:
        raise ValueError(f"the {what} is not UTF-8: {error.reason}") from None
    except ValueError as error:
        raise ValueError(f"the {what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the {what} is no JSON object")
    return found


_MISSING: Final = object()
_INT32_MAX: Final = 2**31 - 1


def _get(fields: dict[str, Any], name: str, kind: type[Any], default: Any = _MISSING) -> Any:
    """A field of a JSON object; null counts as missing."""
    found = fields.get(name)
    if found is None and default is not _MISSING:
        return default
    if not isinstance(found, kind) or isinstance(found, bool) or (kind is int and abs(found) > _INT32_MAX):
        raise ValueError(f"{name} is no {'number' if kind is int else 'text'}: {str(found)[:40]!r}")
    return found
