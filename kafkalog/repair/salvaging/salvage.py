"""Saves every intact batch of damaged logs into new partitions that a broker starts on.

`plan_segment` searches and chooses, `PartitionSalvage` writes. The source is never modified.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, OutputExistsError, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.searching.missing import END_CHECKPOINTS, known_ends
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.partition import Sink
from kafkalog.operations.converting.target import ConvertedPartitions
from kafkalog.operations.rebuilding.choosing import Chosen, check_paths, choose, lone_output, saved_alone
from kafkalog.parsing import integer
from kafkalog.repair.salvaging.partition import PartitionSalvage, Quarantine
from kafkalog.repair.salvaging.plan import plan_segment
from kafkalog.repair.salvaging.report import CopyReport, EvidenceFile, SalvagedPartition, SalvageReport
from kafkalog.repair.salvaging.single_records import SingleRecords
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_leader_epochs
from kafkalog.state.leader_epochs import Epochs, LeaderEpochs
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.output_paths import fitting_name
from kafkalog.storage.source import read_file
from kafkalog.storage.staging import StagedDirectory, staged_directory
from kafkalog.survey.evidence import LogDirState, SegmentContents
from kafkalog.survey.losses import losses_of, survey

REPORT_NAME: Final = "salvage.json"
SUFFIXES: Final = (".quarantine", ".unverified.jsonl")
"""Of the files with what was not kept, and with single records of damaged batches."""
_NAMELESS: Final = kf.TopicPartition("salvaged", 0)
_MAX_PROPERTIES_BYTES: Final = 2**20


def salvage(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    *,
    output: str | os.PathLike[str] | None = None,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    records: bool = False,
    threads: int = 1,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> SalvageReport:
    """Save every intact record batch of damaged logs, with its offsets, into partitions that a broker starts on.

    Run it on the disk, or on a copy, before a broker touches it: a broker cuts a log at the first damage, and deletes
    what is behind.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A log dir, a partition directory or a `.log` file. It is never modified.
    output : path-like, optional
        The directory to create: a subdirectory per partition, ``salvage.json``, and for each partition with losses a
        file ``TOPIC-N.quarantine`` with all bytes that were not kept, and the files that prove that segments are
        missing. A broker may use it as a log dir: it ignores the files. For a single partition, a name such as
        ``copy/orders-0`` is the partition's directory itself. Not needed for a dry run.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    records : bool
        Whether to try the single records of damaged batches. They are written to ``TOPIC-N.unverified.jsonl``, never
        to the log: no checksum vouches for them. Also whether to look into compressed batches that are kept.
    threads : int
        Number of segments to search at a time.
    dry_run : bool
        Search and report, but write nothing.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes searched since the last call.
    limits : Limits

    Returns
    -------
    SalvageReport

    Raises
    ------
    UnsafePathError
        A broker holds the lock of the log dir; or `output` lies in it.
    OutputExistsError
        `output` exists.
    FileChangedError
        Somebody writes to the source.
    WriteError
        The output could not be written; it does not appear.

    Notes
    -----
    Behind damage the search goes on byte by byte until a batch with a right checksum comes, in linear time. Where the
    size field of a damaged batch leads to an intact one, what lies between is not looked at: the records of a batch may
    hold whole batches. Of all intact batches those are kept whose offsets and leader epochs agree with each other, the
    file names and ``leader-epoch-checkpoint``; the others are suspects, and go to the quarantine file. For each
    segment, kept, lost, padding and suspect bytes add up to its size. Zeros at the end of a file count as padding. They
    are a finding, too, unless the file is sparse or no offset is missing: with at most as many records as the next
    segment, or the checkpointed high watermark, leaves room for; or with none, and no damage, if nothing tells.

    A batch with a right checksum is kept whether or not its records can be decoded. Those that cannot are counted and
    named, compressed ones only with `records`, since to decompress all takes ten times as long.

    What no checksum covers can be wrong without a sign: the base offset of a batch whose neighbours are lost on both
    sides, or in a compacted log, and the leader epoch of the first or the last batch without a checkpoint. A batch in a
    record's value can pass if nothing is left of the record around it, and its offsets fit the hole.

    Indexes, producer snapshots and leader epochs are rebuilt; the segments begin where those of the source do. Bad
    sectors are stepped over. A crash leaves `output` absent or complete.

    Examples
    --------
    >>> report = kafkalog.salvage("tests/golden/log_dir/p-multi-0", dry_run=True)
    >>> report.ok, report.total("n_batches_kept"), report.total("n_bytes_lost")
    (True, 24, 0)
    """
    integer("threads", threads, 1)
    report = SalvageReport(is_written=not dry_run)
    opened, chosen, target = begin_salvage(
        path, report, output=output, topics=topics, partitions=partitions, limits=limits
    )
    if not chosen:
        return report
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(OrderedPool(threads if threads > 1 else 0, "kafkalog-salvage"))
        staged = None if dry_run else stack.enter_context(staged_directory(target))
        lone = lone_output(opened, chosen, output)
        starts: dict[kf.TopicPartition, int] = {}
        for partition, only in chosen:
            with saved_alone(len(chosen) > 1, partial(_fail, report, partition, staged)):
                salvaged, start = salvage_partition(
                    partition, only, target, staged, pool, lone=lone,
                    threads=threads, records=records, note=report.findings.add, progress=progress, limits=limits,
                )  # fmt: skip
                report.partitions.append(salvaged)
                if start is not None and lone is None:
                    starts[partition.topic_partition or _NAMELESS] = start
        if staged is not None:
            if lone is not None:
                staged.lift(str(lone))
            finish_output(staged, report, opened, starts)
    return report


def _fail(report: SalvageReport, partition: Partition, staged: StagedDirectory | None, error: KafkalogError) -> None:
    """Report a partition that could not be saved, and remove what was written of it."""
    name = str(partition.topic_partition or _NAMELESS)
    report.findings.add(error.to_finding())
    report.partitions.append(SalvagedPartition(str(partition.path), "", error=str(error)))
    if staged is not None:
        for part in (name, *(fitting_name(name, suffix) for suffix in SUFFIXES)):
            staged.remove(part)


def begin_salvage(
    path: Any,
    report: SalvageReport,
    *,
    output: str | os.PathLike[str] | None,
    topics: Iterable[str] | str | None,
    partitions: Iterable[int] | int | None,
    limits: Limits,
) -> tuple[LogDir | Partition | Segment, list[Chosen], Path]:
    """Return what `path` is, the partitions that are chosen, and the output; raises if that exists, or is unsafe."""
    dry_run = not report.is_written
    if output is None and not dry_run:
        raise ValueError("say where to: output=, or dry_run=True")
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    chosen = list(choose(opened, topics, partitions, report.findings.add, copies=True))
    target = Path() if output is None else Path(output)
    if chosen:
        check_paths(opened, chosen, output=output, dry_run=dry_run)
        if not dry_run and os.path.lexists(target):
            raise OutputExistsError.at(target)
    return opened, chosen, target


def salvage_partition(
    partition: Partition,
    only: frozenset[int] | None,
    target: Path,
    staged: StagedDirectory | None,
    pool: OrderedPool,
    *,
    lone: kf.TopicPartition | None = None,
    threads: int = 1,
    records: bool = False,
    note: Callable[[Finding], object],
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[SalvagedPartition, int | None]:
    """Salvage one partition; returns what became of it, and its log start offset if that lies inside of a segment.

    Parameters
    ----------
    only : frozenset of int or None
        Base offsets of the segments to save; all if None.
    target : Path
        The output, as it is named in the report.
    staged : StagedDirectory or None
        Where the partition is written; None in a dry run.
    lone : TopicPartition or None
        The partition that `target` is itself; see `named_partition`.
    threads, records, progress, limits
        See `salvage`.
    note : callable
        Called with each finding.
    """
    name = lone or partition.topic_partition or _NAMELESS
    place = target if lone is not None else target / str(name)
    salvaged = SalvagedPartition(str(partition.path), str(place))
    segments = [one for one in partition.segments if only is None or one.base_offset in only]
    start = partition.log_start_offset
    for finding in partition.findings:
        if finding.reason is Reason.LOG_START_BEHIND_END:
            note(replace(finding, n_records=0, certainty="exact"))  # they are saved
    salvaged.start_offset = segments[0].base_offset if segments else 0
    beside = str(place if lone is not None else target)
    one = _PartitionSalvage(partition, segments, salvaged, note, records, limits)
    one.run(staged, str(name), beside, pool, threads, progress)
    # a start behind the end would hide all that was saved
    is_inside = salvaged.start_offset < start <= salvaged.end_offset
    return salvaged, start if staged is not None and is_inside else None


def finish_output(
    staged: StagedDirectory, report: SalvageReport, opened: object, starts: dict[kf.TopicPartition, int]
) -> None:
    """Write the report and the files of the log dir."""
    write_report(staged, REPORT_NAME, report, starts)
    if isinstance(opened, LogDir) and len(opened.paths) == 1:
        with contextlib.suppress(KafkalogError):
            properties = read_file(opened.paths[0] / kf.META_PROPERTIES, max_bytes=_MAX_PROPERTIES_BYTES)
            with staged.create(kf.META_PROPERTIES) as file:
                file.write(properties)


def write_report(staged: StagedDirectory, name: str, report: CopyReport, starts: dict[kf.TopicPartition, int]) -> None:
    """Write the report, and the checkpoint of log start offsets, if there are any."""
    with staged.create(name) as file:
        file.write((json.dumps(report.as_dict(), indent=1) + "\n").encode())
    if starts:
        with staged.create(kf.LOG_START_OFFSET_CHECKPOINT) as file:
            file.write(encode_offset_checkpoint(starts))


class _PartitionSalvage:
    """Salvages one partition.

    Parameters
    ----------
    segments : list of Segment
        Those to save.
    note : callable
        Called with each finding.
    """

    def __init__(
        self,
        partition: Partition,
        segments: list[Segment],
        report: SalvagedPartition,
        note: Callable[[Finding], object],
        records: bool,
        limits: Limits,
    ) -> None:
        self._partition, self._segments, self._report, self._report_finding = partition, segments, report, note
        self._records, self._limits = records, limits
        self._found: list[Finding] = []
        self._state = LogDirState.of(partition)
        self._names: list[str] = []
        with contextlib.suppress(OSError):  # of a removed directory nothing can be said
            self._names = sorted(os.listdir(partition.path))

    def run(
        self,
        staged: StagedDirectory | None,
        name: str,
        beside: str,
        pool: OrderedPool,
        threads: int,
        progress: Callable[[int], object],
    ) -> None:
        """Search the segments, several at a time, and write them in order.

        Parameters
        ----------
        name : str
            The partition's directory in `staged`.
        beside : str
            Path of the directory in which the quarantine file will be.
        """
        report, limits = self._report, self._limits
        quarantine_name, records_name = (fitting_name(name, suffix) for suffix in SUFFIXES)
        quarantine = Quarantine(None if staged is None else partial(staged.create, quarantine_name))
        singles = SingleRecords(
            None if staged is None else partial(staged.create, records_name), is_wanted=self._records
        )
        with contextlib.ExitStack() as stack:
            if staged is None:
                sink: Sink | None = None
            else:
                targets = ConvertedPartitions(None, limits, lambda finding: None)
                directory = staged.path / name
                sink = stack.enter_context(targets.open(directory, self._partition, report.start_offset))
            output = PartitionSalvage(
                report,
                sink,
                quarantine,
                self._note,
                singles.add,
                self._known_end(),
                limits,
                was_closed=self._state.was_closed,
                decompress=self._records,
            )
            epochs = self._epochs()
            plans = ((segment, source, pool.submit(partial(
                plan_segment, segment, source, self._next_base(segment), epochs, limits, progress
            ))) for segment, source in self._opened())  # fmt: skip
            for _, source, pending in pool.ahead(plans, 2 * threads):
                with source:
                    output.add(pending.result(), source)
            output.finish()
        if len(self._segments) == len(self._partition.segments):
            self._survey([self._contents(segment, output) for segment in self._segments], quarantine)
        report.losses = losses_of(self._found)
        quarantine.close()
        singles.close()
        if quarantine.n_bytes:
            report.quarantine = os.path.join(beside, quarantine_name)
        report.n_unverified_records = singles.n_records
        if singles.n_records:
            report.unverified_records = os.path.join(beside, records_name)

    def _contents(self, segment: Segment, output: PartitionSalvage) -> SegmentContents:
        """What a segment contains; nothing if it could not be opened."""
        path, base = str(segment.path), segment.base_offset
        nothing = SegmentContents(path, base, base - 1, segment.size_in_bytes)
        contents = output.contents.get(base, nothing)
        contents.findings = [one for one in self._found if one.path == path]
        return contents

    def _note(self, finding: Finding) -> None:
        self._report_finding(finding)
        if len(self._found) < self._limits.max_findings:
            self._found.append(finding)

    def _known_end(self) -> int | None:
        """An offset that the log once reached, as checkpoints and snapshots after the last segment's base say."""
        last = self._partition.segments[-1].base_offset if self._partition.segments else 0
        key = self._partition.topic_partition if self._partition.kind is None else None
        ends = {} if self._state.is_live else known_ends(self._partition.path, key, self._names)
        return max((end for name, end in ends.items() if end > last or name in END_CHECKPOINTS), default=None)

    def _survey(self, contents: list[SegmentContents], quarantine: Quarantine) -> None:
        """Report what other files prove to be missing, and keep these files in the quarantine file."""
        partition, report, names = self._partition, self._report, self._names
        found = survey(partition, contents, self._state, names)
        for finding in found.findings:
            self._note(finding)
        for name in found.proofs:
            path = partition.path / name
            path = path if name in names else partition.path.absolute().parent / name
            try:
                with BadSectorSource(path) as source:
                    at, digest, *_ = quarantine.add(source, 0, source.size)
                    report.evidence.append(EvidenceFile(name, source.size, at, digest))
            except KafkalogError as error:
                self._note(error.to_finding(damage=False))

    def _opened(self) -> Iterator[tuple[Segment, BadSectorSource]]:
        for segment in self._segments:
            try:
                source = BadSectorSource(segment.path)
            except KafkalogError as error:
                self._note(error.to_finding())
                continue
            yield segment, source

    def _next_base(self, segment: Segment) -> int | None:
        """Base offset of the next segment of the directory, saved or not."""
        return next(
            (one.base_offset for one in self._partition.segments if one.base_offset > segment.base_offset), None
        )

    def _epochs(self) -> Epochs:
        try:
            entries = read_leader_epochs(self._partition.path / kf.LEADER_EPOCH_CHECKPOINT)
        except KafkalogError as error:
            self._note(error.to_finding())
            return []
        return [(int(epoch), int(start)) for epoch, start in LeaderEpochs(entries).entries.tolist()]
