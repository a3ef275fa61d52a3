"""Lines of a CSV file: which one a row begins in, though values hold line ends and blank lines are passed over.

Arrow tells neither. In rows that it gave, the line ends are counted; blank lines, and line ends in rows that it does
not give, are found in the bytes that it takes.
"""

from __future__ import annotations

import io
from collections import deque
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LF, _CR, _QUOTE = b'\n\r"'
_NOTED_BYTES: Final = 2**20
_KEPT_BYTES: Final = 2**16


class SeenLines(NamedTuple):
    """Lines one behind the other, as the bytes say.

    Attributes
    ----------
    first : int
        Which line the first one is.
    is_quoted, is_blank : bool[n]
        Whether it begins within quotes; whether there is nothing in it, nor quotes around it.
    """

    first: int
    is_quoted: npt.NDArray[np.bool_]
    is_blank: npt.NDArray[np.bool_]


class WatchedStream(io.RawIOBase):
    """What is left of a stream, for Arrow, which would close it.

    Parameters
    ----------
    stream : binary file
    line : int
        That it is at the beginning of.

    Attributes
    ----------
    seen : deque of SeenLines
        As long as the quotes are those of RFC 4180.
    """

    def __init__(self, stream: BinaryIO, line: int) -> None:
        self._stream = stream
        self._n_ends = line - 2
        self._held = b""
        self._before = b"\n"  # a line end that a blank line may begin behind; it is not counted yet
        self._in_quotes = False
        self._last = b""
        self.seen: deque[SeenLines] = deque()

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        data = self._held + self._stream.read(n - len(self._held))
        # of a CR at the end of a block and a LF at the beginning of the next, Arrow loses the LF, also in quotes
        self._held = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._held)]
        for start in range(0, len(data), _NOTED_BYTES):
            self._note(self._before + data[start : start + _NOTED_BYTES])
        if data:
            self._last = (self._last + data[-_KEPT_BYTES:])[-_KEPT_BYTES:]
        return data

    def _note(self, data: bytes) -> None:
        """Count lines and quotes, but for a line end that comes last."""
        self._before = next((end for end in (b"\n", b"\n\r") if data.endswith(end)), b"")
        stop = len(data) - len(self._before)
        values = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(values == _LF)
        quotes = np.flatnonzero(values == _QUOTE)
        n_here = int(np.count_nonzero(ends < stop))
        is_quoted = (np.searchsorted(quotes, ends[:n_here]) + self._in_quotes) % 2 == 1
        is_blank = np.zeros(n_here, np.bool_)
        n_between = np.diff(ends) - 1
        is_blank[: n_between.size] = (n_between == 0) | ((n_between == 1) & (values[ends[:-1] + 1] == _CR))
        if n_here:
            self.seen.append(SeenLines(self._n_ends + 2, is_quoted, is_blank & ~is_quoted))
        self._n_ends += n_here
        self._in_quotes ^= bool(quotes.size % 2)

    def open_quote(self, value: bytes | None) -> int | None:
        """The line of the quote that the last value is in, if it has no end."""
        if not self._in_quotes or value is None:
            return None
        text = b'"' + value.replace(b'"', b'""')
        if len(text) <= _KEPT_BYTES and not self._last.endswith(text):
            return None  # some other quote is alone, in a value that is not in quotes
        return self._n_ends + self._before.count(b"\n") + 1 - value.count(b"\n")


class RowLines:
    """Which lines rows begin in.

    Parameters
    ----------
    stream : WatchedStream
    line : int
        Where rows may begin.
    has_blank : bool
        Whether blank lines are passed over, and no rows.
    """

    def __init__(self, stream: WatchedStream, line: int, *, has_blank: bool) -> None:
        self._next, self._has_blank = line, has_blank
        self._seen = stream.seen

    def line(self, batch: pa.RecordBatch, row: int) -> int:
        """The line of a row of the record batch that comes next, which has all columns, as bytes."""
        found = self._next + row
        for column in batch.slice(0, row).columns:
            found += pc.sum(pc.count_substring(column, "\n")).as_py() or 0
        return self._behind(found, has_quoted=False)

    def line_ahead(self, row: int) -> int:
        """The line of a row that no record batch brings."""
        return self._behind(self._next + row, has_quoted=True)

    def skip(self, batch: pa.RecordBatch) -> None:
        """Go behind a record batch."""
        self._next = self.line(batch, batch.num_rows)
        while self._seen and self._seen[0].first + self._seen[0].is_blank.size <= self._next:
            self._seen.popleft()

    def _behind(self, line: int, *, has_quoted: bool) -> int:
        """A line, so many lines further on as there are others before it that no row begins in."""
        for seen in self._seen:
            if seen.first > line:
                break
            is_other = np.zeros(seen.is_blank.size, np.bool_)
            if self._has_blank:
                is_other |= seen.is_blank
            if has_quoted:
                is_other |= seen.is_quoted
            others = np.flatnonzero(is_other[max(0, self._next - seen.first) :]) + max(self._next, seen.first)
            # each that counts makes room for one more
            line += int(np.searchsorted(others - np.arange(others.size), line, side="right"))
        return line
