"""`kafkalog verify`: checks whether a broker can use batches, indexes, snapshots and checkpoints."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen, selected_keys
from kafkalog.cli.scan_options import decode_options, note_if_live, note_no_match, usage_errors
from kafkalog.cli.terminal import is_exact, size_text
from kafkalog.cli.text import counted, names_line

if TYPE_CHECKING:
    from kafkalog.errors import Finding
    from kafkalog.log.log_dir import LogDir
    from kafkalog.operations.verifying.values import VerifiedValues
    from kafkalog.operations.verifying.verified_partitions import Verification, VerifiedPartition

COMMAND: Final = Command(
    description="""\
Check log dirs: the checksum of every batch, every entry of the offset, time and transaction indexes, producer
snapshots, leader epochs and checkpoints. Print a line per segment: OK, or the findings and their effect on a broker.
The exit code is 1 if anything is damaged. With -q, verify prints only damaged partitions, and nothing if all is well
(for cron).

A broker checks few things in index files. With entries in the wrong order, at wrong positions, or missing, its lookups
fail, slow down, or silently skip records. verify detects such files. It also detects files that keep a broker from
starting, such as a .log file whose name is not an offset. A healthy broker's files, of any version, give no findings.

A torn tail of the last segment is normal after a crash, and does not change the exit code. After a clean shutdown it is
damage, because no broker will cut it off.

Whether an offset index lacks entries depends on the topic's index.interval.bytes. Without --index-interval-bytes,
verify detects a usual setting from the entries, or assumes the default, 4096.""",
    examples="""\
  kafkalog verify /var/lib/kafka
  kafkalog verify --indexes-only /var/lib/kafka -t orders
  kafkalog verify --deep /backup/kafka/orders-0
  kafkalog verify --values --value-format avro /backup/kafka -t orders
  kafkalog verify --json /var/lib/kafka | jq -r 'select(.ok == false) | .path'""",
    options="""
  @limits
which partitions:
  @selection
checks:
  | --indexes-only    compare indexes with batch headers only, without checksums
  | --deep            also decode every record, and compare it with the batch header
  --values            also decode keys or values; report per topic how many do not decode, the first one, and the reason
  @index_interval ; an index with far fewer entries is damaged
  @reader_threads number of segments to read at a time
output:
  --json    one object a line, per segment, partition and log dir, with its findings
  @decoding
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Verify, and print the results."""
    decoding = decode_options(args)
    if args.values != bool(decoding):
        raise UsageError("--values needs --value-format or --key-format, and these are for --values")
    from kafkalog.errors import KafkalogError
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import partitions_of
    from kafkalog.operations.verifying.verified_partitions import Verification

    # opened here and not by `iter_verify`: the progress bar needs the total
    log_dir = LogDir(list(dict.fromkeys(args.paths)), limits=args.limits)
    note_if_live(log_dir, console)
    # those that cannot be opened are reported when they are verified
    selected = partitions_of(log_dir, args.topics, args.partitions, set_apart=True)
    n_bytes = sum(one.size_in_bytes for one in selected if not isinstance(one, KafkalogError))
    console.start_progress(n_bytes, "headers" if args.indexes_only else "verify")
    result = Verification()
    totals = _Totals()
    _verify_partitions(log_dir, args, result, totals, console)
    if not totals.n_partitions and not selected_keys(log_dir, args):
        note_no_match(log_dir, console)
    if args.values:
        with usage_errors():
            _verify_values(log_dir, args, decoding, result, console)
    _count_own(result, totals, console)
    console.progress.close()
    lines = _root_lines(result, totals, _what_was_not_checked(args), is_quiet=args.quiet)
    total = {**_total(result, log_dir, totals), "next": [step.as_dict() for step in console.steps]}
    # a job of cron mails whatever is printed
    console.show([total], () if args.quiet and totals.ok else lines)


def _verify_partitions(
    log_dir: LogDir, args: argparse.Namespace, result: Verification, totals: _Totals, console: Console
) -> None:
    """Verify partitions, and print the lines of each as soon as it is done."""
    from kafkalog.operations.verifying.verify import iter_verify

    names = ("topics", "partitions", "indexes_only", "deep", "index_interval_bytes", "threads", "limits")
    options = chosen(args, *names)
    for partition in iter_verify(log_dir, **options, progress=console.progress.advance, into=result):
        totals.add(partition)
        console.count_findings(partition.findings)
        if partition.losses:
            console.losses({partition.path: partition.loss})
        console.unkept_findings(partition.n_more_findings)
        is_folded = not (is_exact(args.verbose) or any(partition.findings) or partition.gaps)
        totals.n_folded += is_folded
        is_shown = not (is_folded or (args.quiet and partition.ok))
        console.show(_objects(partition), _text_lines(partition, args) if is_shown else ())


def _count_own(result: Verification, totals: _Totals, console: Console) -> None:
    """Count the findings of log dirs, and values that do not decode."""
    undecoded = [one.to_finding() for one in result.values if not one.ok]
    totals.n_unreadable += sum(finding.is_unreadable for finding in result.own_findings)
    totals.n_damage += sum(finding.damage and not finding.is_unreadable for finding in result.own_findings)
    totals.n_damage += len(undecoded)
    console.count_findings([*result.own_findings, *undecoded])


def _verify_values(
    log_dir: LogDir, args: argparse.Namespace, decoding: dict[str, Any], result: Verification, console: Console
) -> None:
    """Decode keys or values, and print a line for each topic."""
    from kafkalog.operations.verifying.values import verify_values

    options = {**chosen(args, "topics", "partitions", "threads"), **decoding}
    result.values = verify_values(log_dir, console.progress.advance, **options)
    for one in result.values:
        lines = () if args.quiet and one.ok else _value_lines(one)
        console.show([{"kind": "values", "ok": one.ok, **asdict(one)}], lines)


def _value_lines(one: VerifiedValues) -> Iterator[str]:
    n = counted(one.n_records, one.column)
    yield f"{one.topic or one.path or 'records'}  {n}  {'OK' if one.ok else f'{one.n_undecoded} do not decode'}"
    if not one.ok:
        where = "" if one.topic is None else f"{one.topic}-{one.first_partition}"
        yield f"  ! {where}@{one.first_offset}: {one.first_reason}"
        if one.n_undecoded > 1:
            yield from (f"    {counted(n, one.column)}: {reason}" for reason, n in one.reasons.items())


def _what_was_not_checked(args: argparse.Namespace) -> str:
    """Return a text about what was not checked, to qualify "all OK"."""
    if args.indexes_only:
        return "checksums and records not checked"
    return "" if args.deep else "records not decoded (--deep)"


class _Totals:
    """The numbers in the last line."""

    def __init__(self) -> None:
        self.n_partitions = self.n_segments = self.n_batches = self.n_bytes = 0
        self.n_damage = self.n_unreadable = self.n_folded = 0
        self.damaged: list[str] = []
        self.unreadable: list[str] = []

    def add(self, partition: VerifiedPartition) -> None:
        self.n_partitions += 1
        self.n_segments += len(partition.segments)
        self.n_batches += sum(segment.n_batches for segment in partition.segments)
        self.n_bytes += sum(segment.size_in_bytes for segment in partition.segments)
        n_unreadable = sum(finding.is_unreadable for finding in partition.findings)
        n_damage = partition.n_more_findings - n_unreadable
        n_damage += sum(finding.damage for finding in partition.findings)
        if n_damage:
            self.damaged.append(_name_of(partition))
        if n_unreadable:
            self.unreadable.append(_name_of(partition))
        self.n_damage, self.n_unreadable = self.n_damage + n_damage, self.n_unreadable + n_unreadable

    @property
    def ok(self) -> bool:
        return not (self.n_damage or self.n_unreadable)

    def as_text(self, not_checked: str) -> str:
        parts = [
            counted(self.n_partitions, "partition"),
            counted(self.n_segments, "segment"),
            counted(self.n_batches, "batch"),
            size_text(self.n_bytes),
        ]
        if self.ok:
            return "; ".join(filter(None, [f"total: {', '.join(parts)}", not_checked, "all OK"]))
        return f"total: {', '.join(parts)}; {'; '.join(self._states())}"

    def _states(self) -> Iterator[str]:
        if self.n_damage:
            where = f" in {counted(len(self.damaged), 'partition')}" if self.damaged else ""
            yield f"{counted(self.n_damage, 'finding')} of damage{where}"
        if self.n_unreadable:
            where = f" in {counted(len(self.unreadable), 'partition')}" if self.unreadable else ""
            yield f"{self.n_unreadable:,} unreadable{where}"


def _name_of(partition: VerifiedPartition) -> str:
    if partition.kind is not None:
        return os.path.basename(partition.path)
    return str(partition.topic_partition or partition.path)


def _text_lines(partition: VerifiedPartition, args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of a partition; with -q without those of segments that are intact."""
    name, verbose = _name_of(partition), args.verbose
    for segment in partition.segments:
        if args.quiet and segment.ok:
            continue
        state = _state_of(segment.findings, segment.n_more_findings)
        yield f"{name}  {os.path.basename(segment.path)}  {state}"
        yield from _finding_lines(segment.findings, verbose=verbose)
    if partition.own_findings or not partition.segments:
        state = _state_of(partition.own_findings)
        yield f"{name}  {'other files' if partition.segments else 'no segments'}  {state}"
        yield from _finding_lines(partition.own_findings, verbose=verbose)
    yield from _gap_lines(name, partition)


def _gap_lines(name: str, partition: VerifiedPartition) -> Iterator[str]:
    """Yield a line about the gaps that the log cleaner explains; other gaps are findings."""
    compacted = [gap.end - gap.start for gap in partition.gaps if gap.is_compacted]
    if compacted:
        between = f"{counted(len(compacted), 'gap')} between segments, {counted(sum(compacted), 'offset')}"
        yield f"{name}  {between}: the log cleaner has been here"


def _state_of(findings: list[Finding], n_more: int = 0) -> str:
    """The word for a file, with the number of its findings."""
    is_unreadable = any(finding.is_unreadable for finding in findings)
    n_damage = sum(finding.damage and not finding.is_unreadable for finding in findings) + n_more
    damage = f"{counted(n_damage, 'finding')} of damage" if n_damage else ""
    unread = "limit" if any(finding.is_limit for finding in findings) else "unreadable" if is_unreadable else ""
    return ", ".join(filter(None, [unread, damage])) or "OK"


_MOST_LINES: Final = 20


def _finding_lines(findings: list[Finding], *, verbose: bool) -> Iterator[str]:
    """Yield a line for each finding, damage first; a long list is shortened."""
    ordered = sorted(findings, key=lambda finding: not finding.damage)
    shown = ordered if verbose else ordered[:_MOST_LINES]
    for finding in shown:
        where = os.path.basename(finding.path or "")
        if finding.position is not None:
            where += f"@{finding.position}"
        mark = "!" if finding.damage else "-"
        yield f"  {mark} {where}: {finding.reason.value}: {finding.detail}"
    if len(shown) < len(ordered):
        yield f"  ... {len(ordered) - len(shown)} more; -v shows each"


def _objects(partition: VerifiedPartition) -> Iterator[dict[str, Any]]:
    topic, number = partition.topic_partition or (None, None)
    place = {"topic": topic, "partition": number}
    names = ("path", "base_offset", "last_offset", "size_in_bytes", "n_batches", "ok")
    for one in partition.segments:
        findings = [finding.as_dict() for finding in one.findings]
        more = {"unreadable": any(finding.is_unreadable for finding in one.findings), "findings": findings}
        yield {"kind": "segment", **place, **{name: getattr(one, name) for name in names}, **more}
    losses = {"lost": partition.loss.as_dict(), "losses": [lost.as_dict() for lost in partition.losses]}
    gaps, findings = map(asdict, partition.gaps), [finding.as_dict() for finding in partition.own_findings]
    unreadable = any(finding.is_unreadable for finding in partition.findings)
    more = {"unreadable": unreadable, **losses, "gaps": [*gaps], "findings": findings}
    yield {"kind": "partition", "path": partition.path, **place, "ok": partition.ok, **more}


def _total(result: Verification, log_dir: LogDir, totals: _Totals) -> dict[str, Any]:
    rows = [finding.as_dict() for finding in result.own_findings]
    paths = [str(path) for path in log_dir.paths]
    path = paths[0] if len(paths) == 1 else paths
    names = {"damaged": totals.damaged, "unreadable": totals.unreadable}
    return {"kind": "total", "path": path, "ok": totals.ok, **names, "findings": rows}


def _root_lines(result: Verification, totals: _Totals, not_checked: str, *, is_quiet: bool) -> Iterator[str]:
    if result.own_findings:
        yield "log dir"
        for finding in result.own_findings:
            yield f"  {'!' if finding.damage else '-'} {finding}"
    if totals.n_folded and not is_quiet:
        yield f"OK: {counted(totals.n_folded, 'partition')} without findings (-v lists them)"
    # with -q, nothing else is listed anyway
    if totals.n_partitions > 1 and not is_quiet:
        yield from names_line("damaged", totals.damaged)
        yield from names_line("unreadable", totals.unreadable)
    yield totals.as_text(not_checked)
