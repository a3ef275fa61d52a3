"""A partition to damage, and the files in it, for tests of rebuilds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_sets
import numpy as np

import kafkalog

EPOCHS = "leader-epoch-checkpoint"


def interval_of(set_name: str, directory: str) -> int | None:
    """What the topics of a set were made with; None where the cluster's metadata says it."""
    if set_name == "k28":
        return 4096 if directory.startswith("__") or "-vintage-" in directory or "-big-" in directory else 1024
    if set_name == "k44_extra":
        return 512 if "-compact-" in directory else 1024
    return None


def files_in(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def batches_of(partition: Path, number: int = 0) -> tuple[Path, Any]:
    segment = kafkalog.Partition(partition).segments[number]
    return segment.path, segment.batches


def flip(path: Path, position: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(data)


def clock_of(set_name: str) -> int:
    """When the broker rebuilt, near enough: the time of the newest marker, which is the broker's own."""
    markers = [0]
    for path in golden_sets.partitions(set_name).values():
        for segment in kafkalog.Partition(path).segments:
            batches = segment.batches
            markers.append(int(batches.max_timestamp[batches.is_control].max(initial=0)))
    return max(markers)


def hostile(rng: np.random.Generator, data: bytes) -> bytes:
    """A derived file, damaged."""
    kind = int(rng.integers(5))
    if kind == 0:
        return data[: int(rng.integers(len(data) + 1))]
    if kind == 1:
        return rng.bytes(int(rng.integers(200)))
    if kind == 2:
        return data + bytes(int(rng.integers(1, 5000)))
    if kind == 3:
        return b"\xff" * len(data)
    changed = bytearray(data or b"\0")
    for at in rng.integers(len(changed), size=3).tolist():
        changed[at] = int(rng.integers(256))
    return bytes(changed)


def derived(partition: Path) -> Iterator[Path]:
    yield from (path for path in sorted(partition.iterdir()) if path.suffix not in (".log", ".metadata"))


def copied_partition(folder: Path) -> Path:
    """A copy of a partition of three batches a segment or more, to damage."""
    target = folder / "data" / "p-idem-now-0"
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", target)
    return target
