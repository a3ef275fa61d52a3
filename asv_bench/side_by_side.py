"""kafkalog beside Kafka's own Java, aiokafka, and pyarrow on Parquet, on the same records: one table in Markdown.

    python asv_bench/side_by_side.py > asv_bench/RESULTS.md

All sides of a segment take turns in one run, and the least CPU seconds of each count; a run whose sides see different
records fails. stdout is the table, stderr the progress. What is needed for a peer and is not there (a JDK, aiokafka)
leaves its columns empty, and stderr says why.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import peers
import shapes
from peers import Side, aiokafka_peer, java, parquet
from peers.ours import streaming

import kafkalog

SEGMENTS = ("A", "B", "C", "M", "B-lz4", "B-zstd", "B-snappy", "B-gzip", "V1", "V1-gzip")

OURS, OURS_MAPPED = "kafkalog", "kafkalog mapped"
FOUR, FOUR_MAPPED = "kafkalog, 4 columns", "kafkalog, 4 columns, mapped"
FILE, MEMORY, AIOKAFKA = "Java FileRecords", "Java MemoryRecords", "aiokafka"
PARQUET, PARQUET_MAPPED = "Parquet", "Parquet mapped"
SIDES = (OURS, OURS_MAPPED, FOUR, FOUR_MAPPED, FILE, MEMORY, AIOKAFKA, PARQUET, PARQUET_MAPPED)

# heading: (ours, theirs, what we aim at)
RATIOS = {
    "Java FileRecords": (OURS, FILE, "1"),
    "Java MemoryRecords": (OURS_MAPPED, MEMORY, ""),
    "aiokafka": (OURS, AIOKAFKA, "5"),
    "Parquet": (FOUR, PARQUET, "1"),
    "Parquet mapped": (FOUR_MAPPED, PARQUET_MAPPED, ""),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", nargs="+", default=list(SEGMENTS), metavar="SEGMENT", help="default: %(default)s")
    parser.add_argument("--mib", type=int, default=shapes.DEFAULT_MIB, help="size before compression (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="passes of each side (%(default)s)")
    chosen = parser.parse_args(arguments)

    results: dict[str, tuple[shapes.BenchSegment, dict[str, float]]] = {}
    kafka_versions = None
    for name in chosen.segments:
        say(f"{name}: writing the segment, unless it is there")
        segment = shapes.segment(name, chosen.mib)
        with ExitStack() as processes:
            sides, found = _sides(segment, processes)
            kafka_versions = found or kafka_versions
            say(f"{name}: {chosen.rounds} rounds of {len(sides)} sides")
            results[name] = segment, peers.compare(sides, chosen.rounds)
    given = sys.argv[1:] if arguments is None else list(arguments)
    print("\n".join(_report(results, " ".join(given), chosen.rounds, kafka_versions)))
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _sides(segment: shapes.BenchSegment, processes: ExitStack) -> tuple[dict[str, Side], tuple[str, str] | None]:
    sides = {
        OURS: streaming(segment.path, memory_map=False),
        OURS_MAPPED: streaming(segment.path, memory_map=True),
        FOUR: streaming(segment.path, columns=parquet.COLUMNS, memory_map=False),
        FOUR_MAPPED: streaming(segment.path, columns=parquet.COLUMNS, memory_map=True),
    }
    versions = None
    try:
        file = processes.enter_context(java.JavaPeer("file", segment.path))
        sides |= {FILE: file, MEMORY: processes.enter_context(java.JavaPeer("memory", segment.path))}
        versions = file.kafka_version, file.java_version
    except java.JavaUnavailableError as problem:
        say(f"without Java: {problem}")
    try:
        sides[AIOKAFKA] = aiokafka_peer.records_of(segment.path)
    except ImportError as problem:
        say(f"without aiokafka: {problem}")
    converted = parquet.written_from(segment)
    sides[PARQUET] = parquet.batches_of(converted)
    sides[PARQUET_MAPPED] = parquet.batches_of(converted, memory_map=True)
    return sides, versions


def _report(
    results: dict[str, tuple[shapes.BenchSegment, dict[str, float]]],
    options: str,
    rounds: int,
    kafka_versions: tuple[str, str] | None,
) -> list[str]:
    lines = [
        "# kafkalog beside other readers of the same records",
        "",
        f"    python asv_bench/side_by_side.py {options}".rstrip(),
        "",
        f"- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; files in the page cache",
        *_sides_in_words(kafka_versions),
        f"- the least CPU seconds of {rounds} rounds in which all sides take turns; ratios hold within a row",
        "",
        "## Segments",
        "",
        "See `shapes.py`: A 50-byte values, B 200, C 1 KiB and three headers, M mixed; V1 is message format v1.",
        "",
    ]
    rows = [
        [name, f"{s.n_records:,}", f"{s.n_batches:,}", f"{s.size_in_bytes / 2**20:.1f}", f"{s.raw_mib:.1f}"]
        for name, (s, _) in results.items()
    ]
    lines += _table(["segment", "records", "batches", "MiB", "MiB before compression"], rows)
    lines += ["", "## How many times as fast kafkalog is", ""]
    rows = [["*aim, at least*", *(aim for _, _, aim in RATIOS.values())]]
    for name, (_, best) in results.items():
        pairs = ((best.get(ours), best.get(theirs)) for ours, theirs, _ in RATIOS.values())
        rows.append([name, *(f"{theirs / ours:.2f}" if ours and theirs else "" for ours, theirs in pairs)])
    lines += _table(["segment", *RATIOS], rows)
    lines += ["", "## Million records a CPU second", ""]
    rows = [
        [name, *(f"{s.n_records / best[side] / 1e6:.2f}" if side in best else "" for side in SIDES)]
        for name, (s, best) in results.items()
    ]
    return lines + _table(["segment", *SIDES], rows)


def _sides_in_words(kafka_versions: tuple[str, str] | None) -> list[str]:
    java_version = "kafka-clients {} on Java {}".format(*kafka_versions) if kafka_versions else "not run"
    four = ", ".join(parquet.COLUMNS)
    return [
        f"- kafkalog {kafkalog.__version__}, one thread: reads or maps, checks CRCs, decodes to Arrow, drops it",
        f"- kafkalog, 4 columns: {four}; else all eight",
        f"- Java ({java_version}; its decoding thread alone): reads or maps, checks CRCs, looks at each record",
        f"- aiokafka {_version('aiokafka')}: from bytes in memory, CRCs checked, an object a record",
        f"- Parquet (pyarrow {_version('pyarrow')}): the four columns, same codec, no dictionaries; `iter_batches`",
    ]


def _table(heading: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heading, ["---", *["---:"] * (len(heading) - 1)], *rows)]


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except ImportError:
        return "(not installed)"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
