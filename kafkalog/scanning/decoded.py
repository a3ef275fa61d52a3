"""`decode=` of a scan: which conditions wait until values are decoded, and the schemas beside a log."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from kafkalog.errors import CorruptionWarning, warn
from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.interchange.arrow_streams import ArrowStream
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open_log_dir
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.segment import Segment
from kafkalog.read_methods import ScanOptions
from kafkalog.scanning.conditions.arrow_filters import fields_read
from kafkalog.scanning.conditions.expressions import is_expression
from kafkalog.scanning.conditions.filter_text import parse_condition
from kafkalog.scanning.execution import Pass
from kafkalog.scanning.query import Query, Target
from kafkalog.scanning.user_functions import Extract
from kafkalog.system_topics.schemas import read_schemas
from kafkalog.values.conditions import ArrowCondition, Conditions, split_filters
from kafkalog.values.decoding import DecodeWarning, Decoding
from kafkalog.values.options import ColumnFormat, parse_decode
from kafkalog.values.schemas import SchemaSource


class DecodedScan(ArrowStream):
    """What a scan does beyond that of bytes if it has `decode`."""

    _query: Query
    _decoding: Decoding | None
    _limit: int | None
    """With conditions on decoded columns, the limit of the scan, which counts after them."""
    _raw_schema: pa.Schema
    _binary_type: pa.DataType
    _last: Pass

    @property
    @abstractmethod
    def target(self) -> Target:
        """What is scanned."""

    @abstractmethod
    def tail(self, n: int = 5) -> pa.Table:
        """The last records."""

    @abstractmethod
    def _pass(self) -> Pass:
        """A new pass over the records."""

    @abstractmethod
    def _raw_batches(self, one: Pass) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Record batches before anything is decoded, with the path of the segment."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the record batches. With `decode`, the records are read for it unless formats say the types."""
        if self._decoding is None:
            return self._raw_schema
        self._learn(self._decoding)
        return self._decoding.schema(self._binary_type)

    def _decoded_batches(self, decoding: Decoding) -> Iterator[pa.RecordBatch]:
        """Record batches with decoded columns."""
        schema, left = self.schema, self._limit
        one = self._pass()
        try:
            for path, raw in self._raw_batches(one):
                batch = decoding.decode(raw, path, schema)
                if left is not None:
                    batch = batch[:left]
                    left -= len(batch)
                if len(batch):
                    yield batch
                if left == 0:
                    return
        finally:
            self._report_undecoded(decoding, one)

    def _report_undecoded(self, decoding: Decoding, one: Pass) -> None:
        for finding in decoding.take_findings():
            one.report(finding)
            warn(finding, DecodeWarning)

    def _learn(self, decoding: Decoding) -> None:
        """Read the records for the types of decoded columns. At damage that raises, the pass after this one raises."""
        if not decoding.needs_to_learn:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptionWarning)  # of which the pass after this one warns
            on_corruption = "stop" if self._query.on_corruption == "raise" else self._query.on_corruption
            one = Pass(replace(self._query, on_corruption=on_corruption))
            decoding.learn(batch for _, batch in self._raw_batches(one))

    def _decoded_tail(self, decoding: Decoding, n: int) -> pa.Table:
        """The last records, with the types that they have themselves: not all of the log is read for them."""
        one = copy(self)
        one._decoding = None
        batches = one.tail(n).to_batches()
        self._last = one._last
        decoding.learn(batches)
        schema = decoding.schema(self._binary_type)
        path = str(self.target.path if isinstance(self.target, (Partition, Segment)) else self.target.paths[0])
        table = pa.Table.from_batches([decoding.decode(batch, path, schema) for batch in batches], schema)
        self._report_undecoded(decoding, self._last)
        return table


def divide_options(options: ScanOptions) -> tuple[dict[str, ColumnFormat], ScanOptions, Conditions | None]:
    """The formats that `decode` gives, the options of a scan of bytes, and the filters on what is decoded."""
    formats, filters = parse_decode(options.get("decode")), options.get("filters")
    if not formats:
        for name in ("schemas", "schema_context"):
            if options.get(name) is not None:
                raise ValueError(f"{name} is for decode=, such as decode={{'value': 'avro'}}")
        return formats, options, None
    if filters is None:
        return formats, options, None
    if is_expression(filters):
        read = fields_read(filters)
        if read is None:
            raise ValueError(f"which columns {filters} reads is not known; with decode, filter by text or tuples")
        return formats, {**options, "filters": None}, ArrowCondition(filters, sorted(read))
    functions = options.get("extract")
    parse = partial(parse_condition, derived=Extract(functions).dtypes) if functions else parse_condition
    before, after = split_filters(filters, formats, parse)
    return formats, {**options, "filters": before}, after


def schemas_beside(target: Target, formats: Mapping[str, ColumnFormat]) -> SchemaSource | None:
    """The schemas in the topic `_schemas` of the same log dir; None if no format needs any.

    Raises
    ------
    ValueError
        There is no such topic, and a format cannot do without schemas; that of JSON can.
    """
    wanted = {one.format for one in formats.values() if one.has_frames and one.schema is None}
    if not wanted:
        return None
    path: LogDir | Path
    if isinstance(target, LogDir):
        path, exists = target, SCHEMAS_TOPIC in {key.topic for key in target}
    else:
        # schemas are beside the topic, in the log dir, whichever part of it was opened
        place = target.paths[0] if isinstance(target, PartitionRanges) else target.path
        path = (place.parent if isinstance(target, Segment) else place).parent / f"{SCHEMAS_TOPIC}-0"
        exists = path.is_dir()
    if not exists and wanted == {"jsonschema"}:
        return None
    if not exists:
        raise ValueError(
            f"decode needs schemas, and there is no topic {SCHEMAS_TOPIC} here: give schemas=, or a schema in decode="
        )
    return read_schemas(path if isinstance(path, LogDir) else open_log_dir(path))
