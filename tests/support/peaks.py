"""Peaks of resident memory: of this process, and of programs that a test starts.

`ru_maxrss` measures nothing here: a process inherits it from the one that started it, and pytest is large.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HAS_PROC = Path("/proc/self/clear_refs").exists()
NEEDS_PROC = pytest.mark.skipif(not HAS_PROC, reason="needs Linux's /proc")


def begin():
    """The bytes in memory now, from which the next peak counts; 0 without Linux's /proc."""
    if HAS_PROC:
        with open("/proc/self/clear_refs", "w") as peaks:
            peaks.write("5")
    return peak()


def peak():
    """The most bytes in memory since `begin`, or since the process runs its program; 0 without Linux's /proc."""
    if not HAS_PROC:
        return 0
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def printed_by(program, *arguments, timeout=200, **environment):
    """The text that a program prints, which may import this module; the test fails if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)
    assert run.returncode == 0, run.stderr
    return run.stdout
