"""Commands that survey the same damaged log report the same losses, and what is lost and what is kept is what existed.

A command is a function in `COMMANDS`; add another one with what it covers.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from effort import examples

import kafkalog
from kafkalog.errors import CorruptionWarning, Finding, Reason
from kafkalog.format import RECOVERY_POINT_CHECKPOINT
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.survey.losses import Lost, losses_of

N = 260
"""Records that existed: offsets 0 to 259."""

Range = tuple[int | None, int | None, int | None]


class Report(NamedTuple):
    """What a command reports of a log dir with one partition."""

    losses: list[Lost]
    kept: list[int] | int | None = None
    """The offsets in its result, or their number; None for a command without a result."""
    noted: Sequence[Lost] = ()
    """The losses, and those that a reader does not look for proof of."""


def counting_notes(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, with the notes about missing offsets as damage: readers do not look for all that proves a loss."""
    missing = (Reason.OFFSET_GAP, Reason.LOG_END_MISSING)
    return [replace(one, damage=True) if one.reason in missing else one for one in findings]


def of_verify(root: Path) -> Report:
    return Report([lost for one in kafkalog.verify(root).partitions for lost in one.losses])


def of_salvage(root: Path) -> Report:
    report = kafkalog.salvage(root, dry_run=True)
    assert report.ok == (not report.findings.n_damage)
    return Report(
        [lost for one in report.partitions for lost in one.losses],
        sum(segment.n_records_kept for one in report.partitions for segment in one.segments),
    )


def of_scan(root: Path) -> Report:
    scan = kafkalog.scan(root, columns=["offset"], on_corruption="skip")
    offsets = scan.to_table()["offset"].to_pylist()
    return Report(losses_of(scan.findings), offsets, losses_of(counting_notes(scan.findings)))


def of_convert(root: Path) -> Report:
    report = kafkalog.convert(root, root.parent / "converted", on_corruption="skip", dry_run=True)
    found = report.findings.rows
    return Report(losses_of(found), report.total("n_records_after"), losses_of(counting_notes(found)))


def of_recover(root: Path) -> Report:
    """A recovery of all segments: its dry run, a preflight without recovery points, and what its copy still has."""
    copy = root.parent / "recovered"
    report = kafkalog.recover(root, output=copy, all_segments=True, dry_run=True)
    [row] = report.partitions
    [planned] = kafkalog.preflight(root / "t-0", clean=False).partitions
    if not (root / RECOVERY_POINT_CHECKPOINT).exists():
        assert (ranges(planned.losses), planned.log_end_offset) == (ranges(row.losses), row.log_end_offset)
        assert planned.verdict == row.verdict
    if row.problem is not None:
        return Report([], None)
    [done] = kafkalog.recover(root, output=copy, all_segments=True).partitions
    assert (ranges(done.losses), done.verdict) == (ranges(row.losses), row.verdict)
    # a broker takes a batch with a magic byte above 2 for one of v2 and keeps it: readers do not
    return Report([*row.losses, *of_verify(copy).losses], of_scan(copy).kept)


COMMANDS: dict[str, tuple[Callable[[Path], Report], bool]] = {
    "salvage": (of_salvage, True),
    "scan": (of_scan, False),
    "convert": (of_convert, False),
}
"""The function, and whether it covers what verify does: readers do not look for what is left of a missing segment."""


def write_log(root: Path, rng: random.Random) -> Path:
    """A log dir with one partition of several segments."""
    root.mkdir()
    config = kafkalog.LogConfig(segment_bytes=14 + 2**12, index_interval_bytes=512)
    options = {"max_records_per_batch": rng.choice([1, 3, 10]), "compression": rng.choice(["none", "gzip", "lz4"])}
    with kafkalog.PartitionWriter(root / "t-0", config=config, batch_size=1024, **options) as writer:
        writer.append({"value": [rng.randbytes(rng.randrange(60)) for _ in range(N)]})
    if rng.random() < 0.5:
        (root / ".kafka_cleanshutdown").touch()
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (root / name).write_bytes(encode_offset_checkpoint({kafkalog.TopicPartition("t", 0): N}))
    return root / "t-0"


def damage(partition: Path, rng: random.Random) -> str:
    """Damage a file, or lose some."""
    log = rng.choice(sorted(partition.glob("*.log")) or [partition / "0.log"])
    data = bytearray(log.read_bytes()) if log.exists() else bytearray()
    if not data:
        return "nothing is left to damage"
    at, n = rng.randrange(len(data)), rng.choice([1, 8, 61, 300, 1200])
    kind = rng.choice(["flip", "zeros", "noise", "cut", "insert", "delete", "lose log", "lose segment", "empty"])
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[at : at + n] = bytes(len(data[at : at + n]))
    elif kind == "noise":
        n = max(n, 61)
        data[at : at + n] = rng.randbytes(len(data[at : at + n]))
    elif kind == "insert":
        data[at:at] = rng.randbytes(n)
    elif kind == "delete":
        del data[at : at + n]
    elif kind in ("cut", "empty"):
        del data[at if kind == "cut" else 0 :]
    if kind == "lose log":
        log.unlink()
    elif kind == "lose segment":
        for path in partition.glob(f"{log.stem}.*"):
            path.unlink()
    else:
        log.write_bytes(data)
    return f"{kind} {n} bytes at {at} in {log.name}"


def ranges(losses: Iterable[Lost]) -> list[Range]:
    return [(one.first_offset, one.end_offset, one.n_records) for one in losses]


def covered(losses: Iterable[Lost], bases: list[int]) -> set[int]:
    """The offsets that existed and are lost, from the first segment on."""
    return {
        offset
        for one in losses
        if one.first_offset is not None
        for offset in range(max(one.first_offset, bases[0]), N if one.end_offset is None else min(one.end_offset, N))
    }


def is_among(offset: int, losses: Iterable[Lost]) -> bool:
    return any((one.first_offset or 0) <= offset < (one.end_offset or N) for one in losses)


def check_recovery(report: Report, readable: list[int], lost: list[Lost]) -> None:
    """What a recovery loses is all that it does not keep, and includes all that is lost already."""
    if report.kept is None:
        return
    assert isinstance(report.kept, list)
    assert {*report.kept} <= {*readable}
    assert [one for one in readable if one not in {*report.kept} and not is_among(one, report.losses)] == []
    known = [one for one in lost if one.first_offset is not None and one.end_offset is not None]
    for one in known:
        assert all(is_among(offset, report.losses) for offset in (one.first_offset, one.end_offset - 1))
    if all(one.certainty == "exact" for one in (*lost, *report.losses)):
        n_lost, n_recovered = (sum(one.n_records or 0 for one in losses) for losses in (lost, report.losses))
        assert n_recovered + len(report.kept) == n_lost + len(readable)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_commands_agree_and_nothing_is_lost_silently(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    partition = write_log(tmp_path / "logs", rng)
    root = partition.parent
    what = [damage(partition, rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    bases = sorted(int(path.stem) for path in partition.glob("*.log"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        verified = of_verify(root)
        reports = {name: command(root) for name, (command, _) in COMMANDS.items()}
        recovered = of_recover(root)
    for name, report in reports.items():
        if COMMANDS[name][1]:
            assert ranges(report.losses) == ranges(verified.losses), (what, name)
        elif bases:
            lost = covered(verified.losses, bases)
            assert covered(report.losses, bases) <= lost <= covered(report.noted, bases), (what, name)
    kept = reports["scan"].kept
    assert isinstance(kept, list)
    assert reports["salvage"].kept == reports["convert"].kept == len(kept), what
    check_recovery(recovered, kept, verified.losses)
    gone = [offset for offset in range(N) if offset not in {*kept}]
    if bases and bases[0] and not (root / ".kafka_cleanshutdown").exists():
        gone = [offset for offset in gone if offset >= bases[0]]  # retention may have deleted them
    torn = [one for one in kafkalog.verify(root).all_findings() if one.reason is Reason.PARTIAL_TAIL and not one.damage]
    gone = [] if torn else gone  # an incomplete last batch is what a crash leaves
    assert [offset for offset in gone if not is_among(offset, verified.losses)] == [], what
    if all(one.n_records is not None and one.certainty == "exact" for one in verified.losses):
        assert sum(one.n_records or 0 for one in verified.losses) == len(gone), what
