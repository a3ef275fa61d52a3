"""Rebuilds indexes, producer snapshots and leader epochs from `.log` files alone, as a broker's recovery does.

`reindex` processes segments in order: `recover` reads them (several at a time), `ProducerReplay` replays the
producers, and a `RebuildTarget` writes the files. Mirrors `LogLoader.recoverLog`. It does not change `.log` files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import get_args

from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.partitions import check_paths, choose
from kafkalog.operations.rebuilding.rebuilder import KINDS, Rebuilder
from kafkalog.operations.rebuilding.rebuilt_files import Damaged, RebuildReport
from kafkalog.operations.rebuilding.target import ONE_PLACE, target_for
from kafkalog.parsing import integer, one_of, parse_milliseconds
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.location import refuse_url
from kafkalog.survey.startup import Kind, RebuiltFile

DEFAULT_KINDS: tuple[Kind, ...] = ("offset", "time", "txn")


def reindex(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    *,
    kinds: Iterable[Kind] | Kind = DEFAULT_KINDS,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    backup: bool | None = None,
    damaged: Damaged = "keep",
    index_interval_bytes: int | None = None,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    threads: int = 1,
    dry_run: bool = False,
    now: int | str | datetime | None = None,
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
    output : path-like, optional
        Output directory to create, with one subdirectory per partition.
    in_place : bool
        Replace the existing files, each in one step.
    backup : bool, optional
        Keep replaced or removed files as ``NAME.kafkalog-backup`` beside the original; see `RebuiltFile.backup`.
        Default: True with `in_place`.
    damaged : {"keep", "cut"}
        With "keep", a segment whose `.log` is damaged keeps its existing files. With "cut", its indexes end before the
        damage, as those of a broker that recovers the segment do. Later segments, which recovery would delete, then
        keep their files. Recovery does not notice a wrong magic byte or offset, which no checksum covers, and nor does
        "cut".
    index_interval_bytes : int, optional
        The topics' `index.interval.bytes`. Default: the setting in the log dir's `__cluster_metadata-0`, else a value
        that agrees with the existing indexes, else 4096. See `RebuildReport.intervals` for its origin.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    threads : int
        Number of segments to read at a time.
    dry_run : bool
        Only report what would change.
    now : int (ms) or aware datetime, optional
        The time of the rebuild. Producers that were idle for `producer.id.expiration.ms` (one day) by then are left out
        of snapshots. Default: no producer expires, so that the result does not depend on the date.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes processed since the last call.
    on_file : callable
        Called with each row of the report's `files` as soon as the file is written.
    limits : Limits

    Returns
    -------
    RebuildReport

    Raises
    ------
    UnsafePathError
        A broker holds the lock of the log dir; or `output` lies in it.
    OutputExistsError
        `output` exists.
    WriteError
        A file could not be written. With `in_place`, the files written before it stay, and the other partitions are
        still rebuilt. `output` does not appear.

    Notes
    -----
    Recovery cuts a damaged `.log` and deletes all later segments. This function leaves every `.log` unchanged and
    reports the position of the damage. A broker that does not recover the segment, as after a clean shutdown, reads on
    after the damage with the existing indexes. They are therefore kept unless ``damaged="cut"``. Later segments still
    get new offset and time indexes; their transaction indexes and snapshots are kept, since they depend on batches that
    the damage hides. A partition of a log dir that cannot be opened is reported, and the others are rebuilt.

    A crash (SIGKILL, power cut) leaves each file in place as it was or complete, and `output` absent or complete.

    A broker drops idle producers, by its own clock, whenever it loads a snapshot; a snapshot that still has them is
    harmless. To get the same bytes as a broker's recovery, pass its time as `now`.

    A single segment gets no leader epochs, which belong to the whole partition. Its producers are replayed from the
    newest usable snapshot or from the start of the log; without either, `RebuildReport.skipped` lists what is missing.

    Source: LogSegment.recover, LogLoader.recoverLog, UnifiedLog.rebuildProducerState, Kafka 4.3.

    Examples
    --------
    >>> report = kafkalog.reindex("tests/golden/log_dir/p-multi-0", dry_run=True)
    >>> report.count("same"), report.intervals
    (5, {'p-multi-0': IndexInterval(n_bytes=4096, origin='existing indexes')})
    """
    refuse_url(path)
    wanted = check_options(kinds, output=output, in_place=in_place, backup=backup, damaged=damaged, dry_run=dry_run)
    integer("threads", threads, 1)
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    report = RebuildReport(is_written=not dry_run)
    chosen = list(choose(opened, topics, partitions, report.findings.add))
    if not chosen:
        return report
    roots = check_paths(opened, chosen, output=output, dry_run=dry_run)
    now_ms = None if now is None else parse_milliseconds("now", now)
    with contextlib.ExitStack() as stack:
        if in_place and not dry_run:
            stack.enter_context(hold_locks(roots))
            stack.enter_context(hold_partitions(one.partition.path for one in chosen))
        target = stack.enter_context(target_for(output, in_place=in_place, backup=backup is not False, dry_run=dry_run))
        rebuilder = Rebuilder(
            report,
            target,
            is_in_place=output is None,
            damaged=damaged,
            limits=limits,
            progress=progress,
            on_file=on_file,
        )
        rebuilder.run(
            (rebuilder.plan(one, only, wanted, index_interval_bytes, now_ms) for one, only in chosen), threads
        )
    return report


def check_options(
    kinds: Iterable[str], *, output: object, in_place: bool, backup: bool | None, damaged: str, dry_run: bool
) -> frozenset[str]:
    """Return the kinds to rebuild; raises ValueError if an option is invalid or options contradict each other."""
    wanted = [kinds] if isinstance(kinds, str) or not isinstance(kinds, Iterable) else [*kinds]
    for kind in wanted:
        if kind not in KINDS:
            raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    if not wanted:
        raise ValueError("no kinds: nothing to rebuild")
    if in_place + (output is not None) != 1 and not (dry_run and not in_place and output is None):
        raise ValueError(ONE_PLACE)
    if backup and not in_place:
        raise ValueError("backup=True goes with in_place=True")
    one_of("damaged", damaged, get_args(Damaged))
    return frozenset(wanted)
