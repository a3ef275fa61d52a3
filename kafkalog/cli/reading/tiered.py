"""`kafkalog tiered`: checks remote storage, and restores a log dir from it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.commands import SUMMARIES
from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, add_command, chosen

if TYPE_CHECKING:
    from kafkalog.operations.remote_storage import StorageReport

_PATHS: Final = (
    "URL",
    "root of the remote storage",
    "URL is the root of the remote storage, or the prefix configured in the plugin: a URL or a local directory.",
)
_BOTH: Final = """
  --log-dir PATH         the broker's log dir, or a copy of it
  -t --topics T,...      only these topics: names or globs such as 'orders.*'; repeatable
  --tiered-key --key:keys ID=FILE*    a private key of encrypted remote storage; repeatable
  @limits
"""
_VERIFY: Final = Command(
    summary="check remote storage for missing, damaged, leftover and replaced objects",
    description="""\
Check the remote storage of tiered topics (KIP-405). With --log-dir, the metadata topic and the leader epochs of that
broker decide which copies count. Damage: hole, torn, size, checksum, index, unreadable, other_segment. Only a waste of
space: orphan, unfinished, deleting, replaced, below_start, leftover, unknown_file.

The exit code is 1 if there is damage, and 3 if objects cannot be read, as without a key.""",
    examples="""\
  kafkalog tiered verify s3://tiered/kafka --log-dir /var/lib/kafka
  kafkalog tiered verify /mnt/tiered --log-dir /var/lib/kafka --json | jq .wasted_bytes""",
    options=f"""
  --deep    also decode every record
  --json    the report as one JSON object
{_BOTH}""",
    paths=_PATHS,
    n_paths=1,
    writes=True,
)
_RESTORE: Final = Command(
    summary="write a log dir with the segments of remote storage",
    description="""\
Write partitions with the segments of remote storage, which a broker serves with the same offsets. With --log-dir, the
command also writes the newer segments of that broker. DIR appears when it is complete, and is verified then.

A crash leaves DIR absent or complete.""",
    examples="""\
  kafkalog tiered restore s3://tiered/kafka -o restored
  kafkalog tiered restore s3://tiered/kafka -o restored --log-dir /backup/kafka -t orders""",
    options=f"""
  -o --output DIR!    new directory
{_BOTH}""",
    paths=_PATHS,
    n_paths=1,
    writes=True,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tiered",
        help=SUMMARIES["tiered"],
        description=f"{SUMMARIES['tiered']}\n\nexamples:\n{_VERIFY.examples}\n{_RESTORE.examples}",
        epilog="kafkalog ls LOG_DIR --tiered URL lists a log with what is in remote storage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    jobs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="job", required=True)
    add_command(jobs, "verify", _VERIFY, _run_verify)
    add_command(jobs, "restore", _RESTORE, _run_restore)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {"keys": dict(args.keys or ()), **chosen(args, "log_dir", "topics", "limits")}


def _note_log_dir(args: argparse.Namespace, console: Console) -> None:
    """Say that the remote storage is the log dir of a broker."""
    from kafkalog.format import META_PROPERTIES
    from kafkalog.storage.files import size_if_there
    from kafkalog.storage.location import place_of

    if size_if_there(place_of(args.paths[0]) / META_PROPERTIES) is not None:
        where = "is a broker's log dir, not remote storage, and read as copies of its segments"
        console.note(f"{args.paths[0]} {where}; kafkalog verify and kafkalog salvage are for log dirs")


def _run_verify(args: argparse.Namespace, console: Console) -> None:
    from kafkalog.operations.remote_storage import verify_tiered

    _note_log_dir(args, console)
    report = verify_tiered(args.paths[0], **_options(args), deep=args.deep)
    console.show([report], _lines(report))
    console.count_findings(fault.to_finding(str(args.paths[0])) for fault in report.faults)
    console.next_steps(report.next)


def _lines(report: StorageReport) -> Iterator[str]:
    yield from (f"{'!' if fault.damage else '-'} {fault}" for fault in report.faults)
    wasted = f", {report.wasted_bytes:,} bytes are not needed" if report.wasted_bytes else ""
    skipped = f", {report.n_skipped} partitions of other brokers skipped" if report.n_skipped else ""
    n_unreadable = sum(fault.damage and fault.is_unreadable for fault in report.faults)
    n_lost = sum(fault.damage for fault in report.faults) - n_unreadable
    lost = f"{n_lost} faults that lose records" if n_lost else ""
    state = ", ".join(filter(None, [lost, f"{n_unreadable} unreadable" if n_unreadable else ""])) or "all OK"
    where = f"{report.n_partitions} partitions, {report.n_copies} copies, {report.n_bytes:,} bytes"
    yield f"total: {where} ({report.layout}){wasted}{skipped}; {state}"


def _run_restore(args: argparse.Namespace, console: Console) -> None:
    from kafkalog.operations.remote_storage import restore_tiered
    from kafkalog.survey.next_steps import steps_after_damage

    _note_log_dir(args, console)
    findings = restore_tiered(args.paths[0], args.output, **_options(args))
    console.findings(findings)
    console.note(f"written to {args.output}")
    console.next_steps(steps_after_damage(findings, [os.path.abspath(args.output)]))
