"""Transactions as batches go by, held against the twin's bookkeeping."""

import itertools

import builder
import numpy as np
import reference
import strategies
from hypothesis import given
from hypothesis import strategies as st
from refusals import fails_with

from kafkalog import format as kf
from kafkalog.errors import Limits
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import walk
from kafkalog.state.transactions import ENDED_DTYPE, Outcome, TransactionReplay, rows_of_transactions
from kafkalog.storage.source import BufferSource


def table_of(*batches):
    return BatchTable.concatenate([window.batches for window in walk(BufferSource(b"".join(batches)))])


def data(offset, producer_id):
    return builder.batch_v2([builder.record_v2()], base_offset=offset, producer_id=producer_id, transactional=True)


def marker(offset, producer_id, kind):
    return builder.control_batch(kind, base_offset=offset, producer_id=producer_id)


@given(log=strategies.transaction_logs(max_batches=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_history_in_any_pieces_equals_the_twin(log, cuts):
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


def test_what_is_no_transaction_is_not_looked_at():
    plain = builder.batch_v2([builder.record_v2()], producer_id=4)
    homeless = builder.batch_v2([builder.record_v2()], base_offset=1, transactional=True)
    raft = builder.batch_v2([builder.record_v2(0, 0, b"\0\0\0\2", b"")], base_offset=2, control=True)
    emptied = builder.batch_v2(base_offset=3, last_offset_delta=0, control=True, transactional=True, producer_id=4)
    old = builder.message(4, b"k", b"v", attributes=0x30)
    assert rows_of_transactions(table_of(plain, homeless, raft, emptied, old)).size == 0
    assert rows_of_transactions(table_of(plain, data(5, 4), marker(6, 4, 0))).tolist() == [1, 2]


def test_what_is_given_up_has_ended_and_what_follows_is_another_transaction():
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


def test_as_many_may_be_open_as_the_limit_says_at_the_same_time():
    replay = TransactionReplay(limits=Limits(max_open_transactions=2))
    replay.update(table_of(data(0, 1), data(1, 2)))
    replay.update(table_of(marker(2, 1, 0), data(3, 3)))
    assert len(replay) == 2
    assert replay.first_unstable_offset == 1
    with fails_with("too_many_open_transactions"):
        replay.update(table_of(data(4, 4)))


def ended(*places):
    found = np.zeros(len(places), ENDED_DTYPE)
    found["start_position"], found["end_position"] = np.array(places).T
    return found
