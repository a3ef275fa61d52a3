"""`kafkalog sql`: runs a query over topics as tables."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command
from kafkalog.cli.scan_options import hint_at_skip, path_of, scan_options, usage_errors
from kafkalog.cli.terminal import query_table, terminal_width
from kafkalog.cli.text import counted, escape_line
from kafkalog.column_names import DEFAULT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

COMMAND: Final = Command(
    description="""\
Run an SQL query over a log with DuckDB (pip install 'kafkalog[sql]').

Each topic is a table, and the table records has all topics but the internal ones, unless a topic has that name. Put a
name with a dot or a hyphen in double quotes, and so the column "offset", which is a word of SQL.

The columns are those of 'kafkalog cat'; a value with fields is a struct, with fields such as value.total. Without
--value-format and --key-format, kafkalog detects formats from the first records of a topic: JSON, Avro or Protobuf with
schemas in _schemas, text, or bytes. Values that do not decode are null, are counted, and make the exit code 1, unless
--on-decode-error accepts them.

DuckDB ignores case. Topics whose names differ by nothing else are tables with a number, such as "Orders#1"; an error
lists them. If a query gives two columns the same name, the second one gets a number, as name_1.

Conditions on topic, partition, offset and timestamp, and the options below, skip batches without reading them.""",
    examples="""\
  kafkalog sql 'select value.customer, sum(value.total) from orders group by all' /var/lib/kafka
  kafkalog sql 'select count(*) from "orders.eu" where value.total > 10' /backup/kafka --start-timestamp end-1h
  kafkalog sql 'select o."offset", c.value.name from orders o join customers c on o.key = c.key' /backup/kafka --json
  kafkalog sql 'select topic, count(*), max("offset") from records group by all' /backup/kafka
  kafkalog sql 'select * from orders' /backup/kafka -o orders.parquet""",
    options="""
  -c --command:command_text QUERY    the query, instead of the first argument
output:
  | --json              one object a line, per row (default: a table on a terminal, tabs between columns elsewhere)
  | --csv               CSV with a header line
  | -o --output FILE    write a .parquet, .arrow, .csv or .jsonl file
  @encoding encoding of bytes, except in Parquet and Arrow (default: utf8, with {"base64": ...} for other bytes)
  @on_decode_error
  @decoding
  @scan_selection
  @scan_reading
""",
    paths=(
        "QUERY PATH",
        "an SQL query; log dirs or partition directories",
        "The query comes before or after one or more log dirs; - reads it from stdin. The command never changes them.",
    ),
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Run the query, and print or write its rows."""
    query = args.command_text if args.command_text is not None else _query_of(args)
    if not args.paths:
        raise UsageError(f"expected a query and at least one PATH: {_with_path(query)}")
    if args.topics:
        raise UsageError("remove -t and -T: the query names the topics")
    from kafkalog.errors import CorruptionWarning
    from kafkalog.operations.querying import Querying
    from kafkalog.values.decoding import DecodeWarning

    with usage_errors(), hint_at_skip(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # findings have the same
        for category in (CorruptionWarning, DecodeWarning):
            warnings.simplefilter("ignore", category)
        querying = Querying(path_of(args), on_decode_error=args.on_decode_error, **scan_options(args))
        batches = querying.run(query)
        encoding = args.encoding or "utf8"
        nulls = _Nulls(looks_into_json="->" in query or "json" in query.lower())
        if args.output is not None:
            _write(nulls.of(batches), args.output, encoding, console)
        else:
            _print_rows(nulls.of(batches), console, encoding, as_json=console.is_json, as_csv=args.csv)
        if note := nulls.note:
            console.note(note)
    for text in dict.fromkeys(str(one.message) for one in caught):
        console.note(text)
    console.findings(querying.findings)
    console.undecoded(querying.n_undecoded, args)


class _Nulls:
    """Counts rows, and finds columns that are null in all of them: a wrong name in a path into JSON is no error."""

    def __init__(self, looks_into_json: bool) -> None:
        self._looks_into_json = looks_into_json
        self._n_rows = 0
        self._names: list[str] | None = None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and count."""
        for batch in batches:
            self._n_rows += len(batch)
            if len(batch):
                columns = zip(batch.schema.names, batch.columns, strict=True)
                empty = [name for name, column in columns if column.null_count == len(column)]
                self._names = empty if self._names is None else [name for name in self._names if name in empty]
            yield batch

    @property
    def note(self) -> str:
        """A text about no rows, or about columns that are null; empty without any."""
        if not self._n_rows:
            return "no rows match the query"
        names = [name for name in self._names or () if name not in DEFAULT_COLUMNS and self._looks_into_json]
        return f"{', '.join(names)}: null in {counted(self._n_rows, 'row')}" if names else ""


def _query_of(args: argparse.Namespace) -> str:
    """Take the query out of the paths: the first argument, or the last one if that is no path, as in other tools."""
    last = str(args.paths[-1])
    is_last = len(args.paths) > 1 and os.path.exists(args.paths[0]) and re.search(r" |^[.\\]", last) is not None
    query = str(args.paths.pop(-1 if is_last and not os.path.exists(last) else 0))
    if query == "-":
        return sys.stdin.read()
    if os.path.exists(query):
        of_file = "" if sys.stdin.isatty() else f"; kafkalog sql - {query} reads it from stdin"
        raise UsageError(f"{query} is a path: expected a query, such as 'select * from orders'{of_file}")
    return _of_shell(query)


def _with_path(query: str) -> str:
    """The command line for a query that has the path in it, as DuckDB has those of files; or else an example."""
    from kafkalog.cli.typed import shown

    named = re.findall(r"'[^']+'|\bfrom ([\"']?[\w./-]+[\"']?)", query, re.IGNORECASE)
    for text in [*re.findall(r"'[^']+'", query), *named]:
        if os.path.exists(path := text.strip("'\"")):
            return f"kafkalog {shown(['sql', query.replace(text, 'records'), path])}"
    return "kafkalog sql 'select * from orders' /var/lib/kafka"


def _of_shell(query: str) -> str:
    """A query, or one for a command of the shells of DuckDB, SQLite and PostgreSQL; UsageError for other commands."""
    found = re.fullmatch(r"(\.\w+|\\\w+)\s*(\S*)", query)
    if found is None:
        return query
    if found[1] in (".tables", ".schema", "\\dt", "\\d", "\\l", ".databases"):
        return f'describe "{found[2]}"' if found[2] and found[1] in (".schema", "\\d") else "show tables"
    raise UsageError(
        f"{found[1]} is no query: expected one such as 'select * from orders', 'show tables' or 'describe orders'"
    )


def _print_rows(
    batches: Iterable[pa.RecordBatch], console: Console, encoding: str, *, as_json: bool, as_csv: bool
) -> None:
    """Print rows of any types: with tabs between columns, as JSON, or as CSV."""
    from kafkalog.interchange.text_output import CsvRows, encode_json, encoded_values

    names: list[str] | None = None
    line = CsvRows().row if as_csv else _line
    if terminal_width() is not None and not as_json and not as_csv:
        _print_tables(batches, console, encoding)
        return
    for batch in batches:
        if names is None:
            names = batch.schema.names
            if not as_json:
                console.write(line(names))
        columns = [encoded_values(column, encoding, is_json=as_json) for column in batch.columns]
        if as_json:
            rows = zip(*map(_whole_numbers, batch.columns, columns), strict=True)
            console.write("".join(f"{encode_json(dict(zip(names, row, strict=True)))}\n" for row in rows))
        else:
            console.write("".join(map(line, _cells(columns))))


def _print_tables(batches: Iterable[pa.RecordBatch], console: Console, encoding: str) -> None:
    """Print rows to a terminal as tables, a page of rows at a time."""
    from kafkalog.interchange.text_output import encoded_values

    for page in _pages(batches):
        columns = [encoded_values(column, encoding, is_json=False) for column in page.columns]
        texts = [*map(_texts, _cells(columns))]
        right = [_is_number(column.type) for column in page.columns]
        lines = query_table(_texts(page.schema.names), texts, right, terminal_width() or 80)
        console.write("".join(f"{line}\n" for line in [*lines, f"({counted(len(texts), 'row')})"]))


def _cells(columns: Iterable[Sequence[Any]]) -> Iterator[list[str | None]]:
    """The rows of encoded columns as text: what is no text is JSON."""
    from kafkalog.interchange.text_output import encode_json

    for row in zip(*columns, strict=True):
        yield [one if one is None or isinstance(one, str) else encode_json(one) for one in row]


_PAGE: Final = 10_000


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches to pages of rows, of which a terminal gets a table each."""
    page: list[pa.RecordBatch] = []
    for batch in batches:
        if sum(len(one) for one in page) + len(batch) > _PAGE and any(map(len, page)):
            yield _joined(page)
            page = []
        page.append(batch)
    yield _joined(page)


def _joined(page: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    table = pa.Table.from_batches(page).combine_chunks()
    return table.to_batches()[0] if len(table) else page[0]


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _whole_numbers(column: pa.Array, cells: list[Any]) -> list[Any]:
    """The cells of a column as numbers, if these are whole: sums of such numbers are of 128 bits."""
    import pyarrow.types as pt

    is_whole = pt.is_decimal(column.type) and column.type.scale == 0
    return [one if one is None else int(one) for one in cells] if is_whole else cells


def _line(cells: Iterable[str | None]) -> str:
    """A row with tabs between cells."""
    return "\t".join(_texts(cells)) + "\n"


def _texts(cells: Iterable[str | None]) -> list[str]:
    return ["null" if one is None else escape_line(one.translate(_ESCAPED)) for one in cells]


_ESCAPED: Final = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r", ord("\\"): "\\\\"}


def _write(batches: Iterator[pa.RecordBatch], output: str, encoding: str, console: Console) -> None:
    from kafkalog.cli.text import human_bytes
    from kafkalog.interchange.file_types import SUFFIXES, TEXT_FORMATS, check_name, file_type
    from kafkalog.interchange.record_writers import OutputFormat
    from kafkalog.interchange.text_output import text_of_bytes
    from kafkalog.storage.staging import staged_file

    format, packed = file_type(output)
    if format is None:
        raise UsageError(f"{output}: unknown format; the file name must end in {SUFFIXES}")
    check_name(output)
    first = next(batches)
    how = OutputFormat(format, packed, encoding=encoding) if format in TEXT_FORMATS else OutputFormat(format)
    if format == "csv":
        first, batches = text_of_bytes(first, encoding), (text_of_bytes(batch, encoding) for batch in batches)
    with staged_file(output, parents=True) as file:
        sink = how.open(file, first.schema)
        try:
            for batch in batches:
                sink.write(batch)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
    console.note(f"{counted(sink.n_records, 'row')}, {human_bytes(sink.n_bytes)}, written to {output}")
