"""franz-go's decoder as a peer, on bytes that are already in memory, with one processor; its collector's time counts.

Built once by Go, where the segments are kept. What is missing is said by `ProgramUnavailableError`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import shapes

from peers.programs import ProgramPeer, ProgramUnavailableError

PROJECT = Path(__file__).with_name("go")


def decoding(path: str) -> ProgramPeer:
    """The peer that makes a record of each, as franz-go's consumer does."""
    return ProgramPeer((require_go(), path))


@cache
def require_go() -> str:
    """The program, built if need be.

    Raises
    ------
    ProgramUnavailableError
        There is no Go, or it cannot fetch or build what is needed.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise ProgramUnavailableError("no go on the PATH")
    program = shapes.cache_dir() / "go-peers" / "segment-peer"
    built = subprocess.run([go, "build", "-o", program, "."], cwd=PROJECT, capture_output=True, text=True, check=False)
    if built.returncode:
        raise ProgramUnavailableError(f"go could not build it: {built.stderr[-500:]}")
    return os.fspath(program)
