"""What is in directories, to be compared with what was there before."""

from __future__ import annotations

from pathlib import Path

import kafkalog


def content(directory: Path) -> dict[str, bytes]:
    """All files under a directory, but for the lock file that kafkalog creates as a broker does."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def offsets_of(partition: Path, **options: object) -> list[int]:
    """Offsets of all records, those of control batches among them."""
    return kafkalog.read_table(partition, columns=["offset"], include_control=True, **options)["offset"].to_pylist()  # type: ignore[arg-type]
