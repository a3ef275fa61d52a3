"""Batches at which a broker stops while it replays producers."""

from __future__ import annotations

from pathlib import Path

import builder
import numpy as np
import pytest

import kafkalog
from kafkalog.errors import Reason
from kafkalog.repair.recovering.replay_check import ReplayCheck


def batch(at: int, producer_id: int, *, transactional: bool) -> bytes:
    record = builder.record_v2(0, 0, b"k", b"v")
    return builder.batch_v2(
        [record],
        base_offset=at,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=at,
    )


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([(7, True), (7, True)], None),
        ([(7, False), (8, True)], None),
        ([(7, True), (7, False)], Reason.TRANSACTION_OUTCOME),
    ],
)
def test_a_producer_is_transactional_always_or_never(
    tmp_path: Path, kinds: list[tuple[int, bool]], expected: Reason | None
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batch(at, producer, transactional=one) for at, (producer, one) in enumerate(kinds)))
    check = ReplayCheck()
    batches = kafkalog.Segment(path).batches
    check.add(path, batches, np.zeros(len(batches), np.int32))
    assert (None if check.problem is None else check.problem.reason) == expected
