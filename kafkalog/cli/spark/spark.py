"""`kafkalog spark`: scan, batches, verify, reindex and export as Spark jobs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.commands import SUMMARIES
from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import (
    HelpText,
    add_columns,
    add_index_interval,
    add_limits,
    add_selection,
    chosen,
    names,
)
from kafkalog.cli.reading.sql import print_rows
from kafkalog.cli.reading.verify import Totals, finding_lines, state_of, what_was_not_checked
from kafkalog.cli.scan_options import (
    add_on_corruption,
    add_scan_reading,
    add_scan_selection,
    hint_at_skip,
    open_records,
    path_of,
    scan_options,
)
from kafkalog.cli.spark.running import MASTERS, add_job, running, task_bytes
from kafkalog.cli.text import human_bytes
from kafkalog.cli.writing import reindex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafkalog.errors import Finding

_DESCRIPTION: Final = """\
Run commands as Spark jobs. The default master, local[*], uses all cores of this machine without a cluster. With
--master spark://HOST:7077, yarn or k8s://..., the job runs on a cluster. Its nodes need kafkalog and the same paths,
such as a shared file system. Spark jobs need PySpark (pip install 'kafkalog[spark]') and Java 17.

kafkalog plans tasks by bytes: it divides large segments, and combines small ones."""
_EXAMPLES: Final = """\
examples:
  kafkalog spark scan /backup/kafka -t orders
  kafkalog spark verify /backup/kafka --master spark://master:7077
  kafkalog spark reindex /backup/kafka --in-place
  kafkalog spark export /backup/kafka -o /lake/kafka --partition-by topic,date

'kafkalog spark COMMAND --help' shows all options of a command."""

_SCAN: Final = HelpText(
    summary="count records by partition, or query them with SQL",
    description="""\
Count the records of each partition, with first and last offset and time, and the bytes of keys and values. --sql runs
another query. The table 'records' has the columns of Spark's Kafka source (key, value, topic, partition, offset,
timestamp, timestampType) or those of --columns.
"""
    + MASTERS,
    examples="""\
  kafkalog spark scan /backup/kafka -t orders --start-timestamp 2026-11-21T08:00Z --json
  kafkalog spark scan /backup/kafka --sql "select key, count(*) from records group by key" """,
)
_BATCHES: Final = HelpText(
    summary="count batches by topic and codec, or query them with SQL",
    description="""\
Read all batch headers, and count batches, records and bytes by topic and codec. --sql runs another query. The table
'batches' has the columns of 'kafkalog batches --json'.
"""
    + MASTERS,
    examples="""\
  kafkalog spark batches /backup/kafka --sql "select producer_id, avg(size_in_bytes) from batches group by 1" """,
)
_VERIFY: Final = HelpText(
    summary="check checksums, indexes, producer snapshots and checkpoints",
    description="""\
Run the checks of 'kafkalog verify' on many segments at a time, with the same findings and exit codes. Print a line per
damaged segment (with -v per segment with any finding), and a total. --json prints every segment and partition."""
    + MASTERS,
    examples="""\
  kafkalog spark verify --deep /backup/kafka --json | jq -r 'select(.ok == false) | .path'""",
)
_REBUILD: Final = HelpText(
    summary="rebuild indexes from .log files",
    description="""\
Rebuild indexes of many partitions at a time, with the same bytes as 'kafkalog reindex'. One of -o DIR, --in-place and
--dry-run is required. Executors write to a hidden directory next to DIR or the log dir until the job is done."""
    + MASTERS,
    examples="""\
  kafkalog spark reindex /backup/kafka --in-place --kinds offset,time,txn,snapshot,epochs""",
)
_EXPORT: Final = HelpText(
    summary="write records to a directory of Parquet, Arrow, CSV or JSON lines files",
    description="""\
Write records to a directory, which appears when everything is written. Each task writes its own files. With
--partition-by, these are in directories such as topic=.../partition=.../date=...."""
    + MASTERS,
    examples="""\
  kafkalog spark export /backup/kafka -t orders -o orders --format csv --compression gzip""",
)

_RECORDS_SQL: Final = """\
select topic, partition, count(*) n_records, min(offset) first_offset, max(offset) last_offset,
min(timestamp) first_timestamp, max(timestamp) last_timestamp,
coalesce(sum(octet_length(key)), 0) key_bytes, coalesce(sum(octet_length(value)), 0) value_bytes
from records group by topic, partition order by topic, partition"""
_BATCHES_SQL: Final = """\
select topic, compression, count(*) n_batches, sum(if(records_count < 0, null, records_count)) n_records,
sum(size_in_bytes) size_in_bytes, min(if(base_offset < 0, null, base_offset)) first_offset,
max(last_offset) last_offset from batches group by topic, compression order by topic, compression"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "spark",
        help=SUMMARIES["spark"],
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    jobs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="job", required=True)
    _add_scan(jobs)
    _add_batches(jobs)
    _add_verify(jobs)
    _add_rebuild(jobs)
    _add_export(jobs)


def _add_scan(jobs: Any) -> None:
    parser = add_job(jobs, "scan", _SCAN, _run_scan)
    parser.add_argument("--sql", metavar="QUERY", help="a query on the table 'records'", default=_RECORDS_SQL)
    add_columns(parser, "columns of the table")
    add_scan_selection(parser)
    add_scan_reading(parser, threads=False)


def _add_batches(jobs: Any) -> None:
    parser = add_job(jobs, "batches", _BATCHES, _run_batches)
    parser.add_argument("--sql", metavar="QUERY", help="a query on the table 'batches'", default=_BATCHES_SQL)
    add_selection(parser)
    add_on_corruption(parser, default="skip")
    add_limits(parser)


def _add_verify(jobs: Any) -> None:
    parser = add_job(jobs, "verify", _VERIFY, _run_verify)
    add_selection(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--indexes-only", action="store_true", help="compare indexes with batch headers only")
    depth.add_argument("--deep", action="store_true", help="also decode every record")
    add_index_interval(parser, "")
    add_limits(parser, max_findings=100)  # all of them come to the driver


def _add_rebuild(jobs: Any) -> None:
    parser = add_job(jobs, "reindex", _REBUILD, _run_rebuild, writes=True)
    reindex.add_options(parser)
    add_limits(parser)


def _add_export(jobs: Any) -> None:
    parser = add_job(jobs, "export", _EXPORT, _run_export)
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="new directory")
    parser.add_argument("--overwrite", action="store_true", help="replace a directory from an earlier export")
    parser.add_argument(
        "--format", choices=("parquet", "arrow", "arrows", "csv", "jsonl"), default="parquet", help="default: parquet"
    )
    parser.add_argument(
        "--partition-by", metavar="KEY,...", type=names, default=[], help="any of topic, partition, date"
    )
    parser.add_argument("--compression", choices=("none", "snappy", "gzip", "lz4", "zstd", "brotli"))
    add_columns(parser)
    add_scan_selection(parser)
    add_scan_reading(parser, threads=False)


def _scan_options(args: argparse.Namespace) -> dict[str, Any]:
    options = scan_options(args)
    del options["threads"], options["limit"]
    if args.limit is not None:
        raise UsageError("-n does not work with Spark; use --sql 'select ... limit N', or offsets")
    return options


def _run_scan(args: argparse.Namespace, console: Console) -> None:
    columns = args.columns
    if columns is None and args.sql == _RECORDS_SQL:
        columns = ["key", "value", "topic", "partition", "offset", "timestamp"]
    _query("scan", "records", {**_scan_options(args), "columns": columns}, args, console)


def _run_batches(args: argparse.Namespace, console: Console) -> None:
    _query("batches", "batches", chosen(args, "topics", "partitions", "on_corruption", "limits"), args, console)


def _query(job: str, table: str, options: dict[str, Any], args: argparse.Namespace, console: Console) -> None:
    """Print what a query finds in the table that a job makes."""
    with running(args, console) as spark:
        from kafkalog.spark.jobs import scan
        from kafkalog.spark.jobs.findings import TaskFindings

        found = TaskFindings(spark)
        path = open_records(args, console) if job == "scan" else path_of(args)
        frame = getattr(scan, job)(spark, path, found=found, **options, **task_bytes(args))
        frame.createOrReplaceTempView(table)
        print_rows(spark.sql(args.sql).toArrow().to_batches(), console, as_json=args.json)
    console.findings(found.rows)


def _run_verify(args: argparse.Namespace, console: Console) -> None:
    with running(args, console) as spark:
        from kafkalog.log.log_dir import LogDir
        from kafkalog.spark.jobs.verify import verify

        opened = LogDir(list(dict.fromkeys(args.paths)), limits=args.limits)
        names = ("topics", "partitions", "indexes_only", "deep", "index_interval_bytes", "limits")
        frame = verify(spark, opened, **chosen(args, *names), **task_bytes(args))
        totals = Totals()
        for row, findings in _rows(frame, args, console):
            console.count_findings(findings)
            console.unkept_findings(row["n_damage"] - sum(finding.damage for finding in findings))
            totals.n_damage += row["n_damage"]
            totals.n_partitions += row["kind"] == "partition"
            totals.n_segments += row["kind"] == "segment"
            totals.n_bytes += row["size_in_bytes"] or 0
            totals.n_batches += row["n_batches"] or 0
            if not args.json and (row["n_damage"] or (findings and console.verbose)):
                console.line(f"{row['path'] or 'log dir'}  {state_of(row['n_damage'])}")
                told = [one for one in findings if one.damage or console.verbose]
                console.lines(finding_lines(told, verbose=True))
    if not args.json:
        console.line(totals.as_text(what_was_not_checked(args)))


def _rows(
    frame: DataFrame, args: argparse.Namespace, console: Console
) -> Iterator[tuple[dict[str, Any], list[Finding]]]:
    """Yield rows with their findings; print the rows as JSON if asked to."""
    from kafkalog.spark.jobs.findings import findings_of

    for one in frame.toLocalIterator():
        row = one.asDict(recursive=True)
        if args.json:
            console.json(row)
        yield row, findings_of(row["findings"])


def _run_rebuild(args: argparse.Namespace, console: Console) -> None:
    options = reindex.options_of(args)
    with running(args, console) as spark:
        from kafkalog.operations.rebuilding.index_interval import IndexInterval
        from kafkalog.operations.rebuilding.report import RebuildReport, Skipped
        from kafkalog.spark.jobs.reindex import reindex as run_job
        from kafkalog.survey.startup import RebuiltFile

        report = RebuildReport(is_written=not args.dry_run)
        frame = run_job(spark, path_of(args), **options, **task_bytes(args))
        for row, findings in _rows(frame, args, console):
            console.findings(findings)
            report.intervals[row["path"]] = IndexInterval(row["index_interval_bytes"], row["interval_origin"])
            report.files += [RebuiltFile(**file) for file in row["files"]]
            report.skipped += [Skipped(**one) for one in row["skipped"]]
    if not args.json:
        for file in report.files:
            reindex.show_file(file, args, console)
    reindex.show(report, args, console)


def _run_export(args: argparse.Namespace, console: Console) -> None:
    options = {**_scan_options(args), **task_bytes(args)}
    n_records = n_bytes = 0
    with running(args, console) as spark:
        from kafkalog.errors import OutputExistsError
        from kafkalog.spark.jobs.export import export

        try:
            options |= chosen(args, "format", "partition_by", "columns", "compression", "overwrite")
            with hint_at_skip("export what is intact"):
                frame = export(spark, open_records(args, console), args.output, **options)
        except OutputExistsError as error:
            if not args.overwrite:
                error.advise("use --overwrite to replace it")
            raise
        for row, findings in _rows(frame, args, console):
            console.findings(findings)
            n_records += row["n_records"]
            n_bytes += row["size_in_bytes"]
    console.note(f"{n_records:,} records out of {human_bytes(n_bytes)}: {args.output}")
