"""Draws the pictures of `benchmarks.md`, and prints its table, from the results in `asv_bench`.

`_static/to_a_table.svg` and the table show `TO_A_TABLE.md`, `_static/speed.svg` shows `RESULTS.md`. Run it when they
change, and copy the table.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "asv_bench" / "RESULTS.md"
TO_A_TABLE = RESULTS.with_name("TO_A_TABLE.md")
SIDES = {
    "closed segment": ("kafkalog", "#2f6fdb"),
    "mapped views": ("kafkalog, memory-mapped views", "#82aaf0"),
    "Java FileRecords": ("Java FileRecords", "#c9510c"),
    "Java MemoryRecords": ("Java MemoryRecords, mapped", "#f0a06a"),
    "krabka": ("krabka (Rust), from memory", "#7a7a7a"),
    "aiokafka": ("aiokafka", "#b8a000"),
    "Parquet": ("Parquet", "#2b8a3e"),
    "Parquet mapped": ("Parquet, memory-mapped", "#8fce9b"),
}
SHAPES = {
    "A": "values of 50 bytes",
    "B": "values of 200 bytes",
    "C": "values of 1 KiB, three headers",
    "M": "values of mixed sizes",
    "B-lz4": "values of 200 bytes, lz4",
    "B-zstd": "values of 200 bytes, zstd",
    "B-snappy": "values of 200 bytes, snappy",
    "B-gzip": "values of 200 bytes, gzip",
    "V1": "message format v1",
    "V1-gzip": "message format v1, gzip",
}
"""The benchmark's segments, in words."""
BAR, GAP, LEFT, WIDTH, COLUMNS = 11, 14, 24, 330, 2


def table(title: str) -> dict[str, dict[str, str]]:
    """The rows of the table under a heading of the results, by their first cells; empty cells are left out."""
    _, _, text = RESULTS.read_text(encoding="utf-8").partition(f"## {title}\n")
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: {name: cell for name, cell in zip(names[1:], row[1:], strict=True) if cell} for row in rows}


def markdown() -> str:
    """The table of `benchmarks.md`: the ways to turn a topic into a table."""
    return "\n".join(line for line in TO_A_TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("|"))


def drawn() -> str:
    """An SVG with a group of bars for each segment, each group to a scale of its own."""
    segments = table("Million records a CPU second")
    height_of = BAR * len(SIDES) + 3 * GAP
    n_rows = -(-len(segments) // COLUMNS)
    legend = 18 * (-(-len(SIDES) // COLUMNS)) + GAP
    width, height = COLUMNS * (LEFT + WIDTH + 40), n_rows * height_of + legend + GAP
    parts = []
    for number, (text, color) in enumerate(SIDES.values()):
        x, y = number % COLUMNS * width // COLUMNS + 12, number // COLUMNS * 18 + GAP
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 9}">{escape(text)}</text>')
    for number, (name, row) in enumerate(segments.items()):
        values = {side: float(row[side]) for side in SIDES if side in row}
        left = number % COLUMNS * width // COLUMNS + LEFT
        top = number // COLUMNS * height_of + legend + GAP
        parts.append(f'<text x="{left}" y="{top + BAR - 2}" class="n">{escape(SHAPES[name])}</text>')
        for place, (side, value) in enumerate(values.items()):
            y, length = top + GAP + place * BAR, value / max(values.values()) * (WIDTH - 40)
            title = f"{SHAPES[name]}, {SIDES[side][0]}: {value} million records per CPU second"
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{SIDES[side][1]}">'
                f"<title>{escape(title)}</title></rect>"
            )
            parts.append(f'<text x="{left + length + 4:.1f}" y="{y + BAR - 3}" class="v">{value:g}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            "<title>Million records per CPU second, by kind of segment</title>",
            "<style>text{font:12px system-ui,sans-serif;fill:#222}.n{font-weight:600}.v{font-size:9px}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def ways_drawn() -> str:
    """An SVG with a bar for each way to turn a topic into a table."""
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \|$", TO_A_TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    longest = max(float(seconds) for _, seconds in rows)
    width, height, line, left, length = 760, len(rows) * 24 + 2 * GAP, 24, 330, 370
    parts = []
    for number, (name, seconds) in enumerate(rows):
        y, color = number * line + GAP, "#2f6fdb" if name.startswith("kafkalog") else "#b0b0b0"
        bar = float(seconds) / longest * length
        parts += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{max(bar, 1):.1f}" height="17" fill="{color}"/>',
            f'<text x="{left + bar + 5:.1f}" y="{y + 13}">{seconds} s</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            "<title>Seconds from a topic of 1 GiB to a table</title>",
            "<style>text{font:12px system-ui,sans-serif;fill:#222}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    (HERE / "_static" / "to_a_table.svg").write_text(ways_drawn(), encoding="utf-8")
    (HERE / "_static" / "speed.svg").write_text(drawn(), encoding="utf-8")
    print(markdown())
