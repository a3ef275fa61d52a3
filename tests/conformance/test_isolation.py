"""What `read_committed` gives is what a consumer of that level gets: live, after a clean stop, after a crash."""

import functools

import pytest
from conformance.history import TOPICS, rows

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

STAGES = ("clean", "crashed", "live")
TRANSACTIONAL = [name for name, topic in TOPICS.items() if topic.transactions]


committed = functools.partial(rows, isolation_level="read_committed")


def partition_of(stage, topic, number):
    return kafkalog.open(stage.log_dir)[topic, number]


@pytest.mark.parametrize("name", STAGES)
def test_every_topic_reads_as_a_read_committed_consumer_reads_it(history, name):
    stage = getattr(history, name)
    n_topics = 0
    for topic, records in stage.committed.records.items():
        for threads in (1, 2) if topic in TRANSACTIONAL else (2,):
            assert committed(stage.log_dir, topic, threads=threads) == records
        n_topics += 1
    assert n_topics > 15


@pytest.mark.parametrize("name", STAGES)
def test_the_workload_has_aborted_and_open_transactions(history, name):
    stage = getattr(history, name)
    assert 10 < len(stage.committed.records["transactions"]) < len(stage.truth.records["transactions"])
    assert len(stage.committed.records["compacted-transactions"]) > 10
    ends = {key: partition_of(stage, *key).log_end_offset for key in stage.stable if key[0] == "transactions"}
    assert any(stage.stable[key] < end for key, end in ends.items()) == (name != "clean")


def as_listed(partition):
    """Where an open transaction began before the log start offset, a broker lists the batch that holds the latter."""
    offset = partition.last_stable_offset
    if offset == partition.log_start_offset < partition.log_end_offset:
        found = [segment.find_offsets([offset])[0]["base_offset"] for segment in partition.segments]
        return int(next(base for base in found if base >= 0))
    return offset


@pytest.mark.parametrize("name", STAGES)
def test_last_stable_offsets_are_those_that_the_broker_lists(history, name):
    stage = getattr(history, name)
    seen = {}
    for key in stage.stable:
        if key[0] not in ("__consumer_offsets", "crashed", "growing"):  # what is written to meanwhile
            seen[key] = as_listed(partition_of(stage, *key))
    assert seen == {key: offset for key, offset in stage.stable.items() if key in seen}
    assert len(seen) > 20


def test_aborted_transactions_are_those_of_the_brokers_own_indexes(history):
    columns = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
    n_entries = 0
    for stage in (history.clean, history.crashed, history.live):
        for topic, number in [key for key in stage.stable if key[0] in ("transactions", "held-back")]:
            partition = partition_of(stage, topic, number)
            indexes = [segment.transaction_index for segment in partition.segments]
            entries = [entry[1:] for index in indexes if index is not None for entry in index.entries.tolist()]
            assert partition.aborted_transactions()[columns].tolist() == entries
            n_entries += len(entries)
    assert n_entries > 10


def test_a_consumer_that_starts_inside_transactions_gets_the_same(history):
    end = max(offset for (topic, _), offset in history.live.stable.items() if topic == "transactions")
    starts = range(1, end, max(end // 6, 1))
    for start in starts:
        file = history.folder / "from.jsonl"
        records = history.client.consume(file, ["transactions"], isolation="read_committed", **{"from": start})
        read = committed(history.live.log_dir, "transactions", start_offset=start)
        assert read == records.records["transactions"]
    assert len(starts) >= 6


def test_an_open_transaction_holds_back_the_rest_even_when_its_own_records_are_deleted(history):
    partition = partition_of(history.live, "held-back", 0)
    start = partition.log_start_offset
    assert partition.last_stable_offset == start < partition.log_end_offset
    assert history.live.stable["held-back", 0] == as_listed(partition)
    assert committed(history.live.log_dir, "held-back") == history.live.committed.records["held-back"] == []
    # the transaction itself began in front of what is left
    first = kafkalog.Partition(partition.path, log_start_offset=0).last_stable_offset
    assert partition.segments[0].base_offset <= first < start
    assert 0 < history.crashed.stable["held-back", 0] == first
