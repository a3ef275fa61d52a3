"""`kafkalog report`: one report on log dirs, as a page, as Markdown or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import decode_options, usage_errors
from kafkalog.cli.terminal import result_table, terminal_width

if TYPE_CHECKING:
    from kafkalog.reporting.report import Report

_DIRS: Final = (
    "DIR",
    "log dirs of a broker, or partition directories",
    "DIR is a log dir (a value of a broker's log.dirs, or a copy of one), or a topic-partition directory in it.",
)


COMMAND: Final = Command(
    description="""\
Write one report on the log dirs of a broker, with the results of ls, verify, preflight, groups and transactions:

  contents      topics and partitions with times, formats, codecs and sizes
  damage        findings and losses, with their certainty
  next start    what a broker would do at its next start
  consumers     groups and their lag; open transactions, and the command that ends a hanging one
  outlook       the next actions of retention and the log cleaner, and what blocks them
  space         batching, producers, indexes, and bytes by day, codec and kind of file

The name of -o selects the format: .html is one page without network access, .md is for a ticket, .json for programs.
Without -o, report prints Markdown, or a shorter text to a terminal. With --value-format or --key-format, it decodes all
records and counts by topic those that do not decode.

The exit code is 1 if something is damaged, or if a broker would lose records or not start.""",
    examples="""\
  kafkalog report /var/lib/kafka -o report.html
  kafkalog report /disk1/kafka /disk2/kafka --config server.properties -o report.html
  kafkalog report /var/lib/kafka -t orders --value-format json > ticket.md
  kafkalog report /backup/kafka --json | jq '.summary'""",
    options="""
  @topics
  -o --output FILE    write to a file: .html, .md or .json
  --overwrite         replace the file
  --json              print one object with all of it
  @limits
how:
  --config FILE    the broker's server.properties, for retention, the cleaner and log.dirs
  @ages
  @reader_threads segments read at the same time
  @decoding
""",
    paths=_DIRS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Write or print a report."""
    from kafkalog.errors import Finding, KafkalogError, Reason
    from kafkalog.log.log_dir import LogDir
    from kafkalog.reporting.report import check_output, report
    from kafkalog.system_topics.list_producers import TRANSACTION_MAX_TIMEOUT_MS

    if args.output is not None:
        if console.is_json:
            raise UsageError("--json prints to stdout; -o FILE.json writes the same to a file")
        with usage_errors():
            check_output(args.output, args.paths)
    timeout = args.transaction_max_timeout_ms
    log_dir, sizes = LogDir(args.paths, limits=args.limits), list[int]()
    for key in log_dir:
        with contextlib.suppress(KafkalogError):  # the report names this error
            sizes.append(log_dir[key].size_in_bytes)
    console.start_progress(sum(sizes), "report")
    with usage_errors():
        found = report(
            args.paths,
            **chosen(args, "topics", "config", "now", "threads", "limits"),
            **decode_options(args),
            transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS if timeout is None else timeout,
            progress=console.progress.advance,
        )
    console.progress.close()
    console.count_findings(found.findings.rows)
    console.unkept_findings(found.findings.n_more)
    if args.output is not None:
        found.write(args.output, overwrite=args.overwrite)
        console.note(f"{found.state}; a broker's start: {found.summary['verdict']}; written to {args.output}")
    else:
        is_terminal = terminal_width() is not None
        console.show([found], _essence(found) if is_terminal else found.to_markdown().rstrip("\n").split("\n"))
    if not found.ok and not found.findings.n_damage:
        detail = f"the broker {found.summary['verdict']}"
        console.count_findings([Finding(Reason.UNKNOWN_FILE, detail, path=found.paths[0])])


_SHOWN: Final = ("losses", "problems", "start", "topics", "groups", "transactions")
"""The tables that a terminal gets."""


def _without(root: str, cell: object) -> object:
    return cell.removeprefix(root) if isinstance(cell, str) else cell


def _essence(found: Report) -> Iterator[str]:
    """Yield what a person has to know first: the verdict, damage and losses, topics and groups, the next steps."""
    yield from (f"{title + ':':<22}{text}" for title, text in found.key_figures())
    # with several log dirs, each may have the same names
    root = os.path.join(found.paths[0], "") if len(found.paths) == 1 else ""
    if rows := sorted(found.findings.rows, key=lambda finding: not finding.damage):
        yield from ("", found.tables["findings"].title.upper())
        yield from (f"  {'!' if finding.damage else '-'} {str(finding).removeprefix(root)}" for finding in rows)
        yield from [f"and {found.findings.n_more:,} more"] * bool(found.findings.n_more)
    for name in _SHOWN:
        table = found.tables[name]
        table = replace(table, rows=[tuple(_without(root, cell) for cell in row) for row in table.rows])
        if name == "start":
            table = replace(table, rows=[row for row in table.rows if row[1] not in ("starts", "recovers")])
        if table.rows:
            yield from ("", table.title.upper())
            yield from result_table(table, exact=False)
    if found.tables["next"].rows:
        yield from ("", "NEXT STEPS")
    for line, why, *_ in found.tables["next"].rows:
        yield from (f"  {line}", f"    {why}")
    yield from ("", "All of it:", f"  kafkalog report {shlex.join(found.paths)} -o report.html")
