"""Draws `terminal.svg`: what three commands print about `tests/golden/log_dir`. Run it when that changes."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from html import escape
from pathlib import Path

from kafkalog.cli import main

HERE = Path(__file__).parent
COMMANDS = (
    "kafkalog ls tests/golden/log_dir",
    "kafkalog verify tests/golden/log_dir -t p-zstd-java,p-multi",
    "kafkalog lookup tests/golden/log_dir/p-zstd-java-0 --timestamp 2023-11-14T22:17:30Z",
)
CHARACTER, LINE, MARGIN = 7.2, 17, 16
COLUMNS = 120


def recorded() -> list[str]:
    """The commands and the lines that they print, run in the root of the tree."""
    lines = []
    with contextlib.chdir(HERE.parent):
        for command in COMMANDS:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = main(shlex.split(command)[1:])
            assert code == 0, command
            lines += [f"$ {command}", *out.getvalue().splitlines(), ""]
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..." for line in lines[:-1]]


def drawn(lines: list[str]) -> str:
    """An SVG of a terminal with these lines."""
    width = round(max(map(len, lines)) * CHARACTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text class="{"c" if line.startswith("$ ") else "o"}" x="{MARGIN}" y="{MARGIN + LINE * n - 4}"'
        f' textLength="{len(line) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs">{escape(line)}</text>'
        for n, line in enumerate(lines, 1)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            "<title>kafkalog ls, verify and lookup in a terminal</title>",
            "<style>text{font:12px ui-monospace,Menlo,Consolas,monospace;white-space:pre}",
            ".c{fill:#7ee787}.o{fill:#e6edf3}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#161b22"/>',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    (HERE / "terminal.svg").write_text(drawn(recorded()), encoding="utf-8")
