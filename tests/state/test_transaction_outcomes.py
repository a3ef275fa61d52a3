"""How outcomes are learned: what is read ahead, and from where."""

from __future__ import annotations

from collections.abc import Generator

import builder
import numpy as np

from kafkalog.records.header_walk import walk
from kafkalog.state.outcomes import Reached, ReplayWindow
from kafkalog.state.transaction_outcomes import OutcomeLearner
from kafkalog.storage.source import BufferSource


def data(offset: int) -> bytes:
    records = [builder.record_v2(0, 0, b"k", b"v" * 100)]
    return builder.batch_v2(
        records, base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_what_reads_ahead_is_told_where_the_last_batch_lies() -> None:
    size = len(data(0))
    log = data(0) + data(1) + builder.control_batch(builder.ABORT, base_offset=2, producer_id=7)
    (first,) = walk(BufferSource(np.frombuffer(log[: 2 * size], np.uint8)))
    (rest,) = walk(BufferSource(np.frombuffer(log, np.uint8)), start=2 * size)
    asked: list[Reached] = []

    def ahead(reached: Reached) -> Generator[ReplayWindow]:
        asked.append(reached)
        yield ReplayWindow(rest, 0)

    learner = OutcomeLearner(["0.log"], ahead)
    learner.follow(ReplayWindow(first, 0), 0, 2)
    assert asked == [Reached(2 * size, 1, size)]
    found = learner.outcomes.all_not_committed()
    assert found["first_offset"].tolist() == [0]
    assert found["end_position"].tolist() == [2 * size]
