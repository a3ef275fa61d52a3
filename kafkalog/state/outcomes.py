"""What is known of how the transactions of a partition ended, and the windows that tell it.

`TransactionOutcomes` is small enough to send to the readers of parts of a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Finding, KafkalogError
from kafkalog.records.batch_table import Window
from kafkalog.state.transactions import ENDED_DTYPE, UnendedTransaction

POSITION_BITS: Final = 32
"""A log position is the number of a segment, shifted left by this many bits, plus a position in the segment."""


class ReplayWindow(NamedTuple):
    """A window of one of a partition's segments, to be replayed."""

    window: Window
    segment_start: int
    """Log position of the first byte of its segment."""
    damage: Sequence[Finding] = ()
    """Damage that was skipped right before it. Damage at the end of the log comes with a window without batches."""


class Reached(NamedTuple):
    """How far a partition was replayed."""

    position: int = 0
    """Log position after the last batch."""
    last_offset: int = -1
    last_position: int | None = None
    """Last offset and log position of that batch."""


@dataclass(slots=True)
class TransactionOutcomes:
    """Outcomes that a `read_committed` reader of a partition, or of a part of it, needs, or those known so far.

    Log positions (see `TransactionReplay`) count from the first segment of the partition, or of the part.
    """

    parts: list[npt.NDArray[np.void]] = field(default_factory=list)
    """ENDED_DTYPE[n] each. Transactions that were aborted, or whose outcome is unknown."""
    causes: dict[int, Finding] = field(default_factory=dict)
    """Why an outcome is unknown, by the log position where the transaction began."""
    end: UnendedTransaction | None = None
    """Reading ends where this transaction begins."""
    findings: list[Finding] = field(default_factory=list)
    """Findings to report there."""
    error: KafkalogError | None = None
    """Error to raise there."""
    notes: list[tuple[int, Finding]] = field(default_factory=list)
    """Markers that are missing, each with the log position from which on the note is to be reported."""
    is_by_offset: bool = False
    """Whether batches are matched by offset instead of position: for readers that learned the outcomes earlier, since
    the cleaner may have rewritten segments in the meantime."""

    @property
    def not_committed(self) -> npt.NDArray[np.void]:
        """ENDED_DTYPE[n]: all parts as one."""
        if len(self.parts) != 1:
            self.parts = [np.concatenate([*self.parts, np.empty(0, ENDED_DTYPE)])]
        return self.parts[0]

    def copy(self) -> TransactionOutcomes:
        """A copy for a reader, which removes what it has reported."""
        lists = {"parts": [*self.parts], "findings": [*self.findings], "notes": [*self.notes]}
        return replace(self, causes=dict(self.causes), **lists)  # type: ignore[arg-type]

    def notes_before(self, log_position: int) -> list[Finding]:
        """Take the notes that are to be reported below a log position."""
        found = [note for at, note in self.notes if at < log_position]
        self.notes = [(at, note) for at, note in self.notes if at >= log_position]
        return found

    def or_raise(self) -> TransactionOutcomes:
        """Return this object, or raise `error` if there is one."""
        if self.error is not None:
            raise self.error
        return self

    def between(self, begin: int, stop: int) -> TransactionOutcomes:
        """Return the outcomes that concern a part of the partition, from log position `begin` up to `stop`.

        Positions in the result count from the segment of `begin`.
        """
        if self.is_by_offset:
            return self
        mine = self.not_committed[
            (self.not_committed["end_position"] > begin) & (self.not_committed["start_position"] < stop)
        ].copy()
        shift = begin >> POSITION_BITS << POSITION_BITS
        mine["start_position"] -= shift
        mine["end_position"] -= shift
        started = set(mine["start_position"].tolist())
        causes = {at - shift: cause for at, cause in self.causes.items() if at - shift in started}
        notes = [(at - shift, note) for at, note in self.notes if begin <= at < stop]
        if self.end is None or self.end.log_position >= stop:
            return TransactionOutcomes([mine], causes, notes=notes)
        end = self.end._replace(log_position=self.end.log_position - shift)
        return TransactionOutcomes([mine], causes, end, self.findings, self.error, notes)
