"""What the sink is given is in the log dir when the job has succeeded, in order, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_rows import frame, save

import kafkalog
import kafkalog.spark
from kafkalog.spark.sink_options import match_columns, parse_sink_options
from kafkalog.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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


def test_other_modes_are_refused(session: SparkSession, tmp_path: Path) -> None:
    writer = frame(session, 10).write.format("kafkalog").option("topic", "t")
    with pytest.raises(Exception, match="a log only grows"):
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
        ({"partitions": "0"}, "whole number"),
        ({"path": "s3://bucket/log"}, "copy it to a local directory"),
        ({"topicId": "AAAAAAAAAAAAAAAAAAAAAA"}, "topicId requires the option topic"),
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
    with pytest.raises(ValueError, match="unknown column 'header'"):
        match_columns(spark_schema(["value"]).add("header", "string"), options)
    with pytest.raises(ValueError, match="needs the column 'value'"):
        match_columns(spark_schema(["key"]), options)
    with pytest.raises(ValueError, match="'topic' or the option topic"):
        match_columns(spark_schema(["value"]), parse_sink_options({"path": "/log"}))
