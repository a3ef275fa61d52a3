"""A report as one HTML page: no network, light and dark, print and phone; each table can be sorted and searched.

Names and values come from untrusted files. The markup escapes them, the script treats them as data, and a content
security policy allows only that script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kafkalog.html import escape, visible
from kafkalog.reporting.tables import NUMERIC, Table, column_title
from kafkalog.text import iso_seconds

_STATIC_ROWS: Final = 100
"""Rows in the markup, for print and for readers without a script."""
MOST_CHARACTERS: Final = 2000
_MOST_DATA: Final = 7_000_000
"""Characters of the rows of all tables: so large a page opens quickly."""
_BAD: Final[dict[str, tuple[str, list[Any]]]] = {
    "findings": ("damage", [True]),
    "problems": ("effect", ["does not start", "log dir offline"]),
    "start": ("verdict", ["loses", "does not start"]),
    "topics": ("verdict", ["loses", "does not start"]),
    "partitions": ("verdict", ["loses", "does not start"]),
    "transactions": ("is_hanging", [True]),
}
"""The column, and its values, that mark a row."""
_WHY: Final = frozenset({"n_damaged", "n_damage", "n_records_lost"})
"""Columns next to those that mark a row."""
_FOLDED: Final = frozenset({"start", "topics", "partitions"})
"""Tables in which healthy rows are folded if there are others."""


def _bad_of(table: Table) -> tuple[int, list[Any]] | None:
    """The number of that column in a table, and the values."""
    name, values = _BAD.get(table.name, ("", []))
    return ([*table.columns].index(name), values) if name in table.columns else None


def page(
    title: str, created: int, figures: Sequence[tuple[str, str]], every: Iterable[Table], *, is_ok: bool
) -> Iterator[str]:
    """Yield the parts of the page; `created` is in ms.

    `figures` are the key figures with titles; the first four show the overall state, which `is_ok` marks. Tables
    without rows are left out.
    """
    style, script = (Path(__file__).with_name(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    tables = [_arranged(table) for table in every if table.rows]
    title = escape(title)
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{iso_seconds(created)}</p>
"""
    state = ". ".join(f"{name}: {escape(text)}" for name, text in figures[:4])
    yield f'<p class="state{"" if is_ok else " bad"}">{state}.</p>\n'
    for table in tables:
        if table.name == "next":
            yield from (
                f'<p class="next"><code>{escape(line)}</code> {escape(why)}</p>\n' for line, why, *_ in table.rows
            )
    yield '<dl class="figures">'
    yield from (f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in figures)
    yield "</dl>\n<nav>"
    yield from (f'<a href="#{one.name}">{one.title} ({len(one.rows) + one.n_more:,})</a>' for one in tables)
    yield "</nav>\n"
    data, n_left = {}, _MOST_DATA
    for table in tables:
        rows, n_left = _rows(table, n_left)
        data[table.name] = rows
        yield from _section(table, len(rows))
    # "<" cannot end the element, nor begin a comment in it
    numeric = " ".join(sorted(NUMERIC))
    yield f'<script type="application/json" id="data" data-step="{_STATIC_ROWS}" data-numeric="{numeric}">{{'
    for number, table in enumerate(tables):
        about = json.dumps({"kinds": [*table.shown.values()], "bad": _bad_of(table), "first": _n_first(table)})
        body = ",\n".join(data.pop(table.name)).replace("<", "\\u003c")
        yield f'{"," if number else ""}"{table.name}":{about[:-1]},"rows":[{body}]}}'
    yield f"}}</script>\n<script>{script}</script>\n</body>\n</html>\n"


def _arranged(table: Table) -> Table:
    """A table with what is wrong first: the rows that are marked, and the columns that say why, after the first one."""
    bad = _bad_of(table)
    if bad is None:
        return table
    names = [*table.columns]
    first = [at for at, name in enumerate(names) if at == 0 or at == bad[0] or name in _WHY]
    order = [*first, *(at for at in range(len(names)) if at not in first)]
    # the order of rows that are alike stays
    rows = sorted(table.rows, key=lambda row: row[bad[0]] not in bad[1])
    return replace(
        table,
        columns={names[at]: table.columns[names[at]] for at in order},
        rows=[tuple(row[at] for at in order) for row in rows],
    )


def _n_first(table: Table) -> int | None:
    """How many rows are shown at first: the marked ones, if there are some and healthy ones too."""
    bad = _bad_of(table)
    n = 0 if bad is None or table.name not in _FOLDED else sum(row[bad[0]] in bad[1] for row in table.rows)
    return n if 0 < n < len(table.rows) else None


def _rows(table: Table, n_left: int) -> tuple[list[str], int]:
    """The rows as JSON, as many as there is room for, and the room that is left."""
    found: list[str] = []
    n_columns = len(table.shown)
    for row in table.rows:
        text = json.dumps([_shown(value) for value in row[:n_columns]], ensure_ascii=False, separators=(",", ":"))
        n_left -= len(text)
        if n_left < 0 and len(found) >= _STATIC_ROWS:
            break
        found.append(text)
    return found, n_left


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value, MOST_CHARACTERS)
    if isinstance(value, (list, tuple)):
        return [visible(str(one), MOST_CHARACTERS) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def _section(table: Table, n_rows: int) -> Iterator[str]:
    kinds = [*table.shown.values()]
    yield f'<section id="{table.name}"><h2>{table.title}</h2><p>{table.about}</p>\n'
    if table.name in _PLOTS and "n_bytes" in table.columns:
        yield _PLOTS[table.name](table)
    yield '<div class="wide"><table><thead><tr>'
    for name, kind in table.shown.items():
        yield f'<th scope="col"{" class=n" if kind in NUMERIC else ""}>{column_title(name)}</th>'
    yield "</tr></thead><tbody>\n"
    bad = _bad_of(table)
    for row in table.rows[:_STATIC_ROWS]:
        is_bad = bad is not None and row[bad[0]] in bad[1]
        yield "<tr class=bad>" if is_bad else "<tr>"
        for text, kind in zip(table.texts(row), kinds, strict=True):
            mark = "n" if kind in NUMERIC else "long" if len(text) > 40 else ""
            yield f"<td{f' class={mark}' if mark else ''}>{escape(text, MOST_CHARACTERS)}</td>"
        yield "</tr>\n"
    yield '</tbody></table></div><button class="more" hidden></button>'
    if n_more := len(table.rows) - n_rows + table.n_more:
        yield f"<p>{n_more:,} more are not on this page; --json has {'all' if not table.n_more else 'more'}.</p>"
    yield "</section>\n"


_MOST_COLUMNS: Final = 400
_MOST_BARS: Final = 12


def _columns(table: Table) -> str:
    """A plot with a column for each day."""
    rows = [(str(day), int(n_bytes)) for day, _, n_bytes in table.rows if str(day)[:1].isdigit()][-_MOST_COLUMNS:]
    if len(rows) < 2:
        return ""
    width, most = 800 / len(rows), max(n for _, n in rows) or 1
    columns = "".join(
        f'<rect x="{number * width:.1f}" y="{120 * (1 - n / most):.1f}" width="{max(width - 1, 0.5):.1f}"'
        f' height="{120 * n / most:.1f}"><title>{escape(day)}: {n:,} bytes</title></rect>'
        for number, (day, n) in enumerate(rows)
    )
    title = f"{table.title}, at most {most:,}"
    plot = f'<svg viewBox="0 0 800 120" preserveAspectRatio="none" role="img" aria-label="{title}">{columns}</svg>'
    ends = f'<div class="ends"><span>{escape(rows[0][0])}</span><span>{escape(rows[-1][0])}</span></div>'
    return _figure(title, plot + ends)


def _bars(table: Table) -> str:
    """A plot with a bar for each of the rows with the most bytes."""
    place = [*table.columns].index("n_bytes")
    rows = sorted(table.rows, key=lambda row: -row[place])[:_MOST_BARS]
    if len(rows) < 2:
        return ""
    most = max(rows[0][place], 1)
    bars = "".join(
        f"<dt>{escape(row[0], 38)}</dt>"
        f'<dd><i style="width:{80 * row[place] / most:.1f}%" title="{escape(row[0])}"></i>{row[place]:,}</dd>'
        for row in rows
    )
    title = table.title if table.title.startswith("Bytes") else f"{table.title} with the most bytes"
    return _figure(title, f'<dl class="bars">{bars}</dl>')


def _figure(title: str, content: str) -> str:
    return f"<figure><figcaption>{title}</figcaption>{content}</figure>\n"


_PLOTS: Final = {"days": _columns, "topics": _bars, "files": _bars, "codecs": _bars}
"""Plots of bytes, by the name of a table; one of this name without bytes has none."""
