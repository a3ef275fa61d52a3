"""Peers that are programs of another language: each decodes one segment, a pass for each line that it is sent."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from peers import Pass


class ProgramUnavailableError(Exception):
    """A peer cannot run here; the message says what is missing."""


class ProgramPeer:
    """A process that decodes one segment; calling it makes one pass. A context manager.

    Parameters
    ----------
    command : sequence of str
        It answers each line on stdin with CPU nanoseconds, records and bytes of values (-1: not seen).
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self()

    def __call__(self) -> Pass:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        self._process.stdin.write("pass\n")
        answer = self._process.stdout.readline().split()
        if len(answer) != 3:
            raise RuntimeError(f"{self._process.args!r} did not answer")
        nanoseconds, n_records, value_bytes = map(int, answer)
        return Pass(nanoseconds / 1e9, n_records, value_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
