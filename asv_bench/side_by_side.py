"""Compares kafkalog with other readers of the same records: how many times as fast it is, and the target of each ratio.

    python asv_bench/side_by_side.py > asv_bench/RESULTS.md

All sides of a segment take turns in one run, and the least CPU seconds of each count; a run whose sides see different
records fails. stdout is tables in Markdown, stderr the progress. What is needed for a peer and is not there (a JDK,
cargo, Go, aiokafka) leaves its columns empty, and stderr says why.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import peers
import pyarrow as pa
import shapes
from peers import Side, bare, clients, go, java, parquet, rust
from peers.ours import streaming, viewing_memory, whole
from peers.programs import ProgramUnavailableError

import kafkalog

SEGMENTS = ("A", "B", "C", "M", "B-lz4", "B-zstd", "B-snappy", "B-gzip", "V1", "V1-gzip")

READ, CLOSED, MAPPED, IN_MEMORY = "read", "closed segment", "mapped views", "views in memory"
STREAM, THREADS = "8 columns", "8 columns, 2 threads"
NUMPY, TABLE, FRAME = "read_numpy", "read_table", "read_pandas of Arrow"
FILE, MEMORY, AIOKAFKA = "Java FileRecords", "Java MemoryRecords", "aiokafka"
KRABKA, FRANZ, CRC = "krabka", "franz-go", "crc-fast"
PARQUET, PARQUET_MAPPED = "Parquet", "Parquet mapped"
COPY, MAPPING = "bare copy", "bare mapping"
SIDES = (
    *(READ, CLOSED, MAPPED, IN_MEMORY, STREAM, THREADS, NUMPY, TABLE, FRAME),
    *(FILE, MEMORY, AIOKAFKA, KRABKA, FRANZ, CRC, PARQUET, PARQUET_MAPPED),
    *(COPY, MAPPING),
)


class Aim(NamedTuple):
    """Ours is to be so many times as fast as the fastest of theirs."""

    ours: str
    theirs: tuple[str, ...]
    least: dict[str, float]
    """By segment."""


def _least(*numbers: float | None) -> dict[str, float]:
    names = ("A", "B", "C", "M", "B-lz4", "B-zstd", "B-snappy", "B-gzip", "V1")
    return {name: number for name, number in zip(names, numbers, strict=False) if number is not None}


AIMS: dict[str, Aim] = {
    "read: FileRecords": Aim(READ, (FILE,), _least(2.8, 2.1, 1.9, 2.1)),
    "closed segment: FileRecords": Aim(CLOSED, (FILE,), _least(2.8, 2.1, 1.9, 2.1)),
    "read: the best of Java": Aim(READ, (FILE, MEMORY), _least(None, None, None, None, 1.65, 1.5, 1.65, 2.4)),
    "closed segment: the best of Java": Aim(CLOSED, (FILE, MEMORY), {}),
    "mapped views: MemoryRecords": Aim(MAPPED, (MEMORY,), _least(2.4, 2.0, 1.9, 2.0, None, None, None, None, 1.5)),
    "views in memory: krabka": Aim(IN_MEMORY, (KRABKA,), _least(2.3, 1.8, None, 1.8, 3.5, 1.5, 1.0, 2.0)),
    "views in memory: franz-go": Aim(IN_MEMORY, (FRANZ,), _least(1.2, 1.2, 1.2, 1.2, 1.2, 1.2)),
    "views in memory: checksums alone": Aim(IN_MEMORY, (CRC,), _least(None, 0.6, 0.75)),
    "bare copy: FileRecords": Aim(COPY, (FILE,), {}),
    "closed segment: bare copy": Aim(CLOSED, (COPY,), {}),
    "bare mapping: MemoryRecords": Aim(MAPPING, (MEMORY,), {}),
    "mapped views: bare mapping": Aim(MAPPED, (MAPPING,), {}),
    "closed segment: Parquet": Aim(CLOSED, (PARQUET,), _least(1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 1.3, 1.3)),
    "read: Parquet": Aim(READ, (PARQUET,), _least(1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 1.3, 1.3)),
    "mapped views: Parquet mapped": Aim(MAPPED, (PARQUET_MAPPED,), _least(1.7, 1.8, 1.7, 1.8, 1.0, 1.0, 1.3, 1.3)),
    "read: aiokafka": Aim(READ, (AIOKAFKA,), _least(10, 8, 6)),
    "views in memory: aiokafka": Aim(IN_MEMORY, (AIOKAFKA,), _least(10, 8, 6)),
    "two threads: one": Aim(THREADS, (STREAM,), _least(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
    "read_numpy: the stream": Aim(NUMPY, (THREADS,), _least(None, 0.67)),
    "read_table: the stream": Aim(TABLE, (THREADS,), _least(None, 0.67)),
    "read_pandas of Arrow: read_table": Aim(FRAME, (TABLE,), _least(None, 0.83)),
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


def side_of(name: str, segment: shapes.BenchSegment, processes: ExitStack) -> Side | None:
    """The side of this name on a segment, None if it has none there.

    Raises
    ------
    JavaUnavailableError, ProgramUnavailableError, ImportError
        What it needs is not there.
    """
    path, options = segment.path, {"columns": parquet.COLUMNS}
    is_v2, is_plain = not segment.shape.startswith("V"), segment.codec == "none"
    match name:
        case "read":
            return streaming(path, memory_map=False, **options)
        case "closed segment":
            return streaming(segment.closed(), **options)
        case "mapped views":
            return streaming(path, memory_map=True, binary_type=pa.binary_view(), **options)
        case "views in memory":
            return viewing_memory(path)
        case "8 columns":
            return streaming(path, memory_map=False)
        case "8 columns, 2 threads":
            return streaming(path, memory_map=False, threads=2)
        case "read_numpy" | "read_table" if segment.name == "B":
            return whole(getattr(kafkalog, name), path)
        case "read_pandas of Arrow" if segment.name == "B":
            return whole(kafkalog.read_pandas, path, dtype_backend="pyarrow")
        case "Java FileRecords":
            return processes.enter_context(java.JavaPeer("file", path))
        case "Java MemoryRecords":
            return processes.enter_context(java.JavaPeer("memory", path))
        case "aiokafka":
            return clients.records_of(path)
        case "krabka" if is_v2:
            return processes.enter_context(rust.decoding("krabka", path))
        case "franz-go":
            return processes.enter_context(go.decoding(path))
        case "crc-fast" if is_v2 and is_plain:
            return processes.enter_context(rust.decoding("crc", path))
        case "bare copy" if is_v2 and is_plain:
            return bare.copying(segment)
        case "bare mapping" if is_v2 and is_plain:
            return bare.mapping(segment)
        case "Parquet" | "Parquet mapped":
            return parquet.batches_of(parquet.written_from(segment), memory_map=name == "Parquet mapped")
    return None


def _sides(segment: shapes.BenchSegment, processes: ExitStack) -> tuple[dict[str, Side], tuple[str, str] | None]:
    sides: dict[str, Side] = {}
    versions = None
    for name in SIDES:
        try:
            side = side_of(name, segment, processes)
        except (java.JavaUnavailableError, ProgramUnavailableError, ImportError) as problem:
            say(f"WITHOUT {name}: {problem}")
            continue
        if side is not None:
            sides[name] = side
        if isinstance(side, java.JavaPeer):
            versions = side.kafka_version, side.java_version
    return sides, versions


def _report(
    results: dict[str, tuple[shapes.BenchSegment, dict[str, float]]],
    options: str,
    rounds: int,
    kafka_versions: tuple[str, str] | None,
) -> list[str]:
    lines = [
        "# kafkalog and other readers of the same records",
        "",
        f"    python asv_bench/side_by_side.py {options}".rstrip(),
        "",
        f"- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; files in the page cache,",
        "  as they lie there after they were read from disk (see `page_cache.py`)",
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
    lines += ["", "## How many times as fast kafkalog is, and the aim", ""]
    rows = []
    n_missed = 0
    for heading, aim in AIMS.items():
        cells = []
        for name, (_, best) in results.items():
            theirs = [best[side] for side in aim.theirs if side in best]
            ratio = min(theirs) / best[aim.ours] if theirs and aim.ours in best else None
            least = aim.least.get(name)
            is_missed = ratio is not None and least is not None and ratio < least
            n_missed += is_missed
            judged = "" if least is None else f" (**miss** {least:g})" if is_missed else f" (pass {least:g})"
            cells.append("" if ratio is None else f"{ratio:.2f}{judged}")
        rows.append([heading, *cells])
    lines += [*_table(["ours: theirs", *results], rows), "", f"Missed: {n_missed}."]
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
        f"- read, closed segment, mapped views, views in memory: {four}; whole results: all eight columns, two threads",
        "- closed segment: as `scan` does without options, which maps or reads, whichever takes less time",
        f"- Java ({java_version}; its decoding thread alone): reads or maps, checks CRCs, looks at each record",
        "- Rust, from bytes in memory: krabka borrows records, crc-fast compares checksums and reads no records",
        "- Go, from bytes in memory: franz-go makes the records that its consumer gives, with one processor",
        "- bare copy: reads, takes checksums, copies the bytes once; bare mapping: maps, takes checksums; no records",
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
