"""Rebuilding, looking up and dumping, compared with Kafka's own code and with a lower bound: Markdown tables.

    python asv_bench/repairs.py > asv_bench/REPAIRS.md

Needs a JDK. All sides of a row take turns in one run, and the least of each counts. stdout is the tables, stderr the
progress.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import peers
import shapes
from benchmarks.memory import RepairMemory
from peers import dump_tool, repairs
from peers.java import JavaPeer
from side_by_side import _cpu_model, _table, say

from kafkalog.indexes.index_files import OffsetIndex

SEGMENTS = ("A", "B", "C")
DUMPED = ("A", "B", "B-lz4", "V1")
N_QUERIES = 2_000_000
N_SEGMENTS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="size of a segment to rebuild (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="passes of each side (%(default)s)")
    chosen = parser.parse_args(arguments)
    print("# Rebuilding, looking up, dumping\n")
    print("    python asv_bench/repairs.py", *(sys.argv[1:] if arguments is None else arguments))
    print(
        f"\n- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; files in the page cache, as they"
    )
    print("  lie there after they were read from disk; Kafka 4.3.1")
    print("- the sides of a row take turns in one run (the tool apart), and the least CPU seconds of each count;")
    print("  of two jobs wall seconds")
    print("- segments: see `shapes.py`")
    with tempfile.TemporaryDirectory(prefix="kafkalog-repairs-") as home:
        rebuilt = [_rebuilt(name, chosen.mib, chosen.rounds, Path(home)) for name in SEGMENTS]
        print(f"\n## Both indexes of a segment of {chosen.mib} MiB, against LogSegment.recover (aim on B: 2.5)\n")
        print("The limit reads the file window by window into the same memory and compares checksums, nothing else.\n")
        header = ["segment", "kafkalog, ms", "limit, ms", "of it reading", "Kafka, ms"]
        _print([*header, "Kafka / kafkalog", "Kafka / limit"], rebuilt)
        jobs = _jobs(chosen.mib, chosen.rounds, Path(home))
        print(f"\n## Two jobs on {N_SEGMENTS} segments of B (aim: 1.7)\n")
        _print(["", "one, ms", "two, ms", "ratio"], jobs)
    looked_up = [_looked_up(order, chosen.rounds) for order in ("random", "sorted")]
    print(f"\n## {N_QUERIES:,} lookups in an offset index, against OffsetIndex.lookup (aim: 4 random, 2 sorted)\n")
    _print(["queries", "kafkalog, ns each", "Kafka, ns each", "ratio"], looked_up)
    memory = _memory()
    print("\n## Memory above the import, MiB (bound: 32)\n")
    _print(["logs", "work", "1 job", "2 jobs"], memory)
    say("the tool's start")
    start = peers.compare({"start": dump_tool.startup()}, 3)["start"]
    dumped = [row for name in DUMPED for row in _dumped(name, max(2, chosen.rounds // 5), start)]
    print("\n## A dump of 64 MiB, against DumpLogSegments (aim: 10)\n")
    print(
        "CPU of the tool's whole process, and less that of one with nothing to dump; kafkalog's is that of the dump.\n"
    )
    header = ["segment", "mode", "kafkalog, ms", "limit, ms", "tool, ms", "of it start"]
    _print([*header, "tool / kafkalog", "less start"], dumped)
    return 0


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(_table(header, rows)), flush=True)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _rebuilt(name: str, mib: int, rounds: int, home: Path) -> list[str]:
    say(f"{name}: rebuilding")
    directory = home / name / "t-0"
    directory.mkdir(parents=True)
    path = str(shapes.segment(name, mib).copied_to(directory))
    ours = repairs.rebuild(directory)
    limit = repairs.Limit(path, ours().n_records)
    with JavaPeer("recover", path) as peer:
        sides = {"ours": ours, "limit": limit.read_and_check(), "read": limit.read(), "peer": peer}
        best = peers.compare(sides, rounds)
    shutil.rmtree(home / name)
    return [
        name,
        *(_ms(best[side]) for side in ("ours", "limit", "read", "peer")),
        *(f"{best['peer'] / best[side]:.2f}" for side in ("ours", "limit")),
    ]


def _jobs(mib: int, rounds: int, home: Path) -> list[list[str]]:
    say("B: two jobs")
    segment = shapes.segment("B", mib)
    for number in range(N_SEGMENTS):
        (home / "jobs" / f"t-{number}").mkdir(parents=True)
        path = str(segment.copied_to(home / "jobs" / f"t-{number}"))
    limit = repairs.Limit(path, 0)
    seconds: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for jobs in (1, 2):
            took = {"limit": limit.wall_seconds(N_SEGMENTS, jobs)}
            for what, is_dry in (("files made durable", False), ("dry run", True)):
                start = time.perf_counter()
                repairs.rebuild(home / "jobs", jobs=jobs, dry_run=is_dry)()
                took[what] = time.perf_counter() - start
            for what, one in took.items():
                seconds[what, jobs] = min(seconds.get((what, jobs), one), one)
    shutil.rmtree(home / "jobs")
    return [
        [what, _ms(seconds[what, 1]), _ms(seconds[what, 2]), f"{seconds[what, 1] / seconds[what, 2]:.2f}"]
        for what in ("files made durable", "dry run", "limit")
    ]


def _looked_up(order: str, rounds: int) -> list[str]:
    say(f"lookups: {order}")
    segment = shapes.segment("B", 256)
    path = segment.path.removesuffix(".log") + ".index"
    queries = np.random.default_rng(1).integers(0, segment.last_offset + 1, N_QUERIES)
    if order == "sorted":
        queries.sort()
    index = OffsetIndex.open(path, 0)
    ours = peers.timed(lambda: (N_QUERIES, int(index.lookup(queries).sum())))
    with JavaPeer("lookup", path, queries=queries) as peer:
        best = peers.compare({"ours": ours, "peer": peer}, rounds)
    each = [f"{best[side] / N_QUERIES * 1e9:.1f}" for side in ("ours", "peer")]
    return [order, *each, f"{best['peer'] / best['ours']:.1f}"]


def _dumped(name: str, rounds: int, start: float) -> list[list[str]]:
    say(f"{name}: dumping")
    path = shapes.segment(name).path
    rows = []
    for mode, options in (("plain", {}), ("--print-data-log", {"print_data_log": True})):
        arguments = () if mode == "plain" else (mode,)
        best = {"start": start, **peers.compare({"tool": dump_tool.tool(path, *arguments)}, rounds, warmup=0)}
        # ours takes milliseconds, and more rounds
        quick = {"ours": dump_tool.ours(path, **options), "limit": repairs.Limit(path, 0).read_and_check()}
        best |= peers.compare(quick, 8 * rounds)
        ratios = best["tool"] / best["ours"], (best["tool"] - start) / best["ours"]
        rows.append(
            [name, mode, *(_ms(best[side]) for side in ("ours", "limit", "tool", "start"))]
            + [f"{ratio:.1f}" for ratio in ratios]
        )
    return rows


def _memory() -> list[list[str]]:
    say("memory")
    measured = RepairMemory()
    segments = measured.setup_cache()
    rows = []
    for logs in measured.params[0]:
        for work in measured.params[1]:
            row = [str(logs), str(work)]
            for jobs in measured.params[2]:
                measured.setup(segments, str(logs), str(work), int(jobs))
                row.append(f"{measured.track_repair_mib(segments, str(logs), str(work), int(jobs)):.1f}")
                measured.teardown()
            rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())
