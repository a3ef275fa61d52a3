"""Reads quarantine files: the bytes that `salvage` did not keep, in which intact batches of any offsets may be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Limits, NotKafkaError, Reason
from kafkalog.log.open import open_buffer
from kafkalog.log.searching.resync import LINKED, find_batches
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import BatchTable
from kafkalog.storage.files import open_source
from kafkalog.storage.own_names import QUARANTINE_SUFFIX

_MOST_BYTES: Final = 8 * 2**20


class QuarantinedRun(NamedTuple):
    """Intact batches of a quarantine file that follow each other, with rising offsets."""

    position: int
    """Of the first one in the file."""
    segment: Segment
    """The batches, in memory."""

    @property
    def batches(self) -> BatchTable:
        """The batch table, with positions in the file."""
        table = self.segment.batches
        return replace(table, position=table.position + self.position)


def open_quarantine(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Iterator[QuarantinedRun]:
    """Open the intact batches of a file ``TOPIC-N.quarantine`` that `salvage` wrote.

    What lies between them is damaged, or not of a log, and is passed over. Batches are taken in the order of the file,
    whatever their offsets: they may contradict each other and the log.

    Parameters
    ----------
    path : path-like
    limits : Limits

    Yields
    ------
    QuarantinedRun
        Its `segment` has the methods of any segment: `kafkalog.scan` takes it.

    Raises
    ------
    NotKafkaError
        The file is not named like a quarantine file.
    ReadError
        It cannot be read.

    Examples
    --------
    >>> report = kafkalog.salvage("tests/golden/log_dir/p-multi-0", dry_run=True)
    >>> [run for one in report.partitions if one.quarantine for run in kafkalog.open_quarantine(one.quarantine)]
    []
    """
    name = Path(path).name
    if not name.endswith(QUARANTINE_SUFFIX):
        raise NotKafkaError(Reason.NOT_KAFKA, f"a quarantine file ends in {QUARANTINE_SUFFIX}", path=path)
    parsed = kf.parse_partition_directory(name.removesuffix(QUARANTINE_SUFFIX))
    key = None if parsed is None else parsed.topic_partition
    with open_source(path, memory_map=False) as source:
        for found in find_batches(source, limits=limits):
            rows = found[found.kind != LINKED]
            begin = 0
            for row in range(1, len(rows) + 1):
                is_end = row == len(rows) or bool(
                    rows.start[row] != rows.end[row - 1]
                    or rows.first_offset[row] <= rows.last_offset[row - 1]
                    or rows.end[row] - rows.start[begin] > _MOST_BYTES
                )
                if is_end:
                    start, stop = int(rows.start[begin]), int(rows.end[row - 1])
                    data = source.window(start, stop)
                    run = open_buffer(data.tobytes(), name=f"{path}@{start}", topic_partition=key, limits=limits)
                    source.release(data, start)
                    yield QuarantinedRun(start, run)
                    begin = row
