"""Records to batches, with every codec, compared with Kafka's own builder: a table in Markdown.

    python asv_bench/encode_side_by_side.py > asv_bench/ENCODINGS.md

Needs a JDK. Both sides make the same batches of the same records, take turns in one run, and the least CPU seconds of
each count. stdout is the table, stderr the progress.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import peers
import shapes
from benchmarks.encode import CODECS, encoding, records_of
from peers.java import JavaPeer
from side_by_side import _cpu_model, _table, say

SEGMENTS = ("A", "B")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", nargs="+", default=list(SEGMENTS), metavar="SEGMENT", help="default: %(default)s")
    parser.add_argument("--codecs", nargs="+", default=CODECS, choices=CODECS, metavar="CODEC", help="default: all")
    parser.add_argument("--rounds", type=int, default=11, help="passes of each side (%(default)s)")
    chosen = parser.parse_args(arguments)
    rows = []
    for name in chosen.segments:
        segment = shapes.segment(name)
        slices = records_of(segment.path)
        for codec in chosen.codecs:
            say(f"{name}, {codec}: {chosen.rounds} rounds")
            with JavaPeer("encode", segment.path, codec=codec) as peer:
                best = peers.compare({"kafkalog": encoding(slices, codec), "builder": peer}, chosen.rounds)
            speeds = [f"{segment.size_in_bytes / best[side] / 1e6:.0f}" for side in ("kafkalog", "builder")]
            rows.append([name, codec, *speeds, f"{best['builder'] / best['kafkalog']:.2f}"])
    print("# Encoding, compared with Kafka's builder\n")
    print("    python asv_bench/encode_side_by_side.py", *(sys.argv[1:] if arguments is None else arguments))
    print(f"\n- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}, kafka-clients 4.3.1")
    print("- 64 MiB of records in memory, into the batches that they came from, about 16 KiB each; one thread")
    print(f"- the least CPU seconds of {chosen.rounds} rounds in which both sides take turns; ratios hold within a row")
    print("- segments: see `shapes.py`: A 50-byte values, B 200\n")
    header = ["segment", "codec", "kafkalog, MB of records a CPU second", "MemoryRecordsBuilder", "ratio"]
    print("\n".join(_table(header, rows)))
    print("\nAims: 2.5 on A and 1.6 on B without compression, 1 with any codec.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
