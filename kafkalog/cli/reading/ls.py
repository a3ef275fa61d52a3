"""`kafkalog ls`: lists log dirs, a line for each partition or segment, from batch headers alone."""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, selected_keys
from kafkalog.cli.scan_options import note_if_live, note_no_match, report_error
from kafkalog.cli.terminal import fitting, is_exact, size_text, terminal_width
from kafkalog.cli.text import counted, escape_line, human_bytes, iso_seconds, names_line, table

if TYPE_CHECKING:
    from kafkalog.errors import Limits
    from kafkalog.log.log_dir import LogDir
    from kafkalog.operations.listing import PartitionSummary, SegmentSummary

COMMAND: Final = Command(
    description="""\
List log dirs, one line per partition. It has the number of segments, the bytes of .log files, offsets, records,
timestamps (UTC), message formats and codecs. A narrow terminal leaves out FORMATS, CODECS, FIRST, START,
SEGMENTS and LAST, in this order.

  START, END     log start offset, and log end offset (one past the last offset)
  RECORDS        readable records, without transaction markers and deleted records; >= is a lower
                 bound, after damage or with compressed v0 or v1 messages
  FIRST, LAST    earliest and latest timestamp in batch headers, without markers
  (last column)  damage, or a torn tail

ls reads batch headers only, and checks no checksum; 'kafkalog verify' does that. It skips damaged batches and leaves
them out of the numbers. Directories that a broker has renamed (-delete, -future, -stray) follow after the others. With
the cluster's metadata log in the log dir, ls also marks directories that a broker would rename to -stray. --json then
has the topics' settings.""",
    examples="""\
  kafkalog ls /var/lib/kafka
  kafkalog ls /disk1/kafka /disk2/kafka -t orders,payments
  kafkalog ls -s /var/lib/kafka/orders-0
  kafkalog ls --json /var/lib/kafka | jq -r 'select(.ok == false) | .path'""",
    options="""
  @selection
  -s --segments    a line per segment
  --bytes          exact sizes, also on a terminal
  --json           one object a line, not an array, with exact numbers; timestamps in ms
  @limits
""",
)

_HEADER: Final = ["SEGMENTS", "BYTES", "START", "END", "RECORDS", "FIRST", "LAST", "FORMATS", "CODECS", ""]
_RIGHT: Final = [False, True, True, True, True, True, False, False, False, False, False]
_LEAST: Final = ("FORMATS", "CODECS", "FIRST", "START", "SEGMENTS", "LAST")
"""Columns that a narrow terminal leaves out, the first one first."""


def run(args: argparse.Namespace, console: Console) -> None:
    """List partitions or segments."""
    from kafkalog.errors import KafkalogError
    from kafkalog.log.open import notes_apart, partitions_of
    from kafkalog.operations.listing import summaries

    log_dir = _open(args.paths, args.limits, console)
    if log_dir is None:
        return
    _check_topics(log_dir, args.topics or [])
    console.findings(log_dir.findings)
    console.findings(notes_apart(log_dir, args.topics, args.partitions, are_read=True))
    note_if_live(log_dir, console)
    partitions = []
    for found in partitions_of(log_dir, args.topics, args.partitions, set_apart=True):
        if isinstance(found, KafkalogError):
            report_error(found, log_dir, console)
        else:
            partitions.append(found)
    # a partition that cannot be opened matches too, and has been reported
    if not partitions and not selected_keys(log_dir, args):
        note_no_match(log_dir, console)
    console.start_progress(sum(partition.size_in_bytes for partition in partitions), "headers")
    listed: list[PartitionSummary] = []
    for summary in summaries(partitions, args.limits, lambda one: console.findings([one]), console.progress.reach):
        console.findings(summary.findings)
        console.show(summary.segments if args.segments else [summary], ())
        listed.append(summary)
    console.progress.close()
    console.show((), _lines(listed, args.segments, exact=is_exact(args.bytes)))


def _open(paths: list[str], limits: Limits, console: Console) -> LogDir | None:
    """Open the readable paths as one log dir, and report the others."""
    from kafkalog.errors import KafkalogError
    from kafkalog.log.log_dir import LogDir, is_blank, logs_among, missing_path
    from kafkalog.storage.location import kind_of, place_of

    good: list[str] = []
    blank: list[str] = []
    paths = logs_among(dict.fromkeys(paths))
    for path in paths:
        try:
            # each path alone: one that cannot be read must not hide the others
            if kind_of(path) is None:
                raise missing_path(path, map(place_of, good))
            if kind_of(path) == "directory" and is_blank(place_of(path)):
                blank.append(path)
                continue
            log_dir = LogDir([path], limits=limits)
            good.append(path)
        except KafkalogError as error:
            console.error(error)
    if not (good or blank):
        return None
    try:
        # an empty disk among others is a note, and alone an error
        return log_dir if len(good) == len(paths) == 1 else LogDir([*good, *blank], limits=limits)
    except KafkalogError as error:
        console.error(error)
        return None


def _check_topics(log_dir: LogDir, topics: list[str]) -> None:
    """Raise for a topic that is neither among the partitions nor among the directories set apart."""
    from kafkalog.parsing import TopicPatterns

    TopicPatterns(topics).check(sorted({*log_dir.topics, *(key.topic for key in log_dir.keys_set_apart)}))


def _lines(summaries: list[PartitionSummary], with_segments: bool, *, exact: bool) -> list[str]:
    """Return a table of the partitions, one of renamed directories if there are any, and the total."""
    make = partial(_segment_table if with_segments else _partition_table, exact=exact)
    lines = make([summary for summary in summaries if summary.kind is None])
    if apart := [summary for summary in summaries if summary.kind is not None]:
        lines += ["", "renamed by a broker:", *make(apart), ""]
    if len(summaries) > 1:
        lines += names_line("damaged", [summary.name for summary in summaries if _is_damaged(summary)])
        lines += names_line("unreadable", [summary.name for summary in summaries if _is_unreadable(summary)])
    return [*lines, _total(summaries, exact=exact)]


def _is_damaged(summary: PartitionSummary) -> bool:
    return any(finding.damage and not finding.is_unreadable for finding in summary.findings)


def _is_unreadable(summary: PartitionSummary) -> bool:
    return any(finding.is_unreadable for finding in summary.findings)


def _partition_table(summaries: list[PartitionSummary], *, exact: bool) -> list[str]:
    rows = [
        [escape_line(summary.name), str(len(summary.segments)), *_cells(summary, exact=exact)] for summary in summaries
    ]
    return _marked([["PARTITION", *_HEADER], *rows], _RIGHT)


def _segment_table(summaries: list[PartitionSummary], *, exact: bool) -> list[str]:
    rows = [
        [escape_line(summary.name), escape_line(segment.file_name), *_cells(segment, exact=exact)]
        for summary in summaries
        for segment in summary.segments
    ]
    header = ["PARTITION", "SEGMENT", *_HEADER[1:]]
    return _marked([header, *rows], [False, False, *_RIGHT[2:]])


def _marked(rows: list[list[str]], right: list[bool]) -> list[str]:
    """Format rows as a table; on a terminal, a mark that does not fit next to its row follows in a line of its own."""
    width = terminal_width()
    if width is None:
        return table(rows, right)
    lines: list[str] = []
    for line, (*_, mark) in zip(fitting([row[:-1] for row in rows], right[:-1], _LEAST, width), rows, strict=True):
        fits = len(line) + len(mark) + 2 <= width
        lines += [line] if not mark else [f"{line}  {mark}"] if fits else [line, f"  {mark}"]
    return lines


def _cells(summary: PartitionSummary | SegmentSummary, *, exact: bool) -> list[str]:
    n_records = f"{summary.n_readable_records:,}"
    if summary.n_readable_is_minimum:
        n_records = f">={n_records}" if summary.n_readable_records else "?"
    return [
        f"{summary.size_in_bytes:,}" if exact else human_bytes(summary.size_in_bytes),
        str(summary.start),
        str(summary.end),
        n_records,
        iso_seconds(summary.first_timestamp),
        iso_seconds(summary.max_timestamp),
        ",".join(f"v{magic}" for magic in summary.magics) or "-",
        ",".join(summary.codecs) or "-",
        _mark(summary),
    ]


def _mark(summary: PartitionSummary | SegmentSummary) -> str:
    damage = [finding for finding in summary.findings if finding.damage]
    if not damage:
        stray = getattr(summary, "stray", None)
        torn = sum(finding.length or 0 for finding in summary.findings if finding.is_torn)
        tail = f"torn tail of {counted(torn, 'byte')}" if torn else ""
        return ", ".join(filter(None, [f"stray: {stray}" if stray else "", tail]))
    where = f" at {damage[0].position}" if damage[0].position is not None else ""
    name = os.path.basename(damage[0].path or "")
    more = f", {len(damage) - 1} more" if len(damage) > 1 else ""
    return f"! {damage[0].reason.value} in {escape_line(name)}{where}{more}"


def _total(summaries: list[PartitionSummary], *, exact: bool) -> str:
    size = sum(summary.size_in_bytes for summary in summaries)
    n_records = sum(summary.n_readable_records for summary in summaries)
    is_minimum = any(summary.n_readable_is_minimum for summary in summaries)
    records = ("at least " if is_minimum else "") + counted(n_records, "record")
    n_damaged, n_unreadable = sum(map(_is_damaged, summaries)), sum(map(_is_unreadable, summaries))
    parts = [
        counted(len({summary.topic for summary in summaries}), "topic"),
        counted(len(summaries), "partition"),
        counted(sum(len(summary.segments) for summary in summaries), "segment"),
        size_text(size, exact=exact),
        records,
    ]
    damage = f"{counted(n_damaged, 'partition')} with damage" if n_damaged else ""
    unreadable = f"{counted(n_unreadable, 'partition')} unreadable" if n_unreadable else ""
    return "; ".join(filter(None, ["total: " + ", ".join(parts), damage, unreadable]))
