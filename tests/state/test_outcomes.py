"""What is known of how transactions ended, and the share of it that a part of a partition gets."""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.errors import CorruptionError, Finding, Reason
from kafkalog.state.outcomes import POSITION_BITS, LearnedOutcomes, TransactionOutcomes
from kafkalog.state.transactions import ENDED_DTYPE, OpenTransaction

SECOND = 1 << POSITION_BITS
CAUSE = Finding(Reason.CRC_MISMATCH)


def ended(*places: tuple[int, int]) -> np.ndarray:
    found = np.zeros(len(places), ENDED_DTYPE)
    found["start_position"], found["end_position"] = np.array(places).T
    return found


def test_a_part_gets_the_transactions_that_reach_into_it_counted_from_its_segment() -> None:
    known = TransactionOutcomes(
        ended((10, 50), (60, SECOND + 20), (SECOND + 30, SECOND + 90)),
        {60: CAUSE, SECOND + 30: CAUSE},
        OpenTransaction(7, 500, SECOND + 200),
        (CAUSE,),
    )
    part = known.between(SECOND + 10, SECOND + 80)
    assert part.not_committed["start_position"].tolist() == [60 - SECOND, 30]
    assert part.not_committed["end_position"].tolist() == [20, 90]
    assert list(part.causes) == [60 - SECOND, 30]
    assert part.end is None
    last = known.between(SECOND + 100, SECOND + 300)
    assert (last.not_committed.size, last.end, last.findings) == (0, OpenTransaction(7, 500, 200), (CAUSE,))


def test_outcomes_that_are_matched_by_offset_are_the_same_for_each_part() -> None:
    known = TransactionOutcomes(ended((10, 50)), is_by_offset=True)
    assert known.between(SECOND, 2 * SECOND) is known


def test_an_error_is_raised_where_it_is_asked_for() -> None:
    sound = TransactionOutcomes()
    assert sound.or_raise() is sound
    with pytest.raises(CorruptionError):
        TransactionOutcomes(error=CorruptionError(Reason.CRC_MISMATCH, "wrong")).or_raise()


def test_learned_outcomes_are_a_copy_that_can_be_used_up() -> None:
    known = TransactionOutcomes(ended((10, 50)), {10: CAUSE})
    learned = LearnedOutcomes.of(known)
    learned.causes.clear()
    learned.not_committed.clear()
    assert known.causes == {10: CAUSE}
    assert LearnedOutcomes.of(TransactionOutcomes()).all_not_committed().size == 0
