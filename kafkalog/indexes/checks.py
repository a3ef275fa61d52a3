"""Checks the entries of an offset or time index against batches, and reports what a broker does with wrong ones.

Batches come one window at a time, as one table each. Only a few numbers are kept between windows, so memory does not
grow with the log. Every entry that would make a lookup miss a record is found. Entries as only older brokers, followers
and cleaners write them are accepted. Mirrors the appending half of `LogSegment`, `OffsetIndex` and `TimeIndex`. Opens
no file, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.text import iso_milliseconds

if TYPE_CHECKING:
    from kafkalog.indexes.view import OffsetEntries, TimeEntries
    from kafkalog.records.batch_table import BatchTable

_SCAN_ENTRIES: Final = 2**20


class Tally:
    """Counts wrong entries by kind of fault, and keeps the first of each kind."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Reason, str], tuple[int, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, reason: Reason, consequence: str, wrong: Sequence[Any] | npt.NDArray[Any], describe: Any) -> None:
        """Count wrong entries; `describe` returns the text of the first of them."""
        if len(wrong):
            before, kept = self._kinds.get((reason, consequence), (0, ""))
            self._kinds[reason, consequence] = before + len(wrong), kept or describe(wrong[0])

    def findings(self, path: str | None, base_offset: int) -> list[Finding]:
        """One finding per kind of fault."""
        rows = []
        for (reason, consequence), (n, first) in self._kinds.items():
            more = f" and {n - 1} more" if n > 1 else ""
            rows.append(Finding(reason, f"{first}{more}: {consequence}", path=path, base_offset=base_offset))
        return rows


class OffsetIndexCheck:
    """Checks an offset index against batches that are fed in the order of the file.

    If the `time_index` of the segment has many more entries, some are missing in this index. `interval_bytes`, the
    topic's `index.interval.bytes`, decides whether the index is too sparse. Default: Kafka's default, unless the
    entries agree with another usual setting (a power of two or of ten).

    A healthy entry is (last offset of an append, position of its first batch). From Kafka 4.1 on, each batch is an
    append. Before, an append was everything in one request or in one buffer of the cleaner, and the cleaner wrote the
    offset of the last record. So four conditions hold: a batch begins at the position; all batches before it are below
    the offset; its own first offset is not above the offset; and the batches before the next entry reach the offset.
    Source: LogSegment.append, OffsetIndex.append, Kafka 2.8 and 4.3.
    """

    def __init__(
        self, index: OffsetEntries, *, time_index: TimeEntries | None = None, interval_bytes: int | None = None
    ) -> None:
        self._index, self._time_index = index, time_index
        self._tally = Tally()
        self._order = _check_order(index.entries, "position", "relative_offset", self._describe, self._tally)
        self._next = 0  # entry, in the order of positions
        self._end = 0  # position after the batches seen
        self._last_offset = index.base_offset - 1
        self._before: tuple[int, int, bool] | None = None  # last entry: number, offset, was its append one batch
        self._is_holed = False  # whether batches are missing since the last entry
        self._gaps = Gaps(interval_bytes)
        self._entry_position = 0
        self._last_size = 0
        self._n_epochs = 0
        self._epoch = -1

    def feed(self, batches: BatchTable) -> None:
        """Check the next batches. Entries that point into a gap before them are not checked."""
        if not len(batches):
            return
        start, end = int(batches.position[0]), batches.end_position
        if start != self._end:
            self._skip(start)
            # a missing entry may lie in bytes that were not seen, so the next one has nothing to be compared with
            self._is_holed = True
        numbers, position, offset = self._entries_before(end)
        if numbers.size:
            self._check_entries(batches, numbers, position, offset)
        epochs = batches.partition_leader_epoch
        self._n_epochs += int((epochs[1:] != epochs[:-1]).sum()) + int(epochs[0] != self._epoch)
        self._epoch = int(epochs[-1])
        self._end = end
        self._last_offset = max(self._last_offset, int(batches.last_offset.max()))
        self._last_size = int(batches.size_in_bytes[-1])

    def _check_entries(
        self,
        batches: BatchTable,
        numbers: npt.NDArray[np.int64],
        position: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
    ) -> None:
        """Check the entries that point into these batches."""
        row = np.searchsorted(batches.position, position)
        begins = batches.position[np.minimum(row, len(batches) - 1)] == position
        self._tally.add(
            Reason.INDEX_POSITION,
            "no batch begins there: a broker that follows it fails, or reads from the middle of a batch",
            numbers[~begins],
            self._describe,
        )
        numbers, row, position, offset = numbers[begins], row[begins], position[begins], offset[begins]
        if not numbers.size:
            return
        below = np.maximum.accumulate(np.concatenate([[self._last_offset], batches.last_offset[:-1]]))[row]
        # a broker scans from the position on for the first batch at or above an offset: it never looks back
        passes = offset <= below
        self._tally.add(
            Reason.INDEX_MISLEADS,
            "earlier batches reach that offset, so a broker that follows it skips records",
            numbers[passes],
            self._describe,
        )
        # a compressed v0 or v1 message hides its first offset: it is at least the one after the batch before
        base = batches.base_offset[row]
        first = np.where(base >= 0, base, below + 1)
        early = ~passes & (offset < first)
        # the batches before an entry have to reach the offset of the previous entry
        known = self._before is not None and not self._is_holed
        number = np.concatenate([[self._before[0] if self._before else -1], numbers[:-1]])
        told = np.concatenate([[self._before[1] if self._before else 0], offset[:-1]])
        late = told > below
        late[0] &= known
        wrong = np.concatenate([numbers[early], number[late]])
        self._tally.add(
            Reason.INDEX_OFFSET,
            "no broker writes that offset for that position: the index may belong to another log",
            wrong,
            self._describe,
        )
        # the gap after an entry for several batches does not tell the interval: their whole append lies in it
        single = offset == batches.last_offset[row]
        before_size = np.concatenate([[self._last_size], batches.size_in_bytes[:-1]])[row]
        was_single = np.concatenate([[known and bool(self._before and self._before[2])], single[:-1]])
        gap = np.diff(position, prepend=self._entry_position)
        self._gaps.add(gap[was_single], before_size[was_single].astype(np.int64))
        self._before = int(numbers[-1]), int(offset[-1]), bool(single[-1])
        self._entry_position = int(position[-1])
        self._is_holed = False

    def finish(self, size_in_bytes: int | None = None) -> list[Finding]:
        """The findings about the entries.

        `size_in_bytes` is the size of the `.log`, by default the end of the last batch.
        """
        size = self._end if size_in_bytes is None else size_in_bytes
        self._skip(size)
        left = range(self._next, len(self._index))
        consequence = f"the .log ends at {size}, so a broker that follows it finds nothing"
        self._tally.add(Reason.INDEX_POSITION, consequence, left, lambda row: self._describe(self._number(row)))
        is_whole = self._end == size
        if self._before is not None and is_whole and self._before[1] > self._last_offset:
            self._tally.add(Reason.INDEX_OFFSET, "the log ends before that offset", self._before[:1], self._describe)
        findings = self._tally.findings(self._index.path, self._index.base_offset)
        if is_whole and not self._is_holed and not findings and (sparse := self._why_sparse()):
            findings.append(
                Finding(Reason.INDEX_SPARSE, sparse, path=self._index.path, base_offset=self._index.base_offset)
            )
        return findings

    def _why_sparse(self) -> str:
        if self._before is not None and self._before[2]:
            tail = np.array([self._end - self._entry_position], np.int64)
            self._gaps.add(tail, np.array([self._last_size], np.int64), is_open=True)
        elif self._before is None and self._end > LARGEST_APPEND:
            tail = np.array([self._end - LARGEST_APPEND], np.int64)
            self._gaps.add(tail, np.array([self._last_size], np.int64))
        n_times = 0 if self._time_index is None else len(self._time_index)
        # a restart of the broker adds an entry to the time index only, and often begins a new leader epoch
        if n_times > 2 * len(self._index) + _RESTARTS + self._n_epochs:
            return (
                f"{len(self._index)} entries where the .timeindex has {n_times}: some are missing, and lookups scan"
                " more"
            )
        return self._gaps.finding()

    def _number(self, place: int) -> int:
        return place if self._order is None else int(self._order[place])

    def _entries_before(self, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number, position and offset of the next entries, in the order of their positions."""
        entries, first = self._index.entries, self._next
        stop = first
        # in pieces: the positions of an index of gigabytes, which is mapped, must not all be copied
        while stop < entries.size:
            numbers = self._slice(stop, stop + _SCAN_ENTRIES)
            positions = entries["position"][numbers].astype(np.int64)
            n = int(np.searchsorted(positions, end))
            stop += n
            if n < positions.size:
                break
        self._next = stop
        numbers = self._slice(first, stop)
        if isinstance(numbers, slice):
            chosen = entries[numbers]
            which = np.arange(first, stop, dtype=np.int64)
        else:
            chosen, which = entries[numbers], numbers
        offset = chosen["relative_offset"].astype(np.int64) + self._index.base_offset
        return which, chosen["position"].astype(np.int64), offset

    def _slice(self, first: int, stop: int) -> Any:
        stop = min(stop, len(self._index))
        return slice(first, stop) if self._order is None else self._order[first:stop]

    def _skip(self, end: int) -> None:
        """Skip the entries that point into bytes that were not fed: they cannot be checked."""
        numbers, position, _ = self._entries_before(end)
        inside = position < self._end  # entries come in order of position: only a negative position can be left here
        self._tally.add(Reason.INDEX_POSITION, "no batch begins there", numbers[inside], self._describe)

    def _describe(self, number: Any) -> str:
        entry = self._index.entries[int(number)]
        offset = int(entry["relative_offset"]) + self._index.base_offset
        return f"entry {int(number)} (offset {offset} at position {int(entry['position'])})"


_RESTARTS: Final = 8
"""Restarts of a broker without a new leader epoch that are plausible within one segment."""


class TimeIndexCheck:
    """Checks a time index against batches that are fed in the order of the file.

    A broker appends to the offset index of the segment at the same time, so each of its entries requires one here, if
    the largest timestamp had risen. In the last segment of a partition (`is_last`) the entry for its largest timestamp
    may not be written yet. A healthy entry is (largest timestamp so far, last offset of the first batch that has it);
    up to 3.7 it may be the offset of the record itself. Equal timestamps add no entry. A roll or a close adds the
    largest timestamp. Source: LogSegment.append, LogSegment.onBecomeInactiveSegment, TimeIndex.maybeAppend, Kafka 2.8
    and 4.3.
    """

    def __init__(self, index: TimeEntries, *, offset_index: OffsetEntries | None = None, is_last: bool = False) -> None:
        name = "relative_offset"
        if offset_index is not None and _check_order(offset_index.entries, name, name, str, Tally()) is not None:
            offset_index = None
        self._index, self._offset_index, self._is_last = index, offset_index, is_last
        self._tally = Tally()
        order = _check_order(index.entries, "relative_offset", "timestamp", self._describe, self._tally)
        self._is_ordered = order is None
        self._next = self._next_offset_entry = 0
        self._largest = -1
        self._last_offset = index.base_offset - 1
        self._end = 0
        self._has_holes = False
        self._is_first = True
        self.starts_with_zeros = False  # an entry for timestamp 0 at the base offset, which looks like padding

    def feed(self, batches: BatchTable) -> None:
        """Check the next batches. After missing batches, entries are not checked any more."""
        if not len(batches):
            return
        if int(batches.position[0]) != self._end:
            self._has_holes = True
        if self._is_first:
            self._is_first = False
            self.starts_with_zeros = (
                not len(self._index)
                and self._index.padding_bytes >= self._index.dtype.itemsize
                and int(batches.max_timestamp[0]) == 0
                and int(batches.position[0]) == 0
                and self._index.base_offset in (int(batches.base_offset[0]), int(batches.last_offset[0]))
            )
        largest = np.maximum.accumulate(batches.max_timestamp)
        np.maximum(largest, self._largest, out=largest)
        before = np.concatenate([[self._largest], largest[:-1]])
        last_offset = np.maximum.accumulate(batches.last_offset)
        if self._is_ordered and not self._has_holes:
            self._check_entries(batches, largest, before, last_offset)
            self._match(largest, last_offset)
        self._largest = int(largest[-1])
        self._last_offset = max(self._last_offset, int(last_offset[-1]))
        self._end = batches.end_position

    def _check_entries(
        self,
        batches: BatchTable,
        largest: npt.NDArray[np.int64],
        before: npt.NDArray[np.int64],
        last_offset: npt.NDArray[np.int64],
    ) -> None:
        """Check the entries whose offsets lie in these batches."""
        entries, first = self._index.entries, self._next
        self._next = stop = _first_above(entries, first, int(last_offset[-1]) - self._index.base_offset)
        if stop == first:
            return
        timestamp = entries["timestamp"][first:stop].astype(np.int64)
        offset = entries["relative_offset"][first:stop].astype(np.int64) + self._index.base_offset
        row = np.searchsorted(last_offset, offset)
        passes = before[row] >= timestamp
        self._tally.add(
            Reason.INDEX_MISLEADS,
            "earlier batches already have that timestamp, and a broker that searches for it skips them",
            first + np.flatnonzero(passes),
            self._describe,
        )
        other = ~passes & (batches.max_timestamp[row] != timestamp)
        self._tally.add(
            Reason.INDEX_TIMESTAMP,
            "not the largest timestamp of the batch with that offset: a broker searches for times in the wrong place,"
            " or keeps or deletes the segment at the wrong time",
            first + np.flatnonzero(other),
            self._describe,
        )

    def _match(self, largest: npt.NDArray[np.int64], last_offset: npt.NDArray[np.int64]) -> None:
        """Check that each entry of the offset index came with a time entry, if the largest timestamp had risen."""
        index = self._offset_index
        if index is None:
            return
        entries, first = index.entries, self._next_offset_entry
        self._next_offset_entry = stop = _first_above(entries, first, int(last_offset[-1]) - index.base_offset)
        n = stop - first
        if not n:
            return
        offset = entries["relative_offset"][first : first + n].astype(np.int64)
        wanted = largest[np.searchsorted(last_offset, offset + index.base_offset)]
        # the timestamp that the time index has at each of these entries
        upto = np.searchsorted(self._index.entries["relative_offset"][: self._next], offset, side="right") - 1
        said = np.full(n, 0 if self.starts_with_zeros else -1, np.int64)
        has = upto >= 0
        said[has] = self._index.entries["timestamp"][upto[has]]
        missing = (said < wanted) & (wanted >= 0)
        if self._is_last and first + n == entries.size and not self._tally:
            # a broker writes the offset entry first: killed in between, it leaves an index that is still valid
            missing[-1] = False
        self._tally.add(
            Reason.INDEX_SPARSE,
            "it lacks timestamps that belong to entries of the .index: a broker that accepts it may skip the segment,"
            " or delete it too early",
            wanted[missing],
            lambda timestamp: f"no entry for timestamp {iso_milliseconds(int(timestamp))}",
        )

    def finish(self, size_in_bytes: int | None = None) -> list[Finding]:
        """The findings about the entries; `size_in_bytes` is the size of the `.log`."""
        is_whole = not self._has_holes and size_in_bytes in (None, self._end)
        entries = self._index.entries
        if is_whole and self._is_ordered:
            consequence = f"the log ends at offset {self._last_offset}, so a broker that follows it finds nothing"
            self._tally.add(Reason.INDEX_OFFSET, consequence, range(self._next, entries.size), self._describe)
        said = int(entries["timestamp"][-1]) if entries.size else (0 if self.starts_with_zeros else -1)
        if is_whole and not self._is_last and said < self._largest and not self._tally:
            what = f"its last timestamp is {iso_milliseconds(said)}" if said >= 0 else "it has no entry"
            largest = iso_milliseconds(self._largest)
            self._tally.add(
                Reason.INDEX_TIMESTAMP,
                f"{what}, but the largest in the batches is {largest}: a broker skips the segment for later times, and"
                " retention uses the wrong time",
                ["the largest timestamp"],
                str,
            )
        return self._tally.findings(self._index.path, self._index.base_offset)

    def _describe(self, number: Any) -> str:
        entry = self._index.entries[int(number)]
        offset = int(entry["relative_offset"]) + self._index.base_offset
        return f"entry {int(number)} (timestamp {iso_milliseconds(int(entry['timestamp']))}, offset {offset})"


def _first_above(entries: npt.NDArray[np.void], first: int, relative_offset: int) -> int:
    """Number of the first entry, from `first` on, above an offset. A few entries are converted at a time."""
    while first < entries.size:
        offsets = entries["relative_offset"][first : first + _SCAN_ENTRIES].astype(np.int64)
        n = int(np.searchsorted(offsets, relative_offset, side="right"))
        first += n
        if n < offsets.size:
            break
    return first


def _check_order(
    entries: npt.NDArray[np.void], name: str, other: str, describe: Any, tally: Tally
) -> npt.NDArray[np.int64] | None:
    """Check that both fields rise from entry to entry, and that none is negative.

    Returns None if so, else the entry numbers in the order of the field `name`.
    """
    is_rising = True
    for first in range(0, entries.size, _SCAN_ENTRIES):
        part = entries[max(first - 1, 0) : first + _SCAN_ENTRIES]
        behind = np.zeros(part.size, np.bool_)
        negative = np.zeros(part.size, np.bool_)
        for field in (name, other):
            values = part[field].astype(np.int64)
            behind[1:] |= values[1:] <= values[:-1]
            negative |= values < 0
        skip = 1 if first else 0
        behind, negative = behind[skip:], negative[skip:] & ~behind[skip:]
        is_rising &= not (behind.any() or negative.any())
        tally.add(
            Reason.INDEX_ORDER,
            "not larger than the previous entry: a broker's binary search misses entries, or its next append fails",
            first + np.flatnonzero(behind),
            describe,
        )
        tally.add(
            Reason.INDEX_ORDER,
            "its offset, position or timestamp is negative",
            first + np.flatnonzero(negative),
            describe,
        )
    return None if is_rising else np.argsort(entries[name].astype(np.int64), kind="stable")


LARGEST_APPEND: Final = 2 * 2**20
"""A plausible size of one append. No entry points inside an append."""

# times the interval: a broker counts from 0 again after each restart, and there may be several in a row
_TOO_SPARSE: Final = 8
_LEAST_INTERVAL: Final = 512


class Gaps:
    """Collects the gaps between entries, and checks which interval they agree with.

    A broker adds an entry when more than `index.interval.bytes` were appended since the previous entry. So the bytes
    before the last append never exceed the interval, and with that append they do. That bounds the interval from both
    sides.
    """

    def __init__(self, interval_bytes: int | None) -> None:
        self._interval_bytes = interval_bytes
        interval = kf.INDEX_INTERVAL_BYTES if interval_bytes is None else max(interval_bytes, _LEAST_INTERVAL)
        self._limit = _TOO_SPARSE * interval
        self._n = self._n_wide = self._widest = self._widest_short = 0
        self._at_least, self._below = -1, 2**62

    def add(self, gap: npt.NDArray[np.int64], last_size: npt.NDArray[np.int64], *, is_open: bool = False) -> None:
        """Add gaps: bytes from an entry to the next one, and the size of the last batch between them.

        Before that batch was appended, the bytes did not exceed the interval; with it they did, unless the log ends
        there (`is_open`).
        """
        if not gap.size:
            return
        short = gap - last_size
        self._n += gap.size
        self._n_wide += int((short > self._limit).sum())
        self._widest = max(self._widest, int(gap.max()))
        self._widest_short = max(self._widest_short, int(short.max()))
        self._at_least = max(self._at_least, int(short.max()))
        if not is_open:
            self._below = min(self._below, int(gap.min()))

    def finding(self) -> str:
        """The reason why the index is too sparse; empty if it is not."""
        is_wide = 2 * self._n_wide > self._n or self._widest_short > self._limit + LARGEST_APPEND
        if not is_wide or self._is_usual():
            return ""
        known = "the default" if self._interval_bytes is None else "the topic's setting"
        interval = kf.INDEX_INTERVAL_BYTES if self._interval_bytes is None else self._interval_bytes
        return (
            f"up to {self._widest} bytes without an entry where index.interval.bytes is {interval} ({known}): a broker"
            " scans them at every lookup"
        )

    def _is_usual(self) -> bool:
        if self._interval_bytes is not None:
            return False
        usual = [2**n for n in range(31)] + [10**n for n in range(10)]
        return self._n > 1 and any(self._at_least <= one < self._below for one in usual)
