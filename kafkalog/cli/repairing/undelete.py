"""`kafkalog undelete`: brings deleted segments back from the image of a disk."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.terminal import is_exact, result_table

if TYPE_CHECKING:
    from kafkalog.undeleting.undelete import Undeleted

_PATHS: Final = (
    "IMAGE",
    "image, block device or found file",
    "IMAGEs are images of disks or partitions, block devices, lost+found, or files from it. They are only read.",
)
COMMAND: Final = Command(
    description="""\
Find the batches of deleted segments in images of disks, and write them as partitions: after rm, retention, a deleted
topic or a formatted disk. First stop all writing to the disk, and copy it: each write may take a batch away.

  DIR/certain    partitions whose parts checksums or live segments prove to belong together
  DIR/likely     the same by next offsets and sequences or times; nothing contradicts it
  DIR/alone      fragments that nothing joins
  DIR/undelete.json, undelete.html    the report: what was found where, and the reason for each join

Each of the three is a log dir for all commands, and a source for 'kafkalog boot'. Batches have no topic: --log-dir
names what is left of the broker, which gives names and tells deleted batches from live ones. Other partitions are
called unknown-0001-0 and so on; rename their directories when you know better. Topics that metadata records in the
images name are listed, deleted ones included.

The exit code is 1 unless everything is certain, or if no batches were found.""",
    examples="""\
  kafkalog undelete disk.img -o /new/undeleted
  kafkalog undelete /dev/sdb1 --log-dir /mnt/kafka --journal search.journal -o /new/undeleted
  kafkalog undelete disk.img --log-dir /mnt/kafka --dry-run""",
    options="""
  --log-dir DIR*     a log dir that is left of the broker; repeatable
  --all              also write batches that are in these log dirs, and fragments that are copies of others
  --journal FILE     keep what was found in this file; a search that was stopped goes on from it
  --json             the report as one JSON object
  @limits
output (one is required):
  | -o --output DIR    write to this new directory, on another disk
  | --dry-run          search and report, and write nothing
""",
    paths=_PATHS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Search, write, and print the report."""
    from kafkalog.errors import Reason
    from kafkalog.storage.files import size_of
    from kafkalog.undeleting.undelete import undelete

    console.start_progress(sum(map(size_of, args.paths)), "bytes")
    with usage_errors():
        report = undelete(args.paths, **chosen(args, undelete), progress=console.progress.advance)
    console.progress.close()
    # the table has what is not proven, with the reason
    in_table = [one for one in report.findings.rows if one.reason is Reason.UNPROVEN and not console.is_json]
    console.count_findings(in_table)
    console.findings(one for one in report.findings.rows if one not in in_table)
    console.unkept_findings(report.findings.n_more)
    console.show([report], _lines(report))
    if not report.tables["partitions"].rows and report.summary["n_batches"]:
        where = f"; see {args.output}/undelete.html" if report.is_written else ""
        console.note(f"nothing deleted was found{where}")
    console.next_steps(report.next)


def _lines(report: Undeleted) -> Iterator[str]:
    from kafkalog.reporting.tables import column_title
    from kafkalog.text import counted

    partitions = report.tables["partitions"]
    if partitions.rows:
        yield from result_table(partitions, exact=is_exact(False))
    if (topics := report.tables["topics"]).rows:
        yield from ("", "Metadata records in the images name these topics:")
        yield from result_table(topics, exact=True)
        yield ""
    yield ", ".join(f"{column_title(name)}: {value:,}" for name, value in report.summary.items())
    if n := sum(row["certainty"] != "certain" for row in partitions.objects()):
        of = counted(len(partitions.rows), "partition")
        yield f"exit code 1: {n} of {of} not certain: nothing proves which partition it is, or that it is whole"
