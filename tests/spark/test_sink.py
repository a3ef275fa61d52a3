"""The sink: a job that succeeded has written its rows in order, and no other job has written any."""

import os
from pathlib import Path

import pytest
from sink_rows import fails_at, frame, hidden, rows, save

import kafkalog
import kafkalog.spark
from kafkalog.spark.sink_options import match_columns, parse_sink_options
from kafkalog.spark.types import spark_schema
from kafkalog.writing.job_directories import StagingArea

pytestmark = pytest.mark.spark


def test_offsets_are_preserved_from_source_to_sink(session, tmp_path):
    golden = Path("tests/golden/log_dir")
    source = session.read.format("kafkalog").option("includeHeaders", "true").load(str(golden))
    ready = kafkalog.spark.prepare(source.repartition(3), preserve_offsets=True)
    save(ready, tmp_path / "mirror", preserveOffsets=True)
    again = session.read.format("kafkalog").option("includeHeaders", "true").load(str(tmp_path / "mirror"))
    columns = ["topic", "partition", "offset", "key", "value", "timestamp", "headers"]
    theirs, ours = (
        df.select(*columns).orderBy("topic", "partition", "offset").toArrow().to_pylist() for df in (source, again)
    )
    for row in (*theirs, *ours):  # a format without timestamps has none, and v2 says so with -1
        seconds = row["timestamp"] and row["timestamp"].timestamp()
        row["timestamp"] = None if seconds == -0.001 else seconds
    assert len(ours) > 50
    assert ours == theirs


def test_other_modes_are_refused(session, tmp_path):
    writer = frame(session, 10).write.format("kafkalog").option("topic", "t")
    with pytest.raises(Exception, match="grows"):
        writer.mode("overwrite").save(str(tmp_path / "log"))
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.mode("errorifexists").save(str(tmp_path / "log"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": "localhost:9092"}, "uses no broker"),
        ({"topicc": "t"}, "did you mean topic?"),
        ({"preserveOffsets": "maybe"}, "true or false"),
        ({"topic": "a/b"}, "not a valid topic name"),
        ({"topic": "a b"}, "topic of 1 to 249"),
        ({"segment.bytes": "-1"}, "segment.bytes"),
        ({"batch.size": "0"}, "whole number"),
        ({"path": "s3://bucket/log"}, "copy it to a local directory"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        parse_sink_options({"path": "/log", **options})


def test_kafka_s_settings_are_taken_by_their_names():
    options = parse_sink_options(
        {"path": "file:///log", "kafka.compression.type": "lz4", "batch.size": "100", "segment.bytes": "2000000"}
    )
    assert (options.path, options.config.compression_type, options.batch_size) == ("/log", "lz4", 100)
    assert options.config.segment_bytes == 2_000_000
    none = parse_sink_options({"path": "/log", "kafka.compression.type": "none"})
    assert none.compression == "none"


def test_columns_of_the_source_are_passed_over_and_strange_ones_refused():
    options = parse_sink_options({"path": "/log", "topic": "t"})
    names = match_columns(spark_schema(), options)
    assert names == {name: name for name in ("key", "value", "partition", "timestamp")}
    with pytest.raises(ValueError, match="header"):
        match_columns(spark_schema(["value"]).add("header", "string"), options)
    with pytest.raises(ValueError, match="value"):
        match_columns(spark_schema(["key"]), options)
    with pytest.raises(ValueError, match="prepare"):
        match_columns(spark_schema(["value"]), options)
    with pytest.raises(ValueError, match="topic"):
        match_columns(spark_schema(["value", "partition"]), parse_sink_options({"path": "/log"}))


@pytest.mark.slow
def test_a_task_that_fails_or_is_killed_leaves_nothing(session, tmp_path):
    log = tmp_path / "log"
    bad = fails_at(session, 299).selectExpr(
        "key", "coalesce(broken, value) AS value", "spark_partition_id() AS partition"
    )
    with pytest.raises(Exception, match="boom"):
        save(bad, log, topic="t")
    assert hidden(tmp_path) == []
    assert not log.exists()


@pytest.mark.slow
def test_two_tasks_on_a_partition_are_refused_with_what_helps(session, tmp_path):
    with pytest.raises(Exception, match="prepare"):
        save(frame(session).selectExpr("*", "0 AS partition"), tmp_path / "log", topic="t")
    assert hidden(tmp_path) == []
    assert not (tmp_path / "log").exists()


def test_a_job_with_an_id_is_done_once_and_what_dead_drivers_left_is_removed(session, tmp_path):
    log = tmp_path / "log"
    ready = kafkalog.spark.prepare(frame(session, 30), num_partitions=1)
    dead = StagingArea.of(log).job("job-dead")
    (dead / "task-1").mkdir(parents=True)
    for path in (dead / "task-1", dead):
        os.utime(path, (0, 0))
    for _ in range(2):
        save(ready, log, topic="t", jobId="load-7")
    assert [row["offset"] for row in rows(log)] == list(range(30))
    assert hidden(tmp_path) == [".log.kafkalog-commits"]


@pytest.mark.slow
def test_a_stream_from_our_source_to_our_sink_is_equal_over_restarts(session, tmp_path):
    log, mirror = tmp_path / "log", tmp_path / "mirror"
    checkpoint = tmp_path / "checkpoint"

    def write(batch, number):
        ready = kafkalog.spark.prepare(batch, preserve_offsets=True)
        save(ready, mirror, preserveOffsets=True, jobId=f"mirror-{number}")

    def run():
        reader = session.readStream.format("kafkalog").options(startingOffsets="earliest", includeHeaders="true")
        stream = reader.option("maxOffsetsPerTrigger", "200").load(str(log))
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(250)

    save(kafkalog.spark.prepare(frame(session), topic="t", num_partitions=2), log)
    run()
    assert rows(mirror) == rows(log)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"))
    assert len(commits) == 2
    # as if the driver had died between publishing and noting that the batch is done
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run()
    assert rows(mirror) == rows(log)
    save(kafkalog.spark.prepare(frame(session, 20, 300), topic="t", num_partitions=2), log)
    run()
    assert rows(mirror) == rows(log)
    assert len(rows(mirror)) == 320
    assert hidden(tmp_path) == [".mirror.kafkalog-commits"]


def test_a_stream_writer_says_how_to_write_a_stream(session, tmp_path):
    stream = session.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writer = stream.writeStream.format("kafkalog").option("topic", "t").option("path", str(tmp_path / "log"))
    with pytest.raises(Exception, match="foreachBatch"):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(250)
