"""Counts batches by producer, codec, format and other keys, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kafkalog.column_names import CONTEXT_COLUMNS
from kafkalog.indexes.distribution import nearest_rank, rounded
from kafkalog.records.batch_table import BatchTable
from kafkalog.scanning.batch_scan import BatchRows, batch_column

DEFAULT_KEYS: Final = ("producer_id", "compression", "magic")
KEYS: Final = (
    "topic",
    "partition",
    "segment",
    "producer_id",
    "producer_epoch",
    "partition_leader_epoch",
    "compression",
    "magic",
    "timestamp_type",
    "is_transactional",
    "is_control",
)
MAX_GROUPS: Final = 100_000
"""The most groups kept; bounds the memory for a log in which every batch has another producer."""

_COUNTS: Final = ("n_batches", "n_records", "n_hidden", "n_bytes", "n_transactional", "n_control", "n_idempotent")
PERCENTILES: Final = (50, 90, 99)


@dataclass(slots=True)
class BatchCounts:
    """Counts of some batches."""

    n_batches: int = 0
    n_records: int = 0
    n_hidden: int = 0
    """Batches whose header does not have the number of records (compressed v0 and v1 messages)."""
    n_bytes: int = 0
    n_transactional: int = 0
    n_control: int = 0
    n_idempotent: int = 0
    smallest: int = 2**63 - 1
    largest: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    """Number of batches by size in bytes, rounded down to `EXACT_BITS` significant bits."""

    def merge(self, other: BatchCounts) -> None:
        """Add the counts of another group."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)
        for size, n in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0) + n

    def percentile(self, percent: int) -> int:
        """Return the percentile of the batch sizes, rounded down to `EXACT_BITS` significant bits."""
        sizes = sorted(self.sizes)
        counts = [self.sizes[size] for size in sizes]
        return max(nearest_rank(np.array(sizes, np.int64), np.array(counts, np.int64), percent), self.smallest)

    @property
    def records_a_batch(self) -> float | None:
        """Mean number of records of the batches whose header has it, control batches excluded; None without any."""
        n = self.n_batches - self.n_control - self.n_hidden
        return self.n_records / n if n else None

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as a dict for JSON."""
        mean = self.records_a_batch
        return {
            "n_batches": self.n_batches,
            "n_records": self.n_records,
            "n_records_is_minimum": self.n_hidden > 0,
            "n_bytes": self.n_bytes,
            "mean_records": None if mean is None else round(mean, 2),
            "mean_bytes": round(self.n_bytes / self.n_batches, 1),
            "min_bytes": self.smallest,
            **{f"p{percent}_bytes": self.percentile(percent) for percent in PERCENTILES},
            "max_bytes": self.largest,
            "n_transactional": self.n_transactional,
            "n_idempotent": self.n_idempotent,
            "n_control": self.n_control,
        }


class BatchSummary:
    """Counts of batches by group; the keys to group by are columns out of `KEYS`."""

    def __init__(self, keys: Sequence[str] = DEFAULT_KEYS) -> None:
        for key in keys:
            if key not in KEYS:
                raise ValueError(f"--by takes {', '.join(KEYS)}, not {key!r}")
        if len(set(keys)) != len(keys):
            raise ValueError("--by names a column twice")
        self.keys = tuple(keys)
        self._groups: dict[tuple[Any, ...], BatchCounts] = {}
        self._others = BatchCounts()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def n_unlisted(self) -> int:
        """Batches of groups beyond `MAX_GROUPS`."""
        return self._others.n_batches

    def add(self, rows: BatchRows) -> None:
        """Add rows of the batch table."""
        topic, partition = rows.topic_partition or (None, None)
        context = {"topic": topic, "partition": partition, "segment": rows.segment}
        names = [key for key in self.keys if key not in CONTEXT_COLUMNS]
        for values, counted in _by(names, rows.batches):
            found = dict(zip(names, values, strict=True))
            key = tuple(context[name] if name in CONTEXT_COLUMNS else found[name] for name in self.keys)
            if key in self._groups:
                self._groups[key].merge(counted)
            elif len(self._groups) < MAX_GROUPS:
                self._groups[key] = counted
            else:
                self._others.merge(counted)

    def largest(self, n: int | None = None) -> list[tuple[tuple[Any, ...], BatchCounts]]:
        """Return the keys and counts of the groups with the most bytes, the largest first; default: all groups."""
        return sorted(self._groups.items(), key=lambda item: -item[1].n_bytes)[:n]

    def total(self, without: Sequence[tuple[Any, ...]] = ()) -> BatchCounts:
        """Return the sum of all groups but some, those beyond `MAX_GROUPS` included."""
        total = BatchCounts()
        for group in (*(group for key, group in self._groups.items() if key not in {*without}), self._others):
            total.merge(group)
        return total

    def objects(self, n: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the fields of each group, the largest first."""
        for key, group in self.largest(n):
            yield {**dict(zip(self.keys, key, strict=True)), **group.as_dict()}


def _by(names: Sequence[str], batches: BatchTable) -> Iterator[tuple[tuple[Any, ...], BatchCounts]]:
    """Group rows by the values of columns, and count them; makes no Python object for each row."""
    columns = [batches.codec if name == "compression" else batch_column(name, batches) for name in names]
    order = np.lexsort(columns) if columns else np.arange(len(batches))
    changes = np.zeros(len(batches), np.bool_)
    changes[0] = True
    for column in columns:
        changes[1:] |= np.diff(column[order].astype(np.int64)) != 0
    starts = np.flatnonzero(changes)
    values = [batch_column(name, batches[order[starts]]).tolist() for name in names]
    sizes = batches.size_in_bytes.astype(np.int64)
    control, transactional = batches.is_control, batches.is_transactional
    counts = {
        "n_batches": np.ones(len(batches), np.int64),
        "n_records": np.maximum(batches.n_user_records, 0),
        "n_hidden": batches.records_count < 0,
        "n_bytes": sizes,
        "n_transactional": transactional & ~control,
        "n_control": control,
        "n_idempotent": (batches.producer_id >= 0) & ~transactional & ~control,
    }
    columns_out = {name: np.add.reduceat(counts[name][order], starts, dtype=np.int64).tolist() for name in _COUNTS}
    columns_out["smallest"] = np.minimum.reduceat(sizes[order], starts).tolist()
    columns_out["largest"] = np.maximum.reduceat(sizes[order], starts).tolist()
    groups = [BatchCounts(*row) for row in zip(*columns_out.values(), strict=True)]
    numbers = np.cumsum(changes) - 1
    pairs, n_each = np.unique(numbers << 32 | rounded(sizes[order]), return_counts=True)
    for number, size, n in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), n_each.tolist(), strict=True):
        groups[number].sizes[size] = n
    return zip(zip(*values, strict=True) if values else [()], groups, strict=True)
