"""Tables of numbers with the kind of each column, and the text of a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from kafkalog import html
from kafkalog.html import Result
from kafkalog.parsing import hint
from kafkalog.text import iso_seconds

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Kind = Literal["text", "number", "bytes", "decimal", "share", "time", "ms", "bool", "list", "command", "arguments"]
"""Of a column. share is a fraction of 1, time is in ms since 1970, ms a duration, list one of texts. command is a line
for a shell, and arguments are those of a command, for programs: people see its line."""
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
    least: tuple[str, ...] = ()
    """Columns that a narrow terminal leaves out, the first one first."""

    @classmethod
    def of(cls, definition: str) -> Self:
        """Make an empty table from its definition: ``name: Title. About.``, then a list of ``column kind? ~n``.

        A column without a kind is text; a question mark says that it may be None. Of those with ``~n``, a narrow
        terminal leaves out the one with the lowest number first.
        """
        head, _, columns = definition.partition("\n")
        name, _, text = head.partition(": ")
        title, _, about = text.partition(". ")
        pairs = [one.split() for one in columns.split(",")]
        ranks = {pair[0].rstrip("?"): int(pair.pop()[1:]) for pair in pairs if pair[-1].startswith("~")}
        kinds: dict[str, Kind] = {pair[0].rstrip("?"): (pair[1:] or ["text"])[0].rstrip("?") for pair in pairs}  # type: ignore[misc]
        nullable = frozenset(one[0].rstrip("?") for one in pairs if one[-1][-1] == "?")
        return cls(name, title, about, kinds, nullable=nullable, least=tuple(sorted(ranks, key=ranks.__getitem__)))

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the rows for JSON."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    @property
    def shown(self) -> dict[str, Kind]:
        """The columns that people see: those for programs alone come last, and are left out."""
        return {name: kind for name, kind in self.columns.items() if kind != "arguments"}

    def texts(self, row: tuple[Any, ...]) -> list[str]:
        """Return the cells of a row that people see as text."""
        return [cell_text(value, kind) for value, kind in zip(row, self.shown.values(), strict=False)]


class TablesResult(Result):
    """A result of several tables by name, each of which is a table of Arrow or pandas."""

    __slots__ = ()
    tables: dict[str, Table]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them."""
        return self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """Return the key figures and all rows, for JSON."""
        raise NotImplementedError

    def rows_of_tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables, by table, for JSON."""
        return {name: [*table.objects()] for name, table in self.tables.items()}

    def __getitem__(self, name: str) -> Table:
        return self.tables[self._known(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def _known(self, table: str) -> str:
        if table not in self.tables:
            raise ValueError(f"no table {table!r}; {hint(table, self.tables)}")
        return table

    def to_arrow(self, table: str = "partitions") -> pa.Table:
        """Return a table as a `pyarrow.Table`; `tables` has the names."""
        import pyarrow as pa

        self._known(table)
        types = {"time": pa.timestamp("ms", "UTC"), "list": pa.string(), "arguments": pa.string()}
        columns = self.tables[table].columns.items()
        rows = [*self.tables[table].objects()]
        values = {name: [_cell(row[name], kind) for row in rows] for name, kind in columns}
        return pa.table({name: pa.array(values[name], types.get(kind)) for name, kind in columns})

    def to_pandas(self, table: str = "partitions") -> pd.DataFrame:
        """Return a table as a `pandas.DataFrame`; `tables` has the names."""
        return self.to_arrow(table).to_pandas()

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the first rows of each table that has any."""
        parts = [html.table(repr(self), [], [])]
        for one in self.tables.values():
            if one.rows:
                few, names = one.rows[: html.MOST_ROWS], [*map(column_title, one.shown)]
                parts.append(html.table(one.title, names, map(one.texts, few), n_rows=len(one.rows) + one.n_more))
        return "\n".join(parts)


def _cell(value: Any, kind: Kind) -> Any:
    if kind == "time" and isinstance(value, int) and value < 0:
        return None
    return cell_text(value, kind) if kind in ("list", "arguments") and value is not None else value


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
    if kind in ("text", "command"):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def column_title(name: str) -> str:
    """Return the name of a column as words: "damaged" for n_damaged."""
    if name.endswith("_is_minimum"):
        return "at least"
    return name.removeprefix("n_").removeprefix("is_").replace("_", " ")
