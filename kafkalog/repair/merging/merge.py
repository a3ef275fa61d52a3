"""Merges several copies of a partition into a new one that a broker starts on.

`kafkalog.repair.rescue` searches the copies, plans the log and writes it. No copy is modified.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    Reason,
    SidecarError,
)
from kafkalog.log.log_dir import LogDir, each_once
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.partitions import ChosenPartition, check_paths, choose, saved_alone
from kafkalog.parsing import check_output
from kafkalog.repair.merging.merged_partitions import MergedPartition, MergeReport
from kafkalog.repair.rescue.plan import LogPlan
from kafkalog.repair.rescue.replica import read_replica
from kafkalog.repair.rescue.writing import PlanWriter
from kafkalog.repair.salvaging.salvage import intact_in, write_origin, write_report
from kafkalog.storage.atomic import check_free
from kafkalog.storage.location import Place, parent_of, refuse_url
from kafkalog.storage.output_paths import named_partition
from kafkalog.storage.own_names import MERGE_REPORT
from kafkalog.storage.room import check_room, n_log_bytes
from kafkalog.storage.staging import StagedDirectory, staged_directory

_NAMELESS: Final = kf.TopicPartition("merged", 0)


def merge(
    replicas: Sequence[str | os.PathLike[str] | LogDir | Partition],
    output: str | os.PathLike[str] | None = None,
    *,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> MergeReport:
    """Merge several copies of a partition, or of the partitions of log dirs, into the best log.

    Parameters
    ----------
    replicas : sequence of path-like, or of what `kafkalog.open` returned
        Partition directories or log dirs, of several brokers. They are never modified.
    output : path-like, optional
        The directory to create: a subdirectory per partition, ``merge.json``, and ``origin.json`` with the log dirs of
        the copies, for `boot`. A broker may use it as a log dir. For
        copies of a single partition, a name such as ``merged/orders-0`` is the partition's directory itself. Not needed
        for a dry run.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    dry_run : bool
        Search and report, but write nothing.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes searched since the last call.
    limits : Limits

    Returns
    -------
    MergeReport

    Raises
    ------
    NotKafkaError
        A path is neither, or the directories are no copies of one partition.
    UnsafePathError
        A broker holds the lock of a log dir; or `output` lies in one.
    OutputExistsError
        `output` exists.
    FileChangedError
        Somebody writes to a copy.
    WriteError
        The output could not be written; it does not appear.

    Notes
    -----
    The copy with the latest leader epoch leads and, of those, the longest. The others are cut where they would truncate
    before they fetched from it. Damaged copies are searched as `salvage` does. A hole of the base is filled from
    another copy if both have the same later batch, or if the batches have the leader epochs of the base at their
    offsets. Batches before v2 have no epoch, so that only the first proves them. The same holds for offsets before the
    leader's first segment. A log with gaps between intact batches counts as compacted, and such gaps are not filled.
    `MergedReplica.n_batches_left` counts the batches that are therefore left out, and a note names them.

    No checksum covers the leader epoch of a batch. A wrong one at the end of a copy can make it lead, or have another
    one cut: see `MergedReplica.last_epoch` and `truncate_to`. Leave out a copy whose last epoch is wrong.

    A batch with a right checksum is taken whether or not its records can be decoded. Those that cannot are counted and
    named, unless they are compressed: ``kafkalog verify --deep`` of the output names all of them.

    The output has the segments of the base, with rebuilt indexes, producer snapshots and leader epochs. Its log start
    offset is the largest one in the checkpoints of the copies. Batches that are not taken are in no file of the output:
    keep the copies, or `salvage` them, too. A crash leaves `output` absent or complete.

    Source: AbstractFetcherThread.getOffsetTruncationState, LeaderEpochFileCache.endOffsetFor, Kafka 4.3.

    Examples
    --------
    >>> report = kafkalog.merge(["tests/golden/log_dir/p-multi-0", "tests/golden/log_dir/p-multi-0"], dry_run=True)
    >>> [(one.start_offset, one.end_offset) for one in report.partitions[0].ranges]
    [(0, 125)]
    """
    refuse_url(replicas)
    check_output(output, dry_run=dry_run)
    if isinstance(replicas, (str, bytes, os.PathLike)) or not replicas:
        raise ValueError("replicas is a sequence of at least one path")
    report = MergeReport(is_written=not dry_run)
    groups: dict[kf.TopicPartition, list[Partition]] = {}
    are_partitions = True
    for opened in _opened(replicas, limits, report.findings.add):
        are_partitions = are_partitions and isinstance(opened, Partition)
        chosen = list(choose(opened, topics, partitions, report.findings.add, copies=True))
        check_paths(opened, chosen, output=output, dry_run=dry_run)
        _group(groups, chosen)
    if are_partitions:
        _check_same(groups)
    target = Path("" if output is None else output)
    if not dry_run:
        check_free(target)
    if not groups:
        return report
    check_room(output, map(_largest, groups.values()), report.findings.add, dry_run=dry_run)
    lone = None if output is None else named_partition(output, is_one=are_partitions)
    report.log_dirs = intact_in(output, chain.from_iterable(groups.values()))
    if lone is not None:
        groups = {lone: next(iter(groups.values()))}
    with contextlib.ExitStack() as stack:
        staged = None if dry_run else stack.enter_context(staged_directory(target))
        starts: dict[kf.TopicPartition, int] = {}
        for name, group in groups.items():
            with saved_alone(len(groups) > 1, partial(_fail, report, str(name), staged)):
                place = target if lone is not None else target / str(name)
                directory = None if staged is None else staged.path / str(name)
                merged, start = _merge_copies(group, place, directory, report.findings.add, progress, limits)
                report.partitions.append(merged)
                if start > merged.start_offset and lone is None:
                    starts[name] = start
        if staged is not None:
            write_report(staged, MERGE_REPORT, report, starts, lone)
            is_whole = not are_partitions and topics is None and partitions is None
            roots = [parent_of(copy.path) for copy in chain.from_iterable(groups.values())]
            write_origin(staged, "merge", roots, is_whole=is_whole)
    return report


def _opened(
    replicas: Sequence[str | os.PathLike[str] | LogDir | Partition], limits: Limits, note: Callable[[Finding], object]
) -> Iterator[LogDir | Partition]:
    """Open the copies, one after the other; a directory that is named twice counts once. Raises for a segment."""
    places = [*map(_place_of, replicas)]
    waiting = each_once([place for place in places if place is not None], note)
    for path, place in zip(replicas, places, strict=True):
        if place is not None:
            if place not in waiting:
                continue
            waiting.remove(place)
        opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
        if isinstance(opened, Segment):
            detail = f"not a directory: name the partition directory, {opened.path.parent}"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=opened.path)
        yield opened


def _place_of(replica: str | os.PathLike[str] | LogDir | Partition) -> Place | None:
    """The directory of a replica; None for several."""
    if isinstance(replica, LogDir):
        return replica.paths[0] if len(replica.paths) == 1 else None
    return replica.path if isinstance(replica, (Partition, Segment)) else Path(replica)


def _group(groups: dict[kf.TopicPartition, list[Partition]], chosen: Iterable[ChosenPartition]) -> None:
    """Add chosen partitions to the copies of the same partition."""
    for one in chosen:
        groups.setdefault(one.partition.topic_partition or _NAMELESS, []).append(one.partition)


def _largest(copies: Sequence[Partition]) -> Place:
    """The directory of the largest copy, which seldom is another than the one that leads."""
    return max((one.path for one in copies), key=lambda path: n_log_bytes([path]))


def _check_same(groups: Mapping[kf.TopicPartition, Sequence[Partition]]) -> None:
    """Raise unless partition directories are copies of one partition."""
    if len(groups) > 1:
        names = " and ".join(sorted(map(str, groups)))
        detail = f"different partitions, not copies of one: {names}; to join their records, export them, then load that"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=[*groups.values()][-1][0].path)


def _merge_copies(
    copies: list[Partition],
    place: Path,
    directory: Path | None,
    note: Callable[[Finding], object],
    progress: Callable[[int], object],
    limits: Limits,
) -> tuple[MergedPartition, int]:
    """Merge the copies of one partition, which will be at `place`, into a staged directory; None only reads.

    Also returns the log start offset.
    """
    topic_id = _common_topic_id(copies, note)
    plan = LogPlan([read_replica(copy, number, note, progress, limits) for number, copy in enumerate(copies)])
    for finding in plan.findings:
        note(finding)
    writer = PlanWriter(plan, limits, note)
    writer.write(directory, topic_id)
    return MergedPartition.of(plan, str(place), writer.n_undecodable), plan.log_start_offset


def _fail(report: MergeReport, name: str, staged: StagedDirectory | None, error: KafkalogError) -> None:
    """Report a partition that could not be merged, and remove what was written of it."""
    report.findings.add(error.to_finding())
    report.partitions.append(MergedPartition(name, "", error=str(error)))
    if staged is not None:
        staged.remove(name)


def _common_topic_id(group: list[Partition], note: Callable[[Finding], object]) -> str | None:
    """The topic id of the copies; raises if they are of topics that have had the name one after the other."""
    topic_ids: dict[str, Partition] = {}
    for one in group:
        try:
            if one.topic_id is not None:
                topic_ids.setdefault(one.topic_id, one)
        except SidecarError as error:
            note(error.to_finding())  # the others still tell
    if len(topic_ids) > 1:
        (first, a), (second, b) = list(topic_ids.items())[:2]
        detail = f"its topic id is {second}, that of {a.path} is {first}: they are not copies of one partition"
        raise NotKafkaError(Reason.NOT_KAFKA, detail, path=b.path)
    return next(iter(topic_ids), None)
