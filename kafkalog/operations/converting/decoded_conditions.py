"""Conditions on fields of decoded values as conditions on offsets: a pass decodes, and says which records match.

What is written then depends on offsets alone, so that it is the same whatever decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.errors import Finding, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.scanning.conditions.filter_tuples import Filters
from kafkalog.scanning.read import scan

_PLACE: Final = ("topic", "partition", "offset")
_REASONS: Final = (Reason.VALUE_UNDECODED, Reason.COLUMN_MISSING)
_NONE: Final = [[("offset", "<", 0)]]


class DecodedConditions:
    """Finds the records of a log that conditions match; `options` are those of `scan` that choose and decode."""

    def __init__(
        self, opened: LogDir | Partition | Segment, options: Mapping[str, Any], note: Callable[[Finding], None]
    ) -> None:
        self._opened, self._options, self._note = opened, options, note
        self._seen: set[str] = set()
        self.n_undecoded = 0
        """Values that did not decode, in the pass with most of them: whether their records match is not known."""

    def by_place(self, conditions: Filters) -> Filters:
        """The records that match, by topic, partition and offset."""
        records = scan(self._opened, columns=[*_PLACE], filters=conditions, include_deleted=True, **self._options)
        offsets: dict[tuple[str | None, int | None], list[npt.NDArray[np.int64]]] = {}
        for batch in records.to_batches():
            # a record batch is of one partition
            topic, number = batch.column(0)[0].as_py(), batch.column(1)[0].as_py()
            offsets.setdefault((topic, number), []).append(batch.column(2).to_numpy())
        self._take_notes(records)
        return [
            [*_place(*key), ("offset", "in", np.concatenate(some).tolist())] for key, some in offsets.items()
        ] or _NONE

    def _take_notes(self, records: Any) -> None:
        self.n_undecoded = max(self.n_undecoded, records.n_undecoded)
        for finding in records.findings:
            # damage is found once more by the conversion itself
            if finding.reason in _REASONS and str(finding) not in self._seen:
                self._seen.add(str(finding))
                self._note(finding)


def _place(topic: str | None, number: int | None) -> list[tuple[str, str, Any]]:
    """The conditions for a partition; none for a segment outside of a topic's directory."""
    return [] if topic is None else [("topic", "==", topic), ("partition", "==", number)]
