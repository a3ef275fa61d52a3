"""Tables of numbers with the kind of each column, and the text of a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from kafkalog.text import iso_seconds

Kind = Literal["text", "number", "bytes", "decimal", "share", "time", "ms", "bool", "list"]
"""Of a column. share is a fraction of 1, time is in ms since 1970, ms a duration, list one of texts."""
NUMERIC: Final = frozenset({"number", "bytes", "decimal", "share", "time", "ms"})


@dataclass(slots=True)
class Table:
    """Rows of values. Lists in cells are shown with commas, None as nothing."""

    name: str
    title: str
    about: str
    """A sentence for people."""
    columns: dict[str, Kind]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    n_more: int = 0
    """Rows that are counted but not kept."""

    nullable: frozenset[str] = frozenset()
    """Columns that may be None."""

    @classmethod
    def of(cls, definition: str) -> Self:
        """Make an empty table of a text: ``name: Title. About.``, then ``column kind?`` with commas between them.

        A column without a kind is text; a question mark says that it may be None.
        """
        head, _, columns = definition.partition("\n")
        name, _, text = head.partition(": ")
        title, _, about = text.partition(". ")
        pairs = [one.split() for one in columns.split(",")]
        kinds: dict[str, Kind] = {pair[0].rstrip("?"): (pair[1:] or ["text"])[0].rstrip("?") for pair in pairs}  # type: ignore[misc]
        return cls(
            name, title, about, kinds, nullable=frozenset(one[0].rstrip("?") for one in pairs if one[-1][-1] == "?")
        )

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the rows for JSON."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    def texts(self, row: tuple[Any, ...]) -> list[str]:
        """Return the cells of a row as text."""
        return [cell_text(value, kind) for value, kind in zip(row, self.columns.values(), strict=True)]


def tables_of(definitions: str) -> dict[str, Table]:
    """Return empty tables by name, of definitions that follow each other; see `Table.of`."""
    return {table.name: table for table in map(Table.of, re.split(r"\n(?=\w)", definitions.strip()))}


def cell_text(value: Any, kind: Kind) -> str:
    """Return a value as text for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if kind == "time":
        return iso_seconds(value)
    if kind == "share":
        return f"{value:.1%}"
    if kind == "text":
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def column_title(name: str) -> str:
    """Return the name of a column as words: "damaged" for n_damaged."""
    if name.endswith("_is_minimum"):
        return "at least"
    return name.removeprefix("n_").removeprefix("is_").replace("_", " ")
