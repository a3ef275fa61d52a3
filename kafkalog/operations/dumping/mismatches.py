"""Collects what a dump reports apart from its lines: mismatches as Kafka's tool lists them, and kafkalog's findings.

Kafka's tool prints its lists to stderr at the end, with several files in the order of a hash table. Here they are in
the order of the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, Reason

MAX_PAIRS: Final = 2**20
"""The most lines kept in one list of one file; further ones are only counted."""

Kind = Literal["offset", "timestamp", "order", "missing", "gap"]

_KINDS: Final[tuple[Kind, ...]] = ("offset", "timestamp", "order", "missing", "gap")
_HEADS: Final = {
    "offset": "Mismatches in :{path}",
    "timestamp": "Found timestamp mismatch in :{path}",
    "order": "Found out of order timestamp in :{path}",
    "missing": "The following indexed offsets are not found in :{path}",
    "gap": "Non-consecutive offsets in {path}",
}
_MISSING_2_8: Final = "The following indexed offsets are not found in the log."
_LINES: Final = {
    "offset": "  Index offset: {}, log offset: {}",
    "timestamp": "  Index timestamp: {}, log timestamp: {}",
    "order": "  Index timestamp: {}, Previously indexed timestamp: {}",
    "missing": "Indexed offset: {}, found log offset: {}",
    "gap": "  {} is followed by {}",
}

Pairs = list[npt.NDArray[np.int64]]


class Mismatches:
    """Collects mismatches, findings, and `notes`: lines that Kafka's tool prints to stderr while it reads.

    2.8 lists the last mismatch first, and repeated pairs as often as they were found.
    """

    def __init__(self, max_findings: int = DEFAULT_LIMITS.max_findings, *, is_2_8: bool = False) -> None:
        self.findings = Findings(max_findings)
        self.notes: list[str] = []
        self._is_2_8 = is_2_8
        self._pairs: dict[tuple[Kind, str], Pairs] = {}
        self._n: dict[tuple[Kind, str], int] = {}

    def add_pairs(self, kind: Kind, path: str, pairs: npt.NDArray[np.int64]) -> None:
        """Add mismatches, int64[2, n]: two numbers of a file that should agree."""
        key = kind, path
        if not pairs.size:
            return
        n = self._n.get(key, 0)
        self._n[key] = n + pairs.shape[1]
        kept = pairs[:, : max(0, MAX_PAIRS - n)]
        self._pairs.setdefault(key, []).append(kept)

    def add_finding(
        self,
        reason: Reason,
        detail: str,
        *,
        path: str,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        """Add a finding that is damage."""
        self.findings.add(Finding(reason, detail, path, position, base_offset=base_offset))

    def lines(self) -> Iterator[str]:
        """Yield the lists as Kafka's tool prints them at the end."""
        for kind, path, pairs in self._blocks():
            is_old = self._is_2_8 and kind == "missing"
            yield _MISSING_2_8 if is_old else _HEADS[kind].format(path=path)
            line = _LINES[kind]
            for first, second in zip(*pairs.tolist(), strict=True):
                yield line.format(first, second)
            n_more = self._n[kind, path] - sum(part.shape[1] for part in self._pairs[kind, path])
            if n_more:
                yield f"  ... and {n_more} more"

    def pairs(self) -> Iterator[tuple[Kind, str, int, int]]:
        """Yield the mismatches as tuples: kind, path of the file, and the two numbers that disagree."""
        for kind, path, pairs in self._blocks():
            for first, second in zip(*pairs.tolist(), strict=True):
                yield kind, path, first, second

    def _blocks(self) -> Iterator[tuple[Kind, str, npt.NDArray[np.int64]]]:
        for kind in _KINDS:
            for (of_kind, path), parts in self._pairs.items():
                if of_kind == kind:
                    pairs = np.concatenate(parts, axis=1)
                    if kind in ("offset", "gap"):
                        pairs = pairs[:, ::-1] if self._is_2_8 else _as_tree_map(pairs, descending=kind == "offset")
                    yield kind, path, pairs


def _as_tree_map(pairs: npt.NDArray[np.int64], *, descending: bool) -> npt.NDArray[np.int64]:
    """Sort pairs by the first number; among equal ones keep the last added, as Java's `TreeMap` does."""
    last_first = pairs[:, ::-1]
    _, rows = np.unique(last_first[0], return_index=True)
    return last_first[:, rows[::-1] if descending else rows]
