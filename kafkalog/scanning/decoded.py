"""`decode=` of a scan: which conditions wait until values are decoded, and the schemas next to a log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.interchange.arrow_output import HEADER_FIELD
from kafkalog.interchange.expression_trees import fields_read
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import latest_of, open_log_dir
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.segment import Segment
from kafkalog.scanning.conditions.expressions import is_expression
from kafkalog.scanning.conditions.filter_text import parse_filter
from kafkalog.scanning.conditions.filter_tuples import parse_filters
from kafkalog.scanning.options import ScanOptions, with_formats
from kafkalog.scanning.query import Query, Target
from kafkalog.scanning.user_functions import Extract
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, is_url, place_of
from kafkalog.system_topics.schemas import read_schemas
from kafkalog.values.conditions import ArrowCondition, Conditions, split_filters
from kafkalog.values.options import ColumnFormat, parse_decode
from kafkalog.values.registry import schema_source
from kafkalog.values.schemas import SchemaSource

if TYPE_CHECKING:
    import pyarrow.compute as pc


def divide_options(options: ScanOptions) -> tuple[dict[str, ColumnFormat], ScanOptions, Conditions | None]:
    """Return the formats of `decode`, the options for a scan of bytes, and the filters on decoded values."""
    formats, filters = parse_decode(with_formats(options.get("decode"), options) or None), options.get("filters")
    read = fields_read(filters) if is_expression(filters) else None
    if not formats and not any(name.startswith(HEADER_FIELD) for name in read or ()):
        for name in ("schemas", "schema_context"):
            if options.get(name) is not None:
                raise ValueError(f"{name} is for decode=, such as decode={{'value': 'avro'}}")
        return formats, options, None
    if filters is None:
        return formats, options, None
    if is_expression(filters):
        return formats, {**options, "filters": None}, ArrowCondition(filters, known_fields(filters))
    functions = options.get("extract")
    parse = partial(parse_filter, derived=Extract(functions).dtypes if functions else None)
    before, after = split_filters(filters, formats, parse)
    return formats, {**options, "filters": before}, after


def resolved(after: Conditions | None, query: Query) -> Conditions | None:
    """The conditions for decoded columns; those on records get the values of a scan, such as a time for ``end-1h``."""
    if not isinstance(after, list):
        return after

    @cache
    def end_ms() -> int:
        return latest_of(query.iter_partitions())

    def of_record(term: tuple[Any, ...]) -> tuple[Any, ...]:
        if term[0] not in ("timestamp", "timestamp_type"):
            return term
        parsed = parse_filters([term], end_ms=end_ms).groups[0][0]
        return (parsed.column, parsed.operation, *([] if parsed.operation.startswith("is ") else [parsed.value]))

    return [[of_record(term) for term in group] for group in after]


def known_fields(expression: pc.Expression) -> list[str]:
    """The columns and fields that an expression reads; raises ValueError if that is not known."""
    read = fields_read(expression)
    if read is None:
        raise ValueError(f"the columns of {expression} are unknown; with decode, use filters as text or tuples")
    return sorted(read)


def schemas_for(schemas: Any, target: Target, formats: Mapping[str, ColumnFormat]) -> SchemaSource | None:
    """The schemas that `schemas=` of a scan names, which may be a log dir with the topic; else those next to a log."""
    if isinstance(schemas, (str, os.PathLike)) and not is_url(schemas):
        log_dir = place_of(schemas)
        if f"{SCHEMAS_TOPIC}-0" in Listing.or_empty(log_dir).directories:
            return read_schemas(open_log_dir(log_dir))
    return schema_source(schemas) or _schemas_beside(target, formats)


def _schemas_beside(target: Target, formats: Mapping[str, ColumnFormat]) -> SchemaSource | None:
    """The schemas in the topic `_schemas` of the same log dir; None if no format needs any.

    Raises ValueError if there is no such topic, and a format cannot do without schemas; that of JSON can.
    """
    wanted = {one.format for one in formats.values() if one.has_frames and one.schema is None}
    if not wanted:
        return None
    path: LogDir | Place
    if isinstance(target, LogDir):
        path, exists = target, SCHEMAS_TOPIC in {key.topic for key in target}
    else:
        # schemas are next to the topic, in the log dir, whichever part of it was opened
        place = target.paths[0] if isinstance(target, PartitionRanges) else target.path
        log_dir = (place.parent if isinstance(target, Segment) else place).parent
        path = log_dir / f"{SCHEMAS_TOPIC}-0"
        exists = path.name in Listing.or_empty(log_dir).directories
    if not exists and wanted == {"jsonschema"}:
        return None
    if not exists:
        raise ValueError(
            f"decoding needs schemas, but the log dir has no topic {SCHEMAS_TOPIC}: set schemas= (--schemas), or a"
            " schema (--schema)"
        )
    return read_schemas(path if isinstance(path, LogDir) else open_log_dir(path))
