"""Queries in SQL over a log: DuckDB (extra `sql`), with a table for each topic.

Topics are datasets, so a query reads only the columns that it names, and only the batches that conditions on record
columns leave. Without a format, a look at a topic's first values says what they are.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import Finding, ReadError, Reason
from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.interchange.table_types import Conversion, lost_findings, same_but_case, stored_schema
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.read_methods import ScanOptions
from kafkalog.scanning.dataset import ScanDataset
from kafkalog.scanning.scan import Scan
from kafkalog.system_topics.schemas import read_schemas
from kafkalog.values.formats.json_text import NotJson, parse
from kafkalog.values.options import WITH_SCHEMAS
from kafkalog.values.schemas import in_context

_LOOKED_AT: Final = 20
_NOT_IN_FILES: Final = re.compile("INTERVAL|UNION|BIT|UHUGEINT|VARINT|BIGNUM|TIME WITH TIME ZONE|VARIANT|GEOMETRY")
_FORMATS: Final = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "jsonschema"}


class QueryError(ValueError):
    """A query is no SQL, or names what is not there."""


class _Stored:
    """A scan in the types of DuckDB."""

    def __init__(self, scan: Scan, conversions: list[Conversion]) -> None:
        self._scan, self._conversions = scan, conversions
        self.schema = stored_schema(scan.schema, "duckdb")

    @property
    def can_be_narrowed(self) -> bool:
        return self._scan.can_be_narrowed

    def _repr_html_(self, title: str | None = None) -> str:
        return self._scan._repr_html_(title)

    def narrowed(self, columns: Sequence[str] | None = None, expression: pc.Expression | None = None) -> _Stored:
        return _Stored(self._scan.narrowed(columns, expression), self._conversions)

    def without_ruled_out(self, expression: pc.Expression) -> _Stored:
        return _Stored(self._scan.without_ruled_out(expression), self._conversions)

    def plan(self) -> list[_Stored]:
        return [_Stored(part, self._conversions) for part in self._scan.plan()]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        conversion = Conversion(self.schema, "duckdb")
        self._conversions.append(conversion)
        return map(conversion.of, self._scan.to_batches())

    def count_rows(self) -> int:
        return self._scan.count_rows()


class Querying:
    """Topics of a log as tables of DuckDB; takes the options of `kafkalog.scan`, for all topics.

    Without `decode`, values and keys are decoded as what they seem to be. Raises ImportError without DuckDB.
    """

    def __init__(self, path: Paths | LogDir, **options: Unpack[ScanOptions]) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise ImportError("queries need duckdb: pip install 'kafkalog[sql]'") from error
        limits: dict[str, Any] = {} if options.get("limits") is None else {"limits": options["limits"]}
        self.log_dir = path if isinstance(path, LogDir) else open_log_dir(path, **limits)
        # those of what is open
        self._options = {name: one for name, one in options.items() if name not in ("limits", "memory_map")}
        self._connection = duckdb.connect()
        with contextlib.suppress(duckdb.Error):  # some builds have no zones
            # as everywhere else, whatever the machine's zone is
            self._connection.execute("set TimeZone = 'UTC'")
        self._conversions: list[Conversion] = []
        self._notes: list[Finding] = []

    def run(self, query: str, batch_size: int = 2**16) -> Iterator[pa.RecordBatch]:
        """The result of a query as record batches, the first one empty; QueryError for a wrong query."""
        import duckdb

        try:
            for topic in self._named_in(query):
                table = _Stored(self._table(topic), self._conversions)
                self._connection.register(topic, ScanDataset(table))
                self._notes += [
                    Finding(Reason.COLUMN_TWICE, f"DuckDB ignores case: {other} is found as {one}", damage=False)
                    for one, other in same_but_case(table.schema)
                ]
            result = self._connection.sql(query)
            if result is None:
                raise QueryError("the query has no result: a select is expected")
            reader = _as_arrow(result).to_arrow_reader(batch_size)
            yield pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in reader.schema], schema=reader.schema)
            yield from reader
        except duckdb.Error as error:
            raise QueryError(self._explained(str(error))) from None
        except pa.ArrowException as error:
            raise ReadError(Reason.FILE_UNREADABLE, str(error).splitlines()[0], path=self.log_dir.paths[0]) from error

    @property
    def findings(self) -> list[Finding]:
        """Values that DuckDB's types cannot hold, from all queries so far."""
        lost = sum((one.lost for one in self._conversions), start=Counter[tuple[tuple[str, ...], str]]())
        return [*self._notes, *lost_findings(lost, str(self.log_dir.paths[0]))]

    def _named_in(self, query: str) -> list[str]:
        """The topics that a query names; the others are not read."""
        words = {word.lower() for word in re.findall(r'"([^"]+)"|([\w.-]+)', query) for word in word if word}
        return [topic for topic in self.log_dir.topics if topic.lower() in words]

    def _table(self, topic: str) -> Scan:
        options: dict[str, Any] = {**self._options, "topics": topic}
        decode = dict(options.get("decode") or {})
        if not decode.keys() >= {"key", "value"}:
            found = self._formats_of(topic, options.get("schema_context"))
            options["decode"] = decode = found | decode
        if not any(one in WITH_SCHEMAS for one in decode.values() if isinstance(one, str)) and not self._options.get(
            "decode"
        ):
            options.pop("schemas", None)
            options.pop("schema_context", None)
        return Scan(self.log_dir, **options)

    def _formats_of(self, topic: str, context: str | None) -> dict[str, str]:
        """What the keys and values of a topic's first records seem to be; none for bytes."""
        scan = Scan(self.log_dir, topics=topic, columns=["key", "value"], limit=_LOOKED_AT, on_corruption="skip")
        table = scan.to_table()
        source = in_context(read_schemas(self.log_dir), context) if SCHEMAS_TOPIC in self.log_dir.topics else None
        found = {
            name: format_of([one for one in table.column(name).to_pylist() if one], source) for name in ("key", "value")
        }
        return {name: one for name, one in found.items() if one is not None}

    def _explained(self, text: str) -> str:
        line = text.splitlines()[0]
        missing = re.search(r"Table with name (\S+) does not exist", text)
        if missing is not None:
            topics = ", ".join(f'"{one}"' if re.search(r"\W", one) else one for one in self.log_dir.topics[:20])
            line += f" The topics are tables: {topics}"
        elif "Parser Error" in line and re.search(r'near "[-.]', line):
            line += '. Put topic names with hyphens or dots in double quotes, such as "orders-eu"'
        return line


def _as_arrow(result: Any) -> Any:
    """The result with text for types that Arrow's files do not have."""
    texts = [bool(_NOT_IN_FILES.search(str(kind))) for kind in result.types]
    if not any(texts):
        return result
    quoted = ['"' + name.replace('"', '""') + '"' for name in result.columns]
    return result.project(
        ", ".join(f"{one}::varchar as {one}" if is_text else one for one, is_text in zip(quoted, texts, strict=True))
    )


def format_of(values: list[bytes], source: Any) -> str | None:
    """The format that all of some values have; None for bytes."""
    if not values:
        return None
    if source is not None and all(one[0] == 0 and len(one) >= 5 for one in values):
        schema = source.by_id(int.from_bytes(values[0][1:5], "big"))
        if schema is not None and schema.type in _FORMATS:
            return _FORMATS[schema.type]
    if all(one.lstrip()[:1] in (b"{", b"[") and not isinstance(parse(one), NotJson) for one in values):
        return "json"
    try:
        texts = [one.decode() for one in values]
    except UnicodeDecodeError:
        return None
    return "utf8" if all(text.isprintable() for text in texts) else None
