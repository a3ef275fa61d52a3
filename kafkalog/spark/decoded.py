"""Decodes keys and values for the data source: options, and their types in Spark.

A decoded column is a struct. Its type is declared by `valueSchema` or by the user's schema, or it follows from the
schema of its format; else the driver reads the records for it, once. Executors get the types.
"""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from kafkalog.errors import CorruptionWarning
from kafkalog.interchange.table_types import stored_type
from kafkalog.log.log_dir import LogDir
from kafkalog.parsing import field_column, field_path
from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.scanning.conditions.filter_tuples import parse_filters
from kafkalog.scanning.decoded import schemas_for
from kafkalog.spark import types
from kafkalog.spark.options import Options, parse_json
from kafkalog.storage.location import kind_of
from kafkalog.values.conditions import Groups, Split, split_filters
from kafkalog.values.decoding import Decoding
from kafkalog.values.formats.json_schema import nullable_type, schema_type
from kafkalog.values.options import WITH_BRANCHES, WITH_SCHEMAS, ColumnFormat, parse_decode
from kafkalog.values.schemas import in_context
from kafkalog.values.types import SchemaError, field_at, narrow_type

DECODE_OPTIONS: Final = (
    *("valueFormat", "valueSchema", "valueMessage", "readerSchema", "keyFormat", "keySchema", "keyMessage"),
    *("framed", "idSize", "branches", "schemas", "schemaContext", "onDecodeError"),
)
JSON: Final = ("json", "jsonschema")
Batches = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]

_TIMESTAMP_TYPE: Final = re.compile(r"\A\s*timestampType\b", re.IGNORECASE)
_LEARNED: Final = "kafkalog.type"
"""In the metadata of a column: its Arrow type that was learned; empty if values of some fields are JSON text."""
_FILTERS: Final = '["key starts_with order-", "timestamp >= 2026-11-21T08:00Z"]'
_JSON_TYPES: Final = (pt.is_boolean, pt.is_string, pt.is_floating, pt.is_signed_integer)


@dataclass(frozen=True, slots=True)
class Decode:
    """What `valueFormat` and the other options ask for."""

    formats: dict[str, ColumnFormat]
    schemas: str | None
    """A directory or a registry's URL."""
    conditions: Groups | None
    declared: dict[str, pa.DataType]
    """Types of JSON values, by `valueSchema` and `keySchema`."""
    context: str | None = None
    on_error: Literal["fail", "null", "skip"] | None = None
    """What to do with values that do not decode; None: `null` if the query reads the reasons, otherwise `fail`."""

    def fails(self, columns: Collection[str]) -> bool:
        """Whether a query of these columns fails if a value does not decode."""
        is_shown = any(f"{name}_error" in columns for name in self.formats)
        return self.on_error == "fail" or (self.on_error is None and not is_shown)

    def schema(self, columns: Sequence[str], log_dir: LogDir, batches: Batches) -> StructType:
        """Return the schema of columns and fields such as ``value.id``, which become structs."""
        decoding = self._decoding(columns, log_dir)
        decoding.declare({name: json_type(kind) for name, kind in self.declared.items()})
        learn(decoding, batches)
        names = list(dict.fromkeys(map(self._column_of, columns)))
        fields = []
        for name, found in zip(names, decoding.select(types.record_columns(names)).schema(), strict=True):
            if name not in self.formats:
                fields.append(_plain_field(name, found))
                continue
            paths = [tuple(field_path(one)[1:]) for one in columns if self._column_of(one) == name]
            kind = narrow_type(self.declared.get(name, stored_type(found.type, "spark")), paths)
            learned = "" if name in decoding.mixed else _to_text(found.type)
            kept = None if name in {*decoding.typed, *self.declared} else {_LEARNED: learned}
            fields.append(StructField(name, from_arrow_type(kind, prefer_timestamp_ntz=True), metadata=kept))
        return StructType(fields)

    def decoding(self, schema: StructType, log_dir: LogDir, batches: Batches | None) -> tuple[Decoding, pa.Schema]:
        """Return what decodes the columns of a schema, of the source or the user, and its types in Arrow.

        Without `batches` nothing is read to learn types. Raises ValueError for a column of another type, and for a type
        that would have to be learned.
        """
        kinds = {one.name: to_arrow_type(one.dataType, timezone="UTC") for one in schema if one.name in self.formats}
        flat = [
            field_column(one.name, path)
            for one in schema
            for path in (_leaves(kinds[one.name]) if one.name in kinds else [()])
        ]
        decoding = self._decoding(flat, log_dir)
        learned = {one.name: one.metadata[_LEARNED] for one in schema if _LEARNED in one.metadata}
        given = kinds.keys() - decoding.typed - self.declared.keys() - learned.keys()
        decoding.declare(self._declared_types({name: kinds[name] for name in given}))
        decoding.declare({name: _from_text(text) for name, text in learned.items() if text})
        if batches is None:
            _check_known(decoding, [one for one in schema if one.name in learned])
        else:
            learn(decoding, batches)
        decoding = decoding.select(types.record_columns(schema.names))
        return decoding, self._arrow_schema(schema, kinds, given, decoding)

    def _declared_types(self, given: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types in which columns are decoded whose types are declared, or `given` by the user's schema."""
        is_json = {name: one.format in JSON for name, one in self.formats.items()}
        declared = {**self.declared, **given}
        return {name: json_type(kind) if is_json[name] else kind for name, kind in declared.items()}

    def _arrow_schema(
        self, schema: StructType, kinds: Mapping[str, pa.DataType], given: Collection[str], decoding: Decoding
    ) -> pa.Schema:
        """The types of columns in Arrow: `kinds` are those of decoded ones, which the user set for the `given` ones."""
        fields = []
        for field, found in zip(schema, decoding.schema(), strict=True):
            own = _plain_field(field.name, found).dataType if field.name not in kinds else field.dataType
            if field.name in kinds and field.name not in given:
                whole = self.declared.get(field.name, stored_type(found.type, "spark"))
                _check_fields(field.name, kinds[field.name], whole)
            elif own.simpleString() != field.dataType.simpleString():
                raise ValueError(wrong_type(field.name, own.simpleString(), field.dataType.simpleString()))
            kind = kinds.get(field.name) or to_arrow_type(own, timezone="UTC")
            fields.append(pa.field(field.name, kind, nullable=field.nullable))
        return pa.schema(fields)

    def _decoding(self, columns: Sequence[str], log_dir: LogDir) -> Decoding:
        source = schemas_for(self.schemas, log_dir, self.formats)
        source = in_context(source, self.context)
        decoding = Decoding(self.formats, source, types.record_columns(columns), self.conditions)
        decoding.leaves_out = self.on_error == "skip"
        return decoding

    def _column_of(self, name: str) -> str:
        top = name.partition(".")[0]
        return top if top in self.formats else name


def _check_known(decoding: Decoding, learned: Sequence[StructField]) -> None:
    """Raise ValueError if the types of a stream's values are not known, or only from records."""
    if learned:
        named = "; ".join(f"{one.name}Schema: {_ddl(one.dataType)}" for one in learned)
        raise ValueError(
            "the types of a stream's values must be known before it starts, as the first record of another type"
            f" would end it for good. The records so far suggest {named}"
        )
    if not decoding.has_types:
        raise ValueError(
            "the types of a stream's values must be known before it starts: set valueSchema (and valueMessage for"
            " Protobuf), pass a schema, or take values as text or numbers"
        )


def learn(decoding: Decoding, batches: Batches) -> None:
    """Read records for the types of values, unless these are known."""
    if decoding.needs_to_learn:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptionWarning)  # of which the tasks warn
            decoding.learn(lambda: batches(decoding.record_columns))


def json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to which JSON text is decoded before it is converted to `kind`; ValueError if there is none."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(one.name, json_type(one.type)) for one in kind])
    if pt.is_list(kind):
        return pa.list_(json_type(kind.value_type))
    if kind == pa.decimal128(38, 0):
        return kind
    if not any(is_kind(kind) for is_kind in _JSON_TYPES):
        raise ValueError(f"JSON has no {kind}: take it as string, and cast it in the query")
    return pa.int64() if pt.is_integer(kind) else pa.float64() if pt.is_floating(kind) else kind


def _to_text(kind: pa.DataType) -> str:
    return base64.b64encode(pa.schema([("", kind)]).serialize()).decode()


def _from_text(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type


def wrong_type(name: str, own: str, other: str) -> str:
    """The message about a column of another type."""
    return f"column {name} is of type {own}, not {other}: cast it in the query"


def _ddl(kind: DataType) -> str:
    """A type as `parse_ddl` reads it."""
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, StructType):
        names = ("`" + field.name.replace("`", "``") + "`: " + _ddl(field.dataType) for field in kind)
        return f"struct<{', '.join(names)}>"
    return kind.simpleString() if kind.simpleString() in _TYPES else "string"


def _plain_field(name: str, found: pa.Field) -> StructField:
    if name in types.ALL_COLUMNS:
        return types.spark_schema([name])[0]
    return StructField(name, from_arrow_type(stored_type(found.type, "spark"), prefer_timestamp_ntz=True))


def _leaves(kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    if not pt.is_struct(kind) or not kind.num_fields:
        yield ()
        return
    for field in kind:
        for path in _leaves(field.type):
            yield (field.name, *path)


def _check_fields(name: str, kind: pa.DataType, whole: pa.DataType) -> None:
    for path in _leaves(kind):
        field = ".".join((name, *path))
        try:
            own = field_at(pa.nulls(0, whole), path).type
        except KeyError as error:
            raise ValueError(f"no column {field!r}: {error.args[0]}") from None
        other = field_at(pa.nulls(0, kind), path).type
        if own != other:
            raise ValueError(wrong_type(field, str(own), str(other)))


def parse_decoding(given: Options) -> tuple[Decode | None, Any]:
    """Return what is to be decoded, and the filters on what is not."""
    wanted, declared = _column_options(given)
    on_error = given.choice("onDecodeError", ("fail", "null", "skip"), "fail") if "ondecodeerror" in given else None
    formats = parse_decode(wanted)
    filters = _split(given.get("filters"), formats)
    if not formats:
        for name in ("schemas", "schemaContext", "onDecodeError"):
            if name.lower() in given:
                raise ValueError(f"{name} is for decoding: give the option valueFormat or keyFormat")
        return None, filters.before
    schemas, context = given.get("schemas"), given.get("schemacontext")
    return Decode(formats, schemas, filters.after, declared, context, on_error), filters.before


def _column_options(given: Options) -> tuple[dict[str, Any], dict[str, pa.DataType]]:
    """The options of each column that is to be decoded, and the types that are declared for JSON."""
    # text and numbers have no frames in any case
    of_frames: dict[str, Any] = {} if given.flag("framed", default=True) else {"framed": False}
    if (id_size := given.number("idSize")) is not None:
        of_frames["id_size"] = id_size
    wanted: dict[str, Any] = {}
    declared: dict[str, pa.DataType] = {}
    for column in ("key", "value"):
        named = _named_types(given, column)
        if f"{column}format" in given:
            name = given[f"{column}format"]
            if name in JSON and "schema" in named:
                declared[column] = _json_schema(named["schema"])
            if name == "json":
                named.pop("schema", None)
            more = {"branches": True} if name in WITH_BRANCHES and given.flag("branches", default=False) else {}
            wanted[column] = {"format": name, **named, **more, **(of_frames if name in WITH_SCHEMAS else {})}
        elif named:
            raise ValueError(f"a schema needs a format: give the option {column}Format")
    return wanted, declared


def _named_types(given: Options, column: str) -> dict[str, str]:
    """The schemas and the message that options name for a column."""
    named = {what: given[f"{column}{what}"] for what in ("schema", "message") if f"{column}{what}" in given}
    if column == "value" and "readerschema" in given:
        named["reader_schema"] = given["readerschema"]
    return named


def _json_schema(text: str) -> pa.DataType:
    """The type that DDL, a JSON Schema, or a file with one of these declares."""
    if len(text) < 1024 and "\n" not in text and kind_of(text) == "file":
        text = Path(text).read_text()
    if not text.lstrip().startswith("{"):
        return parse_ddl(text)
    try:
        kind = nullable_type(schema_type(text))
        json_type(kind)
    except SchemaError as error:
        raise ValueError(f"valueSchema: {error}") from None
    return kind


def _split(text: str | None, formats: Collection[str]) -> Split:
    """Parse filters: text, or a JSON list of texts of which all must hold, or a list of such lists."""
    if text is None:
        return Split(None, None)
    given: Any = [text]
    if text.lstrip().startswith(("[", "{")):
        given = parse_json(text, _FILTERS, lambda value: isinstance(value, list) and bool(value))
    try:
        found = split_filters(given, formats, lambda one: parse_filter(_TIMESTAMP_TYPE.sub("timestamp_type", one)))
        if not formats:
            parse_filters(found.before or [])
    except TypeError as error:
        raise ValueError(f"Expected e.g. {_FILTERS}, got {text}") from error
    return found


_TOKEN: Final = re.compile(r"`(?:[^`]|``)+`|\w+|\S")
_TYPES: Final = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
}


def parse_ddl(text: str) -> pa.DataType:
    """Parse the fields of a struct, or a single type, into an Arrow type; PySpark's own parser needs a session.

    Raises ValueError for a text that is no DDL, or has a type that JSON has not.
    """
    tokens: list[str] = [*_TOKEN.findall(text), ""]

    def take(is_right: bool) -> str:
        if not is_right:
            raise ValueError(
                f"{text!r} is not a schema: wrong at {tokens[0] or 'its end'!r}. Write it as in a bigint,"
                " b struct<c:string>, d array<double>; or use a JSON Schema or its path. JSON has the types boolean,"
                " bigint and smaller, float, double, string, struct and array: read others as string, and cast them"
            )
        return tokens.pop(0)

    def whole_type() -> pa.DataType:
        name = take(tokens[0].lower() in (*_TYPES, "struct", "array")).lower()
        if name in _TYPES:
            return _TYPES[name]
        take(tokens[0] == "<")
        kind = struct() if name == "struct" else pa.list_(whole_type())
        take(tokens[0] == ">")
        return kind

    def struct() -> pa.StructType:
        fields: list[pa.Field] = []
        while not fields or tokens[0] == ",":
            if fields:
                take(True)
            name = take(re.fullmatch(r"`.+`|\w+", tokens[0], re.DOTALL) is not None)
            if tokens[0] == ":":
                take(True)
            fields.append(pa.field(name[1:-1].replace("``", "`") if name[0] == "`" else name, whole_type()))
        return pa.struct(fields)

    kind = whole_type() if tokens[1:2] in ([""], ["<"]) else struct()
    take(not tokens[0])
    return kind
