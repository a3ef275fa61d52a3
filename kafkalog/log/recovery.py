"""Reads a segment as a broker's recovery does, and returns index entries, producer batches and leader epochs.

Mirrors the loop of `LogSegment.recover`: it accepts what recovery accepts and stops where recovery stops. A
strict reader accepts less: recovery ignores magic bytes above 2 and offsets that go back, since no checksum covers
them. A tolerant reader accepts more: recovery reads nothing after damage. This module writes nothing; it reports the
part that recovery would truncate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, Finding, Reason, TruncatedTailError
from kafkalog.indexes.builder import IndexBuilder
from kafkalog.log.searching.lost_records import lost_in
from kafkalog.log.searching.odd_offsets import odd_end_error, odd_last
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.header import MAGIC_END, BatchHeader
from kafkalog.records.header_walk import WINDOW_AFTER_DAMAGE, walk
from kafkalog.records.readers.batch_reader import walk_checked
from kafkalog.state.leader_epochs import new_epochs
from kafkalog.state.producers import with_markers
from kafkalog.storage.source import BufferSource, Bytes, ByteSource


@dataclass(slots=True)
class RecoveredSegment:
    """The state that recovery derives from the batches of a segment."""

    segment: Segment
    offset_entries: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, kf.OFFSET_INDEX_DTYPE))
    time_entries: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, kf.TIME_INDEX_DTYPE))
    """Entries of `.index` and `.timeindex`."""
    replay: list[tuple[BatchTable, npt.NDArray[np.int32]]] = field(default_factory=list)
    """The batches needed to replay producers, one table per window, and the coordinator epochs of their
    markers."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Each leader epoch larger than all before it, and the base offset of its first batch."""
    map_end_offset: int = 0
    """The offset after the last v2 batch; the base offset if there is none."""
    next_offset: int = 0
    """The offset that a broker would give to the next record: the one after the last batch. The base offset if there is
    no batch, or if offsets go back so that the broker does not find the offset of the last index entry."""
    n_bytes: int = 0
    """Size of the `.log` after the read. It may be smaller than when it was listed: a running broker that rolls
    truncates the zeros of a preallocated file."""
    n_valid_bytes: int = 0
    """Position at which a broker would truncate the `.log`; its size if nothing is wrong."""
    is_emptied: bool = False
    """Whether a broker would truncate it to 0 bytes instead."""
    finding: Finding | None = None
    """Why the broker would truncate or empty it."""
    unnoticed: Finding | None = None
    """The first damage that recovery does not notice: a wrong magic byte or offset, which no checksum
    covers."""

    @property
    def is_cut(self) -> bool:
        """Whether a broker would cut the `.log` here, and delete all later segments."""
        return self.n_valid_bytes < self.n_bytes

    def drop_entries(self) -> None:
        """Free the memory of the index entries, once they are written."""
        self.offset_entries, self.time_entries = self.offset_entries[:0].copy(), self.time_entries[:0].copy()


def recover(
    segment: Segment,
    index_interval_bytes: int,
    *,
    with_producers: bool = True,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> RecoveredSegment:
    """Read a segment as `LogSegment.recover` does; `with_producers` fills `replay`.

    `progress` is called with the number of valid bytes read since the last call. Memory is bounded by one window, the
    index entries, and per window a few batches of each of its producers.

    Source: LogSegment.recover, LogLoader.recoverLog, Kafka 4.3.
    """
    found = RecoveredSegment(segment, map_end_offset=segment.base_offset, next_offset=segment.base_offset)
    builder = IndexBuilder(segment.base_offset, index_interval_bytes)
    is_refused = False
    with segment.open() as source:
        windows = _Windows(segment, source, needs_control_bytes=with_producers)
        for window in windows:
            n, reason = builder.feed(window.batches)
            taken = window.batches[:n] if n < len(window.batches) else window.batches
            if reason is not None:
                found.finding = _refusal(segment, window.batches[n : n + 1], reason)
                found.is_emptied = reason is Reason.OFFSET_ORDER
            before = found.n_valid_bytes
            if len(taken):
                _take(found, Window(window.data, window.start, taken), with_producers)
            source.release(window.data, window.start)
            progress(found.n_valid_bytes - before)
            del window, taken  # their memory can serve the next window
            if reason is not None:
                is_refused = True
                break
        found.finding, found.unnoticed = found.finding or windows.finding, windows.unnoticed
        found.n_bytes = source.size
    # a broker adds the final time entry after the last batch that it keeps: only then does it detect this disorder
    if not is_refused and not builder.ends_in_order:
        found.is_emptied = True
        detail = "the offset of the largest timestamp decreases; a broker empties the segment"
        found.finding = Finding(Reason.OFFSET_ORDER, detail, path=str(segment.path), position=0)
    if found.finding is not None and found.finding.reason in _UNREADABLE_HEADERS:
        start = found.finding.base_offset
        if start is not None and not 0 <= start - found.next_offset < 2**31:
            found.finding = replace(found.finding, base_offset=None, last_offset=None)
    if found.is_emptied:
        return RecoveredSegment(
            segment,
            map_end_offset=segment.base_offset,
            next_offset=segment.base_offset,
            n_bytes=found.n_bytes,
            is_emptied=True,
            epochs=found.epochs,
            finding=found.finding,
            unnoticed=found.unnoticed,
        )
    found.offset_entries, found.time_entries = builder.offset_entries(), builder.time_entries()
    if windows.is_disordered and not _finds_last_entry(found):
        found.next_offset = segment.base_offset
    return found


def _finds_last_entry(found: RecoveredSegment) -> bool:
    """Whether a broker finds the last index entry's offset from its position on, and so the end of the log.

    Source: LogSegment.readNextOffset, FileRecords.searchForOffsetFromPosition, Kafka 4.3.
    """
    segment, entries = found.segment, found.offset_entries
    target, start = segment.base_offset, 0
    if entries.size:
        target, start = target + int(entries["relative_offset"][-1]), int(entries["position"][-1])
    last = -1
    with segment.open() as source:
        for window in _Windows(segment, source, needs_control_bytes=False, start=start):
            batches = window.batches
            # a compressed v0 or v1 message lacks its base offset: use its last offset
            base = np.where(batches.base_offset >= 0, batches.base_offset, batches.last_offset)
            inside = batches.next_position <= found.n_valid_bytes
            if (base[inside] >= target).any():
                return True
            last = int(batches.last_offset[inside][-1]) if inside.any() else last
            source.release(window.data, window.start)
    return last >= target


class _Windows:
    """Windows of intact batches up to where recovery stops. `finding` is the reason, None at the end of the file.

    `unnoticed` is the first damage that recovery ignores.

    With `needs_control_bytes` a window has the bytes of its control batches. Other bytes may be missing.
    """

    def __init__(self, segment: Segment, source: ByteSource, *, needs_control_bytes: bool, start: int = 0) -> None:
        self._segment, self._source, self._start = segment, source, start
        self._needs_control_bytes = needs_control_bytes
        self.is_disordered = False
        self.finding: Finding | None = None
        self.unnoticed: Finding | None = None

    def __iter__(self) -> Iterator[Window]:
        position, previous = self._start, self._segment.base_offset - 1
        first_window: int | None = None
        odd: Finding | None = None
        while True:
            windows = walk_checked(
                self._source,
                start=position,
                previous_offset=previous,
                first_window_bytes=first_window,
                needs_control_bytes=self._needs_control_bytes,
                limits=self._segment.limits,
            )
            try:
                for window in windows:
                    intact = self._intact(window)
                    if len(intact.batches):
                        odd = self._odd_end(intact, previous)
                        position = int(intact.batches.position[-1]) + int(intact.batches.size_in_bytes[-1])
                        previous = int(intact.batches.last_offset[-1])
                        yield intact
                    if self.finding is not None:
                        return
                    del window, intact
                self.unnoticed = self.unnoticed or odd
                return
            except TruncatedTailError as tail:
                self.finding = tail.to_finding(damage=not self._segment.is_last)
                return
            except CorruptionError as error:
                position = position if error.position is None else error.position
                error_finding = error.to_finding()
                try:
                    lone = self._unwatched(error, position)
                except CorruptionError:
                    lone = None  # the batch has other damage too, so recovery stops here
                if lone is None or not len(lone.batches):
                    self.finding = self.finding or error_finding
                    return
            self.unnoticed = self.unnoticed or error_finding
            self.is_disordered |= int(lone.batches.last_offset[0]) <= previous
            position, previous = int(lone.batches.next_position[0]), int(lone.batches.last_offset[0])
            first_window = WINDOW_AFTER_DAMAGE  # more such batches may follow: do not read far ahead
            yield lone

    def _odd_end(self, window: Window, previous: int) -> Finding | None:
        """What other files prove to be wrong about the offset of the last batch of a window, if nothing follows it."""
        batches = window.batches
        before = int(batches.last_offset[-2]) if len(batches) > 1 else previous
        first, last = int(batches.base_offset[-1]), int(batches.last_offset[-1])
        if first <= before + 1 or window.batches.end_position < self._source.size:
            return None
        reason = odd_last(before, first, last, self._segment.witnesses())
        return None if reason is None else odd_end_error(window, reason, self._segment.path).to_finding()

    def _intact(self, window: Window) -> Window:
        """The batches before the first one with a wrong checksum."""
        batches = window.batches
        valid = valid_crcs(window)
        if valid.all():
            return window
        row = int(np.argmin(valid))
        error = CorruptionError(
            Reason.CRC_MISMATCH,
            "the checksum does not match the batch's bytes; recovery cuts the segment here",
            path=str(self._segment.path),
            position=int(batches.position[row]),
        )
        self.finding = replace(lost_in(self._segment, window, error), length=int(batches.size_in_bytes[row]))
        return Window(window.data, window.start, batches[:row])

    def _unwatched(self, error: CorruptionError, position: int) -> Window | None:
        """The batch at a position if only fields without a checksum are wrong; None for other damage.

        The checksum of a v2 batch covers neither its base offset nor its magic. Recovery accepts such a batch, and
        also one whose last offset is below its first.
        """
        if error.reason not in (Reason.BAD_MAGIC, Reason.OFFSET_ORDER, Reason.HEADER_INCONSISTENT):
            return None
        source = self._source
        header = BatchHeader(source.window(position, min(position + MAGIC_END, source.size)))
        total = header.size_in_bytes
        if not MAGIC_END <= total <= min(source.size - position, self._segment.limits.max_batch_bytes):
            return None
        # Kafka reads every magic above 2 as v2; Java reads a byte above 127 as negative, so as a v1 message
        magic = min(header.magic, 1) if header.is_message else 2
        if total < (kf.RECORD_BATCH_OVERHEAD if magic == 2 else kf.LEAST_BATCH_BYTES):
            return None
        data: Bytes = source.window(position, position + total)
        accepted = data.copy()
        accepted[:8] = 0
        accepted[16] = magic
        if magic == 2:
            accepted[23:27] = 0
        for window in walk(BufferSource(accepted), limits=self._segment.limits):
            batches = window.batches
            header = BatchHeader(data)
            offset = header.offset
            last = (offset + (header.last_offset_delta if magic == 2 else 0) + 2**63) % 2**64 - 2**63
            batches.position[:] += position
            batches.base_offset[batches.base_offset >= 0] = offset
            batches.last_offset[:] = last
            return self._intact(Window(data, position, batches))
        return None


def _take(found: RecoveredSegment, window: Window, with_producers: bool) -> None:
    """Add the batches of a window to the recovered state."""
    batches = window.batches
    found.n_valid_bytes = int(batches.position[-1]) + int(batches.size_in_bytes[-1])
    found.next_offset = int(batches.last_offset[-1]) + 1
    is_v2 = batches.magic >= 2
    if not is_v2.any():
        return
    found.map_end_offset = found.next_offset if is_v2[-1] else int(batches.last_offset[np.flatnonzero(is_v2)[-1]]) + 1
    found.epochs += new_epochs(batches, found.epochs[-1][0] if found.epochs else kf.NO_EPOCH)
    if with_producers:
        rows = rows_to_replay(batches)
        if rows.size:
            found.replay.append(with_markers(window, batches[rows], limits=found.segment.limits))


def rows_to_replay(batches: BatchTable) -> npt.NDArray[np.int64]:
    """Row numbers of the batches whose replay gives the same producer and transaction state as all batches.

    For each producer these are the first and the last batch, the markers and the batches next to them, and the batches
    where it changes between transactional and not. Any other batch only overwrites the state of the one before it.
    """
    # memory: a segment may have millions of batches of one producer, of which a few decide its state
    rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
    if rows.size < 3:
        return rows
    order = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    ids = batches.producer_id[order]
    bits = batches.attributes[order] & (kf.CONTROL_BIT | kf.TRANSACTIONAL_BIT)
    is_control = (bits & kf.CONTROL_BIT) != 0
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    changes = np.concatenate([[True], bits[1:] != bits[:-1]])
    kept = is_first | is_last | is_control | changes | np.concatenate([changes[1:], [True]])
    return np.sort(order[kept])


def _refusal(segment: Segment, batch: BatchTable, reason: Reason) -> Finding:
    """The finding for a batch for which no index entry can be made."""
    if reason is Reason.OFFSET_ORDER:
        detail = "an index entry for this batch would not be larger than the previous one: a broker empties the segment"
    else:
        detail = f"offset {batch.last_offset[0]} does not belong to a segment that begins at {segment.base_offset}"
        if batch.last_offset[0] > segment.base_offset:
            detail += (
                ", too far for an index entry. A broker that recovers the segment splits it or fails: kafkalog convert"
                " rewrites it"
            )
    return Finding(
        reason,
        detail,
        path=str(segment.path),
        position=int(batch.position[0]),
        length=int(batch.size_in_bytes[0]),
        base_offset=int(batch.base_offset[0]),
        # a broker that does not start, or splits the segment, loses nothing; what it empties is counted as a whole
        n_records=0,
    )


_UNREADABLE_HEADERS = frozenset(
    {
        Reason.SIZE_NEGATIVE,
        Reason.SIZE_TOO_SMALL,
        Reason.SIZE_EXCEEDS_FILE,
        Reason.BAD_MAGIC,
        Reason.HEADER_INCONSISTENT,
        Reason.PARTIAL_TAIL,
        Reason.ZERO_FILL,
    }
)
"""Damage for which the offset may be garbage too."""
