"""Loads: a Parquet file of 1 GiB into a log dir, how fast and in how much memory.

`python -m benchmarks.load` (in ``asv_bench``) measures the same without asv, and prints the table in ``LOAD.md``.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .common import MS_PER_100_MB
from .memory import peak_mib

GIB = 2**30
SETTINGS: dict[str, dict[str, Any]] = {
    "1 partition": {},
    "12 partitions by key": {"partitions": 12},
    "12 partitions by key, lz4": {"partitions": 12, "compression": "lz4"},
    "12 partitions by key, zstd": {"partitions": 12, "compression": "zstd"},
}
_LOAD = """
import json, time, pyarrow.parquet, kafkalog.operations.loading.load
seconds, cpu = time.time(), time.process_time()
result = kafkalog.load([sys.argv[1]], sys.argv[2], topic="t", **json.loads(sys.argv[3]))
Path(sys.argv[4]).write_text(json.dumps([time.time() - seconds, time.process_time() - cpu, result.n_records]))
"""
_IMPORTS = "import pyarrow.parquet, kafkalog.operations.loading.load"


def make_parquet(path: Path, n_bytes: int) -> int:
    """Records of 100 to 900 random bytes, a key of 50,000 and a header each; the bytes of the file."""
    draw = np.random.default_rng(3)
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("headers", pa.list_(pair)),
        ]
    )
    pool = draw.integers(0, 256, 2**20, dtype=np.uint8).tobytes()
    n, n_rows, n_done = 100_000, 0, 0
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        while n_done < n_bytes:
            start, size = draw.integers(0, len(pool) - 1000, n), draw.integers(100, 900, n)
            columns = [
                pa.array([b"user-%d" % key for key in draw.integers(0, 50_000, n)], pa.binary()),
                pa.array([pool[a : a + b] for a, b in zip(start.tolist(), size.tolist(), strict=True)], pa.binary()),
                pa.array(1_700_000_000_000 + np.arange(n_rows, n_rows + n), schema.field("timestamp").type),
                pa.array([[{"key": "trace-id", "value": b"12345678"}]] * n, schema.field("headers").type),
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=n)
            n_rows += n
            n_done += int(size.sum())
    return path.stat().st_size


def load(parquet: Path, folder: Path, settings: dict[str, Any]) -> tuple[float, float, float, int]:
    """MiB above the import, seconds, CPU seconds, records; in a process of its own."""
    to, report = folder / "log", folder / "report.json"
    mib = peak_mib(_LOAD, parquet, to, json.dumps(settings), report) - peak_mib(_IMPORTS)
    shutil.rmtree(to)
    seconds, cpu, n_records = json.loads(report.read_text())
    return mib, seconds, cpu, n_records


class LoadParquet:
    """A file of 1 GiB; its size must not show in the memory."""

    params = (list(SETTINGS),)
    param_names = ("settings",)
    timeout = 900.0

    def setup_cache(self) -> str:
        folder = Path(tempfile.mkdtemp(prefix="kafkalog-load-"))
        make_parquet(folder / "x.parquet", GIB)
        return str(folder)

    setup_cache.timeout = 600

    def track_load_mib(self, folder: str, settings: str) -> float:
        return load(Path(folder, "x.parquet"), Path(folder), SETTINGS[settings])[0]

    track_load_mib.unit = "MiB"

    def track_ms_per_100_mb(self, folder: str, settings: str) -> float:
        size = Path(folder, "x.parquet").stat().st_size
        return load(Path(folder, "x.parquet"), Path(folder), SETTINGS[settings])[2] * 1e3 / (size / 1e8)

    track_ms_per_100_mb.unit = MS_PER_100_MB


def main(sizes: tuple[int, ...] = (GIB // 8, GIB)) -> None:
    """Print the table of ``LOAD.md``."""
    print("| file | settings | records | MiB above the import | CPU seconds | MB a CPU second |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="kafkalog-load-") as name:
        folder = Path(name)
        for n_bytes in sizes:
            size = make_parquet(folder / "x.parquet", n_bytes)
            for what, settings in SETTINGS.items():
                mib, _, cpu, n = load(folder / "x.parquet", folder, settings)
                print(f"| {size / 1e6:,.0f} MB | {what} | {n:,} | {mib:.0f} | {cpu:.1f} | {size / 1e6 / cpu:.0f} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
