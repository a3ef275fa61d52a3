"""Reads the batches of copies by their rows, and decides by their keys whether compaction can have left a gap.

The log cleaner keeps the last record of each key. So a gap in a compacted copy is a loss if another copy has a last
record there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, KafkalogError, Limits, Reason
from kafkalog.interchange.arrow_output import binary_array
from kafkalog.log.recovery import rows_to_replay
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import Window
from kafkalog.records.columns import RecordColumns
from kafkalog.repair.compacting.cleaner_facts import are_aborted, decoded, rows_of_records
from kafkalog.repair.rescue.replica import Replica, Rows, file_numbers, runs
from kafkalog.repair.salvaging.plan import read_intact, with_epochs
from kafkalog.scanning.conditions.latest import LatestOffsets
from kafkalog.state.producers import with_markers
from kafkalog.state.transactions import Outcome, TransactionReplay
from kafkalog.storage.bad_sectors import BadSectorSource


def read_rows(replicas: Sequence[Replica], rows: Rows) -> Iterator[tuple[Window, Rows, Segment]]:
    """Yield the batches of rows, in order, with the leader epochs of these, and the segment where they are.

    Raises FileChangedError if a file is not as it was when it was searched.
    """
    for begin, end in runs(np.diff(file_numbers(rows), prepend=-1) != 0):
        run = rows[begin:end]
        replica, number = replicas[int(run["replica"][0])], int(run["segment"][0])
        segment = replica.partition.segments[number]
        with BadSectorSource(segment.path) as source:
            if source.identity != replica.identities[number]:
                detail = "the file changed after it was searched: stop all writers of the copy"
                raise FileChangedError(Reason.FILE_CHANGED, detail, path=segment.path)
            stops = run["position"] + run["size_in_bytes"]
            for window, a, b in read_intact(source, run["position"], stops, np.ones(run.size, np.int64)):
                yield with_epochs(window, run["leader_epoch"][a:b]), run[a:b], segment
            source.check_unchanged()


def has_last_records(replicas: Sequence[Replica], rows: Rows, left: Rows, other: Replica, end: int) -> bool:
    """Whether batches that a compacted log lacks have a record that the log cleaner would have kept there.

    `rows` are those of the log, and `left` those that it lacks, of the replica `other`, which has the same history up
    to the offset `end`. A record counts if it has a value, its transaction was committed, and neither the log nor
    `other` has a later one of its key that was not aborted. A later one may be a tombstone that is gone by now. So
    `other` must have lost nothing after the record, and after `end` the log must have every offset. Undecodable batches
    prove nothing.
    """
    losses = [one for one in other.losses if (one.first_offset or 0) < end]
    since = max((kf.MAX_OFFSET if one.end_offset is None else one.end_offset for one in losses), default=0)
    left = left[left["first_offset"] >= since]
    if not left.size:
        return False
    first = int(left["first_offset"][0])
    later = rows[rows["last_offset"] >= first]
    after = later["first_offset"] >= end
    ends = np.append(np.int64(end), later["last_offset"][after] + 1)
    if (later["first_offset"][after] != ends[:-1]).any():
        return False
    latest = LatestOffsets()
    try:
        aborted = _Uncommitted(replicas, rows, other.partition.limits, with_unknown=False)
        for window, _, segment in read_rows(replicas, later):
            batches = window.batches[window.batches.base_offset >= end]
            n_records = np.where(batches.is_control, 1, batches.records_count)
            if (n_records != batches.last_offset - batches.base_offset + 1).any():
                return False
            for columns in _keyed(window, aborted.without(window), ("offset", "key"), segment):
                _add_keys(latest, columns)
        ended = _Uncommitted(replicas, other.rows[other.rows["last_offset"] < end], other.partition.limits)
        for columns in ended.committed(replicas, left, ("offset", "key")):
            _add_keys(latest, columns)
        latest.finish()
        return any(_has_last(latest, some) for some in ended.committed(replicas, left, ("offset", "key", "value")))
    except KafkalogError:
        return False


def _keyed(
    window: Window, which: npt.NDArray[np.int64], names: Sequence[str], segment: Segment
) -> Iterator[RecordColumns]:
    """Yield the records with keys of some batches."""
    for _, columns in decoded(window, which, names, str(segment.path)):
        has_key = columns.key.validity
        yield columns if has_key is None else columns.take(np.flatnonzero(has_key))


def _add_keys(latest: LatestOffsets, columns: RecordColumns) -> None:
    if columns.n_records:
        latest.add(binary_array(columns.key, pa.binary()), pa.array(columns.offset))


def _has_last(latest: LatestOffsets, columns: RecordColumns) -> bool:
    """Whether one of some records is the last of its key, and has a value."""
    if not columns.n_records:
        return False
    has_value = columns.value.validity
    which = latest.rows(columns.offset)
    return bool(which.size if has_value is None else has_value[which].any())


class _Uncommitted:
    """The transactions of some rows that were not committed: aborted or, if asked for, without a marker."""

    def __init__(self, replicas: Sequence[Replica], rows: Rows, limits: Limits, *, with_unknown: bool = True) -> None:
        replay = TransactionReplay(limits=limits)
        names = ["producer_id", "first_offset", "last_offset"]
        found: list[tuple[int, ...]] = []
        for window, _, _ in read_rows(replicas, rows):
            which = rows_to_replay(window.batches)
            if which.size:
                batches, _ = with_markers(window, window.batches[which], limits=limits)
                ended = replay.update(batches, batches.base_offset)
                is_aborted = ended["outcome"] == Outcome.ABORTED
                is_found = ended["outcome"] != Outcome.COMMITTED if with_unknown else is_aborted
                found += ended[is_found][names].tolist()
        still_open = replay.open_transactions() if with_unknown else ()
        found += [(one.producer_id, one.first_offset, kf.MAX_OFFSET) for one in still_open]
        self._entries = np.zeros(len(found), kf.TRANSACTION_INDEX_DTYPE)
        for at, name in enumerate(names):
            self._entries[name] = [one[at] for one in found]

    def committed(self, replicas: Sequence[Replica], rows: Rows, names: Sequence[str]) -> Iterator[RecordColumns]:
        """Yield the records with keys of batches that are of no such transaction."""
        for window, _, segment in read_rows(replicas, rows):
            yield from _keyed(window, self.without(window), names, segment)

    def without(self, window: Window) -> npt.NDArray[np.int64]:
        """The batches of a window with records that are of no such transaction."""
        which = rows_of_records(window.batches)
        return which[~are_aborted(self._entries, window.batches, which)]
