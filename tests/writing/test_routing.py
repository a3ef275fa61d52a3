"""Rows come to the partitions that columns or Kafka's partitioner say, in their order, and wait there for more."""

import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog import PartitionWriter, TopicPartition
from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange.arrow_input import ColumnReader
from kafkalog.records.columns import RecordColumns
from kafkalog.records.partitioner import murmur2
from kafkalog.storage.open_file_limit import count_open_files
from kafkalog.writing.routing import Routed, Router, WaitingRecords


def route(router, columns, first_row=0):
    (batch,) = pa.table(columns).to_batches()
    reader = ColumnReader(batch.schema)
    routed = router.route(reader.read(batch, first_row), batch, reader, first_row)
    return [(str(each.key), each.columns.value.to_pylist(), each.is_owned) for each in routed]


def by_column(_topic):
    """Every topic goes by its column."""


VALUES = [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_columns_say_topic_and_partition_and_the_order_is_kept(kind):
    topics = pa.array(["b", "a", "b", "b", "a", "b"]).cast(kind)
    found = route(Router(by_column), {"value": VALUES, "topic": topics, "partition": [1, 0, 0, 1, 0, 0]})
    assert found == [("b-0", [b"2", b"5"], True), ("b-1", [b"0", b"3"], True), ("a-0", [b"1", b"4"], True)]
    assert route(Router(by_column, topic="t"), {"value": VALUES}) == [("t-0", VALUES, False)]


def test_each_topic_is_asked_for_once_and_spread_over_as_many_partitions_as_it_has():
    asked = []

    def n_partitions(topic):
        asked.append(topic)
        return {"one": 1, "many": 5}.get(topic)

    router = Router(n_partitions)
    keys = [b"k%d" % i for i in range(6)]
    table = {
        "value": VALUES,
        "key": keys,
        "topic": ["many", "one", "column", "many", "one", "column"],
        "partition": [7, 7, 7, 7, 7, 8],
    }
    expected = {"one-0": [b"1", b"4"], "column-7": [b"2"], "column-8": [b"5"]}
    for row in (0, 3):
        expected.setdefault(f"many-{(murmur2(keys[row]) & 0x7FFFFFFF) % 5}", []).append(VALUES[row])
    for _ in range(2):
        assert {key: values for key, values, _ in route(router, table)} == expected
    assert asked == ["many", "one", "column"]


def test_what_is_no_place_is_refused_with_its_row():
    for column, what in [
        ({"topic": ["a", None]}, "null topic present in the data (column 'topic', row 8)"),
        ({"topic": pa.nulls(2, pa.string())}, "row 7)"),
        ({"partition": [0, None]}, "row 8 is null"),
        ({"partition": [0, -1]}, "row 8 is negative"),
        ({"partition": [0, 2**31]}, "row 8 is beyond 2147483647"),
    ]:
        with pytest.raises(UnwritableError) as caught:
            route(Router(by_column), {"value": [b"", b""], "topic": ["a", "a"], **column}, first_row=7)
        assert what in str(caught.value)
        assert caught.value.row in (7, 8)


KEY = TopicPartition("t", 0)


def waiting(tmp_path, writer=None, **options):
    return WaitingRecords(lambda _key: writer, path=tmp_path, batch_size=1000, hint="sort them", **options)


def records(offsets, n=0):
    n = n if offsets is None else len(offsets)
    columns = {"value": [b"v" * 10] * n}
    if offsets is not None:
        columns["offset"] = pa.array(offsets, pa.int64())
    (batch,) = pa.table(columns).to_batches()
    return Routed(KEY, ColumnReader(batch.schema).read(batch), True)


def test_offsets_rise_over_what_waits_and_what_is_written(tmp_path):
    for between in (False, True):
        held = waiting(tmp_path)
        held.give(records([3, 5]))
        if between:
            held.flush()
        with pytest.raises(UnwritableError) as caught:
            held.give(records([5, 6]))
        assert caught.value.reason is Reason.OFFSET_ORDER
        assert caught.value.__notes__ == ["sort them"]
        held.give(records([2**63 - 2]))
        held.flush()
        partition = held.partition(KEY)
        assert (partition.first_offset, partition.next_offset, partition.n_records) == (3, 2**63 - 1, 3)


def test_a_log_that_goes_on_says_where(tmp_path):
    with PartitionWriter(tmp_path / "t-0", start_offset=7) as writer:
        held = waiting(tmp_path, writer)
        with fails_with("offset_order"):
            held.give(records([3]))


def test_records_with_and_without_offsets_follow_one_another(tmp_path):
    with PartitionWriter(tmp_path / "t-0") as writer:
        held = waiting(tmp_path, writer)
        for routed in (records(None, 2), records([4, 9]), records(None, 2)):
            held.give(routed)
        with fails_with("offset_order"):
            held.give(records([11]))
        held.flush()
    assert kafkalog.read_table(tmp_path / "t-0").column("offset").to_pylist() == [0, 1, 4, 9, 10, 11]


def test_a_large_batch_waits_for_several_and_a_shared_one_gets_its_own_memory(tmp_path, monkeypatch):
    held = waiting(tmp_path)
    shared = records(None, 5)
    held.give(Routed(KEY, shared.columns, False))
    assert not np.shares_memory(held.partition(KEY)._parts[0].value.data, shared.columns.value.data)
    monkeypatch.setattr("kafkalog.writing.routing._MOST_BYTES", 4000)
    monkeypatch.setattr("kafkalog.writing.routing.WAITING_BYTES", 16_000)
    for n_partitions, n_expected in ((1, 8000), (4, 4000), (100, 1000)):
        counted = waiting(tmp_path)
        for number in range(1, n_partitions):
            counted.partition(TopicPartition("t", number))
        while not counted.partition(KEY).n_records:
            assert counted.partition(KEY).n_waiting < n_expected
            counted.give(records(None, 3))
        assert counted.partition(KEY).n_bytes >= n_expected


# --------------------------------------------------------------------------------------------------------- open files

LIMITED = """
import os, resource, sys
import pyarrow as pa
import kafkalog
from kafkalog.storage.open_file_limit import count_open_files
path, soft, hard, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
before = count_open_files()
table = pa.table({"value": [b"x"] * 100, "partition": range(100)})
try:
    print(kafkalog.write_table(table, path, topic="t", **options).n_records)
except kafkalog.WriteError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], count_open_files() - before, os.path.exists(path))
"""


def limited(path, soft, hard, **options):
    command = [sys.executable, "-c", LIMITED, str(path), str(soft), str(hard), repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", thinned([{}, {"partitions": 100}, {"dry_run": True}], 3))
def test_more_partitions_than_may_be_open_are_refused_with_what_helps(tmp_path, options):
    said, rest = limited(tmp_path / "log", 64, 120, **options)
    assert "open files, but its limit is 120" in said
    assert "ulimit -n" in said
    assert rest.split()[1:] == ["0", "False"]
    assert os.listdir(tmp_path) == []


def with_files_open(n_spare, action):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count_open_files() + n_spare, hard))
    try:
        action()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_too_many_names_the_limit(tmp_path):
    def write_many():
        writers = []
        try:
            for number in range(20):
                writers.append(PartitionWriter(tmp_path / f"t-{number}"))
                writers[-1].append({"value": [b"x"]})
        finally:
            for writer in writers:
                writer.abort()

    with fails_with("write_failed") as caught:
        with_files_open(10, write_many)
    assert "ulimit -n" in caught.value.__notes__[0]


def test_an_empty_batch_goes_nowhere():
    table = pa.table({"value": pa.array([], pa.binary()), "topic": pa.array([], pa.string())})
    batch = pa.RecordBatch.from_pylist([], table.schema)
    assert list(Router(by_column).route(RecordColumns.empty(["value"]), batch, ColumnReader(table.schema))) == []
