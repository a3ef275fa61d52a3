"""Chooses the partitions and segments to rebuild, and checks that the output directory is safe. Writes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, NotKafkaError, Reason, UnsafePathError, WriteError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import notes_apart, partitions_of, removed_from
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.parsing import TopicPatterns
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.storage.location import Place
from kafkalog.storage.output_paths import check_outside, named_partition


class ChosenPartition(NamedTuple):
    """A partition to rebuild."""

    partition: Partition
    """The partition with all segments of its directory."""
    only: frozenset[int] | None
    """Base offsets of the segments to rebuild; None for all segments and the files of the partition itself."""


def choose(
    opened: LogDir | Partition | Segment,
    topics: Iterable[str] | str | None,
    partitions: Iterable[int] | int | None,
    report: Callable[[Finding], object] | None = None,
    *,
    copies: bool = False,
) -> Iterator[ChosenPartition]:
    """Yield the partitions to rebuild, restricted to segments if only some were named.

    `report` is called with the findings of a log dir, with files of partitions that are left out, and with partitions
    that cannot be opened. Without `report` the first partition that cannot be opened raises. With `copies`, the
    cluster's metadata is left out (see `may_copy`).
    """
    note = report or (lambda finding: None)
    if isinstance(opened, Segment):
        # through its partition: snapshots and epochs depend on the segments before it
        yield _named(opened.path.parent, [opened])
        return
    if copies:
        for finding in notes_apart(opened, topics, partitions):
            note(finding)
    if isinstance(opened, Partition):
        if copies:
            may_copy(opened, opened, None, note)
        _report_left_out(opened, report)
        yield ChosenPartition(opened, None) if opened.is_whole else _named(opened.path, opened.segments)
        return
    if report is not None:
        for finding in opened.findings:
            report(finding)
    for partition in partitions_of(opened, topics, partitions):
        if copies and isinstance(partition, Partition) and not may_copy(opened, partition, topics, note):
            continue
        try:
            if isinstance(partition, KafkalogError):
                raise partition
            one = ChosenPartition(partition, None) if partition.is_whole else _named(partition.path, partition.segments)
        except KafkalogError as error:
            if removed_from(opened, error) is None and report is None:
                raise
            if report is not None:
                report(error.to_finding())
        else:
            _report_left_out(partition, report)
            yield one


def lone_output(
    opened: LogDir | Partition | Segment, chosen: Sequence[ChosenPartition], output: str | os.PathLike[str] | None
) -> kf.TopicPartition | None:
    """The partition that the output is itself; None if partitions get subdirectories (see `named_partition`)."""
    is_one = len(chosen) == 1 and not isinstance(opened, LogDir)
    return None if output is None else named_partition(output, is_one=is_one)


def may_copy(
    opened: LogDir | Partition | Segment,
    partition: Partition,
    topics: Iterable[str] | str | None,
    note: Callable[[Finding], object],
) -> bool:
    """Whether a partition can be written elsewhere; the cluster's metadata of a log dir is noted and left out.

    Raises UnsafePathError if it is the cluster's metadata, and was named.
    """
    key = partition.topic_partition
    if key is None or key.topic != kf.METADATA_TOPIC:
        return True
    detail = "the cluster's metadata is not copied: only its controllers write it"
    if not isinstance(opened, LogDir) or kf.METADATA_TOPIC in TopicPatterns(topics).included:
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=partition.path)
    note(Finding(Reason.UNSAFE_PATH, detail, path=str(partition.path), damage=False))
    return False


def _report_left_out(partition: Partition, report: Callable[[Finding], object] | None) -> None:
    """Report the files of a partition that are no segments of it."""
    if report is not None and partition.is_whole:
        for finding in partition.findings:
            report(finding)


@contextlib.contextmanager
def saved_alone(is_one_of_many: bool, failed: Callable[[KafkalogError], object]) -> Iterator[None]:
    """Pass the error of a partition to `failed`, so that the others are saved; raise it if it is the only one.

    An output that cannot be written concerns all partitions, so it raises.
    """
    try:
        yield
    except KafkalogError as error:
        if not is_one_of_many or isinstance(error, WriteError):
            raise
        failed(error)


def _named(directory: Place, segments: Sequence[Segment]) -> ChosenPartition:
    for segment in segments:
        if not segment.has_base_offset:
            detail = (
                "rename the file to its base offset (ORDERS.log to 00000000000000000042.log): index entries need it"
            )
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=segment.path)
    partition = Partition(directory, limits=segments[0].limits)
    chosen = {segment.base_offset: segment.path.name for segment in partition.segments}
    for segment in segments:
        if chosen.get(segment.base_offset) != segment.path.name:
            detail = f"{chosen.get(segment.base_offset)} has the same offset: copy one of the two elsewhere first"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=segment.path)
    return ChosenPartition(partition, frozenset(segment.base_offset for segment in segments))


def check_paths(
    opened: LogDir | Partition | Segment,
    chosen: Sequence[ChosenPartition],
    *,
    output: str | os.PathLike[str] | None,
    dry_run: bool,
) -> list[Place]:
    """Return the log dirs; raises if a broker runs on one, or if `output` overlaps the input or lies in a log dir."""
    directories = [one.partition.path.absolute() for one in chosen]
    roots = list(dict.fromkeys(directory.parent for directory in directories))
    refuse_if_locked(roots)
    if output is not None and not dry_run:
        if isinstance(opened, LogDir):
            sources = [*opened.paths, *directories]
        elif isinstance(opened, Segment) and kf.parse_partition_directory(directories[0].name) is None:
            sources = [opened.path]  # a lone segment is in no partition directory: `output` may be made next to it
        else:
            sources = directories
        check_outside(output, sources, is_new=True)
    return roots
