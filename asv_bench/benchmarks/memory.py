"""Peak memory of streaming, in a process of its own: what the file's size must not show in."""

from __future__ import annotations

import subprocess
import sys

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
_IMPORT = "import kafkalog.api"
_STREAM = """
path, threads, memory_map = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
for _ in kafkalog.scan(path, threads=threads, memory_map=memory_map).to_reader():
    pass
"""


class StreamingMemory:
    """MiB that streaming adds to the import; the bound is 32 and the largest batch a thread."""

    params = (["B", "C", "B-zstd"], [1, 2], [False, True])
    param_names = ("segment", "threads", "memory_map")
    timeout = 120.0

    def setup_cache(self) -> Segments:
        return make_segments(self.params[0])

    setup_cache.timeout = 600

    def track_streaming_mib(self, segments: Segments, name: str, threads: int, memory_map: bool) -> float:
        streaming = peak_mib(_STREAM, segments[name].path, threads, memory_map)
        return streaming - peak_mib("")

    track_streaming_mib.unit = "MiB"


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
