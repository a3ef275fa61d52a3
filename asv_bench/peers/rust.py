"""Rust's decoders as peers, on bytes that are already in memory: krabka-protocol, and crc-fast alone.

Built once by cargo, where the segments are kept. What is missing is said by `ProgramUnavailableError`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

import shapes

from peers.programs import ProgramPeer, ProgramUnavailableError

PROJECT = Path(__file__).with_name("rust")


def decoding(how: Literal["krabka", "crc"], path: str) -> ProgramPeer:
    """The peer that borrows records, or that compares checksums and does nothing else."""
    return ProgramPeer((require_rust(), how, path))


@cache
def require_rust(project: Path = PROJECT, program: str = "segment-peer") -> str:
    """A program of peers, built if need be: those of segments, or another.

    Raises
    ------
    ProgramUnavailableError
        There is no cargo, or it cannot fetch or build what is needed.
    """
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.fspath(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise ProgramUnavailableError("no cargo on the PATH")
    target = shapes.cache_dir() / "rust-peers"
    command = [cargo, "build", "--release", "--ignore-rust-version", "--target-dir", target]
    built = subprocess.run(
        [*command, "--manifest-path", project / "Cargo.toml"], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise ProgramUnavailableError(f"cargo could not build them: {built.stderr[-500:]}")
    return os.fspath(target / "release" / program)
