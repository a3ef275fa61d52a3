"""Whether everything in a log dir is as a broker needs it: batches, indexes, snapshots, checkpoints.

Segments are read once, several at a time, a window each; transaction indexes need what came before and are held against
the partition in a second walk over headers, if there are any. Damage is reported and passed over; files are only read.
Mirrors what `LogLoader`, `LogSegment.recover` and `DumpLogSegments --index-sanity-check` look at, and what they do not.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    Findings,
    KafkalogError,
    Limits,
    Loss,
    Reason,
    add_loss,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.verifying.losses import OffsetGap
from kafkalog.operations.verifying.partition import check_partition, check_root
from kafkalog.operations.verifying.segment import SegmentCheck, Surroundings, VerifiedSegment

_AHEAD: Final = 2
_TICK: Final = 0.1


@dataclass(slots=True)
class VerifiedPartition:
    """What was found in a partition.

    Attributes
    ----------
    path : str
    topic_partition : TopicPartition or None
    kind : str or None
        `"delete"`, `"future"` or `"stray"` for a directory that a broker has set apart.
    segments : list of VerifiedSegment
    findings : list of Finding
        About the directory, its snapshots and checkpoints; those about a segment and its indexes are with the segment.
    n_more_findings : int
        Counted, not kept.
    gaps : list of OffsetGap
        Between segments, those of a compacted topic as well.
    """

    path: str
    topic_partition: kf.TopicPartition | None
    kind: str | None
    segments: list[VerifiedSegment]
    findings: list[Finding] = field(default_factory=list)
    n_more_findings: int = 0
    gaps: list[OffsetGap] = field(default_factory=list)

    def all_findings(self) -> Iterator[Finding]:
        """Those about the segments, then those about the directory."""
        for segment in self.segments:
            yield from segment.findings
        yield from self.findings

    @property
    def loss(self) -> Loss:
        """What is lost by the findings that are kept."""
        losses: dict[str, Loss] = {}
        for finding in self.all_findings():
            add_loss(losses, finding)
        return losses.get(self.path, Loss())

    @property
    def is_ok(self) -> bool:
        """Whether nothing is damaged; facts such as a torn tail are no damage."""
        return not any(finding.damage for finding in self.all_findings())


@dataclass(slots=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    partitions : list of VerifiedPartition
    findings : list of Finding
        About the log dirs themselves.
    """

    partitions: list[VerifiedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def all_findings(self) -> Iterator[Finding]:
        """Of all partitions, then of the log dirs."""
        for partition in self.partitions:
            yield from partition.all_findings()
        yield from self.findings

    @property
    def is_ok(self) -> bool:
        """Whether nothing is damaged."""
        return not any(finding.damage for finding in self.all_findings())

    def __repr__(self) -> str:
        n_segments = sum(len(partition.segments) for partition in self.partitions)
        n_damage = sum(finding.damage for finding in self.all_findings())
        state = "OK" if self.is_ok else f"{n_damage} findings of damage"
        return f"Verification({len(self.partitions)} partitions, {n_segments} segments, {state})"


Subject = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment


def verify(path: Subject, **options: Any) -> Verification:
    """Verify what a path holds: checksums of all batches, indexes, producer snapshots, checkpoints.

    Parameters
    ----------
    path : path-like, sequence of path-like, LogDir, Partition or Segment
    topics : str or sequence of str, optional
    partitions : int or sequence of int, optional
        Of each topic.
    indexes_only : bool
        Only walk batch headers, and check the indexes against them: no checksum is computed.
    deep : bool
        Also decode every record: a right checksum says nothing about what was written with it.
    index_interval_bytes : int, optional
        The topics' `index.interval.bytes`, by which an index that is too sparse is known. Default: see
        `OffsetIndex.check`.
    jobs : int, optional
        Segments read at the same time; default: as there are processors, up to four.
    limits : Limits
    progress : callable
        Told how many bytes of `.log` files are done.

    Returns
    -------
    Verification

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify. What cannot be read inside is a finding.

    Notes
    -----
    No finding of damage is made about what healthy brokers of any version leave: indexes that followers or the cleaner
    wrote in larger steps, segments that were opened again, preallocated files of a running or crashed broker, epochs
    that were truncated. A torn tail of the last segment is a fact, not damage, unless the log dir says that it was shut
    down cleanly: then nobody will cut it off.

    Examples
    --------
    >>> kafkalog.verify("tests/golden/log_dir", topics="p-txn")
    Verification(1 partitions, 6 segments, OK)
    """
    result = Verification()
    for partition in iter_verify(path, into=result, **options):
        result.partitions.append(partition)
    return result


def iter_verify(
    path: Subject,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    indexes_only: bool = False,
    deep: bool = False,
    index_interval_bytes: int | None = None,
    jobs: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
    into: Verification | None = None,
) -> Iterator[VerifiedPartition]:
    """The same, partition by partition; what concerns the log dirs themselves goes to `into`."""
    if indexes_only and deep:
        raise ValueError("deep decodes records, indexes_only does not even compute checksums: choose one")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    if index_interval_bytes is not None and index_interval_bytes < 0:
        raise ValueError(f"index_interval_bytes must be at least 0, not {index_interval_bytes}")
    found: list[Finding] = []
    chosen = partitions_to_verify(path, topics, partitions, limits, found)
    if into is not None:
        into.findings += found
    bar = _Bar(progress)
    check = SegmentCheck(
        crcs=not indexes_only, deep=deep, interval_bytes=index_interval_bytes, limits=limits, progress=bar.add
    )
    n_jobs = jobs or min(os.cpu_count() or 1, 4)
    with ThreadPoolExecutor(n_jobs) as pool:
        waiting: deque[tuple[Partition, Surroundings, list[Future[VerifiedSegment]]]] = deque()
        n_waiting = 0
        try:
            for partition in chosen:
                around = Surroundings.of(partition)
                futures = [pool.submit(check.run, segment, around) for segment in partition.segments]
                waiting.append((partition, around, futures))
                n_waiting += len(futures)
                # a queue of more segments than are worked on would only hold memory
                while waiting and n_waiting > _AHEAD * n_jobs:
                    done = waiting.popleft()
                    n_waiting -= len(done[2])
                    yield _finish(*done, bar, indexes_only, limits)
            while waiting:
                yield _finish(*waiting.popleft(), bar, indexes_only, limits)
        finally:
            check.stop()
            pool.shutdown(wait=True, cancel_futures=True)


def _finish(
    partition: Partition,
    around: Surroundings,
    futures: Iterable[Future[VerifiedSegment]],
    bar: _Bar,
    indexes_only: bool,
    limits: Limits,
) -> VerifiedPartition:
    """Wait for the segments of a partition, and check what spans them."""
    segments = []
    for future in futures:
        while not wait([future], _TICK).done:
            bar.tell()
        segments.append(future.result())
    bar.tell()
    return verified_partition(partition, segments, around, indexes_only=indexes_only, limits=limits)


def verified_partition(
    partition: Partition, segments: list[VerifiedSegment], around: Surroundings, *, indexes_only: bool, limits: Limits
) -> VerifiedPartition:
    """Check what spans the segments of a partition, of which each has been checked."""
    findings = Findings(limits.max_findings)
    for finding in partition.findings:
        # no matter to who reads, but the end of a broker
        is_fatal = finding.reason is Reason.UNKNOWN_FILE and kf.is_fatal_name(os.path.basename(finding.path or ""))
        findings.add(replace(finding, damage=True) if is_fatal and os.path.isfile(finding.path or "") else finding)
    gaps = check_partition(partition, segments, around, findings.add, indexes_only=indexes_only)
    return VerifiedPartition(
        path=str(partition.path),
        topic_partition=partition.topic_partition,
        kind=partition.kind,
        segments=segments,
        findings=findings.rows,
        n_more_findings=findings.n_more + sum(segment.n_more_findings for segment in segments),
        gaps=gaps,
    )


class _Bar:
    """Counts bytes that threads are done with; told on by the one thread that asked."""

    def __init__(self, progress: Callable[[int], object]) -> None:
        self._progress, self._lock, self._done = progress, threading.Lock(), 0

    def add(self, n: int) -> None:
        with self._lock:
            self._done += n

    def tell(self) -> None:
        with self._lock:
            done, self._done = self._done, 0
        if done:
            self._progress(done)


def partitions_to_verify(
    path: Subject,
    topics: str | Sequence[str] | None,
    numbers: int | Sequence[int] | None,
    limits: Limits,
    found: list[Finding],
) -> list[Partition]:
    """What is to be verified; what cannot be opened is a finding."""
    if isinstance(path, Segment):
        return [Partition.of_segment(path)]
    if isinstance(path, Partition):
        return [path]
    if not isinstance(path, LogDir):
        path = LogDir([path] if isinstance(path, (str, os.PathLike)) else path, limits=limits)
    found += path.findings
    seen = {finding.path for finding in path.findings}
    for root in path.paths:
        if not (root / kf.META_PROPERTIES).exists():
            continue
        found += [finding for finding in check_root(root) if finding.path not in seen]
    wanted_topics = None if topics is None else {topics} if isinstance(topics, str) else set(topics)
    wanted_numbers = None if numbers is None else {numbers} if isinstance(numbers, int) else set(numbers)

    def is_wanted(key: kf.TopicPartition) -> bool:
        return (wanted_topics is None or key.topic in wanted_topics) and (
            wanted_numbers is None or key.partition in wanted_numbers
        )

    chosen = []
    for key in path:
        if is_wanted(key):
            try:
                chosen.append(path[key])
            except KafkalogError as error:
                found.append(error.to_finding())
    for apart in path.set_apart.values():
        for directory in sorted(apart):
            parsed = kf.parse_partition_directory(Path(directory).name)
            if parsed is not None and is_wanted(parsed.topic_partition):
                try:
                    chosen.append(Partition(directory, limits=limits))
                except KafkalogError as error:
                    found.append(error.to_finding())
    return chosen
