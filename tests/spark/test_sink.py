"""What the sink is given is in the log dir when the job has succeeded, in order, and only then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kafkalog
import kafkalog.spark
from kafkalog.spark.sink_options import match_columns, parse_sink_options
from kafkalog.spark.types import spark_schema
from kafkalog.writing.partitioner import murmur2
from kafkalog.writing.staging_area import StagingArea, create_job, this_owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HEADERS = "array<struct<key string, value binary>>"
SCHEMA = f"key binary, value binary, headers {HEADERS}, partition int, timestamp timestamp, offset long"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    kafkalog.spark.register(spark)
    return spark


def frame(session: SparkSession, n: int = 300, first: int = 0) -> DataFrame:
    """Records with nulls, empty strings and headers; timestamps rise with the id."""
    return session.range(first, first + n, 1, 3).selectExpr(
        "CASE WHEN id % 7 > 0 THEN CAST(concat('k', id % 40) AS binary) END AS key",
        "CASE WHEN id % 11 > 0 THEN CAST(concat('v', id) AS binary) WHEN id % 2 > 0 THEN X'' END AS value",
        "CASE WHEN id % 5 = 0 THEN array(struct('h' AS key, CAST(id AS string) AS value),"
        " struct('h' AS key, CAST(NULL AS string) AS value)) END AS headers",
        "timestamp_millis(1700000000000 + id) AS timestamp",
    )


def save(df: DataFrame, path: Path, **options: object) -> None:
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    df.write.format("kafkalog").mode("append").options(**given).save(str(path))


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def rows(path: Path) -> list[dict[str, Any]]:
    assert [str(finding) for finding in kafkalog.verify(path, deep=True).all_findings()] == []
    columns = ["partition", "offset", "key", "value", "headers", "timestamp"]
    table = kafkalog.read_table(path, columns=columns)
    stamps = table.column("timestamp").cast(pa.int64())
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", stamps)
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def plain(df: DataFrame) -> list[tuple[Any, ...]]:
    return [
        (
            row.key and bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            [(header.key, header.value and header.value.encode()) for header in row.headers or ()],
            row.ms,
        )
        for row in df.selectExpr("key", "value", "headers", "unix_millis(timestamp) AS ms").collect()
    ]


def test_a_prepared_frame_is_written_by_key_and_time_and_a_second_one_behind_it(
    session: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    options = {"compression__type": "zstd", "segment__bytes": 2**20, "batch.size": 1000}
    for first in (0, 300):
        ready = kafkalog.spark.prepare(frame(session, 300, first), topic="t", num_partitions=4)
        save(ready, log, **options)
    found = rows(log)
    expected = {row[3]: row for row in plain(frame(session, 600))}
    assert len(found) == len(expected) == 600
    by_partition: dict[int, list[int]] = {}
    for row in found:
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        assert (row["key"], row["value"], headers, row["timestamp"]) == expected[row["timestamp"]]
        if row["key"] is not None:
            assert row["partition"] == (murmur2(row["key"]) & 0x7FFFFFFF) % 4
        by_partition.setdefault(row["partition"], []).append(row["timestamp"])
    assert sorted(by_partition) == [0, 1, 2, 3]
    for stamps in by_partition.values():
        assert stamps == sorted(stamps)
    assert {row["partition"] for row in found if row["key"] is None} == {0, 1, 2, 3}
    assert hidden(tmp_path) == []
    assert len(list(log.glob("t-0/*.log"))) == 2


def test_offsets_are_preserved_from_source_to_sink(session: SparkSession, tmp_path: Path) -> None:
    golden = Path("tests/golden/log_dir")
    source = session.read.format("kafkalog").option("includeHeaders", "true").load(str(golden))
    ready = kafkalog.spark.prepare(source.repartition(3), preserve_offsets=True, num_tasks=3)
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


def fails_at(session: SparkSession, number: int) -> DataFrame:
    return frame(session).selectExpr(
        "*", f"CASE WHEN unix_millis(timestamp) = {1700000000000 + number} THEN raise_error('boom') END AS broken"
    )


@pytest.mark.slow
def test_a_task_that_fails_or_is_killed_leaves_nothing(session: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    bad = fails_at(session, 299).selectExpr(
        "key", "coalesce(broken, value) AS value", "spark_partition_id() AS partition"
    )
    with pytest.raises(Exception, match="boom"):
        save(bad, log, topic="t")
    assert hidden(tmp_path) == []
    assert not log.exists()


def test_two_tasks_on_a_partition_are_refused_with_what_helps(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"two tasks wrote to it[\s\S]*kafkalog\.spark\.prepare"):
        save(frame(session), tmp_path / "log", topic="t")
    assert hidden(tmp_path) == []
    assert not (tmp_path / "log").exists()


def test_a_job_with_an_id_is_done_once_and_what_dead_drivers_left_is_removed(
    session: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    ready = frame(session, 30).coalesce(1)
    area = StagingArea.of(log)
    dead = area.job("job-dead")
    create_job(dead, {**this_owner(os.getpid()), "started": "1"})
    (dead / "task-1").mkdir()
    for _ in range(2):
        save(ready, log, topic="t", jobId="load-7")
    assert [row["offset"] for row in rows(log)] == list(range(30))
    assert hidden(tmp_path) == [".log.kafkalog-commits"]


def test_other_modes_are_refused(session: SparkSession, tmp_path: Path) -> None:
    writer = frame(session, 10).write.format("kafkalog").option("topic", "t")
    with pytest.raises(Exception, match="only ever appended to"):
        writer.mode("overwrite").save(str(tmp_path / "log"))
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.mode("errorifexists").save(str(tmp_path / "log"))


@pytest.mark.slow
def test_a_stream_from_our_source_to_our_sink_is_equal_over_restarts(session: SparkSession, tmp_path: Path) -> None:
    log, mirror = tmp_path / "log", tmp_path / "mirror"
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = session.readStream.format("kafkalog").options(startingOffsets="earliest", includeHeaders="true")
        stream = kafkalog.spark.prepare(
            reader.option("maxOffsetsPerTrigger", "200").load(str(log)), preserve_offsets=True, num_tasks=2
        )
        query = (
            stream.writeStream.format("kafkalog")
            .options(preserveOffsets="true", path=str(mirror), checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

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
    shutil.rmtree(mirror)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": "localhost:9092"}, "asks no broker"),
        ({"topicc": "t"}, "did you mean 'topic'"),
        ({"preserveOffsets": "maybe"}, "true or false"),
        ({"topic": "a/b"}, "not a valid topic name"),
        ({"topic": "a b"}, "topic of 1 to 249"),
        ({"segment.bytes": "-1"}, "segment.bytes"),
        ({"partitions": "0"}, "whole number"),
        ({"path": "s3://bucket/log"}, "not on s3"),
        ({"topicId": "AAAAAAAAAAAAAAAAAAAAAA"}, "name it"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_sink_options({"path": "/log", **options})


def test_kafka_s_settings_are_taken_by_their_names() -> None:
    options = parse_sink_options(
        {"path": "file:///log", "kafka.compression.type": "lz4", "batch.size": "100", "segment.bytes": "2000000"}
    )
    assert (options.path, options.config.compression_type, options.batch_size) == ("/log", "lz4", 100)
    assert options.config.segment_bytes == 2_000_000
    none = parse_sink_options({"path": "/log", "kafka.compression.type": "none"})
    assert none.compression == "none"


def test_columns_of_the_source_are_passed_over_and_strange_ones_refused() -> None:
    options = parse_sink_options({"path": "/log", "topic": "t"})
    names = match_columns(spark_schema(), options)
    assert names == {name: name for name in ("key", "value", "partition", "timestamp")}
    with pytest.raises(ValueError, match="a record has no column 'header'"):
        match_columns(spark_schema(["value"]).add("header", "string"), options)
    with pytest.raises(ValueError, match="'value' not found"):
        match_columns(spark_schema(["key"]), options)
    with pytest.raises(ValueError, match="topic option required"):
        match_columns(spark_schema(["value"]), parse_sink_options({"path": "/log"}))
