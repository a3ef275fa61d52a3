"""Lines of a CSV file: which one a row begins in, though values hold line ends and blank lines are passed over.

Arrow tells neither. In rows that it gave, the line ends are counted; blank lines, and line ends in rows that it does
not give, are found in the bytes that it takes.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LF, _CR, _QUOTE = b'\n\r"'
_KEPT_BYTES: Final = 2**16


class WatchedStream(io.RawIOBase):
    """What is left of a stream, for Arrow, which would close it.

    Parameters
    ----------
    stream : binary file
    line : int
        That it is at the beginning of.

    Attributes
    ----------
    blank, quoted : deque of int
        Lines with nothing in them, and those that begin within quotes; as long as the quotes are those of RFC 4180.
    """

    def __init__(self, stream: BinaryIO, line: int) -> None:
        self._stream = stream
        self._n_ends = line - 2
        self._held = b""
        self._before = b"\n"  # a line end that a blank line may begin behind; it is not counted yet
        self._in_quotes = False
        self._last = b""
        self.blank: deque[int] = deque()
        self.quoted: deque[int] = deque()

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        data = self._held + self._stream.read(n - len(self._held))
        # of a CR at the end of a block and a LF at the beginning of the next, Arrow loses the LF, also in quotes
        self._held = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._held)]
        if data:
            self._note(self._before + data)
            self._last = (self._last + data[-_KEPT_BYTES:])[-_KEPT_BYTES:]
        return data

    def _note(self, data: bytes) -> None:
        """Count lines and quotes, but for a line end that comes last."""
        self._before = b"\n" if data.endswith(b"\n") else b""
        stop = len(data) - len(self._before)
        values = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(values == _LF)
        quotes = np.flatnonzero(values == _QUOTE)
        is_quoted = (np.searchsorted(quotes, ends) + self._in_quotes) % 2 == 1
        n_between = np.diff(ends) - 1
        is_blank = (n_between == 0) | ((n_between == 1) & (values[ends[:-1] + 1] == _CR))
        ends_here = ends < stop
        lines = self._n_ends + 2 + np.arange(ends.size)  # those behind the ends
        self.quoted.extend(lines[is_quoted & ends_here].tolist())
        self.blank.extend(lines[:-1][is_blank & ~is_quoted[:-1]].tolist())
        self._n_ends += int(np.count_nonzero(ends_here))
        self._in_quotes ^= bool(quotes.size % 2)

    def open_quote(self, value: bytes | None) -> int | None:
        """The line of the quote that the last value is in, if it has no end."""
        if not self._in_quotes or value is None:
            return None
        text = b'"' + value.replace(b'"', b'""')
        if len(text) <= _KEPT_BYTES and not self._last.endswith(text):
            return None  # some other quote is alone, in a value that is not in quotes
        return self._n_ends + len(self._before) + 1 - value.count(b"\n")


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
        self._next = line
        self._blank = stream.blank if has_blank else deque()
        self._quoted = stream.quoted

    def line(self, batch: pa.RecordBatch, row: int) -> int:
        """The line of a row of the record batch that comes next, which has all columns, as bytes."""
        found = self._next + row
        for column in batch.slice(0, row).columns:
            found += pc.sum(pc.count_substring(column, "\n")).as_py() or 0
        return _behind(found, self._blank)

    def line_ahead(self, row: int) -> int:
        """The line of a row that no record batch brings."""
        return _behind(self._next + row, sorted([*self._blank, *self._quoted]))

    def skip(self, batch: pa.RecordBatch) -> None:
        """Go behind a record batch."""
        self._next = self.line(batch, batch.num_rows)
        for lines in (self._blank, self._quoted):
            while lines and lines[0] < self._next:
                lines.popleft()


def _behind(line: int, others: Iterable[int]) -> int:
    """A line, so many lines further on as there are others before it."""
    for other in others:
        if other > line:
            break
        line += 1
    return line
