"""What is to be rebuilt of what a path holds, and where output may go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, NotKafkaError, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import partitions_of
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.storage.broker_lock import refuse_if_locked
from kafkalog.storage.output_paths import check_outside


class Chosen(NamedTuple):
    """A partition to rebuild."""

    partition: Partition
    """With all segments of its directory."""
    only: frozenset[int] | None
    """Base offsets of the segments to rebuild; None for all, and what is the partition's own."""


def choose(
    opened: LogDir | Partition | Segment,
    topics: Iterable[str] | str | None,
    partitions: Iterable[int] | int | None,
    report: Callable[[Finding], object] | None = None,
) -> Iterator[Chosen]:
    """Partitions to rebuild, with the segments that were named, if some were.

    `report` is given what is found about the names in a log dir, and partitions that cannot be opened; without it the
    first of the latter raises.
    """
    if isinstance(opened, Segment):
        yield _named(opened.path.parent, [opened])
        return
    if isinstance(opened, Partition):
        yield Chosen(opened, None) if opened.is_whole else _named(opened.path, opened.segments)
        return
    if report is not None:
        for finding in opened.findings:
            report(finding)
    for partition in partitions_of(opened, topics, partitions):
        try:
            if isinstance(partition, KafkalogError):
                raise partition
            one = Chosen(partition, None) if partition.is_whole else _named(partition.path, partition.segments)
        except KafkalogError as error:
            if report is None:
                raise
            report(error.to_finding())
        else:
            yield one


def _named(directory: Path, segments: Sequence[Segment]) -> Chosen:
    for segment in segments:
        if not segment.has_base_offset:
            detail = "it is not named after its base offset, which index entries are relative to"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=segment.path)
    return Chosen(
        Partition(directory, limits=segments[0].limits), frozenset(segment.base_offset for segment in segments)
    )


def check_places(
    opened: LogDir | Partition | Segment,
    chosen: Sequence[Chosen],
    *,
    out: str | os.PathLike[str] | None,
    dry_run: bool,
) -> list[Path]:
    """The log dirs; raises where a broker runs on one, or where output would do harm."""
    directories = [one.partition.path.absolute() for one in chosen]
    roots = list(dict.fromkeys(directory.parent for directory in directories))
    refuse_if_locked(roots)
    if out is not None and not dry_run:
        if isinstance(opened, LogDir):
            sources = [*opened.paths, *directories]
        elif isinstance(opened, Segment) and kf.parse_partition_directory(directories[0].name) is None:
            sources = [opened.path]  # it may lie anywhere
        else:
            sources = directories
        check_outside(out, sources)
    return roots
