"""`kafkalog cat`: records as text for people, or as JSON lines for programs."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from kafkalog.cli.console import Console, prepare_stdout
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import (
    FILTER_HELP,
    Words,
    add_command,
    add_filters,
    add_limits,
    add_selection,
    count,
    flatten,
    make_limits,
    timestamp,
)
from kafkalog.errors import CorruptionError, CorruptionWarning, KafkalogError

if TYPE_CHECKING:
    from kafkalog.cli.records import RecordFormat
    from kafkalog.scanner import Scan

_WORDS: Final = Words(
    summary="print records, as text or as JSON lines",
    description=f"""\
Print records in the order of topic, partition and offset, a line each:

  orders-0@42  2026-11-21T08:00:00.000Z  key="k1" value="{{\\"id\\": 7}}" headers={{trace="ab", n=null}}

Bytes that are valid UTF-8 are shown as text; what does not print is escaped (\\n, \\", \\\\, \\xff), so that nothing is
lost; null is null and an empty value is "". At a terminal long values are cut, unless --full is given. A record without
a timestamp shows -.

With --json each line is an object of the columns asked for: timestamps in milliseconds (null for a v0 record, -1 where
a record has none), headers as a list of [name, value]; key and value in base64, or as --encoding says.

Columns: topic, partition, offset, timestamp, timestamp_type, key, value, headers (the default); leader_epoch,
producer_id, producer_epoch, sequence, is_transactional, is_control, compression, batch_base_offset, batch_position,
segment.

{FILTER_HELP}

--explain prints, instead of records, how many partitions, segments, bytes and batches there are and have to be read,
and what rules out the others; it reads batch headers only.

Transactions are not looked at: records of aborted and open ones are printed too.""",
    examples="""\
  kafkalog cat /var/lib/kafka -t orders -p 0,3 -n 20
  kafkalog cat orders-0 --start-offset 1000 --end-offset 1100 --full
  kafkalog cat /backup/kafka -t orders --start-timestamp 2026-11-21T08:00:00Z --json --encoding utf8 | jq .value
  kafkalog cat /backup/kafka -t orders --filter 'key == user-42' --filter 'headers has trace-id'
  kafkalog cat damaged-0 --on-corruption skip --json > intact.jsonl
  kafkalog cat __consumer_offsets-7 --columns offset,key,producer_id --include-control""",
)

_CUT_AT: Final = 160
_POSITION_COLUMNS: Final = ("topic", "partition", "segment", "batch_position")


def add_parser(commands: Any) -> None:
    """Tell the command line of the command."""
    parser = add_command(commands, "cat", _WORDS)
    what = parser.add_argument_group("which records")
    add_selection(what)  # type: ignore[arg-type]
    what.add_argument("-n", dest="n", metavar="N", type=count, help="only the first N records")
    what.add_argument("--start-offset", metavar="OFFSET", type=int, help="from this offset on")
    what.add_argument("--end-offset", metavar="OFFSET", type=int, help="up to this offset, which is not included")
    what.add_argument(
        "--start-timestamp", metavar="TIME", type=timestamp, help="not before this: ms, or ISO 8601 with Z or an offset"
    )
    what.add_argument("--end-timestamp", metavar="TIME", type=timestamp, help="before this")
    add_filters(what)  # type: ignore[arg-type]
    what.add_argument(
        "--include-control",
        action="store_true",
        help="also what brokers write for themselves: transaction markers, Raft's",
    )
    what.add_argument(
        "--include-deleted", action="store_true", help="also records below the log start offset that are still there"
    )
    how = parser.add_argument_group("how they are printed")
    how.add_argument("--json", action="store_true", help="an object a line")
    how.add_argument("--explain", action="store_true", help="no records, but what has to be read for them, and why")
    how.add_argument("--columns", metavar="C,...", help="only these columns, in this order")
    how.add_argument(
        "--encoding",
        choices=("base64", "utf8", "hex"),
        help='of bytes in JSON (default: base64); with utf8, bytes that are not valid become {"base64": ...}',
    )
    how.add_argument("--full", action="store_true", help="do not cut long values at a terminal")
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--on-corruption",
        choices=("raise", "stop", "skip"),
        default="raise",
        help="at damage: end with an error (default); end that partition there, as a broker would; or go on behind it",
    )
    reading.add_argument("--no-check-crcs", action="store_true", help="do not check checksums")
    reading.add_argument("--threads", metavar="N", type=int, help="threads that decode (default: one a CPU)")
    add_limits(reading)  # type: ignore[arg-type]
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print records."""
    if args.encoding is not None and not args.json:
        raise UsageError("--encoding is for --json; text shows bytes as text")
    from kafkalog.cli.records import JsonFormat, TextFormat

    columns = None if args.columns is None else [name.strip() for name in args.columns.split(",")]
    record_format: RecordFormat
    if args.json:
        record_format = JsonFormat(columns, encoding=args.encoding or "base64")
    else:
        cut_at = _CUT_AT if sys.stdout.isatty() and not args.full else None
        record_format = TextFormat(columns, include_control=args.include_control, cut_at=cut_at)
    prepare_stdout(is_json=args.json)
    with_progress = sys.stderr.isatty() and not sys.stdout.isatty() and not args.quiet and not args.explain
    scan = _scan(args, [*record_format.columns, *(_POSITION_COLUMNS if with_progress else ())], record_format.shown)
    starts = _starts(scan, console) if with_progress else {}
    if args.explain:
        _explain(scan, args.json, console)
        return
    if (args.topics or args.partitions) and next(scan.partitions(), None) is None:
        console.note("no partition matches")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)  # the findings are said instead
        _print(scan, record_format, starts, args.n, console)


def _scan(args: argparse.Namespace, columns: Sequence[str], shown: Sequence[str]) -> Scan:
    """The scan that was asked for, with columns beside those shown; what is wrong about an option is a usage error."""
    from kafkalog.scanner import Scan

    limits = make_limits(args.limits)
    beside = [name for name in dict.fromkeys(columns) if name not in shown]
    try:
        return Scan(
            args.paths[0] if len(args.paths) == 1 else args.paths,
            columns=[*shown, *beside],
            topics=flatten(args.topics),
            partitions=flatten(args.partitions),
            start_offset=args.start_offset,
            end_offset=args.end_offset,
            start_timestamp=args.start_timestamp,
            end_timestamp=args.end_timestamp,
            filters=args.filters,
            include_control=args.include_control,
            include_deleted=args.include_deleted,
            on_corruption=args.on_corruption,
            check_crcs=not args.no_check_crcs,
            threads=args.threads,
            limits=limits,
        )
    except KafkalogError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _explain(scan: Scan, is_json: bool, console: Console) -> None:
    explanation = scan.explain()
    console.write(json.dumps(explanation.as_dict(), default=str) + "\n" if is_json else f"{explanation}\n")


def _print(
    scan: Scan, record_format: RecordFormat, starts: dict[tuple[Any, ...], int], n: int | None, console: Console
) -> None:
    """Records to stdout, and what is found about the files to stderr as it is found."""
    n_said = 0
    stream = scan.to_batches()
    try:
        while n is None or n > 0:
            batch = next(stream, None)
            if scan.n_damage:
                console.findings(scan.findings[n_said:])
                n_said = len(scan.findings)
            if batch is None:
                break
            if n is not None:
                batch = batch.slice(0, n)
                n -= batch.num_rows
            console.write(record_format.lines(batch))
            if starts and batch.num_rows:
                last = batch.slice(batch.num_rows - 1).to_pylist()[0]
                key = (last["topic"], last["partition"], last["segment"])
                console.progress.reach(starts.get(key, 0) + last["batch_position"])
    except CorruptionError as error:
        error.add_note("--on-corruption skip would go on behind it")
        raise
    finally:
        cast(Any, stream).close()
        console.findings(scan.findings[n_said:])
        console.unkept_findings(scan.n_damage - sum(finding.damage for finding in scan.findings))


def _starts(scan: Scan, console: Console) -> dict[tuple[Any, ...], int]:
    """How many bytes lie before each segment, for the progress bar."""
    starts: dict[tuple[Any, ...], int] = {}
    total = 0
    for key, partition in scan.partitions():
        topic, number = (None, None) if key is None else key
        for segment in partition.segments:
            starts[topic, number, segment.path.name] = total
            total += segment.size_in_bytes
    console.start_progress(total, "records")
    return starts
