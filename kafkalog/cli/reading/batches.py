"""`kafkalog batches`: prints the batch table, or a summary of it, from batch headers alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import (
    ScanReporter,
    is_quarantine,
    note_if_nothing_matches,
    path_of,
    quarantined_rows,
    reported,
    usage_errors,
)
from kafkalog.cli.terminal import shown_table, terminal_width
from kafkalog.cli.text import escape_line, iso_times

if TYPE_CHECKING:
    from kafkalog.scanning.batch_scan import BatchRows
    from kafkalog.scanning.batch_summary import BatchCounts, BatchSummary

COMMAND: Final = Command(
    description="""\
List record batches, a line each, in the order of topic, partition and offset.

With --summary, print a line per producer, codec and message format instead, with the largest share of bytes first. It
shows which producers send small, large, uncompressed or transactional batches. Percentiles of sizes are exact to 1.6 %.

The command reads batch headers only: it decodes and decompresses nothing, and checks no checksum. It reports and skips
damaged headers by default (--on-corruption), and then exits with 1.

Columns: topic, partition, segment (file name), position, size_in_bytes, base_offset, last_offset,
partition_leader_epoch, magic, crc, attributes, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence, records_count, control_type, codec, timestamp_type, is_transactional, is_control, delete_horizon_ms,
compression. A missing value is -, or -1 with --json. The base_offset and records_count of a compressed v0 or v1 message
are missing, because they are inside the compressed data. With --json, timestamps are milliseconds.""",
    examples="""\
  kafkalog batches orders-0 -n 20
  kafkalog batches /var/lib/kafka -t orders --summary
  kafkalog batches /var/lib/kafka --summary --by topic,compression
  kafkalog batches orders-0 --columns base_offset,size_in_bytes,records_count
  kafkalog batches /var/lib/kafka --json | jq -c 'select(.size_in_bytes > 1000000)'""",
    options="""
which batches:
  @selection
  @limit lines
  --start-offset OFFSET    batches that may hold this offset or a later one
  --end-offset OFFSET      batches that may hold an offset before this
output:
  --json             one object a line, with all columns or those of --columns
  --columns C,...    only these columns, in this order
  --summary          a line per producer, codec and message format
  --by C,...         group --summary by these columns (default: producer_id,compression,magic); also topic, partition,
                     segment, partition_leader_epoch, producer_epoch, timestamp_type, is_transactional, is_control
reading:
  @on_corruption skip
  @limits
""",
    needs={"by": "summary"},
)

TEXT_COLUMNS: Final = (
    "topic",
    "partition",
    "segment",
    "position",
    "size_in_bytes",
    "base_offset",
    "last_offset",
    "records_count",
    "magic",
    "compression",
    "max_timestamp",
    "producer_id",
    "is_transactional",
    "is_control",
)
_LEAST: Final = (
    *("segment", "is_transactional", "is_control", "magic", "position", "producer_id", "max_timestamp", "compression"),
    *("last_offset", "size_in_bytes", "topic", "partition"),
)
"""What a terminal goes without, the first one first."""
_LEAST_OF_SUMMARY: Final = ("P99", "P90", "P50", "MIN", "MAX", "CONTROL", "IDEMPOTENT", "TRANSACTIONAL", "BYTES/BATCH")
_TIMESTAMPS: Final = ("base_timestamp", "max_timestamp", "delete_horizon_ms")
_LEFT: Final = ("topic", "segment", "compression", "control_type", *_TIMESTAMPS)
_ALWAYS: Final = ("position", "size_in_bytes", "crc", "attributes", "magic", "codec", "partition")


def run(args: argparse.Namespace, console: Console) -> None:
    """List batches, or print a summary."""
    if args.columns is not None and args.summary:
        raise UsageError("--columns does not work with --summary; use --by to group")
    with usage_errors():
        from kafkalog.scanning.batch_scan import BATCH_COLUMNS, BatchScan, batch_schema

        columns = args.columns or (BATCH_COLUMNS if console.is_json else TEXT_COLUMNS)
        if is_quarantine(args):
            batch_schema(columns)
            _print(quarantined_rows(args), columns, args.limit, console)
            return
        options = chosen(args, "topics", "partitions", "start_offset", "end_offset", "on_corruption", "limits")
        scan = BatchScan(path_of(args), columns=columns, **options)
        if args.summary:
            from kafkalog.scanning.batch_summary import DEFAULT_KEYS, BatchSummary

            summary = BatchSummary(args.by or DEFAULT_KEYS)
    any_matches = note_if_nothing_matches(args, scan, console)
    if not args.summary:
        with reported(scan, console, "headers") as reporter:
            n_printed = _print(scan.iter_rows(), columns, args.limit, console, reporter)
        if any_matches and not n_printed and args.limit != 0 and not scan.findings:
            console.note("no batches match; kafkalog ls lists the offsets of each partition")
        return
    try:
        with reported(scan, console, "headers"):
            for rows in scan.iter_rows():
                summary.add(rows)
    finally:
        # also after an error: the counts up to the damage are useful
        console.show(summary.objects(args.limit), _summary_lines(summary, args.limit))
    if summary.n_unlisted:
        console.note(f"others: {summary.n_unlisted:,} batches, of groups after the first {len(summary):,}")


def _print(
    found: Iterable[BatchRows],
    columns: Sequence[str],
    left: int | None,
    console: Console,
    reporter: ScanReporter | None = None,
) -> int:
    """Print the batches, and return how many they were."""
    n_printed = 0
    # columns that were named are all shown, however narrow the terminal
    text = _TextTable(columns, terminal_width() if columns is TEXT_COLUMNS else None)
    for rows in found:
        if reporter is not None:
            reporter.look()
        if left is not None:
            rows = rows._replace(batches=rows.batches[:left])
            left -= len(rows.batches)
        n_printed += len(rows.batches)
        console.show(_objects(rows, columns), text.lines(rows))
        if left == 0:
            break
    console.show((), text.header())
    return n_printed


def _objects(rows: BatchRows, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    cells = [_values(name, rows) for name in columns]
    for row in zip(*cells, strict=True):
        yield dict(zip(columns, row, strict=True))


def _values(name: str, rows: BatchRows) -> list[Any]:
    """Return a column as Python numbers, strings and booleans."""
    from kafkalog.column_names import CONTEXT_COLUMNS
    from kafkalog.scanning.batch_scan import batch_column

    if name in CONTEXT_COLUMNS:
        topic, partition = rows.topic_partition or (None, None)
        return [{"topic": topic, "partition": partition, "segment": rows.segment}[name]] * len(rows.batches)
    values: list[Any] = batch_column(name, rows.batches).tolist()
    return values


def _summary_lines(summary: BatchSummary, n: int | None) -> Iterator[str]:
    """A table of the groups, the largest first, and the total."""
    from kafkalog.scanning.batch_summary import PERCENTILES

    total = summary.total()
    if not total.n_batches:
        yield "total: 0 batches"
        return
    header = [*map(str.upper, summary.keys), "BATCHES", "RECORDS", "BYTES", "SHARE", "RECORDS/BATCH", "BYTES/BATCH"]
    header += ["MIN", *(f"P{percent}" for percent in PERCENTILES), "MAX", "TRANSACTIONAL", "IDEMPOTENT", "CONTROL"]
    shown = summary.largest(n)
    rows = [header, *(_summary_cells(key, group, total.n_bytes) for key, group in shown)]
    blank = [""] * (len(summary.keys) - 1)
    if n_more := len(summary) - len(shown) + bool(summary.n_unlisted):
        rest = summary.total(without=[key for key, _ in shown])
        rows.append(_summary_cells((f"{n_more:,} others", *blank), rest, total.n_bytes))
    rows.append(_summary_cells(("total", *blank), total, total.n_bytes))
    yield from shown_table(
        rows, [*[False] * len(summary.keys), *[True] * (len(header) - len(summary.keys))], _LEAST_OF_SUMMARY
    )


def _summary_cells(key: tuple[Any, ...], group: BatchCounts, all_bytes: int) -> list[str]:
    from kafkalog.scanning.batch_summary import PERCENTILES

    mean = group.records_a_batch
    return [
        *map(_key_text, key),
        f"{group.n_batches:,}",
        f"{'>=' if group.n_hidden else ''}{group.n_records:,}",
        f"{group.n_bytes:,}",
        f"{group.n_bytes / all_bytes:.1%}",
        "?" if mean is None and group.n_hidden else "-" if mean is None else f"{mean:,.1f}",
        f"{group.n_bytes / group.n_batches:,.0f}",
        f"{group.smallest:,}",
        *(f"{group.percentile(percent):,}" for percent in PERCENTILES),
        f"{group.largest:,}",
        *(f"{n:,}" for n in (group.n_transactional, group.n_idempotent, group.n_control)),
    ]


def _key_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, -1) else escape_line(str(value))


class _TextTable:
    """Formats lines with aligned columns; columns grow wider as longer values come.

    With the width of a terminal, the columns of `_LEAST` are left out in turn while lines are wider.
    """

    def __init__(self, columns: Sequence[str], terminal: int | None) -> None:
        self._columns, self._terminal, self._headed = columns, terminal, ""
        # lines are printed as they come: the widest value of all is not known yet
        self._widths = {name: max(len(name), _WIDTHS.get(name, 0)) for name in columns}

    def header(self) -> Iterator[str]:
        """Yield the line with the column names, unless the last one had the same."""
        if (line := self._line({name: name for name in self._shown()})).split() != self._headed.split():
            self._headed = line
            yield line

    def lines(self, rows: BatchRows) -> Iterator[str]:
        """Yield a line for each row, and the column names before the first one."""
        cells = {name: _cells(name, rows) for name in self._columns}
        for name, column in cells.items():
            self._widths[name] = max(self._widths[name], max(map(len, column), default=0))
        yield from self.header()
        shown = self._shown()
        for row in zip(*(cells[name] for name in shown), strict=True):
            yield self._line(dict(zip(shown, row, strict=True)))

    def _shown(self) -> list[str]:
        """The columns that fit."""
        shown = [*self._columns]
        for name in _LEAST:
            if self._terminal is None or sum(self._widths[one] + 2 for one in shown) - 2 <= self._terminal:
                break
            shown.remove(name)
        return shown

    def _line(self, cells: Mapping[str, str]) -> str:
        parts = [
            cell.ljust(self._widths[name]) if name in _LEFT else cell.rjust(self._widths[name])
            for name, cell in cells.items()
        ]
        return "  ".join(parts).rstrip()


_WIDTHS: Final = {"segment": 24, "topic": 12, "base_timestamp": 24, "max_timestamp": 24, "delete_horizon_ms": 24}


def _cells(name: str, rows: BatchRows) -> list[str]:
    """Return a column as text, ``-`` for no value."""
    from kafkalog.format import TIMESTAMP_TYPE_NAMES, ControlRecordType
    from kafkalog.scanning.batch_scan import batch_column

    if name in _TIMESTAMPS:
        return iso_times(batch_column(name, rows.batches))
    values = _values(name, rows)
    if name == "timestamp_type":
        return [TIMESTAMP_TYPE_NAMES[value] for value in values]
    if name == "control_type":
        known = {kind.value: kind.name for kind in ControlRecordType}
        return ["-" if value == -1 else known.get(value, f"unknown({value})") for value in values]
    absent = (None,) if name in _ALWAYS else (None, -1)
    if any(isinstance(value, bool) for value in values[:1]):
        return ["yes" if value else "-" for value in values]
    return ["-" if value in absent else escape_line(str(value)) for value in values]
