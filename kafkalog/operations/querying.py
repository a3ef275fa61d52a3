"""Queries in SQL over a log: DuckDB (extra `sql`), with a table for each topic.

Topics are datasets, so a query reads only the columns that it names, and only the batches that conditions on record
columns leave. Without a format, a look at a topic's first values says what they are.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.column_names import DEFAULT_COLUMNS
from kafkalog.errors import Finding, KafkalogError, ReadError, Reason, not_installed
from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.interchange.arrow_streams import ArrowStream
from kafkalog.interchange.table_types import Conversion, lost_findings, same_but_case, stored_schema, unnamed
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.operations.exporting.export import check_on_decode_error
from kafkalog.operations.sql_conditions import Params, add_function, several_types, typed_query
from kafkalog.parsing import field_column
from kafkalog.scanning.dataset import ScanDataset
from kafkalog.scanning.options import OPENING, ScanOptions
from kafkalog.scanning.scan import Scan
from kafkalog.system_topics.schemas import read_schemas
from kafkalog.text import near
from kafkalog.values.formats.json_text import NotJson, parse
from kafkalog.values.options import WITH_SCHEMAS
from kafkalog.values.schemas import in_context
from kafkalog.words import unknown_keyword

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_LOOKED_AT: Final = 20
_ALL: Final = "records"
"""The table of all topics, unless a topic has this name."""
_OFFSET: Final = re.compile(r"(?i)\boffset\b(?!\s+\d)")
_WORDS: Final = re.compile(r"""'(?:[^']|'')*'|"([^"]+)"|([\w.-]+)""")
"""Text in quotes, which is no name, and names."""
_SHOW_TABLES: Final = re.compile(r"\s*(?:show\s+(?:all\s+)?tables|\.tables|\\dt?)\s*;?\s*", re.IGNORECASE)
_NOT_IN_FILES: Final = re.compile("INTERVAL|UNION|BIT|UHUGEINT|VARINT|BIGNUM|TIME WITH TIME ZONE|VARIANT|GEOMETRY")
_FORMATS: Final = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "jsonschema"}


class QueryError(ValueError):
    """A query is no SQL, or names what is not there."""


class _Passes:
    """Collects what passes over the records find; DuckDB may read a table more than once."""

    def __init__(self) -> None:
        self.conversions: list[Conversion] = []
        self.error: KafkalogError | None = None
        """What ended a pass: DuckDB makes a text of it."""
        self._findings: dict[str, Finding] = {}
        self._n_undecoded: dict[tuple[str, ...], int] = {}

    def add(self, scan: Scan) -> None:
        """Take note of a pass that has ended."""
        findings = scan.findings
        self._findings.update({str(finding): finding for finding in findings})
        # the same values may be read again, as for both sides of a join
        undecoded = tuple(sorted(str(finding) for finding in findings if finding.reason == Reason.VALUE_UNDECODED))
        self._n_undecoded[undecoded] = max(scan.n_undecoded, self._n_undecoded.get(undecoded, 0))

    @property
    def findings(self) -> list[Finding]:
        return [*self._findings.values()]

    @property
    def n_undecoded(self) -> int:
        return sum(self._n_undecoded.values())


class _Stored:
    """A scan in the types of DuckDB."""

    def __init__(self, scan: Scan, passes: _Passes) -> None:
        self._scan, self._passes = scan, passes
        self.schema = stored_schema(scan.schema, "duckdb")

    @property
    def can_be_narrowed(self) -> bool:
        return self._scan.can_be_narrowed

    @property
    def mixed_paths(self) -> frozenset[tuple[str, ...]]:
        # conditions that DuckDB passes on are on the text that it sees: those of the user are functions (typed_query)
        return frozenset()

    def _repr_html_(self, title: str | None = None) -> str:
        return self._scan._repr_html_(title)

    def narrowed(self, columns: Sequence[str] | None = None, expression: pc.Expression | None = None) -> _Stored:
        return _Stored(self._scan.narrowed(columns, expression), self._passes)

    def without_ruled_out(self, expression: pc.Expression) -> _Stored:
        return _Stored(self._scan.without_ruled_out(expression), self._passes)

    def plan(self) -> list[_Stored]:
        return [_Stored(part, self._passes) for part in self._scan.plan()]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        conversion = Conversion(self.schema, "duckdb")
        self._passes.conversions.append(conversion)
        try:
            with contextlib.closing(cast(Any, self._scan.to_batches())) as batches:
                yield from map(conversion.of, batches)
        except KafkalogError as error:
            self._passes.error = error
            raise
        finally:
            self._passes.add(self._scan)

    def count_rows(self) -> int:
        return self._scan.count_rows()


class Querying:
    """Topics of a log as tables of DuckDB; takes the options of `kafkalog.scan`, for all topics.

    Without `decode`, values and keys are decoded as what they seem to be. With `on_decode_error="skip"`, tables have no
    records of which a value does not decode. Raises ImportError without DuckDB.
    """

    def __init__(
        self,
        path: Paths | LogDir,
        *,
        on_decode_error: Literal["null", "skip"] | None = None,
        **options: Unpack[ScanOptions],
    ) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise ImportError(not_installed("queries need duckdb", "sql")) from error
        check_on_decode_error(on_decode_error)
        if unknown := [name for name in options if name not in ScanOptions.__annotations__]:
            known = [*ScanOptions.__annotations__, "params", "on_decode_error"]
            meant = unknown_keyword(unknown[0], known, options.get(unknown[0]))
            raise TypeError(f"sql has no option {unknown[0]!r}; {meant}")
        given = cast(dict[str, Any], options)
        opening = {name: given[name] for name in ("limits", *OPENING) if given.get(name) is not None}
        self.log_dir = path if isinstance(path, LogDir) else open_log_dir(path, **opening)
        self._leaves_out = on_decode_error == "skip"
        # those of what is open
        self._options = {name: one for name, one in options.items() if name not in ("limits", "memory_map", *OPENING)}
        self._connection = duckdb.connect()
        with contextlib.suppress(duckdb.Error):  # some builds have no zones
            # as everywhere else, whatever the machine's zone is
            self._connection.execute("set TimeZone = 'UTC'")
        add_function(self._connection)
        self._passes = _Passes()
        self._notes: list[Finding] = []
        self._mixed: list[str] = []
        self._query = ""
        self._fields: list[str] = []

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the errors of DuckDB into a QueryError, or a ReadError."""
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            if self._passes.error is not None:
                raise self._passes.error from None
            text = self._explained(str(error))
            hint = next((one for pattern, one in _HINTS if re.search(pattern, f"{text}\n{self._query}")), "")
            raise QueryError(f"{text}{hint}") from None
        except pa.ArrowException as error:
            raise ReadError(Reason.FILE_UNREADABLE, str(error).splitlines()[0], path=self.log_dir.paths[0]) from error

    def relation(self, query: str, params: Params = None) -> Any:
        """The query as a relation of DuckDB, whose columns have different names; QueryError for a wrong query.

        `params` are the values of ``?``, or by name of ``$name``, in the query.
        """
        self._query = query
        with self.errors():
            if _SHOW_TABLES.fullmatch(query):
                return self._connection.sql("select unnest($1::varchar[]) as name", params=[self.log_dir.topics])
            selects = [one for one in self._connection.extract_statements(query) if one.type.name == "SELECT"]
            if selects[1:]:
                raise QueryError(f"{len(selects)} queries: run one at a time, or join them with union all by name")
            tables = {name: self._register(name, topic) for name, topic in self._tables_of(query).items()}
            known = {name.lower(): _columns_of(scan) for name, scan in tables.items()}
            self._fields = [*dict.fromkeys(path for scan in tables.values() for path in _field_paths(scan.schema))]
            self._mixed = [field_column(path[0], path[1:]) for scan in tables.values() for path in scan.mixed_paths]
            typed, params = typed_query(self._connection, query, known, params)
            result = self._connection.sql(typed, params=params)
            if result is None:
                raise QueryError("the query has no result: a select is expected")
            return self._distinct(result)

    def run(self, query: str, batch_size: int = 2**16) -> Iterator[pa.RecordBatch]:
        """The result of a query as record batches, the first one empty; QueryError for a wrong query."""
        result = self.relation(query)
        with self.errors():
            reader = as_arrow(result).to_arrow_reader(batch_size)
            yield pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in reader.schema], schema=reader.schema)
            yield from reader

    @property
    def findings(self) -> list[Finding]:
        """What all queries so far have found, and values that DuckDB's types cannot hold."""
        lost = sum((one.lost for one in self._passes.conversions), start=Counter[tuple[tuple[str, ...], str]]())
        return [*self._notes, *self._passes.findings, *lost_findings(lost, str(self.log_dir.paths[0]))]

    @property
    def n_undecoded(self) -> int:
        """How many values, and fields of decoded values, that queries have read did not decode."""
        return self._passes.n_undecoded

    def _tables_of(self, query: str) -> dict[str, str | None]:
        """The names of tables in a query, with their topics; the others are not read. None stands for all topics.

        DuckDB ignores the case of names. Topics that differ by nothing else have the names ``TOPIC#1`` and so on, in
        their order. A topic keeps its name if the query has no other spelling. Otherwise QueryError names the tables.
        """
        spellings = _spellings(query)
        alike: dict[str, list[str]] = {}
        for topic in sorted(self.log_dir.topics):
            alike.setdefault(topic.lower(), []).append(topic)
        tables: dict[str, str | None] = {}
        if _ALL in spellings and _ALL not in alike:
            tables[_ALL] = None
        for name, topics in alike.items():
            numbered = {f"{topic}#{number}": topic for number, topic in enumerate(topics, 1)} if topics[1:] else {}
            tables |= {table: topic for table, topic in numbered.items() if table.lower() in spellings}
            used = spellings.get(name, set())
            if not used:
                continue
            topic = self._spelled(used, numbered) if numbered else topics[0]
            tables[topic] = topic
        return tables

    def _spelled(self, used: set[str], numbered: Mapping[str, str]) -> str:
        """The topic that a query spells, of several that differ by case alone; `numbered` has their tables."""
        topics = [*numbered.values()]
        if len(used) > 1 or not used <= {*topics}:
            quoted = ", ".join(f'"{table}"' for table in numbered)
            raise QueryError(
                f"DuckDB ignores case, so {' and '.join(sorted(used))} may be any of {len(topics)} topics. Name one"
                f" of the tables {quoted}"
            )
        (topic,) = used
        others = " or ".join(other for other in topics if other != topic)
        detail = f"DuckDB ignores case: {topic} is the topic of this name, not {others}"
        self._notes.append(Finding(Reason.PARTITION_TWICE, detail, damage=False))
        return topic

    def _register(self, name: str, topic: str | None) -> Scan:
        """Make a topic a table; returns its scan."""
        scan, errors = self._table(topic)
        table = _Stored(scan, self._passes)
        self._notes += [
            Finding(Reason.COLUMN_TWICE, f"DuckDB ignores case: {other} is found as {one}", damage=False)
            for one, other in same_but_case(table.schema)
        ]
        self._notes += [
            Finding(Reason.COLUMN_UNKNOWN, f"DuckDB has no empty name: {one} is {other}", damage=False)
            for one, other in unnamed(table.schema)
        ]
        if not errors:
            self._connection.register(name, ScanDataset(table))
            return scan
        # a condition of each query, whatever columns it has
        self._connection.register(f"#{name}", ScanDataset(table))
        where = " and ".join(f"{error} is null" for error in errors)
        select = f"select * exclude ({', '.join(errors)}) from {_quoted(f'#{name}')} where {where}"
        self._connection.execute(f"create or replace view {_quoted(name)} as {select}")
        return scan

    def _distinct(self, result: Any) -> Any:
        """The result with a name of its own for each column."""
        names = distinct_names(result.columns)
        if names == result.columns:
            return result
        renamed = [f"{one} is {new}" for one, new in zip(result.columns, names, strict=True) if one != new]
        detail = f"the result has columns of the same name: the next {', the next '.join(renamed)}"
        self._notes.append(Finding(Reason.COLUMN_TWICE, detail, damage=False))
        return result.project(", ".join(f"#{at} as {_quoted(name)}" for at, name in enumerate(names, 1)))

    def _table(self, topic: str | None) -> tuple[Scan, list[str]]:
        """The scan of a topic or of all, and the columns of errors of decoding, if such records are left out."""
        options: dict[str, Any] = {**self._options, **({} if topic is None else {"topics": topic})}
        decode = dict(options.get("decode") or {})
        if not decode.keys() >= {"key", "value"}:
            context = options.get("schema_context")
            found = self._texts_of_all() if topic is None else self._formats_of(topic, context)
            options["decode"] = decode = found | decode
        if not any(one in WITH_SCHEMAS for one in decode.values() if isinstance(one, str)) and not self._options.get(
            "decode"
        ):
            options.pop("schemas", None)
            options.pop("schema_context", None)
        errors = [f"{name}_error" for name in decode] if self._leaves_out else []
        if errors:
            options["columns"] = [*DEFAULT_COLUMNS, *errors]
        return Scan(self.log_dir, **options), errors

    def _formats_of(self, topic: str, context: str | None) -> dict[str, str]:
        """The likely formats of keys and values, by a topic's first records; empty for bytes."""
        source = in_context(read_schemas(self.log_dir), context) if SCHEMAS_TOPIC in self.log_dir.topics else None
        found = {name: format_of(values, source) for name, values in self._first_of(topic).items()}
        return {name: one for name, one in found.items() if one is not None}

    def _texts_of_all(self) -> dict[str, str]:
        """Text, for keys and values that are text or JSON in each topic."""
        selected = self.log_dir.select(internal=bool(self._options.get("internal")))
        found = [self._first_of(topic) for topic in dict.fromkeys(one.topic for one in selected)]
        values = {name: [value for one in found for value in one[name]] for name in ("key", "value")}
        return {name: "utf8" for name, some in values.items() if format_of(some, None) is not None}

    def _first_of(self, topic: str) -> dict[str, list[bytes]]:
        """The keys and values of a topic's first records, without null and empty ones."""
        scan = Scan(self.log_dir, topics=topic, columns=["key", "value"], limit=_LOOKED_AT, on_corruption="skip")
        table = scan.to_table()
        return {name: [one for one in table.column(name).to_pylist() if one] for name in table.column_names}

    def _explained(self, text: str) -> str:
        line = text.splitlines()[0]
        missing = re.search(r"Table with name (\S+) does not exist", text)
        column = re.search(r'(?:Referenced column|Could not find key) "(.+?)" (?:not found|in struct)', line)
        word = re.search(r'syntax error at or near "(\w+)"', line)
        if column is not None and self._fields:
            line = line.rstrip("!") + _columns(self._fields, column[1])
        elif word is not None and (topic := near(word[1], self.log_dir.topics)):
            line += f"; did you mean {_table_name(topic)}?"
        elif word is not None and (meant := near(word[1], _SQL_WORDS)) not in (None, word[1].lower()):
            line += f"; did you mean {meant}?"
        elif change := _CHANGES.match(self._query):
            line += f"; queries only read{_COPIES.get(change[1].lower(), '')}"
        elif missing is not None:
            line += f" {_tables(self.log_dir.topics, missing[1])}"
        elif "Parser Error" in line and _OFFSET.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", self._query)):
            line += '. offset is a word of SQL: put the column in double quotes, as "offset"'
        elif self._mixed and re.search("VARCHAR|Could not convert string", line):
            line += f". {several_types(min(self._mixed))}"
        return line


_HINTS: Final = (
    (r'Parser Error.*near "[-.]', '. Put topic names with hyphens or dots in double quotes, such as "orders-eu"'),
    ("Values were not provided", "; in Python, params= has the values of ? and $name; in a shell, write them out"),
    (
        r'expression "headers" because|to INT64\n[^\0]*\bheaders\s*\[',
        "; map_from_entries(headers)['name'] is a header's value",
    ),
    ("TIMESTAMP WITH TIME ZONE and type INTEGER", "; compare with a text such as '2026-11-28', or epoch_ms(timestamp)"),
    ("Cannot extract field .* not a struct", "; describe the table for the names of its fields"),
)
"""What to write instead, by the text of an error, with the query below it."""


_CHANGES: Final = re.compile(r"\s*(delete|update|insert|alter|drop|truncate)\b", re.IGNORECASE)
_COPIES: Final = {"delete": ": kafkalog convert PATH -o DIR --drop 'COLUMN OP VALUE' (drop=) leaves records out"}
_SQL_WORDS: Final = ("select", "from", "where", "group", "order", "limit", "having", "describe", "between", "distinct")


def _columns(paths: Sequence[str], missing: str) -> str:
    """The columns and fields that are meant by a name; all of them, if it is not just that of a field."""
    ends = [path.rpartition(".")[2] for path in paths]
    meant = missing if missing in ends else near(missing, ends)
    fields = [path for path, end in zip(paths, ends, strict=True) if end == meant]
    every = "" if meant == missing else f"; there are {', '.join(paths[:30])}"
    return every + (f"; did you mean {' or '.join(fields)}?" if fields else "")


def _table_name(topic: str) -> str:
    return f'"{topic}"' if re.search(r"\W", topic) else topic


def _tables(topics: Sequence[str], missing: str) -> str:
    """The topic that is meant by a name with underscores, as shells and other tools want it; or all of them."""
    quoted = [*map(_table_name, topics)]
    same = [name for name in quoted if re.sub(r"\W", "_", name.strip('"')) == missing.strip('"')]
    return f"Did you mean {same[0]}?" if same else f"The topics are tables: {', '.join(quoted[:20])}; records has all"


class QueryResult(ArrowStream):
    """The rows of a query; made by `kafkalog.sql`. Each call runs the query again.

    A result is an Arrow stream: ``pa.table(result)`` and ``polars.DataFrame(result)`` read it.
    """

    def __init__(self, querying: Querying, query: str, params: Params = None) -> None:
        self._querying = querying
        self._relation = querying.relation(query, params)

    def __repr__(self) -> str:
        return f"QueryResult({', '.join(self.columns)}); fetchall(), df() and arrow() give its rows"

    @property
    def columns(self) -> list[str]:
        """The names of the columns; a name that the query gives twice has a number at its end."""
        return list(self._relation.columns)

    @property
    def schema(self) -> pa.Schema:
        """The schema of `arrow` and `to_batches`."""
        with self._querying.errors():
            return as_arrow(self._relation).limit(0).to_arrow_table().schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow's record batches, in bounded memory."""
        with self._querying.errors():
            yield from as_arrow(self._relation).to_arrow_reader(2**16)

    def arrow(self) -> pa.Table:
        """The rows as a `pyarrow.Table`; types that Arrow's files lack, such as intervals, are text."""
        return self.to_table()

    def df(self) -> pd.DataFrame:
        """The rows as a `pandas.DataFrame`, with the types that DuckDB chooses."""
        with self._querying.errors():
            frame: pd.DataFrame = self._relation.df()
            return frame

    def pl(self) -> pl.DataFrame:
        """The rows as a `polars.DataFrame`."""
        import polars

        return polars.DataFrame(self.arrow())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python's values."""
        with self._querying.errors():
            rows: list[tuple[Any, ...]] = self._relation.fetchall()
            return rows

    @property
    def findings(self) -> list[Finding]:
        """What was found while the query ran: values that did not decode, damage, columns of one name."""
        return self._querying.findings

    @property
    def n_undecoded(self) -> int:
        """How many values, or fields of values, in the columns of the query are null since they did not decode."""
        return self._querying.n_undecoded


def sql(
    query: str,
    path: Paths | LogDir,
    *,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    on_decode_error: Literal["null", "skip"] | None = None,
    **options: Unpack[ScanOptions],
) -> QueryResult:
    """Query a log with SQL: DuckDB, with a table for each topic, and a table `records` of all.

    Parameters
    ----------
    query : str
        `records` has the records of all topics, except internal ones, unless a topic has this name. The name of a topic
        with a dot or a hyphen is in double quotes. DuckDB ignores case: topics whose names differ by nothing else are
        tables with a number, such as ``"Orders#1"``; the error about such a name lists them.
    path : path-like, sequence of path-like, or what `open` returned
    params : sequence or dict, optional
        Values for each ``?`` in the query, or by name for each ``$name``. With them, the result is read into memory at
        once.
    on_decode_error : {"null", "skip"}, optional
        What to do with values that do not decode. `skip` leaves their records out. Default, and `null`: they are null,
        and `QueryResult.n_undecoded` counts them.
    decode, start_offset, on_corruption, ...
        The options of `scan`, for all topics. Without `decode`, a topic's first records decide: JSON, Avro or Protobuf
        with schemas in ``_schemas``, text, or bytes.

    Returns
    -------
    QueryResult
        Has `df`, `arrow`, `pl` and `fetchall`, and is an Arrow stream.

    Raises
    ------
    ValueError
        The query is no SQL, names what is not there, or has no result.
    ImportError
        DuckDB is not installed.

    Examples
    --------
    >>> kafkalog.sql('select count(*) as n from "p-multi" where partition = 0', "tests/golden/log_dir").fetchall()
    [(122,)]
    >>> kafkalog.sql('select count(*) from "p-txn" where key = ?', "tests/golden/log_dir", params=["A0"]).fetchall()
    [(1,)]
    """
    if isinstance(path, str) and " " in path and " " not in str(query):
        query, path = path, query  # as in the shell, in either order
    if not isinstance(query, str):
        raise TypeError(f"query must be SQL as text, not {query!r}: kafkalog.sql('select * from orders', path)")
    return QueryResult(Querying(path, on_decode_error=on_decode_error, **options), query, params)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names of columns; one that is there before gets a number that no other has.

    >>> distinct_names(["name", "name", "name_1", "x"])
    ['name', 'name_2', 'name_1', 'x']
    """
    taken = set(names)
    distinct: list[str] = []
    for name in names:
        new, number = name, 1
        while new in distinct or (new != name and new in taken):
            new, number = f"{name}_{number}", number + 1
        distinct.append(new)
    return distinct


def _spellings(query: str) -> dict[str, set[str]]:
    """The words of a query that may be names of tables, by their text in lower case."""
    spellings: dict[str, set[str]] = {}
    for word in {word for pair in _WORDS.findall(query) for word in pair if word}:
        spellings.setdefault(word.lower(), set()).add(word)
    return spellings


def _columns_of(scan: Scan) -> dict[str, frozenset[tuple[str, ...]]]:
    """The columns of a table in lower case, each with the fields in it that are JSON text."""
    columns: dict[str, frozenset[tuple[str, ...]]] = {name.lower(): frozenset() for name in scan.schema.names}
    for name, *path in scan.mixed_paths:
        columns[name.lower()] |= {tuple(part.lower() for part in path)}
    return columns


def _field_paths(schema: pa.Schema) -> list[str]:
    """The columns of a table, and the fields of its structs, as a query names them."""
    paths: list[str] = []
    for column in schema:
        paths.append(column.name)
        if pa.types.is_struct(column.type):
            paths += [f"{column.name}.{field.name}" for field in column.type]
    return paths


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def as_arrow(result: Any) -> Any:
    """A relation with text for types that Arrow's files do not have."""
    texts = [bool(_NOT_IN_FILES.search(str(kind))) for kind in result.types]
    if not any(texts):
        return result
    quoted = [_quoted(name) for name in result.columns]
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
