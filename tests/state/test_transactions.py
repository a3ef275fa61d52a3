"""Transactions as batches go by, held against the twin's bookkeeping."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import builder
import numpy as np
import pytest
import reference
import strategies
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, Finding, LimitExceededError, Limits, Reason
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import walk
from kafkalog.state.outcomes import POSITION_BITS, LearnedOutcomes, Reached, ReplayWindow, TransactionOutcomes
from kafkalog.state.transaction_outcomes import OutcomeLearner
from kafkalog.state.transactions import ENDED_DTYPE, OpenTransaction, Outcome, TransactionReplay, rows_of_transactions
from kafkalog.storage.source import BufferSource


def table_of(*batches: bytes) -> BatchTable:
    return BatchTable.concatenate([window.batches for window in walk(BufferSource(b"".join(batches)))])


def data(offset: int, producer_id: int) -> bytes:
    return builder.batch_v2([builder.record_v2()], base_offset=offset, producer_id=producer_id, transactional=True)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    return builder.control_batch(kind, base_offset=offset, producer_id=producer_id)


@given(log=strategies.transaction_logs(max_batches=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_history_in_any_pieces_equals_the_twin(log: strategies.TransactionLog, cuts: list[int]) -> None:
    content = b"".join(content for _, content in log.segments)
    batches = list(reference.iter_batches(content))
    table = table_of(content)
    kinds = [reference.marker_type(batch) for batch in batches]
    known = np.array([-2 if kind is None else kind for kind in kinds], np.int16)
    table.control_type[:] = np.where(table.is_control, known, kf.NOT_CONTROL)
    twin, replay = reference.Producers(), TransactionReplay()
    found = []
    bounds = sorted({0, len(batches), *(cut for cut in cuts if cut < len(batches))})
    for first, stop in itertools.pairwise(bounds):
        for batch in batches[first:stop]:
            twin.append(batch)
        found.append(replay.update(table[first:stop]))
        assert {one.producer_id: one.first_offset for one in replay.open_transactions()} == twin.ongoing
        assert replay.first_unstable_offset == min(twin.ongoing.values(), default=None)
    ended = np.concatenate(found) if found else np.empty(0)
    aborted = ended[ended["outcome"] == Outcome.ABORTED] if ended.size else ended
    assert [tuple(one)[:1] + tuple(one)[3:6] for one in aborted.tolist()] == [tuple(txn) for txn in twin.aborted]
    if ended.size:
        assert (ended["start_position"] < ended["end_position"]).all()
        assert (np.diff(ended["end_position"]) > 0).all()


def test_what_is_no_transaction_is_not_looked_at() -> None:
    plain = builder.batch_v2([builder.record_v2()], producer_id=4)
    homeless = builder.batch_v2([builder.record_v2()], base_offset=1, transactional=True)
    raft = builder.batch_v2([builder.record_v2(0, 0, b"\0\0\0\2", b"")], base_offset=2, control=True)
    emptied = builder.batch_v2(base_offset=3, last_offset_delta=0, control=True, transactional=True, producer_id=4)
    old = builder.message(4, b"k", b"v", attributes=0x30)
    assert rows_of_transactions(table_of(plain, homeless, raft, emptied, old)).size == 0
    assert rows_of_transactions(table_of(plain, data(5, 4), marker(6, 4, 0))).tolist() == [1, 2]


def test_what_is_given_up_has_ended_and_what_follows_is_another_transaction() -> None:
    replay = TransactionReplay()
    replay.update(table_of(data(0, 1), data(1, 2)))
    given_up = replay.give_up(9, 500)
    assert given_up["first_offset"].tolist() == [0, 1]
    assert set(given_up["outcome"].tolist()) == {Outcome.UNKNOWN}
    assert len(replay) == 0
    assert replay.first_open is None
    ended = replay.update(table_of(data(10, 2), marker(11, 2, 1), marker(12, 1, 0)))
    assert ended[["producer_id", "first_offset", "last_offset"]].tolist() == [(2, 10, 11)]
    assert replay.give_up(13, 900).size == 0


def test_open_transactions_of_a_snapshot_are_resumed_in_their_order() -> None:
    replay = TransactionReplay()
    replay.resume([OpenTransaction(8, 70, -1), OpenTransaction(7, 40, -2)])
    assert replay.first_open == OpenTransaction(7, 40, -2)
    ended = replay.update(table_of(marker(90, 8, 0), marker(91, 7, 0)))
    assert ended[["first_offset", "last_stable_offset"]].tolist() == [(70, 40), (40, 92)]


def test_as_many_may_be_open_as_the_limit_says_at_the_same_time() -> None:
    replay = TransactionReplay(limits=Limits(max_open_transactions=2))
    replay.update(table_of(data(0, 1), data(1, 2)))
    replay.update(table_of(marker(2, 1, 0), data(3, 3)))
    assert len(replay) == 2
    assert repr(replay) == "TransactionReplay(2 open, first unstable offset: 1)"
    with pytest.raises(LimitExceededError, match="3 transactions are open, max_open_transactions is 2"):
        replay.update(table_of(data(4, 4)))


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


def data_transaction_outcomes(offset: int) -> bytes:
    records = [builder.record_v2(0, 0, b"k", b"v" * 100)]
    return builder.batch_v2(
        records, base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_what_reads_ahead_is_told_where_the_last_batch_lies() -> None:
    size = len(data_transaction_outcomes(0))
    log = (
        data_transaction_outcomes(0)
        + data_transaction_outcomes(1)
        + builder.control_batch(builder.ABORT, base_offset=2, producer_id=7)
    )
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
