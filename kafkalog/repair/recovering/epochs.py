"""The leader epochs that a broker's recovery finds in the segments. Mirrors `LeaderEpochFileCache`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkalog.errors import Finding, Reason
from kafkalog.log.recovery import RecoveredSegment, fatal_epoch, wrong_epoch
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.survey.startup_files import known_epochs
from kafkalog.survey.startup_load import LoadPlan


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


def fatal_epoch_problem(plan: LoadPlan, recovered: Sequence[RecoveredSegment]) -> Finding | None:
    """The first leader epoch of which a broker that recovers the segments fails; None if there is none."""
    latest = known_epochs(plan.path).latest
    for one in recovered:
        fatal = fatal_epoch(one, latest)
        if fatal is not None:
            detail = f"{fatal}: a broker that recovers the segment fails at it"
            return Finding(Reason.EPOCH_ORDER, detail, path=str(one.segment.path))
        latest = max(latest, *(epoch for epoch, _ in one.epochs), -1)
    return None


def wrong_epoch_notes(path: Path, recovered: Iterable[RecoveredSegment]) -> list[Finding]:
    """A note about an epoch that gets into the file at `path` although it is probably wrong; none if there is none."""
    wrong = wrong_epoch(sorted(recovered, key=lambda one: one.segment.base_offset))
    return [] if wrong is None else [Finding(Reason.EPOCH_ORDER, wrong, path=str(path), damage=False)]
