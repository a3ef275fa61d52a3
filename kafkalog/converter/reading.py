"""A partition's windows for a conversion: a file that cannot be read is met like damage in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kafkalog.errors import Finding, ReadError
from kafkalog.partition import Partition, Piece
from kafkalog.segment import Segment
from kafkalog.selection import Selection
from kafkalog.streams import OnCorruption


def readable_pieces(
    partition: Partition, selection: Selection, on_corruption: OnCorruption, report: Callable[[Finding], None]
) -> Iterator[Piece]:
    """Windows that may hold selected records, in offset order.

    With "stop" a finding of damage is the last thing that is reported, and no window comes behind it. With "skip" what
    of a file cannot be read is left out, and the next file comes.

    Raises
    ------
    KafkalogError
        As `Partition.pieces`; `ReadError` only with `on_corruption="raise"`, or if it is not about a segment.
    """
    current: Segment | None = None
    behind, position = -1, 0

    def is_wanted(segment: Segment) -> bool:
        nonlocal current, position
        if segment.base_offset <= behind:
            return False
        current, position = segment, 0
        return True

    while True:
        current = None
        try:
            for piece in partition.pieces(selection, on_corruption=on_corruption, report=report, wanted=is_wanted):
                position = piece.window.start + piece.window.data.size
                yield piece
                del piece  # the memory of a window serves the next one once nobody holds it
            return
        except ReadError as error:
            failed: Segment | None = current
            if on_corruption == "raise" or failed is None:
                raise
            length = max(failed.size_in_bytes - position, 0)
            passed = f"; {length} bytes passed over to the end of the segment" if on_corruption == "skip" else ""
            report(
                replace(
                    error.to_finding(),
                    detail=error.detail + passed,
                    path=str(failed.path),
                    position=position,
                    length=length,
                )
            )
            if on_corruption == "stop":
                return
            behind = failed.base_offset
