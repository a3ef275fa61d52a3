"""`kafkalog cat`: prints records as text for people, or as JSON lines for programs."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import ENCODING_HELP, FILTER_HELP, Command
from kafkalog.cli.scan_options import (
    ScanReporter,
    is_quarantine,
    note_base64,
    note_if_nothing_matches,
    path_of,
    quarantined_scans,
    record_columns_of,
    reported,
    scan_options,
    usage_errors,
)
from kafkalog.cli.terminal import is_pipe
from kafkalog.cli.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog.cli.reading.record_text import RecordFormat
    from kafkalog.scanning.scan import Scan

COMMAND: Final = Command(
    description=f"""\
Print records in the order of topic, partition and offset, a line each:

  orders-0@42  2026-11-21T08:00:00.000Z  key="k1" value="{{\\"id\\": 7}}" headers={{trace="ab", n=null}}

Valid UTF-8 is shown as text, with unprintable characters escaped (\\n, \\", \\\\, \\xff). An empty value is "", and a
missing timestamp is -. A terminal shows long values shortened; --full shows all of them.

With --json, each line is an object. Timestamps are milliseconds: null for a v0 record, -1 for a missing timestamp.
Headers are lists of [name, value]. Keys and values are base64 unless --encoding changes that.

Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers (the default); leader_epoch,
producer_id, producer_epoch, sequence, is_transactional, is_control, compression, batch_base_offset, batch_position,
segment; headers.NAME is the value of the last header of that name. With --value-format or --key-format also fields such
as value.customer.id, and value_error and value_bytes: the reason why a value did not decode, and its bytes.

{FILTER_HELP}

--explain prints no records. It shows how many partitions, segments, bytes and batches exist and how many this command
would read, with the condition that excludes the others. It reads batch headers only.

By default, cat also prints records of aborted and open transactions. --isolation-level read_committed prints the
records that a consumer of that level gets. It leaves out aborted ones, and ends a partition at its earliest open
transaction, with a note. If damage hides the outcome of a transaction, --on-corruption decides.""",
    examples="""\
  kafkalog cat /var/lib/kafka -t orders -p 0,3 -n 20
  kafkalog cat orders-0 --start-offset 1000 --end-offset 1100 --full
  kafkalog cat /backup/kafka -t 'orders.*' -T '*-changelog' --start-timestamp -1h --json --encoding utf8 | jq .value
  kafkalog cat orders-0 --tail 5
  kafkalog cat /var/lib/kafka -t orders --tail 0 --follow --json
  kafkalog cat orders-0 --isolation-level read_committed
  kafkalog cat /backup/kafka -t orders --filter 'key == user-42' --filter 'headers has trace-id'
  kafkalog cat orders-0 --value-format json --columns offset,value.customer.id --filter 'value.total > 100'
  kafkalog cat damaged-0 --on-corruption skip --json > intact.jsonl
  kafkalog cat __consumer_offsets-7 --columns offset,key,producer_id --include-control""",
    options=f"""
  --tail N        only the last N records of each partition (-n N: the first N of all)
  -f --follow     after the last record, wait for records that a running broker appends, until Ctrl-C; see --tail
  @scan_selection
output:
  --json             one object a line
  --explain          print how much would be read, and why, instead of records
  --columns C,...    only these columns, in this order
  @encoding {ENCODING_HELP}
  --full             do not shorten long values on a terminal
  @decoding
  @scan_reading
""",
    needs={"encoding": "json"},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print records."""
    if args.tail is not None and args.limit is not None:
        from kafkalog.scanning.options import first_or_last

        raise UsageError(first_or_last("-n", "--tail"))
    record_format = _record_format(args, console)
    needed = list(record_format.columns)
    if args.follow:
        _follow(args, needed, record_format, console)
        return
    if is_quarantine(args):
        _print_quarantined(args, record_format, console)
        return
    with usage_errors():
        from kafkalog.scanning.scan import Scan

        scan = Scan(path_of(args), columns=needed, **scan_options(args))
        if not args.explain and args.tail is None:
            _ = scan.schema  # a field that no value has is a usage error
    if args.explain:
        explanation = scan.explain()
        console.show([explanation], str(explanation).split("\n"))
        return
    any_matches = note_if_nothing_matches(args, scan, console)
    from kafkalog.values.decoding import DecodeWarning

    warnings.simplefilter("ignore", DecodeWarning)  # the console reports the findings instead
    # at a terminal the records themselves show the progress
    with reported(scan, console, None if sys.stdout.isatty() else "records") as reporter:
        n_printed = _print(scan, record_format, args.tail, reporter, console)
    note_base64(args, record_format.columns, n_printed, console)
    _note_tails(args, scan, console)
    explained = any(one.damage or one.reason == "segment_missing" for one in scan.findings)
    if any_matches and not n_printed and 0 not in (args.tail, args.limit) and not explained:
        console.note("no records match; kafkalog ls lists the offsets and times of each partition")


def _note_tails(args: argparse.Namespace, scan: Scan, console: Console) -> None:
    """Print a note that --tail counts in each partition, if there are several."""
    n = sum(1 for _ in scan.partitions()) if args.tail else 0
    if n > 1:
        console.note(f"the last {counted(args.tail, 'record')} of each of {n} partitions")


def _record_format(args: argparse.Namespace, console: Console) -> RecordFormat:
    from kafkalog.cli.reading.record_text import CUT_AT, TextFormat
    from kafkalog.interchange.text_output import JsonLines
    from kafkalog.values.options import WITH_FIELDS

    if console.is_json:
        return JsonLines(record_columns_of(args), encoding=args.encoding or "base64")
    if args.value_format in WITH_FIELDS and not args.columns and is_pipe(sys.stdout):
        console.note("these are lines of text; --json prints JSON lines, as jq reads them")
    # never in a pipe, where a cut value would pass for a whole one
    cut_at = CUT_AT if sys.stdout.isatty() and not args.full else None
    return TextFormat(args.columns, include_control=args.include_control, cut_at=cut_at)


def _print_quarantined(args: argparse.Namespace, record_format: RecordFormat, console: Console) -> None:
    """Print the records of quarantine files."""
    if args.explain or args.tail is not None:
        raise UsageError("of quarantine files all records are printed, or the first ones (-n)")
    with usage_errors():
        for scan in quarantined_scans(args, list(record_format.columns)):
            with reported(scan, console) as reporter:
                _print(scan, record_format, None, reporter, console)


def _follow(args: argparse.Namespace, columns: list[str], record_format: RecordFormat, console: Console) -> None:
    """Print existing records, or the last ones, then appended records, until Ctrl-C."""
    from kafkalog.scanning.following import follow
    from kafkalog.values.decoding import DecodeWarning

    if args.explain or args.limit is not None:
        raise UsageError("--follow has no end: --explain and -n do not go with it; --tail N begins N records before it")
    options, tail = {**scan_options(args), "columns": columns}, args.tail
    warnings.simplefilter("ignore", DecodeWarning)
    with usage_errors():
        scans = follow(path_of(args), **options)
        first = next(scans, None)
    while first is not None:
        with reported(first, console) as reporter:
            _print(first, record_format, tail, reporter, console)
        console.flush()
        tail, first = None, next(scans)


def _print(scan: Scan, record_format: RecordFormat, tail: int | None, reporter: ScanReporter, console: Console) -> int:
    """Print records to stdout, and findings to stderr as they come. Return the number of records."""
    n_printed = 0
    stream: Iterator[pa.RecordBatch] = iter(()) if tail is not None else scan.to_batches()
    try:
        for batch in scan.tail(tail).to_batches() if tail is not None else stream:
            reporter.look()
            console.write(record_format.lines(batch))
            n_printed += batch.num_rows
        reporter.look()
    finally:
        if tail is None:
            # threads that read ahead would go on until the generator is collected
            cast(Any, stream).close()
    return n_printed
