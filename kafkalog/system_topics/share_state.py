"""Where share groups stand in each partition, from `__share_group_state`: the start offset, and what is after it.

A snapshot replaces what is known of a partition; updates behind it add to it. Mirrors `ShareCoordinatorShard.replay`,
`ShareCoordinatorShard.merge` and `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from kafkalog.calls import leading_names
from kafkalog.format import SHARE_GROUP_STATE
from kafkalog.log.log_dir import LogDir
from kafkalog.system_topics.reading import AsOf, Report, name_of
from kafkalog.system_topics.replay import decoded_records

_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""By number (`RecordState`)."""


@leading_names
@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    """Records of a share group that were delivered."""

    first_offset: int
    last_offset: int
    """Both ends included."""
    state: str
    """``available``, ``acquired``, ``acknowledged``, ``archiving`` or ``archived``."""
    delivery_count: int
    """How often they were delivered."""


@dataclass(slots=True)
class ShareState:
    """Where a share group stands in a partition."""

    start_offset: int = -1
    """The first offset that is not done with; -1 for none."""
    leader_epoch: int = -1
    state_epoch: int = -1
    n_done: int | None = None
    """Records at and after the start offset that are done; None if no record counts them (4.1 does not)."""
    deliveries: list[Delivery] = field(default_factory=list)
    """At and after the start offset, sorted."""

    def update(self, value: Mapping[str, Any]) -> None:
        """Apply an update."""
        if value["startOffset"] >= 0:
            self.start_offset = value["startOffset"]
        if value["leaderEpoch"] >= 0:
            self.leader_epoch = value["leaderEpoch"]
        if (n_done := value.get("deliveryCompleteCount", -1)) >= 0:
            self.n_done = n_done
        self.state_epoch = value.get("stateEpoch", self.state_epoch)
        self.deliveries = _combined([*self.deliveries, *map(_delivery, value["stateBatches"])], self.start_offset)


def read_share_state(log_dir: LogDir, as_of: AsOf, report: Report) -> dict[tuple[str, str, int], ShareState]:
    """Read where share groups stand, by group, topic id and partition."""
    found: dict[tuple[str, str, int], ShareState] = {}
    for record in decoded_records(log_dir, SHARE_GROUP_STATE, as_of, report):
        key = record.key or {}
        which = key["groupId"], key["topicId"], key["partition"]
        if record.value is None:
            found.pop(which, None)
            continue
        # an update may be the first record left, where the snapshot before it was deleted
        if record.type == "ShareSnapshot" or which not in found:
            found[which] = ShareState()
        found[which].update(record.value)
    return found


def _delivery(batch: Mapping[str, Any]) -> Delivery:
    state = name_of(_STATES, batch["deliveryState"])
    return Delivery(batch["firstOffset"], batch["lastOffset"], state, batch["deliveryCount"])


_RANKS: Final = {name: number for number, name in _STATES.items()}


def _combined(deliveries: Iterable[Delivery], start: int) -> list[Delivery]:
    """Deliveries without overlaps: where two overlap, the one of more deliveries counts, then the later state."""
    known = sorted(one for one in deliveries if max(one.first_offset, start) <= one.last_offset)
    if all(before.last_offset < after.first_offset for before, after in pairwise(known)):
        pieces = known
    else:
        ends = {one.last_offset + 1 for one in known}
        cuts = sorted({max(one.first_offset, start) for one in known} | ends)
        pieces = []
        active: list[Delivery] = []
        waiting = known[::-1]
        for begin, end in pairwise(cuts):
            while waiting and max(waiting[-1].first_offset, start) <= begin:
                active.append(waiting.pop())
            active = [one for one in active if one.last_offset >= begin]
            if active:
                # PersisterStateBatchCombiner compares the numbers of states; unknown ones are higher than known ones
                best = max(active, key=lambda one: (one.delivery_count, _RANKS.get(one.state, len(_RANKS))))
                pieces.append(Delivery(begin, end - 1, best.state, best.delivery_count))
    joined: list[Delivery] = []
    for one in pieces:
        first = max(one.first_offset, start)
        last = joined[-1] if joined else None
        if last is not None and (last.last_offset + 1, last.state, last.delivery_count) == (
            first,
            one.state,
            one.delivery_count,
        ):
            joined[-1] = Delivery(last.first_offset, one.last_offset, one.state, one.delivery_count)
        else:
            joined.append(Delivery(first, one.last_offset, one.state, one.delivery_count))
    return joined
