"""Parts of an export: what one process writes. The export itself is one part, or many of them on a cluster.

A `PartWriter` pickles. It writes the records of a scan to data files that nobody counts yet, and returns a
`WrittenPart`. One process then commits all parts at once.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import pyarrow as pa

from kafkalog.errors import Finding
from kafkalog.interchange.record_writers import OutputFormat
from kafkalog.operations.exporting.partitioned_files import PartitionedFiles, split_by_directory
from kafkalog.scanning.scan import Scan
from kafkalog.storage.staging import StagedDirectory
from kafkalog.storage.uploads import RemoteDirectory


@dataclass(slots=True)
class WrittenPart:
    """What was written of a scan, or of a part of one."""

    files: dict[str, Any]
    """What a commit needs to know of each file, by name."""
    n_records: int
    n_bytes: int
    lost: Counter[tuple[tuple[str, ...], str]]
    """See `kafkalog.interchange.table_types.Conversion`."""
    findings: list[Finding] = field(default_factory=list)
    """The findings of the scan."""
    n_undecoded: int = 0
    n_lost_records: int = 0
    """Records that the scan did not return because of damage, as far as known."""

    def about(self, scan: Scan) -> WrittenPart:
        """This part, with what the scan reported of it."""
        self.findings, self.n_undecoded = scan.findings, scan.n_undecoded
        self.n_lost_records = sum(loss.n_records for loss in scan.losses.values())
        return self


class PartWriter(Protocol):
    """What writes the records of a scan."""

    def write(self, scan: Scan) -> WrittenPart:
        """Write them, and return the files."""


Spread = Callable[[PartWriter, Scan], list[WrittenPart]]
"""Runs a writer for a scan, in this process or for the parts of its plan elsewhere."""


Split = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]
"""Divides records by the directories of their files."""


def in_process(writer: PartWriter, scan: Scan) -> list[WrittenPart]:
    """Write the whole scan here."""
    return [writer.write(scan)]


def lost_in(parts: Sequence[WrittenPart]) -> Counter[tuple[tuple[str, ...], str]]:
    """The losses of all parts: values that the columns of the output cannot hold."""
    return sum((part.lost for part in parts), Counter())


@contextlib.contextmanager
def batches_of(scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
    """The record batches of a scan, whose threads end with the block."""
    with contextlib.closing(cast(Any, scan.to_batches())) as stream:
        yield stream


def write_files(scan: Scan, files: PartitionedFiles, split: Split) -> WrittenPart:
    """Write the rows that `split` makes of a scan's records, to the files of their directories."""
    try:
        with batches_of(scan) as batches:
            for batch in batches:
                for key, rows in split(batch):
                    files.write(key, rows)
        files.close()
    except BaseException:
        files.abandon()
        raise
    return WrittenPart(files.files, files.n_records, files.n_bytes, files.lost).about(scan)


@dataclass(frozen=True, slots=True)
class DirectoryWriter:
    """Writes files with names that begin with `name` into a directory that somebody else publishes."""

    directory: StagedDirectory | RemoteDirectory | None
    """None in a job, whose tasks have their own."""
    name: str
    schema: pa.Schema
    options: OutputFormat
    keys: tuple[str, ...]
    max_directories: int

    def write(self, scan: Scan) -> WrittenPart:
        """Write the records of a scan."""
        assert self.directory is not None
        files = PartitionedFiles(self.directory, self.schema, self.options, self.max_directories, self.name)
        return write_files(scan, files, lambda batch: split_by_directory(batch, self.keys))
