"""Finds records that are missing from a partition: proved by other files, or suggested by a gap in the offsets.

A segment normally begins where the previous one ends. If it does not, either a segment was lost or the log cleaner
removed the records in between. An index, a producer snapshot or a checkpoint that reaches past the log proves a loss.

These other files are not used while a broker runs: it updates checkpoints after the log, and deletes files one by one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.log.partition import Partition
from kafkalog.log.searching.missing import END_CHECKPOINTS, end_finding, gap_finding, offsets_finding, start_finding
from kafkalog.operations.verifying.report import OffsetGap, VerifiedSegment
from kafkalog.operations.verifying.segment import LogDirState
from kafkalog.state.checkpoints import checkpointed_offset, read_leader_epochs
from kafkalog.state.cluster_image import TOPIC
from kafkalog.state.cluster_metadata import read_cluster_metadata

_INDEXES: Final[dict[str, type[OffsetIndex | TimeIndex | TransactionIndex]]] = {
    kf.INDEX_SUFFIX: OffsetIndex,
    kf.TIME_INDEX_SUFFIX: TimeIndex,
    kf.TRANSACTION_INDEX_SUFFIX: TransactionIndex,
}
_REMOTE_METADATA: Final = "__remote_log_metadata-"

Add = Callable[[Finding], None]


def check_losses(
    partition: Partition, segments: Sequence[VerifiedSegment], around: LogDirState, names: Sequence[str], add: Add
) -> list[OffsetGap]:
    """Report missing segments and missing offsets.

    Parameters
    ----------
    partition : Partition
        Must list all segments of its directory.
    segments : sequence of VerifiedSegment
        The result for each segment, in order.
    names : sequence of str
        Names of all files in the directory.
    add : callable
        Called with each finding.

    Returns
    -------
    list of OffsetGap
        All gaps between segments. Those that the cleaner explains are not reported as findings.
    """
    orphans = {} if around.is_live or partition.kind == "delete" else _orphans(partition, segments, names, add)
    snapshots = [] if around.is_live else _offsets(names, kf.PRODUCER_SNAPSHOT_SUFFIX)
    bases = {segment.base_offset for segment in segments}
    gaps = [*_gaps(partition, segments)]
    # a gap after a damaged segment may be that damage, which has a finding already
    damaged = {one.last_offset + 1 for one in segments if any(found.path == one.path for found in one.findings)}
    for gap in gaps:
        if proof := "" if around.is_live else _proof_of_end(gap, segments):
            add(_missing_end(partition, gap, proof))
            continue
        proofs = [name for base, found in orphans.items() if gap.start <= base < gap.end for name in found]
        if not gap.is_compacted:
            proofs += [
                _snapshot(offset) for offset in snapshots if gap.start <= offset < gap.end and offset not in bases
            ]
        if proofs:
            add(_missing_segment(partition, gap.start, gap.end, proofs))
        elif gap.start not in damaged and not gap.is_compacted:
            add(gap_finding(str(partition.path), gap.start, gap.end, is_compacted=False))
    if around.is_live or partition.kind is not None or any(segment.error for segment in partition.segments):
        return gaps
    known_end = _known_ends(partition, snapshots)
    if not segments:
        _check_empty(partition, names, orphans, known_end, add)
        return gaps
    _check_start(partition, segments[0].base_offset, around, names, orphans, add)
    end = segments[-1].last_offset + 1
    behind = {what: offset for what, offset in known_end.items() if offset > end}
    for base, found in orphans.items():
        if base > end:
            behind |= dict.fromkeys(found, base)
        elif base == end and not behind:
            # PartitionWriter moves indexes into place before the .log: if it was killed in between, nothing is lost
            for name in found:
                add(_orphan(partition.path / name))
    # if the last segment is damaged, the log may seem to end where the damage begins; that has a finding already
    damages = [one for one in segments[-1].findings if one.damage and one.path == segments[-1].path]
    if behind and all(one.n_records is not None and (one.last_offset or end) < end for one in damages):
        missing = end_finding(str(partition.path), end, behind, damage=True)
        if missing is not None:
            add(missing)
    return gaps


def _check_start(
    partition: Partition,
    first: int,
    around: LogDirState,
    names: Sequence[str],
    orphans: dict[int, list[str]],
    add: Add,
) -> None:
    """Report offsets before the first segment that other files know of.

    The checkpoint has log start offsets above the base offset of the first segment only. As the log start offset rises,
    epochs and producer snapshots below it are dropped. After a clean shutdown none of them is older than the log. After
    a crash they may be: retention may have deleted segments since. Without any of them a first segment that is gone
    leaves no trace.
    """
    known = {name: base for base, found in orphans.items() for name in found}
    is_proved = any(base < first for base in known.values())
    if not any(name.endswith(kf.LOG_SUFFIX + kf.DELETED_SUFFIX) for name in names):
        known |= {_snapshot(offset): offset for offset in _offsets(names, kf.PRODUCER_SNAPSHOT_SUFFIX)}
        known[kf.LOG_START_OFFSET_CHECKPOINT] = first if (start := _checked_start(partition)) is None else start
        with contextlib.suppress(KafkalogError):  # the check of the checkpoints reports it
            epochs = read_leader_epochs(partition.path / kf.LEADER_EPOCH_CHECKPOINT)
            known[kf.LEADER_EPOCH_CHECKPOINT] = (
                int(epochs["start_offset"][0]) if epochs is not None and epochs.size else first
            )
    known = {name: offset for name, offset in known.items() if offset < first}
    if not known:
        return
    begin = min(known.values())
    if is_proved or (around.was_closed and not _is_tiered(partition)):
        add(_missing_segment(partition, begin, first, [*known]))
    else:
        add(start_finding(str(partition.path), begin, first, ", ".join(known)))


def _is_tiered(partition: Partition) -> bool:
    """Whether segments may be in remote storage: the topic's settings say so, or its broker has metadata of such."""
    root = partition.path.absolute().parent
    try:
        names = os.listdir(root)
    except OSError:
        return True  # a log dir that cannot be listed, or is gone by now, proves nothing
    if any(name.startswith(_REMOTE_METADATA) for name in names):
        return True
    metadata = read_cluster_metadata(root)
    topic = partition.topic_partition.topic if partition.topic_partition else ""
    settings = {} if metadata is None else metadata.settings.get((TOPIC, topic), {})
    return settings.get("remote.storage.enable") == "true"


def _gaps(partition: Partition, segments: Sequence[VerifiedSegment]) -> Iterator[OffsetGap]:
    cleaned = partition.cleaner_offset
    # segments that overlap are damaged or not the partition's own: their gaps say nothing about the cleaner
    is_ordered = all(before.last_offset < after.base_offset for before, after in itertools.pairwise(segments))
    has_gaps = is_ordered and any(segment.has_gaps for segment in segments)
    for before, after in itertools.pairwise(segments):
        start, end = before.last_offset + 1, after.base_offset
        if start < end:
            # the cleaner has not been past its checkpointed offset: it cannot have made a gap after that
            yield OffsetGap(start, end, has_gaps if cleaned is None else end <= cleaned)


def _orphans(
    partition: Partition, segments: Sequence[VerifiedSegment], names: Sequence[str], add: Add
) -> dict[int, list[str]]:
    """Return the names of indexes that have entries but no `.log`, by base offset.

    Orphans that a healthy broker may leave are reported as notes instead: deletion renames the `.log` before the
    indexes, and the log cleaner merges several segments into one before it deletes them.
    """
    logs = {os.path.basename(segment.path) for segment in segments}
    is_cleaning = any(name.endswith((kf.SWAP_SUFFIX, kf.CLEANED_SUFFIX)) for name in names)
    lost: dict[int, list[str]] = {}
    for name in names:
        stem, suffix = os.path.splitext(name)
        base = kf.parse_base_offset(name)
        log = stem + kf.LOG_SUFFIX
        if suffix not in _INDEXES or base is None or log in logs:
            continue
        is_covered = any(one.base_offset < base <= one.last_offset for one in segments)
        is_below_start = (
            bool(segments) and base < partition.log_start_offset and base < (_checked_start(partition) or 0)
        )
        is_usual = is_cleaning or is_covered or is_below_start or log + kf.DELETED_SUFFIX in names
        if not is_usual and _has_entries(partition.path / name, base):
            lost.setdefault(base, []).append(name)
        else:
            add(_orphan(partition.path / name))
    return dict(sorted(lost.items()))


def _orphan(path: Path) -> Finding:
    detail = "an index without a .log: a broker deletes it when it starts"
    return Finding(Reason.UNKNOWN_FILE, detail, path=str(path), damage=False)


def _checked_start(partition: Partition) -> int | None:
    """Return the log start offset in the log dir's checkpoint; None if it has none."""
    return _checkpointed(partition, kf.LOG_START_OFFSET_CHECKPOINT)


def _has_entries(path: Path, base_offset: int) -> bool:
    """Whether an index has entries; a broker preallocates it with zeros, which do not count.

    An index that cannot be read counts as one with entries.
    """
    try:
        return len(_INDEXES[path.suffix].open(path, base_offset)) > 0
    except KafkalogError:
        return True


def _known_ends(partition: Partition, snapshots: Iterable[int]) -> dict[str, int]:
    """Return the offsets that the log once reached, by the file that records them."""
    ends = {name: _checkpointed(partition, name) for name in END_CHECKPOINTS}
    found = {name: offset for name, offset in ends.items() if offset is not None}
    return found | {_snapshot(offset): offset for offset in snapshots}


def _check_empty(
    partition: Partition,
    names: Sequence[str],
    orphans: dict[int, list[str]],
    known_ends: dict[str, int],
    add: Add,
) -> None:
    """Report a directory without a segment.

    A broker creates the first segment before any other file, so any other file proves that a segment was lost.
    """
    proofs = [name for found in orphans.values() for name in found]
    proofs += [name for name, offset in known_ends.items() if offset > 0]
    proofs += [name for name in (kf.PARTITION_METADATA,) if name in names]
    try:
        epochs = read_leader_epochs(partition.path / kf.LEADER_EPOCH_CHECKPOINT)
    except KafkalogError:
        epochs = None  # the check of the checkpoints reports it
    if epochs is not None and epochs.size:
        proofs.append(kf.LEADER_EPOCH_CHECKPOINT)
    is_deleting = any(name.endswith((kf.DELETED_SUFFIX, kf.SWAP_SUFFIX)) for name in names)
    if not proofs or (is_deleting and not orphans):
        detail = "there is no .log: a broker makes an empty one when it starts"
        add(Finding(Reason.SEGMENT_MISSING, detail, path=str(partition.path), damage=False))
        return
    start = max(partition.log_start_offset, 0)
    end = max([start, *known_ends.values(), *(base + 1 for base in orphans)])
    add(_missing_segment(partition, start, end, proofs))


def _missing_segment(partition: Partition, start: int, end: int, proofs: Sequence[str]) -> Finding:
    shown = ", ".join(proofs[:_SHOWN]) + (f" and {len(proofs) - _SHOWN} more" if len(proofs) > _SHOWN else "")
    why, path = f"are gone: a .log is missing, as {shown} proves", str(partition.path)
    if end <= start:
        return Finding(Reason.SEGMENT_MISSING, f"all segments {why}", path=path, base_offset=start)
    return offsets_finding(Reason.SEGMENT_MISSING, f"offsets {start}..{end} {why}", path, start, end)


_SHOWN: Final = 4


def _proof_of_end(gap: OffsetGap, segments: Sequence[VerifiedSegment]) -> str:
    """Name of the offset index that reaches into a gap, behind the end of its `.log`; "" if there is none."""
    if any(one.base_offset <= gap.start <= one.last_offset for one in segments):
        return ""
    before = next(one for one in reversed(segments) if one.last_offset + 1 == gap.start)
    for found in before.findings:
        is_counted = found.n_records is None or (found.last_offset or -1) >= gap.start
        if found.damage and found.path == before.path and is_counted:
            return ""  # damage that may have hidden these offsets
    name = kf.sidecar_name(before.path, kf.INDEX_SUFFIX)
    try:
        offsets = OffsetIndex.open(name, before.base_offset).offset
    except KafkalogError:
        return ""  # the check of the index reports it
    return os.path.basename(name) if offsets.size and gap.start <= int(offsets[-1]) < gap.end else ""


def _missing_end(partition: Partition, gap: OffsetGap, proof: str) -> Finding:
    detail = f"offsets {gap.start}..{gap.end} are gone: the end of a .log is missing, as {proof} proves"
    return offsets_finding(Reason.LOG_END_MISSING, detail, str(partition.path), gap.start, gap.end)


def _checkpointed(partition: Partition, name: str) -> int | None:
    if partition.topic_partition is None:
        return None
    return checkpointed_offset(partition.path.absolute().parent / name, partition.topic_partition)


def _offsets(names: Iterable[str], suffix: str) -> list[int]:
    found = (kf.parse_base_offset(name) for name in names if name.endswith(suffix))
    return [offset for offset in found if offset is not None]


def _snapshot(offset: int) -> str:
    return kf.segment_file_name(offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
