"""`kafkalog index-stats`: measures the sparse indexes, and estimates the effect of other settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen, n_bytes
from kafkalog.cli.scan_options import hint_at_skip, note_if_nothing_matches, path_of, report_error, usage_errors
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import counted, escape_line, human_bytes
from kafkalog.errors import KafkalogError, OutputExistsError, Reason

if TYPE_CHECKING:
    from kafkalog.indexes.measures import IndexMeasures
    from kafkalog.indexes.statistics import IndexStatistics, PartitionMeter
    from kafkalog.scanning.batch_scan import BatchScan


def _intervals(text: str) -> list[int]:
    found = list(dict.fromkeys(n_bytes(part) for part in text.split(",") if part.strip()))
    if not found or max(found) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected numbers of bytes below 2G, not {text!r}")
    return found


COMMAND: Final = Command(
    description="""\
Measure the sparse indexes of partitions, a line per partition (with -s, per segment). A lookup takes the last index
entry at or below its offset and skips batches from there. With fewer entries it skips more bytes; more entries take
more disk and page cache.

  ENTRIES, TIME    entries of the offset and the time index
  /MIB             offset index entries per MiB of log
  MEAN P50 P99 MAX gaps between entries in bytes, with segment start and end; percentiles are exact to 1.6 %
  SCAN             mean bytes that a lookup of an offset skips before its batch
  WORST            largest number of bytes that a lookup of an offset skips
  INDEX/LOG        size of both indexes relative to the log, without preallocated zeros

--what-if computes the same for indexes with other values of index.interval.bytes. It writes nothing.

The command reads batch headers only, and checks no checksum. An index that leads a lookup past its batch is damage and
is not measured; 'kafkalog lookup' shows the details.""",
    examples="""\
  kafkalog index-stats /var/lib/kafka -t orders
  kafkalog index-stats -s orders-0
  kafkalog index-stats orders-0 --what-if 512,4096,65536
  kafkalog index-stats orders-0 --plot orders.svg
  kafkalog index-stats --json /var/lib/kafka | jq -c '[.topic, .partition, .index.worst_scan]'""",
    options="""
which partitions:
  @selection
measurements:
  --what-if N,...    also measure indexes with these index.interval.bytes
output:
  -s --segments    a line per segment
  --json           one object a line, with all numbers
  --plot FILE      draw the gaps of all partitions to FILE, which ends in .svg, .png or .pdf
  --overwrite      replace FILE
reading:
  @on_corruption skip
  @limits
""",
    types={"what_if": _intervals},
)

_HEADER: Final = ["BYTES", "ENTRIES", "TIME", "/MIB", "MEAN", "P50", "P99", "MAX", "SCAN", "WORST", "INDEX/LOG"]
_LEAST: Final = ("/MIB", "P50", "MAX", "TIME", "SCAN", "P99", "MEAN")


def run(args: argparse.Namespace, console: Console) -> None:
    """Measure, and print the results."""
    with usage_errors():
        from kafkalog.indexes.statistics import PartitionMeter
        from kafkalog.scanning.batch_scan import BatchScan

        scan = BatchScan(path_of(args), **chosen(args, "topics", "partitions", "on_corruption", "limits"))
    if args.plot is not None:
        _check_picture(args)
    note_if_nothing_matches(args, scan, console)
    total = PartitionMeter(args.paths[0], None, args.what_if or ())
    shown: list[IndexStatistics] = []
    try:
        with hint_at_skip():
            for statistics in _measure(scan, total, args, console):
                rows = statistics.segments if args.segments else (statistics,)
                console.show((_fields(row, args) for row in rows), ())
                shown.append(statistics)
    finally:
        console.progress.close()
        console.show((), _text(shown, total.statistics(), args))
    if args.plot is not None:
        name = args.paths[0] if len(shown) == 1 else f"{len(shown):,} partitions of {args.paths[0]}"
        _write_picture(args, total.statistics(), str(shown[0].topic_partition or name) if len(shown) == 1 else name)


def _measure(
    scan: BatchScan, total: PartitionMeter, args: argparse.Namespace, console: Console
) -> Iterator[IndexStatistics]:
    """Yield the partitions, and add them to the total; report one that cannot be read to its end."""
    if console.shows_progress:
        console.start_progress(sum(partition.size_in_bytes for _, partition in scan.partitions()), "headers")
    console.findings(getattr(scan.target, "findings", ()))
    n_said = len(scan.findings)
    for _, partition in scan.partitions():
        console.findings(scan.findings[n_said:])
        n_said = len(scan.findings)
        try:
            yield partition.index_statistics(
                what_if=args.what_if or (),
                on_corruption=args.on_corruption,
                report=lambda finding: console.findings([finding]),
                progress=console.progress.advance,
                totals=total,
            )
        except KafkalogError as error:
            if args.on_corruption == "raise" and error.reason is not Reason.PARTITION_REMOVED:
                raise
            report_error(error, scan.target, console)
    console.findings(scan.findings[n_said:])  # partitions that could not be opened


def _check_picture(args: argparse.Namespace) -> None:
    """Raise early if the file of ``--plot`` cannot be written."""
    from kafkalog.indexes.plot import FORMATS, import_matplotlib
    from kafkalog.storage.output_paths import check_outside

    if not args.plot.lower().endswith(FORMATS):
        raise UsageError(f"--plot: the name of FILE ends in .svg, .png or .pdf, not {args.plot}")
    try:
        import_matplotlib()
    except ModuleNotFoundError as error:
        raise UsageError(f"--plot: {error}") from None
    check_outside(args.plot, args.paths)
    if not args.overwrite and os.path.lexists(args.plot):
        raise OutputExistsError.at(args.plot, is_replaceable=True)


def _write_picture(args: argparse.Namespace, statistics: IndexStatistics, name: str) -> None:
    from kafkalog.indexes.plot import draw
    from kafkalog.storage.staging import staged_file

    with usage_errors():
        picture = draw(statistics, escape_line(name), os.path.splitext(args.plot)[1].lower())
    with staged_file(args.plot, overwrite=args.overwrite, parents=True) as file:
        file.write(picture)


def _fields(statistics: IndexStatistics, args: argparse.Namespace) -> dict[str, Any]:
    fields = statistics.as_dict()
    if not args.what_if:
        del fields["what_if"]
    return fields


def _text(shown: list[IndexStatistics], total: IndexStatistics, args: argparse.Namespace) -> Iterator[str]:
    rows = [row for one in shown for row in (one.segments if args.segments else (one,))]
    if not rows:
        return
    names = ["PARTITION", "SEGMENT"] if args.segments else ["PARTITION"]
    is_right = [False] * len(names) + [True] * (len(_HEADER) + 1)
    lines = [[*_names(row, args), *_cells(row, row.index)] for row in rows]
    yield from shown_table([[*names, *_HEADER], *lines], is_right[:-1], _LEAST)
    yield _sentence(total, len(shown))
    if args.what_if:
        yield ""
        lines = [
            [*_names(row, args), _number(measures.index_interval_bytes, none="as it is"), *_cells(row, measures)]
            for row in rows
            for measures in filter(None, (row.index, *row.what_if))
        ]
        yield from shown_table([[*names, "INTERVAL", *_HEADER], *lines], is_right, _LEAST)


def _names(row: IndexStatistics, args: argparse.Namespace) -> list[str]:
    name = escape_line(
        str(row.topic_partition or os.path.basename(os.path.dirname(row.path) if row.segment else row.path))
    )
    return [name, escape_line(row.segment or "")] if args.segments else [name]


def _cells(row: IndexStatistics, measures: IndexMeasures | None) -> list[str]:
    if measures is None:
        return [f"{row.size_in_bytes:,}", *["-"] * (len(_HEADER) - 1)]
    gaps = measures.gap_bytes
    return [
        f"{measures.size_in_bytes:,}",
        f"{measures.n_entries:,}",
        _number(measures.n_time_entries),
        _number(measures.entries_per_mib, 1),
        *(_number(value) for value in (gaps.mean, gaps.p50, gaps.p99, gaps.max)),
        _number(measures.expected_scan_by_offset),
        f"{measures.worst_scan:,}",
        "-" if measures.index_bytes_per_log_byte is None else f"{measures.index_bytes_per_log_byte:.3%}",
    ]


def _sentence(total: IndexStatistics, n: int) -> str:
    """Return the last line: the totals, and the cost of a lookup."""
    where = f"{counted(n, 'partition')}, {counted(total.n_segments, 'segment')}"
    parts = [f"total: {where}, {human_bytes(total.size_in_bytes)} of log"]
    measures = total.index
    if measures is None or measures.expected_scan_by_offset is None:
        parts.append("no index to measure")
    else:
        mean, worst = human_bytes(round(measures.expected_scan_by_offset)), human_bytes(measures.worst_scan)
        parts.append(f"a lookup passes over {mean} of log on average and {worst} at worst")
        parts.append(f"indexes of {human_bytes(measures.index_bytes)} add {measures.index_bytes_per_log_byte or 0:.3%}")
    if total.n_unindexed and measures is not None:
        parts.append(f"{total.n_unindexed:,} of the segments without an index that can be measured")
    return "; ".join(parts)


def _number(value: float | None, places: int = 0, none: str = "-") -> str:
    return none if value is None else f"{value:,.{places}f}"
