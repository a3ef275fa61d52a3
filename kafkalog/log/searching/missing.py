"""Reports offsets that are missing before, between and after the segments of a partition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.log import live
from kafkalog.log.cuts import MissingPart
from kafkalog.log.directory import Directory
from kafkalog.log.proved_ends import ProvedEnd, proved_ends
from kafkalog.log.segment import Segment
from kafkalog.state.checkpoints import checkpointed_offset
from kafkalog.storage.location import Place
from kafkalog.text import offset_range


def start_finding(path: str, start: int, end: int, why: str) -> Finding:
    """The finding about offsets before the first segment, which begins at `end`; `why` names the source of `start`."""
    detail = (
        f"the log begins at offset {end}, but {why} has offset {start}. The offsets between were deleted by retention,"
        " are in remote storage, or their segments are missing; see kafkalog verify"
    )
    return offsets_finding(Reason.OFFSET_GAP, detail, path, start, end, damage=False)


def gap_finding(path: str, start: int, end: int, *, is_compacted: bool | None) -> Finding:
    """The finding about offsets from `start` to `end` that no segment has; damage if nothing was compacted."""
    why = "nothing here was compacted, so a segment is missing"
    if is_compacted is None:
        why = "normal in a compacted topic; otherwise a segment is missing"
    detail = f"no segment holds offsets {offset_range(start, end)}: {why}"
    return offsets_finding(Reason.OFFSET_GAP, detail, path, start, end, damage=is_compacted is False)


def cut_finding(path: str, cut: MissingPart) -> Finding:
    """The finding about offsets between two batches of a `.log`, whose index proves that it had some of them."""
    index = kf.sidecar_name(os.path.basename(path), kf.INDEX_SUFFIX)
    why = f"the batches between are cut out of the .log at {cut.position}, as {index} proves"
    found = offsets_finding(
        Reason.LOG_PART_MISSING, f"offsets {offset_range(cut.start, cut.end)} are gone: {why}", path, cut.start, cut.end
    )
    return replace(found, position=cut.position, n_records=cut.n_offsets)


def lost_end(segment: Segment, start: int, end: int) -> Finding | None:
    """The finding about offsets before the next segment, if an index proves that the `.log` of a segment held some.

    None while a broker runs: its cleaner replaces a `.log` and the indexes one after the other.
    """
    directory = segment.path.absolute().parent
    proofs = proved_ends(segment, start, end)
    if not proofs or live.is_live(directory.parent):
        return None
    return lost_end_finding(str(segment.path.parent), start, end, proofs)


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
