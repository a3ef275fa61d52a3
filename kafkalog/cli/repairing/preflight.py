"""`kafkalog preflight`: shows what a broker would do with a log dir at its next start."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.terminal import is_exact, size_text
from kafkalog.cli.text import counted
from kafkalog.protocol.releases import span

if TYPE_CHECKING:
    from kafkalog.repair.recovering.recovered_partitions import Preflight
    from kafkalog.survey.startup import PartitionPlan

_DIRS: Final = (
    "DIR",
    "log dirs of a broker, or partition directories",
    "DIR is a log dir (a directory from a broker's log.dirs, or a copy of one), or a partition directory in it.",
)


COMMAND: Final = Command(
    description="""\
Show what a broker would do with its log dirs at its next start. The output lists segments that it would recover, cut or
delete, indexes to rebuild, files that would stop it, and the time of recovery. Name all log dirs of the broker. The
command writes nothing.

After a clean shutdown (the log dir has .kafka_cleanshutdown), a broker checks few files. It serves damaged batches, and
does not start if the last segment ends in zeros or garbage. After an unclean shutdown, it recovers everything after the
recovery point, and deletes everything after the first damage. --clean and --unclean select one of these cases.

  starts          the broker changes nothing
  recovers        the broker reads or rebuilds files, and loses nothing
  unreadable      this user may not read a file; what the broker does with it is not known
  loses           the broker cuts or deletes records, renames the partition to -stray, or makes an empty one in place of
                  a directory that is missing
  does not start  a file stops the broker; the output names the file and the reason

The exit code is 1 if anything is lost or the broker does not start.""",
    examples="""\
  kafkalog preflight /var/lib/kafka
  kafkalog preflight /var/lib/kafka --unclean -t orders
  kafkalog preflight /disk1/kafka /disk2/kafka --config /etc/kafka/server.properties
  kafkalog preflight /var/lib/kafka --release 4.4
  kafkalog preflight /mnt/disk/orders-0 --clean --json""",
    options=f"""
  --json    one object with the whole result
  @limits
which partitions:
  @selection
how:
  | --clean      assume a clean shutdown
  | --unclean    assume a crash
  @index_interval  (default: from the cluster's metadata, else from existing indexes)
  --config FILE    the broker's server.properties: all of its log.dirs are judged, with its retention and index settings
                   (topic settings override it)
  --release RELEASE    also: would this release of Kafka, {span()}, load these disks? It compares each record
                       of the cluster's metadata, groups, transactions, share groups and remote storage, features and
                       settings with what the release knows; a lower release answers a downgrade
  --metadata DIR   a log dir with the cluster's metadata log, if it is on none of these disks
  @reader_threads partitions to read at a time
""",
    paths=_DIRS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print what would become of each partition."""
    from kafkalog.errors import Finding, Reason
    from kafkalog.repair.recovering.preflight import preflight

    shown: list[str] = []

    def show(row: PartitionPlan) -> None:
        is_told = row.verdict != "starts" or len(row.lines()) > 1
        # on a terminal, the sum stands for partitions whose segments are only read
        is_folded = row.verdict == "recovers" and not is_exact(args.verbose) and row.is_plain_recovery
        if (is_told and not is_folded) or args.verbose:
            shown.extend(row.lines())
            console.show((), row.lines())

    args.clean = True if args.clean else False if args.unclean else None
    with usage_errors():  # a setting of --config
        result = preflight(
            args.paths,
            **chosen(args, preflight),
            on_start=lambda n_bytes: console.start_progress(n_bytes, "segments"),
            progress=lambda n_bytes: console.progress.advance(n_bytes),
            on_partition=show,
        )
    console.progress.close()
    console.show([result], ())
    _print_findings(result, "\n".join(shown), console)
    console.losses({row.path: row.loss for row in result.partitions if row.losses})
    _sum_up(result, console)
    console.next_steps(result.next)
    # the exit code is 1 for all that is lost, also where no file is damaged
    found = [one for one in result.findings.rows if one.damage]
    for row in result.partitions:
        if row.stray is not None and not any(one.path == row.path for one in found):
            found.append(Finding(Reason.UNKNOWN_FILE, row.stray_detail, path=row.path))
            console.count_findings(found[-1:])
    console.count_findings([one.to_finding() for one in result.problems])
    if result.verdict in ("loses", "does not start") and not (found or result.problems):
        detail = f"the broker {result.verdict}"
        console.count_findings([Finding(Reason.UNKNOWN_FILE, detail, path=str(result.partitions[0].path))])


def _print_findings(result: Preflight, shown: str, console: Console) -> None:
    """Print the findings that the lines of the partitions do not have."""
    rows = {row.path for row in result.partitions}
    for one in result.findings.rows:
        name, place = os.path.basename(one.path or ""), os.path.dirname(one.path or "")
        is_shown = one.detail in shown or (one.reason.value in shown and name in shown)
        is_of_row = (one.path in rows or place in rows) and one.reason != "partition_twice"
        (console.count_findings if is_of_row and (is_shown or not one.damage) else console.findings)([one])


_RENAMED: Final = "Kafka 4.x renames it"
_EFFECTS: Final = {
    "no coordinator": "its coordinator does not load it",
    "ignores": "the broker does not read them",
    "log dir offline": "the broker takes the log dir offline",
    "unreadable": "unreadable, so what the broker does with it is not known",
}
_PLURALS: Final = {
    "starts": "start",
    "recovers": "recover",
    "unreadable": "unreadable",
    "loses": "lose",
    "does not start": "fail",
}


def _sum_up(result: Preflight, console: Console) -> None:
    for one in result.problems:
        effect = _EFFECTS.get(one.effect, f"the broker {one.effect}")
        console.note(f"{effect}: {one.path}: {one.detail} ({one.reason.value})")
    counts = ", ".join(
        f"{counted(n, 'partition')} {verdict if n == 1 else _PLURALS[verdict]}"
        for verdict in _PLURALS
        if (n := sum(row.verdict == verdict for row in result.partitions))
    )
    if any(_RENAMED in remark for row in result.partitions for remark in row.remarks):
        console.note(
            "no KRaft metadata here: a broker with ZooKeeper loads these log dirs as they are, Kafka 4.x renames them"
        )
    how = "clean" if result.is_clean else "unclean"
    fails = "does not start; otherwise " if any(one.effect == "does not start" for one in result.problems) else ""
    console.note(f"{how} start of a broker: {fails}{counts or 'no partitions'}")
    _note_reading(result, console)


def _note_reading(result: Preflight, console: Console) -> None:
    if any(row.count("kept") for row in result.partitions):
        console.note(
            "segments before the recovery point are not read, as by a broker: kafkalog verify finds damage there"
        )
    if result.n_bytes_read:
        console.note(
            f"recovery would read {size_text(result.n_bytes_read)}, and need up to"
            f" {size_text(result.n_bytes_needed)} for indexes"
        )
