"""Which copies of segments in remote storage count: those that the chain of leader epochs leads to.

A broker looks for an offset in the copies of the leader epoch that the offset has in its local log. So copies by a
leader that lost an election count no more, finished or not, however long they are.
Source: RemoteLogManager.fetchRemoteLogSegmentMetadata, RemoteLogMetadataCache.remoteLogSegmentMetadata, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafkalog.errors import KafkalogError, Reason
from kafkalog.records.header_walk import walk
from kafkalog.system_topics.remote_log import RemoteLog, RemoteSegment
from kafkalog.tiered.layouts import Copy

_END = 2**63 - 1
_BEFORE_EPOCHS = -1
"""Stands for the epoch of offsets below the first one, where messages of v0 and v1 are."""


@dataclass(frozen=True, slots=True)
class Link:
    """A range of offsets, and the copy that has them."""

    first: int
    last: int
    copy: Copy
    end_offset: int
    """The last offset of the copy."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A range of offsets that no copy has."""

    first: int
    last: int
    segment: RemoteSegment | None = None
    """The segment that has them, and whose objects are missing."""


class MetadataFinder:
    """Finds the copies that the metadata topic has; `key` is a topic id and a partition."""

    def __init__(self, log: RemoteLog, key: tuple[str, int], copies: Sequence[Copy]) -> None:
        self._segments = {one.segment_id: one for one in log if (one.topic_id, one.partition) == key}
        self._starts = log.by_epoch.get(key, {})
        self._copies = {copy.segment_id: copy for copy in copies}

    def find(self, epoch: int, offset: int) -> tuple[Copy | RemoteSegment, int, int] | None:
        """The copy with an offset of an epoch, its last offset in the epoch, and its last offset."""
        starts = self._starts.get(epoch, {})
        floor = max((start for start in starts if start <= offset), default=None)
        segment = None if floor is None else self._segments.get(starts[floor])
        if segment is None or segment.ranges()[epoch][1] < offset:
            return None
        copy = self._copies.get(segment.segment_id)
        found = copy if copy is not None and copy.is_readable else segment
        return found, segment.ranges()[epoch][1], segment.end_offset

    def first_after(self, epoch: int, offset: int) -> int | None:
        """The first offset above `offset` at which a copy has batches of an epoch; None if no copy has."""
        return min((start for start in self._starts.get(epoch, {}) if start > offset), default=None)


class ListingFinder:
    """Finds copies by what they say of themselves, where no metadata is: each complete one counts as finished."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._ranges: dict[int | None, list[tuple[int, int, int, Copy]]] = {}
        self._unread: list[tuple[int, int, int, Copy]] = []
        for number, copy in enumerate(copies):
            try:
                extent = copy.extent if copy.is_readable else None
            except KafkalogError as error:
                if error.reason is Reason.OTHER_SEGMENT:
                    # where no other copy has these offsets, a reader gets this error
                    following = (other.start_offset for other in copies[number + 1 :])
                    end = next((start for start in following if start > copy.start_offset), _END) - 1
                    self._unread.append((copy.start_offset, end, end, copy))
                continue  # others are reported by the command that checks the storage
            if extent is None or extent.end_offset < copy.start_offset:
                continue
            starts = sorted(extent.leader_epochs.items(), key=lambda entry: entry[1])
            last = starts[0][1] - 1 if starts else extent.end_offset
            if last >= copy.start_offset:  # messages of v0 and v1 are of any epoch
                self._ranges.setdefault(None, []).append((copy.start_offset, last, extent.end_offset, copy))
            for number, (epoch, start) in enumerate(starts):
                last = starts[number + 1][1] - 1 if number + 1 < len(starts) else extent.end_offset
                self._ranges.setdefault(epoch, []).append((start, last, extent.end_offset, copy))

    @property
    def epochs(self) -> dict[int, int]:
        """The first offset of each epoch."""
        found = self._ranges.items()
        return {epoch: min(start for start, *_ in ranges) for epoch, ranges in found if epoch is not None}

    def find(self, epoch: int, offset: int) -> tuple[Copy | RemoteSegment, int, int] | None:
        """The copy with an offset of an epoch, its last offset in the epoch, and its last offset."""
        there = [one for one in self._of(epoch) if one[0] <= offset <= one[1]]
        there = there or [one for one in self._unread if one[0] <= offset <= one[1]]
        # a copy that lacks objects may be one whose upload failed
        best = max(there, key=lambda one: (not one[3].missing, one[1], one[0]), default=None)
        return None if best is None else (best[3], best[1], best[2])

    def first_after(self, epoch: int, offset: int) -> int | None:
        """The first offset of an epoch after one that a copy has."""
        ranges = [*self._of(epoch), *self._unread]
        return min((start for start, *_ in ranges if start > offset), default=None)

    def _of(self, epoch: int) -> list[tuple[int, int, int, Copy]]:
        return [*self._ranges.get(epoch, ()), *self._ranges.get(None, ())]


def chain(
    finder: MetadataFinder | ListingFinder, epochs: Sequence[tuple[int, int]], start: int, stop: int
) -> tuple[list[Link], list[Hole]]:
    """The copies from the log start offset up to the first local one, and what they lack.

    `epochs` are leader epochs and their first offsets, rising.
    """
    links: list[Link] = []
    holes: list[Hole] = []
    at = start
    while at < stop:
        number = max((n for n, (_, first) in enumerate(epochs) if first <= at), default=-1)
        end = (epochs[number + 1][1] if number + 1 < len(epochs) else _END) - 1
        epoch = epochs[number][0] if number >= 0 else _BEFORE_EPOCHS
        found = finder.find(epoch, at)
        if found is None:
            following = finder.first_after(epoch, at)
            last = min(end, stop - 1, _END if following is None else following - 1)
            if last == _END - 1:
                break  # nothing says where the log ends
            holes.append(Hole(at, last))
        else:
            copy, last, end_offset = found
            last = min(last, end, stop - 1)
            if isinstance(copy, RemoteSegment):
                holes.append(Hole(at, last, copy))
            elif links and links[-1].copy is copy and links[-1].last == at - 1:
                links[-1] = replace(links[-1], last=last)
            else:
                links.append(Link(at, last, copy, end_offset))
        at = last + 1
    return links, holes


def cut_positions(link: Link, *, is_first: bool) -> tuple[int, int | None]:
    """Where the batches of a link begin and end in its copy; None for the end of the file."""
    start = 0
    needs_start, needs_end = link.first > link.copy.start_offset and not is_first, link.last < link.end_offset
    if not needs_start and not needs_end:
        return 0, None
    with link.copy.open(".log") as source:
        for window in walk(source, previous_offset=link.copy.start_offset - 1):
            batches = window.batches
            position = batches.position
            if needs_start:
                inside = (batches.last_offset >= link.first).nonzero()[0]
                if not inside.size:
                    start = int(batches.end_position)
                    continue
                start, needs_start = int(position[inside[0]]), False
            behind = (batches.last_offset > link.last).nonzero()[0]
            if behind.size:
                return start, int(position[behind[0]])
    return start, None
