"""Checks a partition across its segments, and the snapshots and checkpoints of a partition and its log dir.

Takes the `VerifiedSegment` of each segment. Compares neighbouring segments, checks transaction indexes, and reads
leader epochs, producer snapshots, `partition.metadata` and Raft snapshots.
It does not check the offset and time indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Finding, KafkalogError, Reason, SidecarError, is_forbidden
from kafkalog.indexes.index_files import TransactionIndex
from kafkalog.indexes.transaction_check import TransactionIndexCheck
from kafkalog.log.live import settled
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.operations.verifying.segment import missing_marker, open_index
from kafkalog.operations.verifying.verified_partitions import VerifiedSegment
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.header_walk import walk
from kafkalog.records.spans import batch_error
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.state.producers import ProducerState, newest_snapshot, read_snapshot
from kafkalog.state.properties import read_settings
from kafkalog.state.transactions import TransactionEpochs
from kafkalog.storage.files import open_source, size_if_there, size_of
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, parent_of
from kafkalog.storage.removals import is_gone
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import OffsetGap, remains, survey
from kafkalog.survey.origins import as_known
from kafkalog.survey.startup_files import topic_id_problem
from kafkalog.survey.startup_root import meta_properties_problem

_NOT_LIVE: Final = LogDirState()

Add = Callable[[Finding], None]
Found = TypeVar("Found")


def check_partition(
    partition: Partition, segments: Sequence[VerifiedSegment], around: LogDirState, add: Add, *, indexes_only: bool
) -> list[OffsetGap]:
    """Check a partition across its segments, and return the gaps between these.

    Findings about an index go to its segment, those about overlapping segments and other files to `add`. With
    `indexes_only`, other files are skipped.
    """
    _excuse_copies(partition, segments, around)
    _check_transactions(partition, segments, around)
    _check_producer_epochs(segments, add)
    names = None if indexes_only else _names(partition.path)
    if names is None:
        return []
    gaps: list[OffsetGap] = []
    if partition.is_whole:  # otherwise a missing segment proves nothing
        found = survey(partition, segments, around, names)
        gaps = found.gaps
        for finding in as_known(partition.path, found.findings):
            add(finding)
        _check_epochs(partition, segments, around, add)
    _check_producer_snapshots(partition, names, around, add)
    for name in names:
        if name.endswith(kf.RAFT_SNAPSHOT_SUFFIX):
            _check_raft_snapshot(partition.path / name, partition, add)
    if partition.path.name == kf.METADATA_DIRECTORY:
        _check_metadata(partition, around, add)
    problem = _settled(partial(topic_id_problem, partition.path), around)
    if problem is not None and not (around.is_live and is_gone(partition.path)):
        add(problem)
    return gaps


def _excuse_copies(partition: Partition, segments: Sequence[VerifiedSegment], around: LogDirState) -> None:
    """Count nothing as lost that an earlier segment has, by walking damaged segments again as readers do.

    Each segment was checked without the offsets of those before it.
    """
    previous = -1
    for number, (segment, result) in enumerate(zip(partition.segments, segments, strict=False)):
        lost = [one for one in result.findings if one.damage and one.path == result.path and one.n_records != 0]
        is_odd = any(one.reason in (Reason.OFFSET_ORDER, Reason.OFFSET_OUTSIDE_SEGMENT) for one in lost)
        if number and lost and (is_odd or previous >= result.base_offset):
            again, _ = remains(segment, 0, around, previous=previous)
            excused = {one.position: one for one in again.findings if (one.n_records, one.n_returned) == (0, 0)}
            result.findings = [excused.get(one.position, one) if one in lost else one for one in result.findings]
        previous = max(previous, result.last_offset)


def _names(directory: Place) -> list[str] | None:
    """The listing of a directory; None if there is none, or none any more."""
    try:
        return Listing(directory).names
    except OSError:
        return None


def _check_producer_snapshots(partition: Partition, names: Sequence[str], around: LogDirState, add: Add) -> None:
    """Report producer snapshots that a broker does not take."""
    snapshots = [name for name in names if name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX) and not kf.is_fatal_name(name)]
    for name in snapshots:
        path = partition.path / name
        found: list[Finding] = []
        _try(found.append, partial(read_snapshot, path), "a broker deletes it, and uses an older one", around)
        # a broker makes the file and then writes all of it at once: one that is killed in between leaves an empty file
        if found and name == snapshots[-1] and not around.was_closed and size_of(path) == 0:
            detail = f"{found[0].detail}; a broker leaves this if it is killed before it fills the file"
            found = [replace(found[0], damage=False, detail=detail)]
        for finding in found:
            add(finding)


def check_root(root: Place) -> list[Finding]:
    """Check the checkpoints and `meta.properties` of a log dir."""
    found: list[Finding] = []
    for name in kf.OFFSET_CHECKPOINTS:
        consequence = "a broker takes the log dir offline, or ignores the file"
        _try(found.append, partial(read_offset_checkpoint, root / name), consequence)
    _try(found.append, partial(_check_identity, root / kf.META_PROPERTIES), "a broker does not start on it")
    return found


def _check_identity(path: Place) -> None:
    if problem := meta_properties_problem(read_settings(path)):
        raise SidecarError(Reason.META_PROPERTIES, problem, path=path)


def _try(add: Add, read: Callable[[], Any], consequence: str, around: LogDirState = _NOT_LIVE) -> Any:
    def attempt() -> Any:
        try:
            return read()
        except KafkalogError as error:
            return error

    found = settled(attempt, lambda found: not isinstance(found, KafkalogError), is_live=around.is_live)
    if not isinstance(found, KafkalogError):
        return found
    if not (around.is_live and found.path is not None and is_gone(found.path)):
        # what a broker does that may read it is not known
        found.detail += "" if is_forbidden(found) else f"; {consequence}"
        add(found.to_finding())
    return None


def _settled(read: Callable[[], Found], around: LogDirState) -> Found:
    """The problems of a file or log. They are read again while a broker runs, which may be writing or replacing it."""
    return settled(read, lambda found: not found, is_live=around.is_live)


def _check_transactions(partition: Partition, segments: Sequence[VerifiedSegment], around: LogDirState) -> None:
    """Walk the headers a second time, if there is a transaction index or there should be one.

    A transaction may begin in any earlier segment, so the walk starts at the first one.
    """
    paths = [segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX) for segment in partition.segments]
    exist = [size_if_there(path) is not None for path in paths]
    wanted = [number for number, one in enumerate(segments) if one.has_aborted or exist[number]]
    if not wanted:
        return
    last = wanted[-1]
    indexes: list[TransactionIndex | None] = [
        open_index(TransactionIndex, segment, result.findings.append, is_live=around.is_live)
        for segment, result in zip(partition.segments[: last + 1], segments, strict=False)
    ]
    state = _state_at(partition)
    check = TransactionIndexCheck(
        [index.entries for index in indexes if index is not None],
        open_transactions=[] if state is None else state.transactions.open_transactions(),
        limits=partition.limits,
    )
    is_whole = True
    for number, (segment, index) in enumerate(zip(partition.segments, indexes, strict=False)):
        result = segments[number]
        empty = np.empty(0, kf.TRANSACTION_INDEX_DTYPE)
        path = str(paths[number])
        check.begin(empty if index is None else index.entries, path, segment.base_offset)
        if not is_whole:
            check.skip_to(segment.base_offset)  # the end of the previous segment could not be read
        try:
            is_whole = _feed(check, segment)
        except KafkalogError as error:
            if not any(finding.reason == error.reason for finding in result.findings):
                result.findings.append(error.to_finding())
            is_whole = False
        found = check.finish(is_whole=is_whole and not (around.is_live and segment.is_last))
        if index is None and exist[number]:
            continue  # open_index has reported that it cannot be read
        if index is not None:
            found += [*index.findings(), *index.padding_findings()]
        if not segment.has_sidecar(kf.INDEX_SUFFIX):
            # without a .index, LogSegment.sanityCheck fails, and LogSegment.recover rebuilds all indexes
            but = "but a broker rebuilds it at its next start, because there is no .index"
            found = [replace(finding, damage=False, detail=f"{finding.detail}; {but}") for finding in found]
        result.findings += [*found, *check.missing_markers()]


def _check_producer_epochs(segments: Sequence[VerifiedSegment], add: Add) -> None:
    """Report transactions whose producer epoch changes from one segment to the next."""
    known = TransactionEpochs()
    for before, segment in zip([None, *segments], segments, strict=False):
        if before is not None and any(one.damage and one.path == before.path for one in before.findings):
            known.end()  # what cannot be read may have held markers
        for change in known.join(segment.transaction_epochs):
            add(missing_marker(segment.path, change))


def _feed(check: TransactionIndexCheck, segment: Segment) -> bool:
    """Feed the batches of a segment up to the size it had when it was opened; return whether none was skipped."""
    end = 0
    is_whole = True
    with segment.open() as source:
        for window in SegmentStream(segment, source, on_corruption="skip").windows():
            batches = window.batches
            source.release(window.data, window.start)
            if int(batches.position[0]) != end:
                check.skip_to(int(batches.last_offset[0]))
                is_whole = False
            end = batches.end_position
            n = int(np.searchsorted(batches.next_position, segment.size_in_bytes, side="right"))
            check.feed(batches[:n])
            del window, batches
        if end < source.size:
            is_whole = False
    return is_whole


def _state_at(partition: Partition) -> ProducerState | None:
    """Return the producers' state at the start of the first segment, from a snapshot; None if there is none."""
    if not partition.segments:
        return None
    base_offset = partition.segments[0].base_offset
    # the check of the snapshots reports one that cannot be read
    snapshot = newest_snapshot(partition.path, base_offset, base_offset)
    return None if snapshot is None else ProducerState(snapshot, limits=partition.limits)


def _check_epochs(partition: Partition, segments: Sequence[VerifiedSegment], around: LogDirState, add: Add) -> None:
    """Check that the leader epoch checkpoint is in order, and agrees with the batches that it covers."""
    path = partition.path / kf.LEADER_EPOCH_CHECKPOINT
    entries = _try(add, partial(read_leader_epochs, path), "a broker does not start on it")
    if entries is None:
        return
    changes = np.concatenate([np.empty((0, 2), np.int64), *(segment.epochs for segment in segments)])
    if not entries.size:
        changes = changes[changes[:, 0] >= 0]
        if changes.size and segments[-1].last_offset >= partition.log_start_offset:
            detail = "has no leader epochs, but batches have: a broker does not find them after a clean shutdown"
            add(Finding(Reason.EPOCH_CHECKPOINT, detail, path=str(path), damage=False))
        return
    epoch, start = entries["epoch"].astype(np.int64), entries["start_offset"]
    bad = (epoch < 0) | (start < 0)
    bad[1:] |= (epoch[1:] <= epoch[:-1]) | (start[1:] <= start[:-1])
    if bad.any():
        detail = f"epochs or offsets do not increase at line {int(np.argmax(bad)) + 3}: a broker misleads its followers"
        add(Finding(Reason.EPOCH_ORDER, detail, path=str(path)))
        return
    if segments and not around.is_live and not any(one.damage for one in segments[-1].findings):
        # no proof that records are lost: truncating a log flushes this file later, and a crash may come before
        end = segments[-1].last_offset + 1
        row = int(np.searchsorted(start, end, side="right"))
        if row < len(start):
            detail = (
                f"epoch {epoch[row]} begins at offset {start[row]}, past the log"
                f" end {end}: a broker drops it at its next start"
            )
            add(Finding(Reason.EPOCH_CHECKPOINT, detail, path=str(path), base_offset=int(start[row]), damage=False))
    changes = changes[(changes[:, 0] >= 0) & (changes[:, 1] >= start[0])]
    said = epoch[np.searchsorted(start, changes[:, 1], side="right") - 1]
    for row in np.flatnonzero(said != changes[:, 0])[:1].tolist():
        found, offset = changes[row].tolist()
        detail = (
            f"has leader epoch {said[row]} for offset {offset}, but the batch there has {found}: followers of this"
            " broker truncate at the wrong offset"
        )
        add(Finding(Reason.EPOCH_CHECKPOINT, detail, path=str(path), base_offset=offset))


def _check_metadata(partition: Partition, around: LogDirState, add: Add) -> None:
    """Report records that are missing from the metadata log."""

    def read() -> list[Finding]:
        metadata = cluster_metadata(parent_of(partition.path), limits=partition.limits)
        found = [] if metadata is None else metadata.findings
        return [one for one in found if one.reason is Reason.METADATA_INCOMPLETE]

    for finding in _settled(read, around):
        add(finding)


def _check_raft_snapshot(path: Place, partition: Partition, add: Add) -> None:
    """Check the headers and checksums of a Raft snapshot (`.checkpoint`), which consists of batches too."""
    try:
        with open_source(path, memory_map=False) as source:
            for window in walk(source, limits=partition.limits):
                batches = window.batches
                for row in np.flatnonzero(~valid_crcs(window))[:1].tolist():
                    raise batch_error(STATUS["CRC_MISMATCH"], batches, row, str(path))
    except KafkalogError as error:
        add(error.to_finding())
