"""Searches that keep few records, in CRC passes over the same file: a table in Markdown.

    python asv_bench/searches.py > asv_bench/SEARCHES.md

The CRC pass reads every batch and compares its checksum, and decodes nothing. All sides of a segment take turns in one
run, and the least CPU seconds of each count. stdout is the table, stderr the progress.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import peers
import shapes
from peers import searches
from side_by_side import _cpu_model, _table, say

SEGMENTS = ("A", "B", "C", "B-lz4")
SIDES = ("CRC pass", "key ==", "key in, 1 in 1,000", "key starts_with", "where= starts_with")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", nargs="+", default=list(SEGMENTS), metavar="SEGMENT", help="default: %(default)s")
    parser.add_argument("--mib", type=int, default=256, help="size before compression (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="passes of each side (%(default)s)")
    chosen = parser.parse_args(arguments)
    rows, seconds = [], []
    for name in chosen.segments:
        say(f"{name}: writing the segment, unless it is there")
        segment = shapes.segment(name, chosen.mib)
        sides = searches.sides(segment)
        say(f"{name}: {chosen.rounds} rounds of {len(sides)} sides")
        best = peers.compare(sides, chosen.rounds)
        ratio = [best[side] / best["CRC pass"] if side in best else None for side in SIDES[1:]]
        where = best[SIDES[4]] / best[SIDES[3]] if SIDES[4] in best else None
        rows.append([name, *(f"{one:.2f}" if one else "" for one in (*ratio, where))])
        seconds.append([name, *(f"{segment.size_in_bytes / best[side] / 1e9:.2f}" for side in SIDES if side in best)])
    print("# Searches that keep few records\n")
    print("    python asv_bench/searches.py", *(sys.argv[1:] if arguments is None else arguments))
    print(f"\n- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; files in the page cache")
    print(f"- {chosen.mib} MiB before compression; one thread; files are read, not mapped; CRCs checked by all")
    print(f"- the least CPU seconds of {chosen.rounds} rounds in which all sides take turns; ratios hold within a row")
    print("- segments: see `shapes.py`: A 50-byte values, B 200, C 1 KiB and three headers")
    print("\n## How many CRC passes a search takes (aim on B and C: 2 at most; `where=` 1.5 filters)\n")
    print("\n".join(_table(["segment", *SIDES[1:], "where= / starts_with"], rows)))
    print("\n## Gigabytes of the file a CPU second\n")
    print("\n".join(_table(["segment", *SIDES], seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
