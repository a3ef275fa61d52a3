"""Reports offsets that are missing before, between and after the segments of a partition."""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.log import live
from kafkalog.log.directory import Directory
from kafkalog.log.missing_parts import MissingPart
from kafkalog.log.proved_ends import ProvedEnd, proved_ends
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import checkpointed_offset
from kafkalog.storage.files import size_if_there
from kafkalog.storage.location import Place
from kafkalog.text import first_names, offset_range

_INDEXES: Final[dict[str, type[OffsetIndex | TimeIndex | TransactionIndex]]] = {
    kf.INDEX_SUFFIX: OffsetIndex,
    kf.TIME_INDEX_SUFFIX: TimeIndex,
    kf.TRANSACTION_INDEX_SUFFIX: TransactionIndex,
}
_SHOWN: Final = 4
# what is not the .log itself: with more in its name, without its suffix, or in capitals, as other systems write it
_COPY: Final = re.compile(
    r"([0-9]{20})(?:\.log[-.~_ (](?!(?:deleted|swap|cleaned)$)|\.(?!log$)(?i:log)$|[-_ (].*\.(?i:log)$|$)"
)


def start_finding(path: str, start: int, end: int, why: str) -> Finding:
    """The finding about offsets before the first segment, which begins at `end`; `why` names the source of `start`."""
    detail = (
        f"the log begins at offset {end}, but {why} has offset {start}. The offsets between were deleted by retention,"
        " are in remote storage, or their segments are missing; see kafkalog verify"
    )
    return offsets_finding(Reason.OFFSET_GAP, detail, path, start, end, damage=False)


class GapProofs(NamedTuple):
    """The files that prove a loss where no segment holds some offsets, which lie between two segments."""

    ends: Sequence[ProvedEnd] = ()
    """Of the indexes of the segment before."""
    indexes: Sequence[str] = ()
    """Indexes without a `.log`; see `orphan_indexes`."""
    snapshots: Sequence[str] = ()
    """Producer snapshots at offsets where no segment begins."""

    @classmethod
    def of(
        cls, before: Segment | None, directory: Place, files: FilesWithoutLog, start: int, end: int, log_start: int
    ) -> GapProofs:
        """The proofs for the gap after a segment. None while a broker runs: its cleaner replaces files one by one."""
        ends = [] if before is None else proved_ends(before, start, end)
        first = max(start, log_start)
        found = cls(ends, files.indexes_from(first, end, directory), files.snapshots_from(start, end))
        return cls() if any(found) and live.is_live(directory.absolute().parent) else found


class FilesWithoutLog:
    """The files of a partition at offsets at which no segment begins, looked up by offset: there may be many gaps."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._logs = kf.offsets_of(names, kf.LOG_SUFFIX)
        bases = {*self._logs.values()}
        of_indexes = (kf.offsets_of(names, suffix).values() for suffix in _INDEXES)
        self._indexes = sorted({base for some in of_indexes for base in some if base not in bases})
        self._snapshots = sorted(offset for offset in snapshot_offsets(names) if offset not in bases)
        self.copies = copied_segments(names)

    def indexes_from(self, start: int, end: int, directory: Place) -> list[str]:
        """The indexes from `start` to `end` that prove a loss; see `orphan_indexes`."""
        if bisect_left(self._indexes, start) == bisect_left(self._indexes, end):
            return []
        orphans, _ = orphan_indexes(directory, self._names, self._logs, lambda base: not start <= base < end)
        return names_of(orphans)

    def snapshots_from(self, start: int, end: int) -> list[str]:
        """The producer snapshots from `start` to `end`: a broker writes them where a segment begins."""
        first, stop = bisect_left(self._snapshots, start), bisect_left(self._snapshots, end)
        return [*map(snapshot_name, self._snapshots[first:stop])]


def gap_finding(
    path: str, start: int, end: int, proofs: GapProofs, *, is_compacted: bool | None, is_damaged: bool = False
) -> tuple[Finding | None, Sequence[str]]:
    """The finding about offsets from `start` to `end` between two segments, neither of which has them, and its proofs.

    An index proves a loss in compacted topics, too. A snapshot does not: the cleaner of older brokers left those of
    segments that it had merged. Nor does a single one in a topic that may be compacted: a clean shutdown leaves one
    inside a segment. Without proofs, the gap is damage if nothing was compacted. There is no finding if compaction
    explains it, or the damaged end (`is_damaged`) of the segment before, which has a finding.
    """
    if proofs.ends:
        return lost_end_finding(path, start, end, proofs.ends), [proof.name for proof in proofs.ends]
    proves = is_compacted is False or (is_compacted is None and len(proofs.snapshots) > 1)
    names = [*proofs.indexes, *(proofs.snapshots if proves else ())]
    if names:
        return missing_segment(path, start, end, names)
    if is_compacted or is_damaged:
        return None, []
    why = "nothing here shows compaction, so a segment is missing, or has lost its bytes"
    if is_compacted is None:
        why = "normal in a compacted topic; otherwise a segment is missing"
    detail = f"no segment holds offsets {offset_range(start, end)}: {why}"
    return offsets_finding(Reason.OFFSET_GAP, detail, path, start, end, damage=is_compacted is False), []


def missing_segment(path: str, start: int, end: int, proofs: Iterable[str]) -> tuple[Finding, Sequence[str]]:
    """The finding about a `.log` that is gone, by the names of the files that prove it, and these names."""
    names = list(dict.fromkeys(proofs))
    why = f"are gone: a .log is missing, as {first_names(names, _SHOWN)} proves"
    if end <= start:
        return Finding(Reason.SEGMENT_MISSING, f"all segments {why}", path=path, base_offset=start), names
    detail = f"offsets {offset_range(start, end)} {why}"
    return offsets_finding(Reason.SEGMENT_MISSING, detail, path, start, end), names


def orphan_indexes(
    directory: Place, names: Sequence[str], logs: Collection[str], is_explained: Callable[[int], bool]
) -> tuple[dict[int, list[str]], list[str]]:
    """The indexes without a `.log`: those that prove a loss, by base offset, and the others.

    Deletion renames the `.log` before the indexes, and the log cleaner merges several segments into one before it
    deletes them. `is_explained` returns whether an index with a base offset proves nothing for another reason. In a
    directory that is being deleted, none counts.
    """
    parsed = kf.parse_partition_directory(directory.absolute().name)
    if parsed is not None and parsed.kind == "delete":
        return {}, []
    is_cleaning = any(name.endswith((kf.SWAP_SUFFIX, kf.CLEANED_SUFFIX)) for name in names)
    lost: dict[int, list[str]] = {}
    leftovers = []
    for name in names:
        stem, suffix = os.path.splitext(name)
        base = kf.parse_base_offset(name)
        log = stem + kf.LOG_SUFFIX
        if suffix not in _INDEXES or base is None or log in logs:
            continue
        # a second index of that name was renamed with the segment that the log cleaner replaced
        is_deleting = log + kf.DELETED_SUFFIX in names and name + kf.DELETED_SUFFIX not in names
        is_usual = is_cleaning or is_deleting or is_explained(base)
        if not is_usual and _has_entries(directory / name, base):
            lost.setdefault(base, []).append(name)
        else:
            leftovers.append(name)
    return dict(sorted(lost.items())), leftovers


def copied_segments(names: Iterable[str]) -> dict[str, int]:
    """The base offsets of segments by the files that somebody has compressed, renamed, or copied in part.

    Those of a `.log` that is there do not count.
    """
    there = {*names}
    found = {name: int(match[1]) for name in there if (match := _COPY.search(name))}
    return {name: found[name] for name in sorted(found) if kf.segment_file_name(found[name]) not in there}


def copies_past_end(path: str, last: int, copies: Mapping[str, int], details: Sequence[str]) -> list[Finding]:
    """The finding about such files past the last offset of a log, which may be its end, unless details name them."""
    later = {name: base for name, base in copies.items() if base > last}
    untold = [name for name in later if not any(name in detail for detail in details)]
    if not untold:
        return []
    detail = f"{first_names(untold, _SHOWN)} may have later offsets, and is not read: restore the .log from it first"
    return [Finding(Reason.LOG_END_MISSING, detail, path, base_offset=min(later[name] for name in untold))]


def with_copies(finding: Finding, copies: Mapping[str, int]) -> Finding:
    """The finding about missing offsets, with the files that may have them; see `copied_segments`."""
    first, last = finding.base_offset or 0, kf.MAX_OFFSET if finding.last_offset is None else finding.last_offset
    found = [name for name, base in copies.items() if first <= base <= last]
    if not found or not (finding.damage or finding.reason is Reason.SEGMENT_MISSING):
        return finding
    files = first_names(found, _SHOWN)
    return replace(finding, detail=f"{finding.detail}. {files} may have them: restore the .log from it first")


def names_of(orphans: Mapping[int, Sequence[str]]) -> list[str]:
    """The names of indexes, in the order of their base offsets."""
    return [name for names in orphans.values() for name in names]


def _has_entries(path: Place, base_offset: int) -> bool:
    """Whether an index has entries; a broker preallocates it with zeros, which do not count.

    An index that cannot be read counts as one with entries, one that is gone by now does not.
    """
    try:
        return size_if_there(path) is not None and len(_INDEXES[path.suffix].open(path, base_offset)) > 0
    except KafkalogError:
        return True


def cut_finding(path: str, cut: MissingPart) -> Finding:
    """The finding about offsets between two batches of a `.log`, whose index proves that it had some of them."""
    index = kf.sidecar_name(os.path.basename(path), kf.INDEX_SUFFIX)
    why = f"the batches between are cut out of the .log at {cut.position}, as {index} proves"
    found = offsets_finding(
        Reason.LOG_PART_MISSING, f"offsets {offset_range(cut.start, cut.end)} are gone: {why}", path, cut.start, cut.end
    )
    return replace(found, position=cut.position, n_records=cut.n_offsets)


def lost_end_finding(path: str, start: int, end: int, proofs: Sequence[ProvedEnd]) -> Finding:
    """The finding about offsets from `start` to `end` (excluded), which files prove to be the lost end of a `.log`."""
    said = " and ".join(proof.name for proof in proofs)
    detail = f"offsets {offset_range(start, end)} are gone: the end of a .log is missing, as {said} proves"
    return offsets_finding(Reason.LOG_END_MISSING, detail, path, start, end)


def offsets_finding(reason: Reason, detail: str, path: str, start: int, end: int, *, damage: bool = True) -> Finding:
    """The finding about offsets from `start` to `end` (excluded), each of which may have been a record."""
    lost: dict[str, Any] = {"last_offset": end - 1, "n_records": end - start, "certainty": "at_most"}
    return Finding(reason, detail, path, base_offset=start, damage=damage, **lost)


def end_finding(path: str, end: int, known_ends: dict[str, int], *, damage: bool) -> Finding | None:
    """The finding about offsets past the log end that other files have; None if they have none."""
    if max(known_ends.values(), default=end) <= end:
        return None
    behind = {what: offset for what, offset in known_ends.items() if offset > end}
    said = ", ".join(f"{what} ({offset})" for what, offset in behind.items())
    detail = f"the log ends at offset {end}, but other files have later offsets: {said}"
    stop = max(*behind.values(), end + 1)
    return offsets_finding(Reason.LOG_END_MISSING, detail, path, end, stop, damage=damage)


def missing_end(partition: Place, key: kf.TopicPartition | None, end: int) -> Finding | None:
    """The note about offsets past the end of a partition that other files have.

    None without a `key`, which means a part of a partition. Also None while a broker runs, since its checkpoints may be
    newer than the log that was read.
    """
    if key is None:
        return None
    with contextlib.suppress(OSError):
        found = end_finding(str(partition), end, known_ends(partition, key, Directory(partition).names), damage=False)
        return None if found is None or live.is_live(partition.absolute().parent) else found
    return None


def known_ends(partition: Place, key: kf.TopicPartition | None, names: Iterable[str]) -> dict[str, int]:
    """The offsets that a log once reached, by the file that has them: checkpoints and producer snapshots.

    `names` are those of the directory's files; `key` is None for a renamed directory, which no checkpoint names.
    """
    return checkpointed(partition, key, *kf.END_CHECKPOINTS) | {
        snapshot_name(one): one for one in snapshot_offsets(names)
    }


def checkpointed(partition: Place, key: kf.TopicPartition | None, *names: str) -> dict[str, int]:
    """The offsets of a partition in checkpoints of its log dir, by their names."""
    root, found = partition.absolute().parent, dict[str, int]()
    if key is None:
        return found
    for name in names:
        if (offset := checkpointed_offset(root / name, key)) is not None:
            found[name] = offset
    return found


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the producer snapshots among file names."""
    return [*kf.offsets_of(names, kf.PRODUCER_SNAPSHOT_SUFFIX).values()]


def snapshot_name(offset: int) -> str:
    """The file name of the producer snapshot at an offset."""
    return kf.segment_file_name(offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
