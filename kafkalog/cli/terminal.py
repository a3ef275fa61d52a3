"""Lays out text for a terminal: lines that fit its width, tables whose less important columns go first, colour.

Also the progress bar.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TextIO

from kafkalog.cli.text import escape_line, table, text_width
from kafkalog.text import counted, human_bytes

if TYPE_CHECKING:
    from kafkalog.reporting.tables import Table

_RED: Final = "\x1b[31m"
_PLAIN: Final = "\x1b[0m"
_ALARM: Final = re.compile(
    r"^ *! .*|(?<=  )! .*|^(?:damaged|unreadable|lost): .*|[\d,]+ findings? of damage.*"
    r"|^(?:loses|does not start|unreadable) +\S*(?:/|-\d+\b).*"
)
"""What is wrong, in lines for people."""
_COMMAND: Final = re.compile(r"\.sh --|^ *kafkalog ")
"""Lines to copy, which stay whole."""
_NARROWEST: Final = 20
_WIDEST_CELL: Final = 60
_PROGRESS_AFTER: Final = 1.0
"""Seconds of work before a progress bar appears."""
_NARROWEST_CELL: Final = 12
_LEAST: Final = ("headers", "timestamp_type")
"""Columns of records that a query's table goes without first."""


def terminal_width() -> int | None:
    """The width of the terminal that stdout is; None for a file or a pipe, where nothing may be left out."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def is_pipe(stream: TextIO) -> bool:
    """Whether another program reads what is written to a stream."""
    return stat.S_ISFIFO(_mode_of(stream))


def is_redirected(stream: TextIO) -> bool:
    """Whether a stream goes to a file or to another program."""
    return is_pipe(stream) or stat.S_ISREG(_mode_of(stream))


def _mode_of(stream: TextIO) -> int:
    try:
        return os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return 0


def has_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal for which nobody has turned colour off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def red(text: str) -> str:
    """The text in the colour of damage."""
    return f"{_RED}{text}{_PLAIN}"


def alarming(line: str) -> str:
    """A line with colour for what it says of damage or loss.

    >>> alarming("orders-0  0.log  1 finding of damage"), alarming("orders-1  0.log  OK")
    ('orders-0  0.log  \\x1b[31m1 finding of damage\\x1b[0m', 'orders-1  0.log  OK')
    """
    return _ALARM.sub(lambda found: red(found[0]), line)


def wrapped(line: str, width: int, indent: int = 2) -> list[str]:
    """A line as lines that fit a width, the next ones indented more; words and commands to copy stay whole.

    >>> wrapped("  ! orders-0: the checksum is wrong", 24)
    ['  ! orders-0: the', '    checksum is wrong']
    """
    if len(line) <= width or width < _NARROWEST or _COMMAND.search(line):
        return [line]
    inner = " " * (len(line) - len(line.lstrip()) + indent)
    return textwrap.wrap(
        line, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def is_exact(exact: object) -> bool:
    """Whether sizes are exact numbers: in files and pipes, and with ``--bytes``."""
    return bool(exact) or not sys.stdout.isatty()


def size_text(n_bytes: int, *, exact: object = False) -> str:
    """A size in a sentence: exact in files and pipes, and for people on a terminal."""
    return counted(n_bytes, "byte") if is_exact(exact) else human_bytes(n_bytes)


def fitting(rows: Sequence[Sequence[str]], right: Sequence[bool], drop: Iterable[str], width: int | None) -> list[str]:
    """Format rows as `table` does; columns are dropped in turn while lines are wider than a terminal.

    Where lines are still wider, the cells of the first column and of those without a title are cut, and the others go.

    >>> fitting([["NAME", "SIZE", "CODEC"], ["orders", "5", "zstd"]], [False, True, False], ["CODEC"], 16)
    ['NAME    SIZE', 'orders     5']
    """
    lines = table(rows, right)
    for name in drop:
        if width is None or max(map(text_width, lines)) <= width:
            break
        if name not in rows[0]:
            continue
        at = rows[0].index(name)
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        right = [*right[:at], *right[at + 1 :]]
        lines = table(rows, right)
    if width is not None and max(map(text_width, lines)) > width:
        left = [at for at, title in enumerate(rows[0]) if not at or not title]
        most = max(width // len(left) - 2, _NARROWEST)
        lines = table([[_shortened(row[at], most) for at in left] for row in rows], [right[at] for at in left])
    return lines


def shown_table(
    rows: Sequence[Sequence[str]], right: Sequence[bool], least: Sequence[str] = (), indent: int = 0
) -> list[str]:
    """Rows, the titles first, as lines for stdout; `right` says which columns are right-aligned.

    A file or a pipe gets all of them. On a terminal, columns without values are left out. Then columns are dropped
    while lines are too wide: those in `least`, then from the right, but neither the first one nor one without a title.
    """
    width = terminal_width()
    if width is None:
        lines = table(rows, right)
    else:
        full = [at for at in range(len(right)) if not at or any(row[at] not in ("", "-") for row in rows[1:])]
        rows, right = [[row[at] for at in full] for row in rows], [right[at] for at in full]
        droppable = [title for title in (*least, *reversed(rows[0])) if title and title != rows[0][0]]
        lines = fitting(rows, right, droppable, width - indent)
    return [" " * indent + line for line in lines]


def query_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[str]:
    """Rows of any query as a table that fits a terminal: long cells are cut, then columns are left out.

    First go those that tell least about records, then the last ones; the last one is cut if enough of it is left.

    >>> query_table(["fruit", "n"], [["apple", "12"], ["fig", "3"]], [False, True], 40)
    ['fruit   n', 'apple  12', 'fig     3']
    """
    for most in (_WIDEST_CELL, 30, 24):
        cut = [[_shortened(cell, most) for cell in row] for row in [names, *rows]]
        lines = table(cut, right)
        if max(map(text_width, lines)) <= width:
            return lines
    return _most_columns(cut, right, width)


def _most_columns(cut: list[list[str]], right: Sequence[bool], width: int) -> list[str]:
    names = cut[0]
    kept = [*range(len(names))]
    for at in [*map(names.index, filter(names.__contains__, _LEAST)), *reversed(kept[1:])]:
        too_wide = max(map(text_width, _chosen(cut, right, kept))) - width
        least = max(text_width(row[at]) for row in cut) - too_wide
        if too_wide <= 0 or at not in kept:
            continue
        if at == kept[-1] and least >= _NARROWEST_CELL and names[at] not in _LEAST:
            cut = [[*row[:at], _shortened(row[at], least), *row[at + 1 :]] for row in cut]
        else:
            kept.remove(at)
    hidden = len(names) - len(kept)
    more = f"({counted(hidden, 'more column')}; --csv or --json show all)"
    return [*_chosen(cut, right, kept), *([more] if hidden else [])]


def _chosen(rows: Sequence[Sequence[str]], right: Sequence[bool], kept: Sequence[int]) -> list[str]:
    return table([[row[at] for at in kept] for row in rows], [right[at] for at in kept])


def _shortened(text: str, most: int) -> str:
    if text_width(text) <= most:
        return text
    ends = accumulate(map(text_width, text))
    return text[: sum(end < most for end in ends)] + "…"


def result_table(result: Table, *, exact: bool) -> Iterator[str]:
    """Yield a table of a result as lines; a terminal gets human sizes, and no columns that are empty or do not fit."""
    from kafkalog.reporting.tables import NUMERIC, column_title

    rows = [[*map(escape_line, _cells(result, row, exact=exact))] for row in result.rows]
    titles, right = [*map(column_title, result.shown)], [kind in NUMERIC for kind in result.shown.values()]
    yield from shown_table([titles, *rows], right, [*map(column_title, result.least)])
    if result.n_more:
        yield f"and {result.n_more:,} more"


def _cells(result: Table, row: tuple[object, ...], *, exact: bool) -> list[str]:
    """The cells of a row as text, sizes for people unless they have to be exact."""
    return [
        human_bytes(value) if kind == "bytes" and isinstance(value, int) and not exact else text
        for text, value, kind in zip(result.texts(row), row, result.shown.values(), strict=False)
    ]


class Progress:
    """A progress bar on stderr with rate and time left; appears after one second of work."""

    def __init__(self, total: int = 0, what: str = "", *, unit: str = "B", enabled: bool) -> None:
        self._total, self._what, self._unit, self._enabled = total, what, unit, enabled
        self._start = time.time()
        self._done = 0
        self._bar: Any = None
        self._lock = threading.Lock()

    @property
    def enabled(self) -> bool:
        """Whether a bar may be shown, so that progress should be reported."""
        return self._enabled

    @property
    def is_shown(self) -> bool:
        """Whether the bar is visible."""
        return self._bar is not None

    def reach(self, done: int) -> None:
        """Report how many bytes are done in total."""
        if not self._enabled or done <= self._done:
            return
        if self._bar is None:
            # most runs are over by then, and a bar that flashes helps nobody
            if time.time() - self._start < _PROGRESS_AFTER:
                self._done = done
                return
            from tqdm import tqdm

            self._done = 0
            self._bar = tqdm(
                total=self._total,
                desc=self._what,
                unit=self._unit,
                unit_scale=self._unit == "B",
                unit_divisor=1024,
                file=sys.stderr,
                leave=False,
                dynamic_ncols=True,
            )
            # the rate counts from the start of the work, not from the bar's
            self._bar.start_t = self._start
        self._bar.update(done - self._done)
        self._done = done

    def resize(self, total: int) -> None:
        """Change the total."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total

    def advance(self, n: int) -> None:
        """Report that `n` more bytes are done, from any thread."""
        # called by the threads that read
        with self._lock:
            self.reach(self._done + n)

    @contextlib.contextmanager
    def hidden(self) -> Any:
        """Hide the bar while something else is written."""
        if self._bar is None:
            yield
            return
        self._bar.clear()
        try:
            yield
        finally:
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._enabled = False
