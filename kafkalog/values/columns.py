"""Decoders of the key or value column, with or without the schemas that values name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalog.interchange.table_types import LossCounts, Path
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.formats.avro_resolution import ReaderSchema, ResolvedValues
from kafkalog.values.formats.connect_json import ConnectValues
from kafkalog.values.formats.json_schema import schema_type
from kafkalog.values.formats.json_text import JsonValues
from kafkalog.values.formats.plain import TYPES, decode_plain
from kafkalog.values.formats.program import ProgramValues
from kafkalog.values.formats.protobuf.types import ProtoSchema
from kafkalog.values.formats.protobuf.values import ProtobufValues
from kafkalog.values.frames import Framed, FrameReader, SchemaKey, Selector
from kafkalog.values.options import ColumnFormat
from kafkalog.values.payloads import DecodedValues, Faults, Payloads, Rows, faults_text
from kafkalog.values.schemas import SchemaSource, SchemaText, find_reference, find_schema
from kafkalog.values.types import CommonType, SchemaError, narrow_array, narrow_type

_MOST_REFERENCES: Final = 200
_Values = ProgramValues | ResolvedValues


class ColumnDecoder:
    """Decodes the key or the value of records."""

    has_type = False
    """Whether the type is known without reading values."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        """Notes about schemas."""
        self._paths: list[Path] | None = None

    def learn(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> None:
        """Learn the types of values, in a first pass."""

    def declare(self, kind: pa.DataType) -> None:
        """Set the type instead of learning it."""

    @property
    def mixed(self) -> Collection[Path]:
        """The fields that are JSON text because their values have no common type."""
        return ()

    @property
    def needs_values(self) -> bool:
        """Whether the type alone does not say how to decode: values of all schemas must be seen first."""
        return bool(self.mixed)

    def full_type(self) -> pa.DataType:
        """The type of the values learned so far, with all fields."""
        raise NotImplementedError

    def narrow(self, paths: list[Path] | None) -> None:
        """Decode only these fields from now on."""
        self._paths = paths

    def decode(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> DecodedValues:
        """Decode values, to the type with the selected fields."""
        raise NotImplementedError


class PlainColumn(ColumnDecoder):
    has_type = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def full_type(self) -> pa.DataType:
        return TYPES[self._name]

    def decode(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> DecodedValues:
        return decode_plain(self._name, payloads)


class JsonColumn(ColumnDecoder):
    """JSON, with or without frames.

    The types come from the values, and from their schemas as far as these are known. A value that does not conform to
    its schema does not decode.
    """

    def __init__(self, column: str, how: ColumnFormat, source: SchemaSource | None) -> None:
        super().__init__()
        self._column = column
        self._frames = _frame_reader(column, how, source) if how.has_frames else None
        self._source = source
        self._given = how.schema is not None
        said = schema_type(how.schema) if how.schema else pa.null()
        self._said: dict[tuple[SchemaKey | None, str | None], pa.DataType] = {}
        self._said_of_all = said
        self._values = JsonValues()

    def learn(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> None:
        for group in self._groups(payloads, headers)[0]:
            self._values.learn(group.payloads, self._type_said(group.key, topic))

    def _type_said(self, key: SchemaKey | None, topic: str | None) -> pa.DataType:
        if key is None:
            return self._said_of_all
        if (key, topic) not in self._said:
            self._said[key, topic] = self._find_type(key, topic)
        return self._said[key, topic]

    def _find_type(self, key: SchemaKey, topic: str | None) -> pa.DataType:
        if self._source is None:
            return pa.null()
        schema, note = find_schema(self._source, key, topic, self._column)
        if note is not None:
            self.notes.add(note)
        if schema is not None and schema.type == "JSON":
            with suppress(SchemaError):  # then only the values decide the types
                return schema_type(schema.schema)
        return pa.null()

    def declare(self, kind: pa.DataType) -> None:
        self._values.declare(kind)
        self.has_type = True

    @property
    def mixed(self) -> Collection[Path]:
        return self._values.common.as_text

    def full_type(self) -> pa.DataType:
        return self._values.common.type

    def decode(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> DecodedValues:
        groups, failures = self._groups(payloads, headers)
        parts = []
        for group in groups:
            decoded = self._values.decode(group.payloads, self._paths, self._type_said(group.key, topic))
            parts.append((group.rows, decoded))
        kind = narrow_type(self._values.common.type, self._paths)
        return _in_order(parts, len(payloads), kind, failures)

    def _groups(self, payloads: Payloads, headers: pa.Array | None) -> tuple[list[Framed], dict[int, str]]:
        if self._frames is not None and not self._given:
            return self._frames.read(payloads, headers)
        failures: dict[int, str] = {}
        if self._frames is not None:
            payloads, failures = self._frames.strip(payloads, headers)
        return [Framed(None, (), np.arange(len(payloads)), payloads)], failures


class SchemaColumn(ColumnDecoder):
    """Values decoded by schemas; all versions of a schema share one type.

    A schema in `how` takes precedence over those that values name, which come from `source`.
    """

    def __init__(self, column: str, how: ColumnFormat, source: SchemaSource | None) -> None:
        super().__init__()
        self._how, self._source = how, source
        self._column, self._frames = column, _frame_reader(column, how, source)
        self._common = CommonType()
        self._unions: frozenset[Path] = frozenset()
        self._has_messages = how.format == "protobuf"
        self._resolved = None if how.reader_schema is None else ReaderSchema(how.reader_schema, branches=how.branches)
        self._protos: dict[tuple[SchemaKey | None, str | None], ProtoSchema] = {}
        self._readers: dict[tuple[SchemaKey | None, str | None, Selector], _Values | str] = {}
        has_message = not self._has_messages or how.message is not None or not how.framed
        self.has_type = self._resolved is not None or (how.schema is not None and has_message)
        if how.schema is not None:  # an invalid schema is the caller's error, not one of the values
            nothing = Payloads(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
            given = self._make(Framed(None, (), nothing.start, nothing), None)
            if self.has_type and not isinstance(given, str):
                self._common.add(given.type)
        elif self._resolved is not None:
            self._common.add(self._resolved.type)

    def __getstate__(self) -> dict[str, Any]:
        # schemas of Google's library cannot be pickled: parts of a plan compile them again
        return {**self.__dict__, "_protos": {}, "_readers": {}}

    def learn(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> None:
        for group in self._groups(payloads, headers)[0]:
            known = len(self._readers)
            reader = self._reader(group, topic)
            # each schema widens the common type only once
            if len(self._readers) > known and not isinstance(reader, str):
                self._add(reader)

    def _add(self, reader: _Values) -> None:
        """Widen the common type; what is a union in one version of a schema is one in all."""
        unions = self._unions | getattr(reader, "union_paths", frozenset())
        if unions == self._unions:
            self._common.add(reader.type)
            return
        nothing = Payloads(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
        keys = list(self._readers)
        # a branch may have unions itself, at paths through the branch
        while unions != self._unions:
            self._unions, self._readers = unions, {}
            frames = [(Framed(key, selector, nothing.start, nothing), topic) for key, topic, selector in keys]
            readers = [self._reader(frame, topic) for frame, topic in frames]
            unions = unions.union(*(getattr(one, "union_paths", frozenset()) for one in readers))
        self._common = CommonType()
        for again in readers:
            if not isinstance(again, str):
                self._common.add(again.type)

    @property
    def has_mixed_units(self) -> bool:
        """Whether schemas have timestamps in several units, so that values decide; see `learn_units`."""
        return bool(self._common.units)

    def learn_units(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> None:
        """Learn the time units of values, in a second pass."""
        for group in self._groups(payloads, headers)[0]:
            reader = self._reader(group, topic)
            if not isinstance(reader, str):
                self._common.count_units(reader.decode(group.payloads).array)

    def choose_units(self) -> None:
        """Choose the units, after all values have been learned."""
        self._common.choose_units()

    def declare(self, kind: pa.DataType) -> None:
        if not self.has_type:
            self._common.type, self.has_type = kind, True

    @property
    def mixed(self) -> Collection[Path]:
        return self._common.as_text

    @property
    def needs_values(self) -> bool:
        return bool(self._common.as_text or (self._unions and not self.has_type))

    def full_type(self) -> pa.DataType:
        return self._common.type

    def narrow(self, paths: list[Path] | None) -> None:
        if paths is not None and not self._common.as_text:
            # compile programs again, which then skip other fields
            self._paths, self._readers = paths, {}
            self._common.type = narrow_type(self._common.type, paths)

    def decode(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> DecodedValues:
        groups, failures = self._groups(payloads, headers)
        parts = []
        for group in groups:
            reader = self._reader(group, topic)
            if isinstance(reader, str):
                # a missing or invalid schema affects only its own values
                failures |= dict.fromkeys(group.rows.tolist(), reader)
                continue
            decoded, lost = reader.decode(group.payloads), LossCounts()
            if isinstance(reader, ProtobufValues) and reader.has_cut:
                self.notes.add(f"{self._column}: times finer than a microsecond are truncated")
            decoded.array = self._common.fit(decoded.array, lost.report)
            decoded.lost += lost.found
            parts.append((group.rows, decoded))
        return _in_order(parts, len(payloads), self._common.type, failures)

    def _groups(self, payloads: Payloads, headers: pa.Array | None) -> tuple[list[Framed], dict[int, str]]:
        if self._how.schema is None:
            return self._frames.read(payloads, headers)
        if self._how.has_frames and self._has_messages:
            groups, failures = self._frames.read(payloads, headers)
            return [group._replace(key=None) for group in groups], failures
        if self._how.has_frames:
            payloads, failures = self._frames.strip(payloads, headers)
        else:
            failures = {}
        # include null values: then the group is all rows, and needs no reordering
        return [Framed(None, (), np.arange(len(payloads)), payloads)], failures

    def _reader(self, group: Framed, topic: str | None) -> _Values | str:
        """The decoder for values of a schema, or the reason why there is none."""
        key = group.key, topic, group.selector
        if key not in self._readers:
            try:
                self._readers[key] = self._make(group, topic)
            except SchemaError as error:
                self._readers[key] = f"schema {group.key}: {error}"
        return self._readers[key]

    def _make(self, group: Framed, topic: str | None) -> _Values | str:
        referred: dict[tuple[str, str, int], str] = {}
        text = self._how.schema
        if text is None:
            schema, note = None, None
            if self._source is not None and group.key is not None:
                schema, note = find_schema(self._source, group.key, topic, self._column)
            if schema is None:
                return note or f"no schema {group.key} is known"
            if note is not None:
                self.notes.add(note)
            if schema.type != self._how.format.upper():
                return f"schema {group.key} is {schema.type}"
            self._refer(schema, referred)
            text = schema.schema
        if not self._has_messages:
            return self._avro(text, [*referred.values()])
        if (group.key, topic) not in self._protos:
            self._protos[group.key, topic] = self._proto(text, referred)
        proto = self._protos[group.key, topic]
        message = self._how.message
        chosen = proto.message_of(group.selector) if message is None else proto.message_named(message)
        return ProtobufValues(chosen, self._paths, branches=self._how.branches)

    def _avro(self, text: str, referred: Sequence[str]) -> _Values:
        how = self._how
        if self._resolved is not None:
            return ResolvedValues(text, referred, self._resolved, self._paths, is_framed=how.has_frames)
        options: dict[str, Any] = {"unions": self._unions, "is_framed": how.has_frames, "branches": how.branches}
        return AvroValues(text, referred, self._paths, **options)

    def _proto(self, text: str, referred: Mapping[tuple[str, str, int], str]) -> ProtoSchema:
        by_name = {name: other for (name, _, _), other in referred.items()}
        named = getattr(self._source, "named", None)  # a directory finds imports by name

        def find(name: str) -> str | None:
            other = by_name.get(name) or (None if named is None else named(name))
            return other if other is None or isinstance(other, str) else other.schema

        return ProtoSchema(text, find)

    def _refer(self, schema: SchemaText, found: dict[tuple[str, str, int], str]) -> None:
        """Collect the schemas that a schema refers to, dependencies first."""
        for one in schema.references:
            key = one.name, one.subject, one.version
            if key in found:
                continue
            # references may be circular, or very many
            if len(found) >= _MOST_REFERENCES:
                raise SchemaError(f"more than {_MOST_REFERENCES} references")
            found[key] = ""
            other = None if self._source is None else find_reference(self._source, one, getattr(schema, "subject", ""))
            if other is None:
                raise SchemaError(f"it refers to {one.subject} version {one.version}, which is not known")
            self._refer(other, found)
            found[key] = found.pop(key) or other.schema


class ConnectColumn(ColumnDecoder):
    """Values that have their schema with them, as Kafka Connect writes JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._values = ConnectValues()
        self._common = CommonType()
        self._known: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        # a plan's parts compile the schemas again
        return {**self.__dict__, "_values": ConnectValues(), "_known": set()}

    def learn(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> None:
        for row in np.flatnonzero(payloads.valid).tolist():
            parsed = self._values.parse(payloads.bytes(row) or b"")
            if isinstance(parsed, str) or parsed[0] is None or id(parsed[0]) in self._known:
                continue
            self._known.add(id(parsed[0]))
            self._common.add(parsed[0].type)

    def declare(self, kind: pa.DataType) -> None:
        self._common.type, self.has_type = kind, True

    @property
    def mixed(self) -> Collection[Path]:
        return self._common.as_text

    def full_type(self) -> pa.DataType:
        return self._common.type

    def decode(self, payloads: Payloads, headers: pa.Array | None, topic: str | None = None) -> DecodedValues:
        by_schema: dict[int, tuple[pa.DataType, list[int], list[Any]]] = {}
        failures: dict[int, str] = {}
        faulty: dict[int, str] = {}
        for row in np.flatnonzero(payloads.valid).tolist():
            parsed = self._values.parse(payloads.bytes(row) or b"")
            if isinstance(parsed, str):
                failures[row] = parsed
                continue
            schema, payload = parsed
            if schema is None:
                continue
            faults = Faults()
            value = schema.read(payload, (), faults)
            whole = [fault for fault in faults if not fault[0]]
            if whole:
                failures[row] = faults_text(whole)
                continue
            _, rows, values = by_schema.setdefault(id(schema), (schema.type, [], []))
            rows.append(row)
            values.append(value)
            if selected := [fault for fault in faults if self._is_selected(fault[0])]:
                faulty[row] = faults_text(selected)
        parts = []
        kind = narrow_type(self._common.type, self._paths)
        for own, rows, values in by_schema.values():
            lost = LossCounts()
            array = narrow_array(self._common.fit(pa.array(values, own), lost.report), kind)
            chosen = [one for one in lost.found if self._is_selected(one.path)]
            parts.append((np.array(rows, np.int64), DecodedValues(array, {}, {}, chosen)))
        decoded = _in_order(parts, len(payloads), kind, failures)
        decoded.faults |= faulty
        return decoded

    def _is_selected(self, path: Path) -> bool:
        return self._paths is None or any(path[: len(one)] == one[: len(path)] for one in self._paths)


def _in_order(
    parts: Sequence[tuple[Rows, DecodedValues]], n: int, kind: pa.DataType, failures: dict[int, str]
) -> DecodedValues:
    """Combine parts of values by their rows; other rows are null."""
    # the first array holds one null, for rows of no group
    order = np.zeros(n, np.int64)
    behind = 1
    lost = []
    faults: dict[int, str] = {}
    for rows, part in parts:
        order[rows] = np.arange(behind, behind + rows.size)
        behind += rows.size
        failures |= {int(rows[row]): why for row, why in part.failures.items()}
        faults |= {int(rows[row]): why for row, why in part.faults.items()}
        lost += [one._replace(rows=rows[one.rows]) for one in part.lost]
    if len(parts) == 1 and parts[0][0].size == n:
        return DecodedValues(parts[0][1].array, failures, faults, lost)
    arrays = [pa.nulls(1, kind), *(part.array for _, part in parts)]
    return DecodedValues(pa.concat_arrays(arrays).take(pa.array(order)), failures, faults, lost)


def _frame_reader(column: str, how: ColumnFormat, source: SchemaSource | None) -> FrameReader:
    # nothing tells an id of 0 from half of a long one where the caller names the schema
    id_size = 4 if how.id_size is None and how.schema is not None else how.id_size
    return FrameReader(column, has_messages=how.format == "protobuf", id_size=id_size, source=source)


def column_decoder(column: str, how: ColumnFormat, source: SchemaSource | None) -> ColumnDecoder:
    if how.format in TYPES:
        return PlainColumn(how.format)
    if how.format in ("json", "jsonschema"):
        return JsonColumn(column, how, source)
    if how.format == "connectjson":
        return ConnectColumn()
    return SchemaColumn(column, how, source)
