"""The options of the data source that filter records and decode keys and values, and the types of fields in Spark.

The driver takes a first look at the records, once for the schema and once for the tasks, unless the formats say their
types. Executors get what it found. Filters on decoded fields are options, as all filters are.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from kafkalog.interchange.table_types import stored_type
from kafkalog.log.log_dir import LogDir
from kafkalog.scanning.conditions.filter_text import parse_condition
from kafkalog.scanning.conditions.filter_tuples import parse_filters
from kafkalog.scanning.decoded import schemas_beside
from kafkalog.spark import types
from kafkalog.spark.options import Options, parse_json
from kafkalog.values.conditions import Groups, split_filters
from kafkalog.values.decoding import Decoding
from kafkalog.values.options import WITH_SCHEMAS, ColumnFormat, parse_decode
from kafkalog.values.registry import schema_source

DECODE_OPTIONS: Final = (
    *("valueFormat", "valueSchema", "valueMessage", "keyFormat", "keySchema", "keyMessage"),
    *("framed", "schemas"),
)


_TIMESTAMP_TYPE: Final = re.compile(r"\A\s*timestampType\b", re.IGNORECASE)
"""Spark's name of the column."""


@dataclass(frozen=True, slots=True)
class Decode:
    """What `valueFormat` and the other options ask for."""

    formats: dict[str, ColumnFormat]
    schemas: str | None
    """A directory or a registry's URL."""
    conditions: Groups | None
    """Filters on decoded columns."""

    def decoding(self, columns: Sequence[str], log_dir: LogDir) -> Decoding:
        """Return what decodes these columns of the source."""
        source = schema_source(self.schemas) or schemas_beside(log_dir, self.formats)
        return Decoding(self.formats, source, types.record_columns(columns), self.conditions)


def parse_decoding(given: Options) -> tuple[Decode | None, Any]:
    """Return what is to be decoded, and the filters on what is not.

    Raises
    ------
    ValueError
        An option is invalid, or needs another one.
    """
    is_framed = given.flag("framed", default=True)
    wanted: dict[str, Any] = {}
    for column in ("key", "value"):
        named = {what: given[f"{column}{what}"] for what in ("schema", "message") if f"{column}{what}" in given}
        if f"{column}format" in given:
            name = given[f"{column}format"]
            # text and numbers have no frames in any case
            unframed = {"framed": False} if not is_framed and name in WITH_SCHEMAS else {}
            wanted[column] = {"format": name, **named, **unframed}
        elif named:
            raise ValueError(f"a schema needs a format: give the option {column}Format")
    formats = parse_decode(wanted)
    if not formats:
        if "schemas" in given:
            raise ValueError("schemas is for decoding: give the option valueFormat or keyFormat")
        return None, _filters(given.get("filters"), ())
    parsed, after = _filters(given.get("filters"), formats), None
    if parsed is not None:
        parsed, after = split_filters(parsed, formats, parse_condition)
    return Decode(formats, given.get("schemas"), after), parsed


def _filters(text: str | None, decoded: Collection[str]) -> Any:
    """Parse filters: a condition as text, or JSON with conditions as text or lists.

    Lists become tuples, and strings in them bytes for columns of bytes.
    """
    if text is None:
        return None
    example = '[["key", "starts_with", "order-"], ["timestamp", ">=", 1700000000000]]'
    groups: list[Any] = [text]
    if text.lstrip().startswith(("[", "{")):
        groups = parse_json(text, example, lambda value: isinstance(value, list) and bool(value))
    if all(item and isinstance(item[0], str) for item in groups if isinstance(item, (str, list))):
        groups = [groups]
    filters = []
    for group in groups:
        if not isinstance(group, list) or not all(map(_is_term, group)):
            raise ValueError(f"Expected e.g. {example}, got {text}")
        filters.append([_term(term, decoded) for term in group])
    if decoded:
        return filters
    try:
        parse_filters(filters)
    except TypeError as error:
        raise ValueError(f"filters: {error}") from error
    return filters


def _is_term(term: Any) -> bool:
    return isinstance(term, str) or (isinstance(term, list) and 2 <= len(term) <= 3)


def _term(term: str | list[Any], decoded: Collection[str]) -> tuple[Any, ...]:
    if isinstance(term, str):
        return parse_condition(_TIMESTAMP_TYPE.sub("timestamp_type", term, count=1))
    column = _TIMESTAMP_TYPE.sub("timestamp_type", str(term[0]))
    if len(term) == 2:
        return column, term[1]
    is_binary = (column in ("key", "value") and column not in decoded) or str(column).startswith("headers.")
    return column, term[1], _value(term[2], is_binary)


def _value(value: Any, is_binary: bool) -> Any:
    if isinstance(value, list):
        return [_value(one, is_binary) for one in value]
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"filters: no base64: {value['base64']!r}") from error
    return value.encode() if is_binary and isinstance(value, str) else value


def decoded_schema(decoding: Decoding, columns: Sequence[str]) -> StructType:
    """Return the schema of columns of the source, of which some are decoded."""
    from pyspark.sql.pandas.types import from_arrow_type

    plain = {name for name in columns if name in types.ALL_COLUMNS and name not in decoding.decoded}
    return StructType(
        [
            types.spark_schema([field.name])[0]
            if field.name in plain
            else StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True))
            for field in arrow_schema(decoding, columns)
        ]
    )


def arrow_schema(decoding: Decoding, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of the same columns, as Spark takes them."""
    fields = []
    for name, field in zip(columns, decoding.schema(), strict=True):
        if name in types.ALL_COLUMNS and name not in decoding.decoded:
            fields.append(types.arrow_schema([name]).field(0))
        else:
            fields.append(pa.field(name, stored_type(field.type, "spark")))
    return pa.schema(fields)
