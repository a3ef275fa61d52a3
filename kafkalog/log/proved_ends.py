"""Where the `.log` of a segment once ended, by the last entries of its indexes.

A broker writes an index entry after the batch it is for. So an entry past the last batch proves that batches were lost,
in compacted topics too: the cleaner writes the indexes of its new segments itself.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import valid_crcs

Index = TypeVar("Index", OffsetIndex, TimeIndex)


class ProvedEnd(NamedTuple):
    """An offset that a segment once reached, and the file that proves it."""

    name: str
    """Name of the index."""
    offset: int
    """The offset after the one in its last entry."""


def proved_ends(segment: Segment, end: int, next_base_offset: int = kf.MAX_OFFSET) -> list[ProvedEnd]:
    """The ends that the indexes of a segment prove past `end`, where its `.log` ends, and before the next segment.

    A damaged entry proves nothing: the position of an offset entry must be at or past the end of the file, and the time
    of a time entry must be later than all times in the log, as it is that of the batch which is gone. Nor does an index
    whose entries do not rise.
    """
    if not segment.has_base_offset:
        return []
    found = []
    offsets = _past(end, OffsetIndex, segment)
    if offsets is not None and int(offsets.position[-1]) >= segment.size_in_bytes:
        found.append(ProvedEnd(kf.sidecar_name(segment.path.name, kf.INDEX_SUFFIX), int(offsets.offset[-1]) + 1))
    times = _past(end, TimeIndex, segment)
    if times is not None and int(times.timestamp[-1]) > _largest_timestamp(segment):
        found.append(ProvedEnd(kf.sidecar_name(segment.path.name, kf.TIME_INDEX_SUFFIX), int(times.offset[-1]) + 1))
    return [proof for proof in found if proof.offset <= next_base_offset]


def _past(end: int, kind: type[Index], segment: Segment) -> Index | None:
    """An index of a segment, if its last entry has an offset at or past `end`; its check reports what is wrong."""
    try:
        index = segment.read_index(kind, is_bounded=False)
    except KafkalogError:
        return None
    if index is None or not len(index) or int(index.offset[-1]) < end:
        return None
    rising = index.position if isinstance(index, OffsetIndex) else index.timestamp
    rises = np.all(rising[1:] > rising[:-1]) and np.all(index.offset[1:] >= index.offset[:-1])
    return index if rises else None


def _largest_timestamp(segment: Segment) -> int:
    """The largest timestamp of the intact batches of a segment, -1 for none."""
    largest = -1
    try:
        with segment.open() as source:
            for window in segment.iter_windows(source, on_corruption="skip"):
                intact = window.batches[np.flatnonzero(valid_crcs(window))]
                largest = max(largest, int(intact.max_timestamp.max(initial=-1)))
                source.release(window.data, window.start)
    except KafkalogError:
        pass  # the rest cannot be read, and is damage already
    return largest
