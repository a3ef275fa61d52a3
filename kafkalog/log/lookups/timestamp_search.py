"""Parses timestamps given by users, and finds the first record at or after each among walked batches.

Only batches whose headers allow a match are decoded. Mirrors `FileRecords.searchForTimestamp` and the names of
`OffsetSpec`. This module does not choose the segment to search; `kafkalog.log.lookups.list_offsets` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Limits
from kafkalog.parsing import parse_milliseconds
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.columns import RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.selection import Selection
from kafkalog.state.entries import times

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NAMED_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}
"""Named timestamps, and the numbers that replace them in `ListOffsetsRequest`."""

_MOST: Final = 2**63 - 1
_COLUMNS: Final = ("offset", "timestamp", "leader_epoch", "batch_position")
_MOST_ROWS_AHEAD: Final = 256
_NEVER: Final = np.iinfo(np.int64).min


class Batches(Protocol):
    """A segment, as far as `latest_timestamp` needs it."""

    def iter_batches(self) -> Iterator[BatchTable]:
        """See `Segment.iter_batches`."""


def latest_timestamp(segments: Iterable[Batches]) -> int:
    """The latest timestamp of records, in milliseconds; 0 if there is none. Damaged batches are passed over."""
    found = 0
    for segment in segments:
        with contextlib.suppress(KafkalogError):
            for batches in segment.iter_batches():
                # markers of transactions are no records, and have the time of a broker
                found = max(found, int(batches.max_timestamp[~batches.is_control].max(initial=0)))
    return found


def parse_timestamps(timestamps: Any, end_ms: Callable[[], int] | None = None) -> npt.NDArray[np.int64]:
    """Convert timestamps to int64 milliseconds of the same shape, or to the values of `NAMED_TIMESTAMPS`.

    A datetime between two milliseconds is rounded up. Raises ValueError for a naive datetime, an unknown name, and a
    negative number, since Kafka gives those other meanings; TypeError for any other type.

    >>> from datetime import UTC
    >>> parse_timestamps(["earliest", 1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)]).tolist()
    [-2, 1700000000000, 1700000000001]
    """
    if isinstance(timestamps, (str, datetime)):
        return np.array(_parse(timestamps, end_ms), np.int64)
    values = np.asarray(timestamps)
    if values.dtype.kind == "M":
        values = times(values)
    if values.dtype.kind in "iu":
        if values.size and (values.min() < 0 or values.max() > _MOST):
            _parse(int(values.min() if values.min() < 0 else values.max()))
        return values.astype(np.int64)
    if not isinstance(timestamps, np.ndarray) and not hasattr(timestamps, "__array__"):
        values = np.array(timestamps, object)  # in a mixed list NumPy would convert the numbers to strings
    numbers = [_parse(value, end_ms) for value in values.ravel().tolist()]
    return np.array(numbers, np.int64).reshape(values.shape)


def _parse(value: Any, end_ms: Callable[[], int] | None = None) -> int:
    if isinstance(value, str) and value in NAMED_TIMESTAMPS:
        return NAMED_TIMESTAMPS[value]
    names = ", ".join(NAMED_TIMESTAMPS)
    try:
        number = parse_milliseconds("timestamp", value, end_ms=end_ms)
    except ValueError as error:
        raise ValueError(f"{error}; or one of {names}") from None
    if not 0 <= number <= _MOST:
        raise ValueError(f"timestamp {number}: milliseconds from 0 to 2**63 - 1 are expected, or one of {names}")
    return number


class TimestampSearch:
    """Search windows, fed in offset order, for the first record (by offset) at or after each of the sorted timestamps.

    The first `n_done` timestamps are answered: `found` has the records, `position` those of their batches, -1 for none.

    As in Kafka, a batch is searched only for timestamps up to the largest timestamp in its header. So a result does not
    depend on the other timestamps of the call. A record that matches a timestamp matches every smaller one too, hence
    the answered timestamps always come first.
    """

    def __init__(
        self,
        timestamps: npt.NDArray[np.int64],
        *,
        start_offset: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
        path: str | None = None,
    ) -> None:
        self.found = np.full(timestamps.size, -1, kf.TIMESTAMP_AND_OFFSET_DTYPE)
        self.position = np.full(timestamps.size, -1, np.int64)
        self.n_done = 0
        self._timestamps = timestamps
        self._selection = Selection(start_offset=start_offset, include_control=True)
        self._limits, self._path = limits, path

    @property
    def is_done(self) -> bool:
        """Whether every timestamp is answered."""
        return self.n_done == self._timestamps.size

    def asks(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches that may hold the next match. `feed` looks into no other."""
        return self._asked(batches) >= (_MOST if self.is_done else self._timestamps[self.n_done])

    def feed(self, window: Window) -> None:
        """Search one window."""
        largest = self._asked(window.batches)
        row, n_ahead = 0, 0
        while row < largest.size and not self.is_done:
            rows = self._rows(largest, row, n_ahead)
            if not rows.size:
                return
            last = self._decode(window, rows, largest, is_guess=not n_ahead)
            # a header's largest timestamp is rarely too large: then try one more batch, then two, then four
            row, n_ahead = last + 1, min(max(2 * n_ahead, 1), _MOST_ROWS_AHEAD)

    def _asked(self, batches: BatchTable) -> npt.NDArray[np.int64]:
        """int64[n]: the largest timestamp of each batch that can hold a match; `_NEVER` for the others."""
        # batches that compaction has emptied keep their largest timestamp, but hold no record that could have it
        mask = ~((batches.records_count == 0) & (batches.magic >= 2))
        selected = self._selection.batch_mask(batches)
        return np.where(mask if selected is None else mask & selected, batches.max_timestamp, _NEVER)

    def _rows(self, largest: npt.NDArray[np.int64], row: int, n_ahead: int) -> npt.NDArray[np.int64]:
        """The batches to decode next: those that first reach each timestamp, or the next `n_ahead` candidates."""
        asked = self._timestamps[self.n_done :]
        if n_ahead:
            return row + np.flatnonzero(largest[row:] >= asked[0])[:n_ahead]
        rising = np.maximum.accumulate(largest[row:])
        asked = asked[: np.searchsorted(asked, rising[-1], side="right")]
        return row + np.unique(np.searchsorted(rising, asked, side="left"))

    def _decode(
        self, window: Window, rows: npt.NDArray[np.int64], largest: npt.NDArray[np.int64], *, is_guess: bool
    ) -> int:
        """Search these batches in turn, and return the row of the last one searched.

        With `is_guess`, stops at the first batch that matches less than its header allows: the later ones were chosen
        on the assumption that it would match.
        """
        part = Window(window.data, window.start, window.batches[rows])
        first = 0
        while first < rows.size:
            decoded = decode(
                part, _COLUMNS, first=first, selection=self._selection, limits=self._limits, path=self._path
            )
            stop = first + decoded.n_batches
            positions = part.batches.position[first:stop]
            columns = decoded.columns or RecordColumns.empty(_COLUMNS)
            starts = np.searchsorted(columns.batch_position, positions, side="left")
            stops = np.searchsorted(columns.batch_position, positions, side="right")
            for row, start, end in zip(rows[first:stop].tolist(), starts.tolist(), stops.tolist(), strict=True):
                self._ask(columns.slice(start, end), int(largest[row]))
                if self.is_done or (is_guess and self._timestamps[self.n_done] <= largest[row]):
                    return int(row)
            if decoded.error is not None:
                raise decoded.error
            first = stop
        return int(rows[-1])

    def _ask(self, records: RecordColumns, largest: int) -> None:
        """Search the records of one batch."""
        if not records.n_records:
            return
        asked = self._timestamps[self.n_done :]
        running = np.maximum.accumulate(records.timestamp)
        n = int(np.searchsorted(asked, min(largest, int(running[-1])), side="right"))
        at = np.searchsorted(running, asked[:n], side="left")
        done = slice(self.n_done, self.n_done + n)
        for name in self.found.dtype.names or ():
            self.found[name][done] = records[name][at]
        self.position[done] = records.batch_position[0]
        self.n_done += n
