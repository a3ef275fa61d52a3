"""What each command reports as lost of a log dir with one partition, and what its result keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.format import RECOVERY_POINT_CHECKPOINT
from kafkalog.survey.losses import Lost, losses_of


class Report(NamedTuple):
    """What a command reports of a log dir with one partition."""

    losses: list[Lost]
    kept: list[int] | int | None = None
    """The offsets in its result, or their number; None for a command without a result."""
    noted: Sequence[Lost] = ()
    """The losses, and those that a reader does not look for proof of."""


def counting_notes(findings):
    """Findings, with the notes about missing offsets as damage: readers do not look for all that proves a loss."""
    missing = (Reason.OFFSET_GAP, Reason.LOG_END_MISSING)
    return [replace(one, damage=True) if one.reason in missing else one for one in findings]


def check_nothing_is_lost(root):
    """No loss is reported of a log dir by readers, verify, salvage, or the forecasts of both kinds of starts."""
    scan = kafkalog.scan(root, columns=["offset"], on_corruption="skip")
    scan.count_rows()
    assert kafkalog.verify(root).losses == losses_of(scan.findings) == []
    assert kafkalog.salvage(root, dry_run=True).losses == []
    for clean in (True, False):
        assert kafkalog.preflight(root, clean=clean).losses == []


def of_verify(root):
    result = kafkalog.verify(root)
    return Report(result.losses, noted=losses_of(counting_notes(result.findings)))


def of_salvage(root):
    output = root.parent / "salvaged"
    report = kafkalog.salvage(root, output=output, dry_run=True)
    assert report.ok == (not report.findings.n_damage)
    losses = report.losses
    [done] = kafkalog.salvage(root, output=output).partitions
    assert done.losses == losses
    return Report(losses, kafkalog.read_table(output, columns=["offset"])["offset"].to_pylist())


def of_merge(root):
    """A merge of a log dir with itself: what one lost, the other one lost, too."""
    output = root.parent / "merged"
    report = kafkalog.merge([root, root], output=output)
    return Report(
        losses_of(report.findings.rows), kafkalog.read_table(output, columns=["offset"])["offset"].to_pylist()
    )


def of_scan(root):
    scan = kafkalog.scan(root, columns=["offset"], on_corruption="skip")
    offsets = scan.to_table()["offset"].to_pylist()
    return Report(losses_of(scan.findings), offsets, losses_of(counting_notes(scan.findings)))


def of_convert(root):
    report = kafkalog.convert(root, root.parent / "converted", on_corruption="skip", dry_run=True)
    found = report.findings.rows
    return Report(losses_of(found), report.total("n_records_after"), losses_of(counting_notes(found)))


def of_recover(root):
    """A recovery of all segments: its dry run, a preflight without recovery points, and what its copy still has."""
    copy = root.parent / "recovered"
    report = kafkalog.recover(root, output=copy, all_segments=True, dry_run=True)
    [row] = report.partitions
    assert report.ok == (main(["recover", str(root), "--all", "--dry-run"]) == 0)
    start = kafkalog.preflight(root / "t-0", clean=False)
    assert start.ok == (main(["preflight", str(root / "t-0"), "--unclean"]) == 0)
    [planned] = start.partitions
    if not (root / RECOVERY_POINT_CHECKPOINT).exists():
        assert (ranges(planned.losses), planned.log_end_offset) == (ranges(row.losses), row.log_end_offset)
        assert planned.verdict == row.verdict
    if row.problem is not None:
        return Report([], None)
    [done] = kafkalog.recover(root, output=copy, all_segments=True).partitions
    assert (ranges(done.losses), done.verdict) == (ranges(row.losses), row.verdict)
    # a broker takes a batch with a magic byte above 2 for one of v2 and keeps it: readers do not
    return Report([*row.losses, *of_verify(copy).losses], of_scan(copy).kept)


def counts(losses):
    """The ranges of offsets and the numbers of records alone."""
    return [one[:3] for one in ranges(losses)]


def ranges(losses):
    """What is lost, and how certain that is."""
    return [(one.first_offset, one.end_offset, one.n_records, one.certainty) for one in losses]
