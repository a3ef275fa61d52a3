"""What starting costs: a process that imports the package, and the command line's help."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time


class Startup:
    """Wall seconds of whole processes, next to one that does nothing."""

    timer = time.perf_counter
    number = 1
    repeat = (5, 10, 10.0)
    timeout = 120.0
    params = (["pass", "import kafkalog", "import kafkalog.scanning.read", "import pyarrow", "kafkalog --help"],)
    param_names = ("program",)

    def setup(self, program: str) -> None:
        if program.startswith("kafkalog "):
            if importlib.util.find_spec("kafkalog.__main__") is None:
                raise NotImplementedError("kafkalog has no command line")
            self.command = [sys.executable, "-m", *program.split()]
        else:
            self.command = [sys.executable, "-c", program]
        self._run()

    def time_process(self, program: str) -> None:
        self._run()

    def track_import_ms(self, program: str) -> float:
        """Milliseconds beyond those of an empty program, the two alternating."""
        empty = [sys.executable, "-c", "pass"]
        differences = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run(empty, check=True)
            between = time.perf_counter()
            self._run()
            differences.append((time.perf_counter() - between) - (between - start))
        return statistics.median(differences) * 1e3

    track_import_ms.unit = "ms"

    def _run(self) -> None:
        subprocess.run(self.command, check=True, stdout=subprocess.DEVNULL)
