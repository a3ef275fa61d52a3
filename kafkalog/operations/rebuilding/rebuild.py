"""Rebuilds indexes, producer snapshots and leader epochs from `.log` files alone, as a broker's recovery does.

`rebuild_indexes` goes through segments in order: `recovery` reads them (several at a time), `ProducerReplay` follows
the producers, and a `Target` takes the files as they are made. Mirrors `LogLoader.recoverLog`; no `.log` is touched.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from kafkalog.errors import (
    DEFAULT_LIMITS,
    Limits,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.choosing import check_places, choose
from kafkalog.operations.rebuilding.outputs import target_for
from kafkalog.operations.rebuilding.rebuilder import KINDS, Rebuilder
from kafkalog.operations.rebuilding.report import Damaged, Kind, RebuildReport, RebuiltFile
from kafkalog.scanning.filters import milliseconds
from kafkalog.storage.broker_lock import hold_locks, hold_partitions

DEFAULT_KINDS: tuple[Kind, ...] = ("offset", "time", "txn")
DAMAGED: tuple[Damaged, ...] = ("keep", "cut")


def rebuild_indexes(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    *,
    kinds: Iterable[Kind] | Kind = DEFAULT_KINDS,
    out: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: bool | None = None,
    damaged: Damaged = "keep",
    index_interval_bytes: int | None = None,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    jobs: int = 1,
    dry_run: bool = False,
    now: int | datetime | None = None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_file: Callable[[RebuiltFile], object] = lambda file: None,
    limits: Limits = DEFAULT_LIMITS,
) -> RebuildReport:
    """Rebuild the derived files of segments, byte for byte as a broker's recovery does.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A `.log` file, a partition directory or a log dir.
    kinds : iterable of {"offset", "time", "txn", "snapshot", "epochs"}, or one of them
        `.index`, `.timeindex`, `.txnindex` (default), `.snapshot` of producers and `leader-epoch-checkpoint`.
    out : path-like, optional
        A directory to make, with a directory a partition.
    in_place : bool
        Replace the files that are there, each in one step.
    backup : bool, optional
        Keep what is replaced or removed in place, as ``NAME.kafkalog-backup`` beside it; the report's files say where.
        Default: True in place.
    damaged : {"keep", "cut"}
        A segment whose `.log` is damaged keeps the files it has. With "cut" its indexes end before the damage, as those
        of a broker that recovers the segment, and the files of later segments, which recovery deletes, are kept.
    index_interval_bytes : int, optional
        The topics' `index.interval.bytes`. Default: what the log dir's `__cluster_metadata-0` says, else a value that
        the existing indexes agree with, else 4096; the report says which.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    jobs : int
        Segments to read at a time.
    dry_run : bool
        Only report what would change.
    now : int (ms) or aware datetime, optional
        The time at which a broker would rebuild: producers that were idle for `producer.id.expiration.ms` (a day) by
        then are left out of snapshots. Default: nothing expires, so that the result does not depend on the day.
    progress : callable
        Told how many more bytes are done.
    on_file : callable
        Given each row of the report's `files` as soon as the file is there.
    limits : Limits

    Returns
    -------
    RebuildReport

    Raises
    ------
    UnsafePathError
        A broker holds the lock of the log dir; or `out` lies in it.
    OutputExistsError
        `out` is there already.
    WriteError
        A file could not be written. In place, those before it are there, and the other partitions are done all the
        same; `out` is absent.

    Notes
    -----
    Where a `.log` is damaged, recovery cuts it, and deletes all later segments. Here no `.log` is touched; a finding
    says where the damage is. A broker that does not recover the segment, as after a clean shutdown, reads on behind the
    damage with the indexes that it has: so they are kept unless ``damaged="cut"``, and later segments get indexes of
    offsets and times. Their transaction indexes and snapshots are kept, for they depend on what the damage hides. A
    partition of a log dir that cannot be opened is a finding, and keeps none of the others from being rebuilt.

    A crash (SIGKILL, power cut) leaves each file in place as it was or complete, and `out` absent or complete.

    A broker drops idle producers from a snapshot whenever it loads one, by its own clock; so one that still holds them
    serves it as well. To get the very bytes of a broker's recovery, give its time as `now`.

    A segment alone gets no leader epochs, which are the whole partition's. Its producers are replayed from the newest
    usable snapshot or the start of the log; where neither is there, the report says what was left out.

    Source: LogSegment.recover, LogLoader.recoverLog, UnifiedLog.rebuildProducerState, Kafka 4.3.

    Examples
    --------
    >>> report = kafkalog.rebuild_indexes("tests/golden/log_dir/p-multi-0", dry_run=True)
    >>> report.count("same"), report.intervals
    (5, {'p-multi-0': IndexInterval(n_bytes=4096, origin='existing indexes')})
    """
    wanted = check_options(kinds, out=out, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    report = RebuildReport(is_written=not dry_run)
    chosen = list(choose(opened, topics, partitions, report.findings.add))
    if not chosen:
        return report
    roots = check_places(opened, chosen, out=out, dry_run=dry_run)
    now_ms = None if now is None else milliseconds("now", now)
    with contextlib.ExitStack() as stack:
        if in_place and not dry_run:
            stack.enter_context(hold_locks(roots))
            stack.enter_context(hold_partitions(one.partition.path for one in chosen))
        target = stack.enter_context(target_for(out, in_place=in_place, backup=backup is not False, dry_run=dry_run))
        rebuilder = Rebuilder(
            report,
            target,
            is_in_place=out is None,
            damaged=damaged,
            limits=limits,
            progress=progress,
            on_file=on_file,
        )
        rebuilder.run((rebuilder.plan(one, only, wanted, index_interval_bytes, now_ms) for one, only in chosen), jobs)
    return report


def check_options(
    kinds: Iterable[str], *, out: object, in_place: bool, backup: bool | None, damaged: str, dry_run: bool
) -> frozenset[str]:
    """What is wanted; a ValueError where options make no sense."""
    wanted = frozenset([kinds] if isinstance(kinds, str) else kinds)
    if unknown := sorted(wanted - set(KINDS)):
        raise ValueError(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    if not wanted:
        raise ValueError("no kinds: nothing to rebuild")
    if in_place + (out is not None) != 1 and not (dry_run and not in_place and out is None):
        raise ValueError("say where to: one of out=, in_place=True and dry_run=True")
    if backup and not in_place:
        raise ValueError("backup=True goes with in_place=True")
    if damaged not in DAMAGED:
        raise ValueError(f"damaged is {' or '.join(map(repr, DAMAGED))}, not {damaged!r}")
    return wanted
