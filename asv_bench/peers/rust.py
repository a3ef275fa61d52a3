"""Rust's decoders as peers, on bytes that are already in memory: krabka-protocol, barnabas-core, and crc-fast alone.

Built once by cargo, where the segments are kept. What is missing is said by `RustUnavailableError`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import shapes

from peers import Pass

PROJECT = Path(__file__).with_name("rust")


class RustUnavailableError(Exception):
    """The Rust peers cannot run here; the message says what is missing."""


class RustPeer:
    """A Rust process that decodes one segment; calling it makes one pass. A context manager.

    Parameters
    ----------
    how : {"krabka", "barnabas", "crc"}
        Borrowed records; lean records, of which headers and values are not looked at; checksums and nothing else.
    path : str
        The segment.
    """

    def __init__(self, how: Literal["krabka", "barnabas", "crc"], path: str) -> None:
        self._process = subprocess.Popen(
            (require_rust(), how, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self()

    def __call__(self) -> Pass:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the Rust peer has no pipes")
        self._process.stdin.write("pass\n")
        answer = self._process.stdout.readline().split()
        if len(answer) != 3:
            raise RuntimeError("the Rust peer did not answer")
        nanoseconds, n_records, value_bytes = map(int, answer)
        return Pass(nanoseconds / 1e9, n_records, value_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


@cache
def require_rust(project: Path = PROJECT, program: str = "segment-peer") -> str:
    """A program of peers, built if need be: those of segments, or another.

    Raises
    ------
    RustUnavailableError
        There is no cargo, or it cannot fetch or build what is needed.
    """
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.fspath(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise RustUnavailableError("no cargo on the PATH")
    target = shapes.cache_dir() / "rust-peers"
    command = [cargo, "build", "--release", "--ignore-rust-version", "--target-dir", target]
    built = subprocess.run(
        [*command, "--manifest-path", project / "Cargo.toml"], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise RustUnavailableError(f"cargo could not build them: {built.stderr[-500:]}")
    return os.fspath(target / "release" / program)
