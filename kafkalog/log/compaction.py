"""Decides whether offsets that no segment holds were compacted away, or whether a segment was lost.

A segment normally begins where the previous one ends. The log cleaner also leaves gaps, and a lost segment looks the
same. One function, `is_compacted`, answers for every command. It uses the files next to the partition, and the density
of offsets in its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import KafkalogError
from kafkalog.log import live
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.state.log_config import COMPACTED
from kafkalog.storage.location import Place


@leading_names
class Density(NamedTuple):
    """How dense the offsets of a segment are."""

    base_offset: int
    last_offset: int
    """`base_offset - 1` if there is no batch."""
    has_gaps: bool
    """Whether offsets are missing inside v2 batches, or between two adjacent batches."""


class GapMeter:
    """Detects missing offsets in a segment from intact batches, since a damaged header may show false gaps."""

    def __init__(self, base_offset: int) -> None:
        self.has_gaps = self.had_gaps = False
        self._last, self._end = base_offset - 1, 0

    def feed(self, batches: BatchTable, position: npt.NDArray[np.int64] | None = None) -> None:
        """Add batches with correct checksums, in order; `position` has the positions of gathered batches."""
        if not len(batches):
            return
        position = batches.position if position is None else position
        before = np.concatenate([[self._last], batches.last_offset[:-1]])
        follows = position == np.concatenate([[self._end], (position + batches.size_in_bytes)[:-1]])
        lacks = (batches.magic >= 2) & (batches.records_count <= batches.last_offset - batches.base_offset)
        is_gap = lacks | (follows & (batches.base_offset > before + 1))
        self.had_gaps = self.has_gaps or bool(is_gap[:-1].any())  # before the last batch
        self.has_gaps = self.had_gaps or bool(is_gap[-1])
        self._last, self._end = int(batches.last_offset[-1]), int(position[-1] + batches.size_in_bytes[-1])


def is_compacted(
    path: Place,
    key: kf.TopicPartition | None,
    kind: str | None,
    end: int,
    segments: Callable[[], Iterable[Density]],
    is_topic_compacted: bool | None = None,
) -> bool | None:
    """Whether the log cleaner explains that no segment holds the offsets before `end`; None if the files do not tell.

    `end` is the base offset of the segment after the gap, `key` and `kind` are from the name of the directory.
    `segments` returns the densities of all segments in order, and is called only if cheaper evidence does not decide.
    `is_topic_compacted` is the policy, if it is known from elsewhere than the log dir.

    A broker's cleaner stores its progress. A follower copies the gaps of a compacted leader, so gaps inside segments
    show compaction even if its own cleaner has never run. The cleaner of a running broker replaces segments before it
    stores its progress.
    """
    if key is not None and key.topic in COMPACTED:
        return True
    is_lost = None if live.is_live(path.absolute().parent) else False
    if key is not None and key.topic == kf.METADATA_TOPIC:
        return is_lost
    cleaned, is_known = _cleaned_to(path, key) if kind is None else (None, False)
    if cleaned is not None and end <= cleaned:
        return True
    compacts = _is_policy_compact(path, key) if is_topic_compacted is None else is_topic_compacted
    if compacts is not None:
        return compacts or is_lost
    return _told_by_segments([*segments()], end, cleaned or 0, is_lost, is_known=is_known)


def was_cleaned(
    path: Place,
    key: kf.TopicPartition | None,
    kind: str | None,
    base_offset: int,
    is_topic_compacted: bool | None = None,
) -> bool | None:
    """Whether the log cleaner may have rewritten a segment; None if the files next to the partition do not tell."""
    if key is not None and key.topic == kf.METADATA_TOPIC:
        return False
    cleaned, is_known = _cleaned_to(path, key) if kind is None else (None, False)
    if is_known:
        return cleaned is not None and base_offset < cleaned
    if key is not None and key.topic in COMPACTED:
        return True
    return _is_policy_compact(path, key) if is_topic_compacted is None else is_topic_compacted


def _told_by_segments(
    rows: Sequence[Density], end: int, cleaned: int, is_lost: bool | None, *, is_known: bool
) -> bool | None:
    """Whether the topic is compacted, by the segments alone; `is_lost` is the answer if none was compacted.

    The cleaner has come to `cleaned`; `is_known` tells that its checkpoint says so.
    """
    if any(before.last_offset >= after.base_offset for before, after in pairwise(rows)):
        return None  # damage, or segments of another partition: their gaps are not the cleaner's
    if any(row.has_gaps for row in rows if row.base_offset >= cleaned):
        return True
    if _is_jump(rows, end):
        return None
    # no cleaner empties all segments: it keeps the last value of each key, unless all were deleted
    is_empty = all(row.last_offset < row.base_offset for row in rows)
    return is_lost if is_known or is_empty or _are_dense(rows) else None


def _is_jump(rows: Sequence[Density], end: int) -> bool:
    """Whether offsets jump so far before `end` that they begin a segment, whoever wrote them."""
    bases = [row.base_offset for row in rows if row.base_offset < end]
    return bool(bases) and end - bases[-1] > kf.MAX_RELATIVE_OFFSET


def _are_dense(rows: Sequence[Density]) -> bool:
    """Whether segments without gaps show that nothing was compacted."""
    # the cleaner skips the last segment, so only the others can show it; it empties some
    is_emptied = any(row.last_offset < row.base_offset for row in rows[:-1])
    is_dense = any(row.last_offset > row.base_offset for row in rows[:-1])
    return is_dense and not is_emptied


def _cleaned_to(path: Place, key: kf.TopicPartition | None) -> tuple[int | None, bool]:
    """Return how far the cleaner has come, and whether the log dir has the checkpoint that stores it."""
    if key is None:
        return None, False
    try:
        offsets = read_offset_checkpoint(path.absolute().parent / kf.CLEANER_OFFSET_CHECKPOINT)
    except KafkalogError:
        return None, False
    return (None, False) if offsets is None else (offsets.get(key), True)


def _is_policy_compact(path: Place, key: kf.TopicPartition | None) -> bool | None:
    """Whether the metadata log next to the partition has the topic as compacted; None if it does not tell."""
    if key is None:
        return None
    metadata = cluster_metadata(path.absolute().parent)
    # an incomplete metadata log may lack the last change of a topic
    if metadata is None or metadata.findings or key.topic not in metadata.topic_ids:
        return None
    return metadata.is_compacted(key.topic)
