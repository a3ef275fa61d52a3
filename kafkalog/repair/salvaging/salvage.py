"""Saves every intact batch of damaged logs into new partitions that a broker starts on.

`plan_segment` searches and chooses, `PartitionSalvage` writes. The source is never modified.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.rebuilding.partitions import check_paths, choose, lone_output, saved_alone
from kafkalog.parsing import check_output, integer
from kafkalog.repair.salvaging.partition import PartitionSalvage, SalvageOutput
from kafkalog.repair.salvaging.salvaged_partitions import CopyReport, SalvagedPartition, SalvageReport
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.storage.atomic import check_free
from kafkalog.storage.files import read_if_there
from kafkalog.storage.location import AnyPath, Place, is_url, parent_of
from kafkalog.storage.own_names import ORIGIN_NAME, SALVAGE_REPORT
from kafkalog.storage.room import check_room
from kafkalog.storage.staging import StagedDirectory, staged_directory
from kafkalog.survey.origins import encode_origin
from kafkalog.survey.topic_ids import TopicIds, has_no_topic_id

_NAMELESS: Final = kf.TopicPartition("salvaged", 0)
_MAX_PROPERTIES_BYTES: Final = 2**20


def salvage(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    output: str | os.PathLike[str] | None = None,
    *,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    metadata: str | os.PathLike[str] | None = None,
    threads: int = 1,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> SalvageReport:
    """Save every intact record batch of damaged logs, with its offsets, into partitions that a broker starts on.

    Run it on the disk or on a copy before a broker touches it. A broker cuts a log at the first damage, and deletes
    everything after it.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A log dir, a partition directory or a `.log` file. It is never modified.
    output : path-like, optional
        The directory to create, with a subdirectory per partition and ``salvage.json``. A file ``TOPIC-N.quarantine``
        holds all bytes of a partition that were not kept, and the files that prove missing segments. ``origin.json``
        names the log dir, for `boot`. A broker may use it as a log dir: it ignores these files. For a single partition,
        a name such as ``copy/orders-0`` is the partition's directory itself. Not needed for a dry run.
    topics, partitions : iterable, optional
        Only these topics and partition numbers.
    metadata : path-like, optional
        A log dir with the cluster's metadata log, such as another disk of the broker, for the topic ids of partitions
        without `partition.metadata`. Default: the log dirs themselves.
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
    Behind damage the search goes on byte by byte until a batch with a right checksum comes, in linear time. If the size
    field of a damaged batch leads to an intact batch, the bytes between are not searched, because records may contain
    whole batches. Intact batches are kept if their offsets agree with each other and with the file names. The others
    are suspects, and go to the quarantine file. A leader epoch that contradicts those around it, or
    ``leader-epoch-checkpoint``, is replaced by that of the batch before. For each segment, kept, lost, padding and
    suspect bytes add up to its size. Zeros at the end of a file count as padding. They are also a finding, unless the
    file is sparse or no offset is missing, or the log dir was shut down cleanly: a broker does not start with them. The
    next segment or the checkpointed high watermark bounds the number of lost records.

    A batch with a right checksum is kept whether or not its records can be decoded. Those that cannot are counted and
    named, unless they are compressed: ``kafkalog verify --deep`` of the output names all of them.

    Fields without a checksum can be wrong without a sign: the base offset of a batch next to damage, or in a compacted
    log. So can the leader epoch of the first or last batch without a checkpoint. A batch in a
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
    check_output(output, dry_run=dry_run)
    report = SalvageReport(is_written=not dry_run)
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    chosen = list(choose(opened, topics, partitions, report.findings.add, copies=True))
    if not chosen:
        return report
    check_paths(opened, chosen, output=output, dry_run=dry_run)
    report.log_dirs = intact_in(output, [one for one, _ in chosen])
    target = Path() if output is None else Path(output)
    if not dry_run:
        check_free(target)
    check_room(output, _logs_of(chosen), report.findings.add, dry_run=dry_run)
    lone = lone_output(opened, chosen, output)
    starts: dict[kf.TopicPartition, int] = {}
    note = report.findings.add if isinstance(opened, LogDir) else lambda finding: None
    ids = _topic_ids([one for one, _ in chosen], metadata, note, limits)
    properties = _properties(opened, report.findings.add)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(OrderedPool(threads if threads > 1 else 0, "kafkalog-salvage"))
        staged = None if dry_run else stack.enter_context(staged_directory(target))
        for partition, only in chosen:
            name = lone or partition.topic_partition or _NAMELESS
            start = partition.log_start_offset  # before the findings are looked at: it may add one
            row = SalvagedPartition(str(partition.path), str(target if lone is not None else target / str(name)))
            report.partitions.append(row)
            place = SalvageOutput(staged, str(name), target)
            with saved_alone(len(chosen) > 1, partial(_fail, report, row, place)):
                one = PartitionSalvage(partition, only, row, place, report.findings.add, limits, topic_id=ids.get(name))
                one.run(pool, threads, progress)
                # a start past the end would hide all that was saved
                if row.start_offset < start <= row.end_offset and lone is None:
                    starts[name] = start
        if staged is not None:
            write_report(staged, SALVAGE_REPORT, report, starts, lone)
            roots = [parent_of(one.path) for one, _ in chosen]
            is_whole = isinstance(opened, LogDir) and topics is None and partitions is None
            write_origin(staged, "salvage", roots, is_whole=is_whole)
            if properties is not None:
                with staged.create(kf.META_PROPERTIES) as file:
                    file.write(properties)
    return report


def _properties(opened: object, note: Callable[[Finding], object]) -> bytes | None:
    """The `meta.properties` of a single log dir; one that cannot be read is noted."""
    if not isinstance(opened, LogDir) or len(opened.paths) > 1:
        return None
    try:
        return read_if_there(opened.paths[0] / kf.META_PROPERTIES, max_bytes=_MAX_PROPERTIES_BYTES)
    except KafkalogError as error:
        error.detail += ". The output has none: a broker does not start on it, and kafkalog boot does not need it"
        note(error.to_finding())
        return None


def _logs_of(chosen: Iterable[tuple[Partition, Collection[int] | None]]) -> Iterator[Place]:
    """Yield partition directories, or the `.log` files of those of which only some segments were chosen."""
    for partition, only in chosen:
        if only is None:
            yield partition.path
        else:
            yield from (partition.path / kf.segment_file_name(base) for base in only)


def intact_in(output: str | os.PathLike[str] | None, partitions: Iterable[Partition]) -> list[str]:
    """Where the intact batches of partitions are: in the output, or without one in their log dirs."""
    if output is not None:
        return [os.path.abspath(output)]
    return list(dict.fromkeys(str(parent_of(one.path.absolute())) for one in partitions))


def _topic_ids(
    partitions: Sequence[Partition],
    metadata: str | os.PathLike[str] | None,
    note: Callable[[Finding], object],
    limits: Limits,
) -> dict[kf.TopicPartition, str]:
    """The topic ids of partitions without `partition.metadata`, as far as they are known; the others are noted."""
    found: dict[kf.TopicPartition, str] = {}
    lacking = [one for one in partitions if not is_url(one.path) and has_no_topic_id(one.path)]
    ids = TopicIds.of([one.path for one in lacking], metadata, limits)
    for one in lacking:
        key = one.topic_partition
        known = None if key is None else ids.find(key.topic)
        if key is not None and known is not None:
            found[key] = known
        elif (why := ids.why_stray(one.path)) is not None:
            detail = f"a broker renames the saved partition to -stray: {why}"
            note(Finding(Reason.TOPIC_ID_MISSING, detail, path=str(one.path), damage=False))
    return found


def _fail(report: SalvageReport, row: SalvagedPartition, place: SalvageOutput, error: KafkalogError) -> None:
    """Report a partition that could not be saved, and remove what was written of it."""
    report.findings.add(error.to_finding())
    report.partitions[report.partitions.index(row)] = SalvagedPartition(row.path, row.output, error=str(error))
    place.remove()


def write_report(
    staged: StagedDirectory,
    name: str,
    report: CopyReport,
    starts: dict[kf.TopicPartition, int],
    lone: kf.TopicPartition | None,
) -> None:
    """Write the report, and the checkpoint of log start offsets; a `lone` partition is the output itself."""
    if lone is not None:
        staged.lift(str(lone))
    with staged.create(name) as file:
        file.write((json.dumps(report.as_dict(), indent=1) + "\n").encode())
    if starts:
        with staged.create(kf.LOG_START_OFFSET_CHECKPOINT) as file:
            file.write(encode_offset_checkpoint(starts))


def write_origin(
    staged: StagedDirectory, command: str, log_dirs: Iterable[AnyPath], *, is_whole: bool, folder: str = ""
) -> None:
    """Write the file that says where an output, or a folder in it, comes from."""
    with staged.create(os.path.join(folder, ORIGIN_NAME)) as file:
        file.write(encode_origin(command, log_dirs, is_whole=is_whole))
