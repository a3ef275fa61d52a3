"""Where the CPU time of kafkalog's sides of `side_by_side` goes, by samples of `perf`: a table in Markdown.

    python asv_bench/samples.py > asv_bench/SAMPLES.md

Needs `perf`, and the right to sample one's own processes. Each side makes its passes in a process of its own, after a
few that are not counted. Shares hardly depend on what else the machine does, milliseconds do.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import shapes
from side_by_side import IN_MEMORY, MAPPED, READ, _cpu_model, _table, say, side_of

CASES = [
    *((name, side) for name in ("A", "B", "C", "M") for side in (READ, MAPPED, IN_MEMORY)),
    *((name, READ) for name in ("B-lz4", "B-zstd", "B-snappy", "B-gzip")),
    *(("V1", side) for side in (READ, MAPPED)),
]
KINDS = {
    "system": r"\[(kernel|guest)",
    "checksums": r"crc\.",
    "decompressing": r"zstd|zstandard|deflate|_cffi|kl_(decompress|lz4|snappy|zstd|gzip)",
    "records": r"(fill|header_walk)\.",
}
"""Of a library and a symbol; everything else is Python, NumPy, Arrow and malloc."""
REST = "Python, NumPy, Arrow"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of each side (%(default)s)")
    chosen = parser.parse_args(arguments)
    rows = []
    for name, side in CASES:
        say(f"{name}, {side}")
        shapes.segment(name)
        shares = sampled(name, side, chosen.seconds)
        rows.append([name, side, *(f"{100 * shares[kind]:.0f}" for kind in (*KINDS, REST))])
    print("# Where the time goes, in percent of samples\n")
    print(f"    python asv_bench/samples.py{''.join(f' {argument}' for argument in arguments or sys.argv[1:])}\n")
    print(f"{_cpu_model()}; 64 MiB before compression, files in the page cache; sides as in `side_by_side.py`.")
    print("`system` is the kernel: copies out of the page cache, or page tables of a mapping.\n")
    print("\n".join(_table(["segment", "side", *KINDS, REST], rows)))
    return 0


def sampled(name: str, side: str, seconds: float) -> dict[str, float]:
    """The share of each kind in the samples of a side's passes."""
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    with tempfile.TemporaryDirectory() as scratch:
        worker = context.Process(target=_pass_again, args=(name, side, seconds, ready, end))
        worker.start()
        ready.wait()
        samples = os.path.join(scratch, "perf.data")
        perf = subprocess.Popen(["perf", "record", "-q", "-F", "5000", "-o", samples, "-p", str(worker.pid)])
        time.sleep(1)
        end.set()
        worker.join()
        perf.wait()
        command = [
            "perf",
            "report",
            "-i",
            samples,
            "--stdio",
            "--no-children",
            "--sort",
            "dso,sym",
            "-F",
            "sample,dso,sym",
        ]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shares = dict.fromkeys((*KINDS, REST), 0.0)
    for line in report.splitlines():
        found = re.match(r"\s+(\d+)\s+(\S.*)", line)
        if found:
            order = ("system", "decompressing", "checksums", "records")
            kind = next((kind for kind in order if re.search(KINDS[kind], found[2])), REST)
            shares[kind] += int(found[1])
    total = sum(shares.values())
    return {kind: n / total for kind, n in shares.items()}


def _pass_again(name: str, side: str, seconds: float, ready: object, end: object) -> None:
    with ExitStack() as processes:
        one = side_of(name=side, segment=shapes.segment(name), processes=processes)
        if one is None:
            raise ValueError(f"{name} has no side {side!r}")
        for _ in range(3):
            one()
        gc.collect = lambda generation=2: 0  # between passes: not what is measured
        ready.set()  # type: ignore[attr-defined]
        end.wait()  # type: ignore[attr-defined]
        spent = 0.0
        while spent < seconds:
            spent += one().cpu_seconds
        os._exit(0)  # what the interpreter does at its end is not measured


if __name__ == "__main__":
    sys.path.insert(0, os.fspath(Path(__file__).parent))
    sys.exit(main())
