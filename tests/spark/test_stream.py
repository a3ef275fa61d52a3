"""A stream reads each record of a growing log once, in batches of the size asked for, over restarts."""

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import builder
import pytest

import kafkalog.spark
from kafkalog import format as kf
from kafkalog.spark import stream_reader
from kafkalog.spark.source_options import parse_options
from kafkalog.spark.stream_reader import KafkaLogStreamReader, share
from kafkalog.spark.types import spark_schema

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = [kf.TopicPartition("t", number) for number in range(3)]


def batch(offset, n=10, **options):
    records = [builder.record_v2(i, 0, None, b"v") for i in range(n)]
    return builder.batch_v2(records, base_offset=offset, **options)


def append(root, data, *, base=0, partition=0):
    path = root / f"t-{partition}" / kf.segment_file_name(base)
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("ab") as file:
        file.write(data)


def wait_until(reached, query, seconds=200):
    deadline = time.monotonic() + seconds
    while not reached():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the stream did not get there"
        time.sleep(0.05)


class Stream:
    """A query from a log dir into JSON files, with its checkpoint."""

    def __init__(self, spark, root, folder, **options):
        self._spark, self._root, self._folder = spark, root, folder
        self._options = {name: str(value) for name, value in options.items()}

    def start(self, *, available_now=False):
        frame = self._spark.readStream.format("kafkalog").schema("partition int, offset bigint")
        writer = frame.options(**self._options).load(str(self._root)).writeStream.format("json")
        trigger = {"availableNow": True} if available_now else {"processingTime": "100 milliseconds"}
        return (
            writer.option("path", str(self._folder / "out"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(**trigger)
            .start()
        )

    def run(self):
        """All that is there; rows by batch."""
        query = self.start(available_now=True)
        assert query.awaitTermination(250)
        assert query.exception() is None
        return [n for progress in query.recentProgress if (n := progress["numInputRows"])]

    def rows(self):
        """What was written, as the sink's log of committed files has it."""
        found = Counter()
        for log in sorted((self._folder / "out" / "_spark_metadata").glob("[0-9]*")):
            for line in log.read_text().splitlines()[1:]:
                path = Path(json.loads(line)["path"].removeprefix("file://"))
                found.update(
                    (row["partition"], row["offset"]) for row in map(json.loads, path.read_text().splitlines())
                )
        return found


@pytest.fixture
def stream(spark, tmp_path):
    kafkalog.spark.register(spark)

    def make(root, **options):
        return Stream(spark, root, tmp_path, **options)

    return make


def once(**ends):
    return Counter((int(name[1:]), offset) for name, end in ends.items() for offset in range(end))


def test_a_stream_follows_a_log_that_grows_and_goes_on_where_it_stopped(stream, tmp_path):
    root = tmp_path / "log"
    append(root, batch(0))
    query = (one := stream(root, startingOffsets="earliest")).start()
    try:
        wait_until(lambda: one.rows() == once(p0=10), query)
        append(root, batch(10) + batch(20)[:-7])
        append(root, batch(0), partition=1)
        wait_until(lambda: one.rows() == once(p0=20, p1=10), query)
        append(root, batch(20)[-7:])
        append(root, batch(30), base=30)
        wait_until(lambda: one.rows() == once(p0=40, p1=10), query)
    finally:
        query.stop()
    append(root, batch(40), base=30)
    append(root, batch(0), partition=2)
    query = one.start()
    try:
        wait_until(lambda: one.rows() == once(p0=50, p1=10, p2=10), query)
    finally:
        query.stop()
    shutil.rmtree(root / "t-2")
    query = one.start()
    with pytest.raises(Exception, match="t-2"):
        query.awaitTermination(250)
    assert one.rows() == once(p0=50, p1=10, p2=10)


def test_available_now_reads_what_is_there_in_batches_of_the_size_asked_for(stream, tmp_path):
    root = tmp_path / "log"
    for number, n in enumerate((60, 30, 10)):
        append(root, b"".join(batch(10 * i) for i in range(n // 10)), partition=number)
    one = stream(root, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert one.run() == [40, 40, 20]
    assert one.rows() == once(p0=60, p1=30, p2=10)
    assert one.run() == []
    append(root, batch(60), partition=0)
    assert one.run() == [10]
    assert one.rows() == once(p0=70, p1=30, p2=10)


def reader(root, **options):
    return KafkaLogStreamReader(parse_options({"path": str(root), **options}), spark_schema())


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(tmp_path):
    append(tmp_path, batch(0))
    append(tmp_path, batch(0) + batch(10)[:-1], partition=1)
    assert reader(tmp_path).initialOffset() == {"t": {"0": 10, "1": 10}}
    assert reader(tmp_path, startingOffsets="earliest").initialOffset() == {"t": {"0": 0, "1": 0}}
    named = reader(tmp_path, startingOffsets='{"t":{"0":-1,"1":4}}')
    assert named.initialOffset() == {"t": {"0": 10, "1": 4}}


def test_a_batch_is_shared_in_proportion_and_no_partition_starves():
    begin = dict.fromkeys(KEYS, 100)
    ends = dict(zip(KEYS, (1100, 200, 101), strict=True))
    assert share(begin, ends, 10_000) == ends
    assert share(begin, ends, 110) == dict(zip(KEYS, (199, 109, 101), strict=True))
    assert share(begin, begin, 5) == begin


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(tmp_path, monkeypatch):
    """As Spark's Kafka source: the first batch does not wait, and none longer than maxTriggerDelay."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    start, ends = {"t": {"0": 0}}, [{"t": {"0": 10 * n}} for n in range(6)]
    append(tmp_path, batch(0))
    one = reader(tmp_path, minOffsetsPerTrigger="25", maxTriggerDelay="1m")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMinRows(25)
    assert one.latestOffset(start, limit) == ends[1]
    append(tmp_path, batch(10) + batch(20))
    assert one.latestOffset(ends[1], limit) == ends[1]
    assert one.latestOffset(ends[1], ReadAllAvailable()) == ends[3]  # the trigger `once`
    append(tmp_path, batch(30))
    assert one.latestOffset(ends[1], limit) == ends[4]
    append(tmp_path, batch(40))
    clock.now += 59
    assert one.latestOffset(ends[4], limit) == ends[4]
    clock.now += 1
    assert one.latestOffset(ends[4], limit) == ends[5]
    # with both limits; and a run that ends when all is read waits for nothing
    both = reader(tmp_path, minOffsetsPerTrigger="25", maxOffsetsPerTrigger="30")
    assert both.getDefaultReadLimit() == ReadMaxRows(30)
    assert both.latestOffset(start, ReadMaxRows(30)) == ends[3]
    assert both.latestOffset(ends[3], ReadMaxRows(30)) == ends[3]
    both.prepareForTriggerAvailableNow()
    assert both.latestOffset(ends[3], ReadMaxRows(30)) == ends[5]


def test_a_running_query_waits_for_enough_offsets(stream, tmp_path):
    root = tmp_path / "log"
    append(root, batch(0))
    query = (one := stream(root, startingOffsets="earliest", minOffsetsPerTrigger=25)).start()
    try:
        wait_until(lambda: one.rows() == once(p0=10), query)
        for first in range(10, 40, 10):
            append(root, batch(first))
        wait_until(lambda: one.rows() == once(p0=40), query)
        wait_until(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) == 40, query)
        assert [n for progress in query.recentProgress if (n := progress["numInputRows"])] == [10, 30]
    finally:
        query.stop()
    append(root, batch(40))
    assert one.run() == [10]


def test_offsets_that_are_gone_are_data_loss_unless_that_is_allowed(tmp_path):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    append(tmp_path, batch(100), base=100)
    lost, back = {"t": {"0": 50}}, {"t": {"0": 500}}
    strict, lax = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    with pytest.raises(RuntimeError, match="t-0 was"):
        strict.partitions(lost, {"t": {"0": 110}})
    with pytest.raises(RuntimeError, match="500 to 110"):
        strict.latestOffset(back, ReadAllAvailable())
    with pytest.warns(kafkalog.CorruptionWarning):
        (task,) = lax.partitions(lost, {"t": {"0": 110}})
    assert sum(some.num_rows for some in lax.read(task)) == 10
    with pytest.warns(kafkalog.CorruptionWarning):
        assert lax.latestOffset(back, ReadAllAvailable()) == back


def test_a_topic_that_was_made_again_is_data_loss_unless_that_is_allowed(tmp_path):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    metadata = tmp_path / "t-0" / "partition.metadata"
    start, end = {"t": {"0": 5}}, {"t": {"0": 10}}

    def make_again(number):
        metadata.write_text(f"version: 0\ntopic_id: {number:022d}\n")
        os.utime(metadata, ns=(number, number))  # a test is quicker than the clock of a file system

    append(tmp_path, batch(0))
    make_again(1)
    strict, lax = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    (task,) = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    assert lax.latestOffset(start, ReadAllAvailable()) == end
    make_again(2)
    with pytest.raises(kafkalog.KafkalogError, match="partition_removed"):
        list(strict.read(task))
    with pytest.raises(RuntimeError, match="t-0"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.warns(kafkalog.CorruptionWarning, match="partition_removed"):
        assert not list(lax.read(task))
    with pytest.warns(kafkalog.CorruptionWarning, match="created again"):
        assert lax.latestOffset(start, ReadAllAvailable()) == end
    (task,) = lax.partitions(start, end)
    assert sum(some.num_rows for some in lax.read(task)) == 5
    make_again(3)
    with pytest.raises(RuntimeError, match="created again"):
        strict.partitions(start, end)


def test_what_filters_rule_out_is_in_no_task(tmp_path):
    for number in range(3):
        append(tmp_path, batch(0), partition=number)
    one = reader(tmp_path, filters='["partition == 1", "offset < 7"]')
    start, end = {"t": {"1": 2}}, {"t": {"0": 10, "1": 10, "2": 10}}
    (task,) = one.partitions(start, end)
    (found,) = one.read(task)
    assert found["offset"].to_pylist() == list(range(2, 7))
    assert list(one.read(None)) == []


def test_a_stream_cannot_stop_at_damage(tmp_path):
    with pytest.raises(ValueError, match="skip"):
        reader(tmp_path, onCorruption="stop")
