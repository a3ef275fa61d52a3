"""Peak memory, in a process of its own, of streaming, rebuilding and verifying: a file's size must not show in it."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import shapes

import kafkalog

from .common import Segments, make_segments

# VmHWM is this program's own peak; ru_maxrss, where there is no /proc, may still hold the peak of what started it
_PEAK = """
import resource, sys
from pathlib import Path

def peak_kib():
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
"""
_IMPORT = "import kafkalog.scanning.read"
_STREAM = """
path, threads, memory_map = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
for _ in kafkalog.scan(path, threads=threads, memory_map=memory_map).to_reader():
    pass
"""
_REPAIR_IMPORTS = "import kafkalog.operations.rebuilding.reindex, kafkalog.operations.verifying.verify"
_REPAIRS = {
    "rebuild": """
kafkalog.reindex(
    sys.argv[1], kinds=("offset", "time", "txn", "snapshot", "epochs"), output=sys.argv[2], threads=int(sys.argv[3])
)
""",
    "verify": "kafkalog.verify(sys.argv[1], threads=int(sys.argv[3]))",
}

_COMPARING_IMPORTS = "import duckdb, pyarrow.dataset, kafkalog.comparing.content"
_COMPARE = """
a, b, memory, home = sys.argv[1:]
kafkalog.comparing.content.compare(a, b, memory=int(memory), temporary_directory=home)
"""


class StreamingMemory:
    """MiB that streaming adds to the import; the bound is 32 and the largest batch a thread."""

    params = (["A", "B", "C", "M", "B-zstd"], [1, 2], [False, True])
    param_names = ("segment", "threads", "memory_map")
    timeout = 120.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def track_streaming_mib(self, segments: Segments, name: str, threads: int, memory_map: bool) -> float:
        streaming = peak_mib(_STREAM, segments[name].path, threads, memory_map)
        return streaming - peak_mib("")

    track_streaming_mib.unit = "MiB"


class WholeMemory:
    """MiB that a whole result takes at its peak next to its own; the bound is 64."""

    params = (["A", "B", "C", "B-zstd"], ["numpy", "table"])
    param_names = ("segment", "result")
    timeout = 120.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def track_beside_the_result_mib(self, segments: Segments, name: str, result: str) -> float:
        path = str(segments[name].path)
        size = kafkalog.read_table(path).get_total_buffer_size()
        if result == "numpy":
            records = kafkalog.read_numpy(path)
            # a pickle is as large as what is pickled, except that of a constant column, which takes no memory
            size = sum(len(pickle.dumps(records[name])) for name in records if name not in ("topic", "partition"))
        return peak_mib(f"kept = kafkalog.read_{result}(sys.argv[1])", path) - peak_mib("") - size / 2**20

    track_beside_the_result_mib.unit = "MiB"


class RepairMemory:
    """MiB that rebuilding all derived files, and verifying, add to the import; the bound is 32.

    Of one segment of 1 GiB, of one of 256 MiB whose batches are single messages, and of 1,000 partitions of 64 KiB.
    """

    params = (["1 GiB", "a message a batch", "1000 partitions"], [*_REPAIRS], [1, 2])
    param_names = ("logs", "work", "jobs")
    timeout = 300.0

    def setup_cache(self) -> Segments:
        return {"1 GiB": shapes.segment("B", 1024), "a message a batch": shapes.segment("V1", 256)}

    setup_cache.timeout = 3600

    def setup(self, segments: Segments, logs: str, work: str, jobs: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="kafkalog-memory-"))
        if logs in segments:
            self.path = Path(segments[logs].path).parent
            return
        self.path = self.home / "logs"
        chosen = Path(segments["1 GiB"].path)
        with chosen.open("rb") as file:
            start = file.read(2**16)
        first = self.path / "t-0" / chosen.name
        first.parent.mkdir(parents=True)
        first.write_bytes(start)
        for number in range(1, 1000):
            directory = self.path / f"t-{number}"
            directory.mkdir()
            shutil.copy(first, directory)

    def teardown(self, *_: object) -> None:
        shutil.rmtree(self.home)

    def track_repair_mib(self, segments: Segments, logs: str, work: str, jobs: int) -> float:
        spent = peak_mib(f"{_REPAIR_IMPORTS}\n{_REPAIRS[work]}", self.path, self.home / "out", jobs)
        return spent - peak_mib(_REPAIR_IMPORTS)

    track_repair_mib.unit = "MiB"


class ComparingMemory:
    """MiB that `diff --content` adds to its imports; the bound is DuckDB's memory, 200, and 5 per million records.

    One of 997 records of A is missing in B.
    """

    params = ([1, 10], [64, 256])
    param_names = ("million_records_on_each_side", "mib_of_duckdb")
    timeout = 900.0

    def setup(self, n_millions: int, mib: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="kafkalog-comparing-"))
        for side in ("a", "b"):
            (self.home / side).mkdir()
            random = np.random.default_rng(7)
            with kafkalog.PartitionWriter(self.home / side / "t-0", compression="zstd") as writer:
                for number in range(n_millions * 20):
                    ids = random.integers(0, 2**62, 50_000)
                    ids = np.delete(ids, np.s_[::997]) if side == "b" else ids
                    values = np.char.add("v" * 40, ids.astype("U20")).astype("S60")
                    writer.append({"value": values, "timestamp": np.full(ids.size, 1_700_000_000_000 + number)})

    def teardown(self, *_: object) -> None:
        shutil.rmtree(self.home)

    def track_comparing_mib(self, n_millions: int, mib: int) -> float:
        arguments = self.home / "a", self.home / "b", mib * 2**20, self.home
        return peak_mib(f"{_COMPARING_IMPORTS}\n{_COMPARE}", *arguments) - peak_mib(_COMPARING_IMPORTS)

    track_comparing_mib.unit = "MiB"


class ImportMemory:
    """MiB of a process that has only imported."""

    timeout = 120.0

    def track_import_mib(self) -> float:
        return peak_mib("")

    track_import_mib.unit = "MiB"


def peak_mib(program: str, *arguments: object) -> float:
    """Peak resident MiB of a fresh process that imports kafkalog and then runs `program`."""
    source = f"{_PEAK}\n{_IMPORT}\n{program}\nprint(peak_kib())"
    command = [sys.executable, "-c", source, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024
