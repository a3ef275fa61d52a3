"""`decode=` of a scan: which conditions wait until values are decoded, and the schemas beside a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.log.log_dir import LogDir
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.segment import Segment
from kafkalog.scanning.conditions.expressions import is_expression
from kafkalog.scanning.conditions.filter_text import parse_condition
from kafkalog.scanning.query import ScanOptions, Target
from kafkalog.values.conditions import Groups, split_filters
from kafkalog.values.options import ColumnFormat, parse_decode
from kafkalog.values.schemas import SchemaSource, schemas_of_topic


def divide_options(options: ScanOptions) -> tuple[dict[str, ColumnFormat], ScanOptions, Groups | None]:
    """The formats that `decode` gives, the options of a scan of bytes, and the filters on what is decoded.

    Raises
    ------
    ValueError, TypeError
        An option is invalid, or does not go with `decode`.
    """
    formats, filters = parse_decode(options.get("decode")), options.get("filters")
    if not formats:
        if options.get("schemas") is not None:
            raise ValueError("schemas is for decode=, such as decode={'value': 'avro'}")
        return formats, options, None
    if options.get("extract"):
        raise ValueError("extract= makes numbers of bytes beside them; it does not go with decode=")
    if filters is None:
        return formats, options, None
    if is_expression(filters):
        raise ValueError("decode goes with filters as text or tuples, not with an Arrow expression")
    before, after = split_filters(filters, formats, parse_condition)
    return formats, {**options, "filters": before}, after


def schemas_beside(
    target: Target, formats: Mapping[str, ColumnFormat], scan: Callable[..., Any]
) -> SchemaSource | None:
    """The schemas in the topic `_schemas` of the same log dir; None if no format needs any.

    Parameters
    ----------
    scan : callable
        Makes a `Scan`.

    Raises
    ------
    ValueError
        There is no such topic.
    """
    if not any(one.format in ("avro", "protobuf") and one.schema is None for one in formats.values()):
        return None
    path: LogDir | Path
    if isinstance(target, LogDir):
        path, exists = target, SCHEMAS_TOPIC in {key.topic for key in target}
    else:
        place = target.paths[0] if isinstance(target, PartitionRanges) else target.path
        path = (place.parent if isinstance(target, Segment) else place).parent / f"{SCHEMAS_TOPIC}-0"
        exists = path.is_dir()
    if not exists:
        raise ValueError(
            f"decode needs schemas, and there is no topic {SCHEMAS_TOPIC} here: give schemas=, or a schema in decode="
        )
    one = scan(path, topics=SCHEMAS_TOPIC, columns=["key", "value"], include_deleted=True, on_corruption="skip")
    return schemas_of_topic(_pairs(one))


def _pairs(scan: Any) -> Iterator[tuple[bytes | None, bytes | None]]:
    for batch in scan.to_batches():
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
