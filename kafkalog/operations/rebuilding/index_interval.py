"""Finds a topic's index settings: in those that are known, or by the entries of existing indexes. Writes nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.state.log_config import default_config
from kafkalog.survey.topics import DEFAULT, SERVER_PROPERTIES, TopicSettings

MAX_INDEX_INTERVAL_BYTES: Final = 2**31 - 1
_SEGMENTS_ASKED: Final = 8
_BYTES_ASKED: Final = 2**23
_ENTRIES_ASKED: Final = 64
_ROUND: Final = (kf.INDEX_INTERVAL_BYTES, *(2**power for power in range(30, -1, -1)), 0)


class IndexInterval(NamedTuple):
    """A topic's `index.interval.bytes`, and where the value comes from."""

    n_bytes: int
    origin: str
    """`"given"`, `"cluster metadata"`, `"server.properties"`, `"existing indexes"` or `"default"`."""


def index_interval(partition: Partition, settings: TopicSettings | None) -> IndexInterval:
    """Find `index.interval.bytes` of a partition's topic.

    A setting in the cluster's metadata comes first, the topic's own before those of brokers, then one in
    `server.properties`. Without the latter, the existing indexes come next, and Kafka's default last.
    """
    if settings is not None:
        known = settings.config(partition)
        origin = known.origins["index.interval.bytes"]
        if origin != DEFAULT or settings.properties is not None:
            is_file = origin in (SERVER_PROPERTIES, DEFAULT)
            n_bytes = known.config.index_interval_bytes
            return IndexInterval(n_bytes, SERVER_PROPERTIES if is_file else "cluster metadata")
    agreed = _agreed(partition.segments)
    if agreed is not None:
        return IndexInterval(agreed, "existing indexes")
    return IndexInterval(kf.INDEX_INTERVAL_BYTES, "default")


def max_index_bytes(partition: Partition, settings: TopicSettings | None) -> int:
    """A topic's `segment.index.bytes`: the size to which a broker preallocates an index."""
    config = default_config() if settings is None else settings.config(partition).config
    return config.segment_index_bytes


def _agreed(segments: list[Segment]) -> int | None:
    """An interval that yields the existing entries; the roundest one, since a range of values does. None if none does.

    At most `_SEGMENTS_ASKED` segments are read, and of each about `_BYTES_ASKED`.
    """
    least, most, n_heard = 0, MAX_INDEX_INTERVAL_BYTES, 0
    for segment in segments:
        if n_heard == _SEGMENTS_ASKED:
            break
        try:
            bounds = interval_bounds(segment)
        # an index that cannot be read tells nothing of the setting
        except (KafkalogError, OSError):
            continue
        if bounds is not None:
            n_heard += 1
            least, most = max(least, bounds[0]), min(most, bounds[1])
    if not n_heard or least > most:
        return None
    found = next((number for number in _ROUND if least <= number <= most), _roundest(least, most))
    # a broker counts again when it starts, and so leaves out an entry: then what is left is a number that nobody sets
    is_odd = found not in _ROUND and found % 100 != 0
    return None if is_odd and least > kf.INDEX_INTERVAL_BYTES else found


def _roundest(least: int, most: int) -> int:
    """The number in a range with the most trailing decimal zeros; the smallest of them."""
    for power in range(9, -1, -1):
        number: int = -(-least // 10**power) * 10**power
        if number <= most:
            return number
    return least


def interval_bounds(segment: Segment) -> tuple[int, int] | None:
    """The smallest and the largest interval that yield the start of an `.index`; None if none does.

    An entry is added before a batch once more than the interval was written since the last entry. Each entry and each
    batch without one therefore bounds the interval. Reading stops after `_BYTES_ASKED` and `_ENTRIES_ASKED`.
    """
    index = segment.offset_hint
    if index is None or not len(index):
        return None
    wanted, offsets = index.position, index.offset
    if (np.diff(wanted) <= 0).any() or (np.diff(offsets) <= 0).any():
        return None
    least, most = 0, MAX_INDEX_INTERVAL_BYTES
    taken, last, before = 0, 0, 0  # number of entries seen, position of the last one, position of the previous batch
    with segment.open() as source:
        for window in segment.iter_windows(source):
            position = window.batches.position
            upto = int(np.searchsorted(wanted, position[-1], side="right"))
            rows = np.searchsorted(position, wanted[taken:upto])
            if (position[rows] != wanted[taken:upto]).any():
                return None  # an entry points between batches
            if (window.batches.last_offset[rows] != offsets[taken:upto]).any():
                return None
            previous = np.concatenate([[before], position[:-1]])
            if rows.size:
                starts = np.concatenate([[last], wanted[taken : upto - 1]])
                # an entry needs more bytes since the last one than the interval; a batch without one, at most as many
                most = min(most, int((wanted[taken:upto] - starts).min()) - 1)
                least = max(least, int(np.where(previous[rows] >= starts, previous[rows] - starts, 0).max()))
                last = int(wanted[upto - 1])
            least = max(least, int(position[-1]) - last)
            taken, before = upto, int(position[-1])
            source.release(window.data, window.start)
            if before >= _BYTES_ASKED and taken >= _ENTRIES_ASKED:
                break
        else:
            if taken < len(index):
                return None  # entries point after the last batch
    return (least, most) if least <= most else None
