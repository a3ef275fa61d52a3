"""Looks for batches at which a broker stops while it replays a segment, and for the leader epochs that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.records.batch_table import BatchTable
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.survey.startup_files import known_epochs
from kafkalog.survey.startup_load import LoadPlan


class ReplayCheck:
    """Looks for what makes a broker stop: a malformed marker, or a batch outside of its producer's open transaction.

    Source: ProducerAppendInfo.appendDataBatch, ControlRecordType.parse, EndTransactionMarker.deserialize, Kafka 4.3.
    """

    def __init__(self) -> None:
        self.problem: Finding | None = None
        self._open: set[int] = set()
        """Producers with an open transaction after the batches so far."""

    def add(self, path: Path, batches: BatchTable, coordinator_epoch: npt.NDArray[np.int32]) -> None:
        """Look at batches of producers of a segment, with the coordinator epochs of the markers among them."""
        is_control = batches.is_control
        is_marker = is_control & (batches.records_count != 0)
        is_wrong = (batches.codec != 0) | (coordinator_epoch < 0) | (batches.control_type < 0)
        is_wrong |= batches.control_type > kf.ControlRecordType.COMMIT
        for row in np.flatnonzero(is_marker & is_wrong)[:1].tolist():
            detail = "a control batch without a valid transaction marker: a broker that replays it fails"
            self._note(Reason.CONTROL_RECORD, detail, path, batches, row)
        self._look_at_transactions(path, batches)

    def _look_at_transactions(self, path: Path, batches: BatchTable) -> None:
        """Follow the open transactions; a batch of such a producer outside of transactions is a problem."""
        is_control, producers = batches.is_control, batches.producer_id
        is_transactional = (batches.attributes & kf.TRANSACTIONAL_BIT) != 0
        is_plain = ~is_control & ~is_transactional & (producers >= 0)
        begins = ~is_control & is_transactional
        both = np.intersect1d(producers[is_plain], [*self._open, *np.unique(producers[begins]).tolist()])
        for row in np.flatnonzero(np.isin(producers, both)).tolist() if both.size else ():
            producer = int(producers[row])
            if is_plain[row] and producer in self._open:
                detail = (
                    f"a batch outside of transactions while producer {producer} has one open: a broker that replays it"
                    " fails"
                )
                self._note(Reason.TRANSACTION_OUTCOME, detail, path, batches, row)
                return
            (self._open.add if begins[row] else self._open.discard)(producer)
        # the last batch of each producer that opens or ends a transaction
        rows = np.flatnonzero(~is_plain)[::-1]
        last, first = np.unique(producers[rows], return_index=True)
        is_open = begins[rows[first]]
        self._open.difference_update(last[~is_open].tolist())
        self._open.update(last[is_open].tolist())

    def _note(self, reason: Reason, detail: str, path: Path, batches: BatchTable, row: int) -> None:
        position, base_offset = int(batches.position[row]), int(batches.base_offset[row])
        found = Finding(reason, detail, path=str(path), position=position, base_offset=base_offset)
        self.problem = self.problem or found


def epochs_after(plan: LoadPlan, recovered: Sequence[RecoveredSegment], end: int) -> LeaderEpochs:
    """The epochs of the file with those of the segments, in the order of their recovery, cut at both ends of the log.

    Source: LogSegment.recover, LogLoader.load, Kafka 4.3.
    """
    epochs = known_epochs(plan.path)
    for epoch, start in (entry for one in recovered for entry in one.epochs):
        if epoch > epochs.latest:
            epochs.assign(epoch, start)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(plan.log_start)
    return epochs


def fatal_epoch_problem(recovered: Iterable[RecoveredSegment]) -> Finding | None:
    """A leader epoch at which a broker that recovers the segments fails; None if there is none.

    Source: LeaderEpochFileCache.assign, Kafka 4.3.
    """
    for one in recovered:
        for epoch, start in one.epochs:
            if start < 0:
                detail = (
                    f"leader epoch {epoch} begins at offset {start}: a broker that recovers the segment fails at it"
                )
                return Finding(Reason.EPOCH_ORDER, detail, path=str(one.segment.path))
    return None
