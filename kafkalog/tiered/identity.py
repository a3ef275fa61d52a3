"""Whether the `.log` of a copy is the one that its metadata and indexes describe, or the object of another segment.

Objects that were exchanged are intact, so no checksum tells. Offsets, sizes and timestamps do: of a few batches, if
they agree with the indexes; else of all. Damage alone contradicts nothing: readers report it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import intact_headers_at
from kafkalog.records.readers.batch_reader import walk_checked
from kafkalog.storage.source import ByteSource
from kafkalog.text import offset_range

_MOST_TAIL_BYTES: Final = 2**22


class Claim(NamedTuple):
    """Facts about a segment's `.log` from other files, such as its size."""

    by: str
    """Where it is written, for messages."""
    first: int
    last: int | None
    """The offsets; None if the end is not known."""
    size_in_bytes: int | None = None
    max_timestamp: int | None = None
    next_start: int | None = None
    """Where the segment begins that is listed after it: offsets that begin there or later are not its own."""

    def fits(self, first: int, first_end: int, last: int) -> bool:
        """Whether these may be the offsets of the segment: those of its first batch, and its last one."""
        is_behind = self.next_start is not None and first >= self.next_start
        return self.first <= first_end and not is_behind and (self.last is None or last <= self.last)

    @property
    def offsets(self) -> str:
        """The offsets, for messages."""
        following = "" if self.next_start is None else f", and the next segment begins at {self.next_start}"
        return f"{offset_range(self.first, None if self.last is None else self.last + 1)}{following}"


@dataclass
class _LogContent:
    """The intact batches at the start of a `.log`, and how many entries of its indexes fit them."""

    first: int | None = None
    first_end: int = -1
    """The last offset of the first batch: its first one is not known in old formats."""
    last: int = -1
    max_timestamp: int = -1
    is_whole: bool = False
    """Whether these are all bytes."""
    n_fitting_offsets: int = 0
    n_fitting_times: int = 0


@dataclass
class SegmentIdentity:
    """Compares a `.log` with claims about it and with its indexes."""

    source: ByteSource
    claims: Sequence[Claim]
    offset_index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    _content: _LogContent = field(default_factory=_LogContent)

    def contradiction(self) -> str | None:
        """Return what shows that the bytes are those of another segment; None if nothing does."""
        if not self.source.size or self._agrees():
            return None
        self._read()
        if self._content.first is None:
            return None
        found = (self._against(claim) for claim in self.claims)
        return next((text for text in found if text is not None), None) or self._against_indexes()

    def _agrees(self) -> bool:
        """Whether few batches settle it: the first one, those from the last index entry on, that of the last time."""
        first = intact_headers_at(self.source, 0, self.source.size)
        if first is None:
            return False
        start = 0
        if self.offset_index is not None and len(self.offset_index.entries):
            entry = self.offset_index.entries[-1]
            start = int(entry["position"])
            batch = intact_headers_at(self.source, start, self.source.size)
            if batch is None or int(batch.last_offset[0]) != self.offset_index.base_offset + int(
                entry["relative_offset"]
            ):
                return False
        if self.source.size - start > _MOST_TAIL_BYTES:
            return False
        try:
            tail = [window.batches for window in walk_checked(self.source, start=start)]
        except KafkalogError:
            return False
        ends = BatchTable.concatenate([first, *tail])
        newest = self._newest(ends)
        return newest is not None and all(
            claim.fits(ends.first_offset, int(ends.last_offset[0]), int(ends.last_offset[-1]))
            and claim.size_in_bytes in (None, self.source.size)
            and claim.max_timestamp in (None, newest)
            for claim in self.claims
        )

    def _newest(self, ends: BatchTable) -> int | None:
        """The timestamp of the last entry of the time index, if its batch has it and no given one is later."""
        if self.time_index is None or not len(self.time_index.entries):
            return None
        entry = self.time_index.entries[-1]
        newest, offset = int(entry["timestamp"]), self.time_index.base_offset + int(entry["relative_offset"])
        position = 0 if self.offset_index is None else max(int(self.offset_index.lookup([offset - 1])[0]), 0)
        try:
            for window in walk_checked(self.source, start=position, first_window_bytes=2**14):
                row = int(np.searchsorted(window.batches.last_offset, offset))
                if row < len(window.batches):
                    is_there = int(window.batches.max_timestamp[row]) == newest >= int(ends.max_timestamp.max())
                    return newest if is_there else None
        except KafkalogError:
            pass
        return None

    def _read(self) -> None:
        """Read all batches up to the first damage."""
        content = self._content
        try:
            for window in walk_checked(self.source):
                batches = window.batches
                assert window.valid is not None
                n_valid = len(batches) if window.valid.all() else int(np.argmin(window.valid))
                self._take(batches[:n_valid])
                self.source.release(window.data, window.start)
                if n_valid < len(batches):
                    return
        except KafkalogError:
            return
        content.is_whole = True

    def _take(self, batches: BatchTable) -> None:
        if not len(batches):
            return
        content, ends = self._content, batches.last_offset
        if content.first is None:
            content.first, content.first_end = batches.first_offset, int(ends[0])
        content.last = max(content.last, int(ends.max()))
        content.max_timestamp = max(content.max_timestamp, int(batches.max_timestamp.max()))
        if self.offset_index is not None:
            entries = self.offset_index.entries
            rows = np.minimum(np.searchsorted(batches.position, entries["position"]), len(batches) - 1)
            fits = (batches.position[rows] == entries["position"]) & (
                ends[rows] - self.offset_index.base_offset == entries["relative_offset"]
            )
            content.n_fitting_offsets += int(fits.sum())
        if self.time_index is not None:
            times = self.time_index.entries
            offsets = times["relative_offset"].astype(np.int64) + self.time_index.base_offset
            rows = np.minimum(np.searchsorted(ends, offsets), len(batches) - 1)
            inside = (offsets <= ends[rows]) & (offsets > int(ends[0]) - 1)
            content.n_fitting_times += int((inside & (batches.max_timestamp[rows] == times["timestamp"])).sum())

    def _against(self, claim: Claim) -> str | None:
        """How the content contradicts a claim."""
        content, by = self._content, claim.by
        assert content.first is not None
        if not claim.fits(content.first, content.first_end, content.last):
            return f"it has offsets {offset_range(content.first, content.last + 1)}, but {by} has {claim.offsets}"
        size, newest = claim.size_in_bytes, claim.max_timestamp
        # an object that was cut ends inside a batch, or nearly always
        if size is not None and size != self.source.size and content.is_whole:
            return f"it has {self.source.size} bytes, all intact, but {size} in {by}"
        # without timestamps, a broker writes the time at which the file was last modified
        if newest is None or content.max_timestamp < 0 or content.max_timestamp == newest:
            return None
        if content.max_timestamp > newest or content.is_whole:
            return f"its largest timestamp is {content.max_timestamp}, but {newest} in {by}"
        return None

    def _against_indexes(self) -> str | None:
        """Which index is about other batches, where no claim has a timestamp to compare.

        One entry may be damaged, and records do not depend on it.
        """
        content = self._content
        if not content.is_whole or any(claim.max_timestamp is not None for claim in self.claims):
            return None
        n_offsets = 0 if self.offset_index is None else len(self.offset_index.entries)
        n_times = 0 if self.time_index is None else len(self.time_index.entries)
        counts = ((n_offsets, content.n_fitting_offsets, "offset"), (n_times, content.n_fitting_times, "time"))
        is_any = content.n_fitting_offsets or content.n_fitting_times
        name = next((name for n, n_fitting, name in counts if n and not n_fitting and (n > 1 or not is_any)), None)
        return (
            None if name is None else f"no entry of its {name} index fits it; remove the index to read it nevertheless"
        )
