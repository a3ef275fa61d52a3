"""Estimates the size of a log with another codec, level or batch size: converts a sample, and writes nothing.

The log is divided into equal parts, and the sample has a run of batches from each. `convert` converts it without
writing, so the estimate has the same rules.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.convert import MAX_BATCH_SIZE, convert
from kafkalog.parsing import optional_integer
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.codecs import Compression
from kafkalog.storage.files import open_source
from kafkalog.storage.location import Place

SAMPLE_BYTES: Final = 64 * 2**20
_RUN_BYTES: Final = 256 * 2**10
_LEAST_RUN_BYTES: Final = 16 * 2**10
_RUNS: Final = 64
_LEAST_RUNS: Final = 16
"""Fewer do not show the spread; so many are converted even if they are more than the sample's bytes."""
_BATCHES_A_RUN: Final = 8
_Z: Final = 3.2905
"""The normal quantile of 99.9 %, both sides."""
_SLACK: Final = 0.01
"""Share of the estimate by which a run's ends, where batches are cut, may change it."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another way to store a log."""

    compression: str | None = None
    level: int | None = None
    batch_size: int | None = None

    @classmethod
    def parse(cls, text: str) -> Change:
        """Parse ``CODEC:LEVEL:BATCH_SIZE``; each part may be empty, and those at the end may be left out.

        >>> Change.parse("zstd:6"), Change.parse("::65536").batch_size
        (Change(compression='zstd', level=6, batch_size=None), 65536)
        """
        parts = [one.strip() or None for one in text.split(":")]
        codec, level, size = (*parts, None, None)[:3]
        if len(parts) > 3 or not (codec or size):
            raise ValueError(f"CODEC:LEVEL:BATCH_SIZE is expected, such as zstd:3:65536, not {text!r}")
        try:
            found = cls(codec, None if level is None else int(level), None if size is None else int(size))
        except ValueError:
            raise ValueError(f"a level and a batch size are numbers, not {text!r}") from None
        if codec is not None:
            Compression.parse(codec, level=found.level)
        elif level is not None:
            raise ValueError(f"a level is one of a codec: {text!r} names none")
        optional_integer("the batch size", found.batch_size, 1, MAX_BATCH_SIZE)
        return found


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The size after a change."""

    compression: str | None
    level: int | None
    batch_size: int | None
    n_bytes_before: int
    """Of the batches that `convert` would read."""
    n_bytes: int
    low: int
    high: int
    """The estimate, and an interval that holds the result of `convert` in 99.9 % of cases."""
    n_sampled: int
    """Bytes that were converted; with all of them the estimate is exact."""

    @property
    def saved(self) -> float:
        """The share of the bytes that the change saves; negative if it needs more."""
        return 1 - self.n_bytes / self.n_bytes_before if self.n_bytes_before else 0.0

    def row(self, columns: Iterable[str]) -> tuple[Any, ...]:
        """The cells of these columns."""
        return tuple(getattr(self, name) for name in columns)


class Runs:
    """Positions of runs of batches with at least `run_bytes` each, some of which are sampled."""

    def __init__(self, run_bytes: int) -> None:
        self._run_bytes = run_bytes
        self._runs: list[tuple[Place, int, int, int]] = []
        self._open: tuple[Place, int, int, int] | None = None

    def add(self, segment: Segment, batches: BatchTable, log_start_offset: int) -> None:
        """Add the batches of a window; windows come in order."""
        kept = batches[np.flatnonzero(batches.last_offset >= log_start_offset)]
        for begin, end in zip(kept.position.tolist(), kept.next_position.tolist(), strict=True):
            run = self._open
            if run is None or run[0] != segment.path or run[2] != begin or run[2] - run[1] >= self._run_bytes:
                self._close()
                run = segment.path, begin, begin, segment.base_offset
            self._open = (*run[:2], end, run[3])

    def _close(self) -> None:
        if self._open is not None:
            self._runs.append(self._open)
        self._open = None

    def estimate(self, change: Change, sample_bytes: int, seed: int, **options: Any) -> WhatIf:
        """Convert a sample, with the options `threads` and `limits` of `convert`."""
        self._close()
        runs = self._runs
        sizes = np.array([end - begin for _, begin, end, _ in runs], np.int64)
        before = int(sizes.sum())
        if not before:
            return WhatIf(**asdict(change), n_bytes_before=0, n_bytes=0, low=0, high=0, n_sampled=0)
        n = max(int(sample_bytes * before // (sizes**2).sum()), _LEAST_RUNS)
        is_sample = before > sample_bytes and n < len(runs)
        chosen = _sampled(sizes, n, seed) if is_sample else np.arange(len(runs))
        different, again = np.unique(chosen, return_inverse=True)
        converted = _converted([runs[number] for number in different], change, **options)
        # neighbours are of the same topic: their differences show the spread inside of the parts
        ratios = (converted / sizes[different])[again]
        estimate, n_sampled = before * float(ratios.mean()), int(sizes[different].sum())
        variance = float((np.diff(ratios) ** 2).sum()) / (2 * max(n - 1, 1))
        spread = before * math.sqrt(variance * (1 - n_sampled / before) / n)
        if not is_sample:
            estimate, spread = float(converted.sum()), 0.0
        # each run begins and ends a batch that the whole log may not cut there
        edges = len(runs) * 61 + _SLACK * estimate
        margin = spread * _quantile(n - 1) + edges
        low, high = max(math.floor(estimate - margin), 0), math.ceil(estimate + margin)
        return WhatIf(
            **asdict(change), n_bytes_before=before, n_bytes=round(estimate), low=low, high=high, n_sampled=n_sampled
        )


def run_bytes(change: Change, sample_bytes: int) -> int:
    """Return the bytes of a run: it holds several batches of the new size, and a sample many runs."""
    usual = min(max(sample_bytes // _RUNS, _LEAST_RUN_BYTES), _RUN_BYTES)
    return max(usual, _BATCHES_A_RUN * (change.batch_size or 0))


def _sampled(sizes: npt.NDArray[np.int64], n: int, seed: int) -> npt.NDArray[np.intp]:
    """A run of each of n equal parts of the bytes, so that no topic is left out, and large runs count as such."""
    points = (np.arange(n) + np.random.default_rng(seed).random(n)) * sizes.sum() / n
    found: npt.NDArray[np.intp] = np.minimum(np.searchsorted(np.cumsum(sizes), points, side="right"), sizes.size - 1)
    return found


def _converted(runs: Sequence[tuple[Place, int, int, int]], change: Change, **options: Any) -> npt.NDArray[np.int64]:
    """Bytes of each run after the change."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-") as folder:
        for number, (path, begin, end, base_offset) in enumerate(runs):
            directory = Path(folder, "sample", f"run-{number}")
            directory.mkdir(parents=True)
            with open_source(path, memory_map=False) as source:
                data = source.window(begin, min(end, source.size))
                (directory / f"{base_offset:020d}.log").write_bytes(data.tobytes())
        report = convert(
            LogDir(Path(folder, "sample"), limits=options.get("limits") or Limits()),
            Path(folder, "output"),
            compression=change.compression,
            compression_level=change.level,
            batch_size=change.batch_size,
            on_corruption="skip",
            dry_run=True,
            **options,
        )
    rows = {one.topic_partition.partition: one for one in report.partitions}
    return np.array([rows[number].n_bytes_after if number in rows else 0 for number in range(len(runs))], np.int64)


def _quantile(freedom: int) -> float:
    """Student's quantile of 99.9 %, both sides, from the normal one (Cornish and Fisher); freedom is at least 1."""
    n = max(freedom, 1)
    return _Z + (_Z**3 + _Z) / (4 * n) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * n * n)
