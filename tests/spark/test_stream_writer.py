"""Each batch of a stream is written once, over restarts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from sink_rows import frame, hidden, rows, save

import kafkalog
import kafkalog.spark
from kafkalog.spark import stream_writer
from kafkalog.spark.sink_options import parse_sink_options
from kafkalog.spark.stream_writer import KafkaLogStreamWriter
from kafkalog.writing.job_directories import create_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_task_that_comes_after_the_commit_of_its_batch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the second attempt of a task: the others are done, and the batch is committed before it has a directory
    record = {"query": "ab-cd", "batch": 3}
    monkeypatch.setattr(stream_writer, "_this_batch", lambda: record)
    schema = StructType([StructField("value", BinaryType())])
    batch = pa.record_batch({"value": pa.array([b"1", b"2"])})

    def writer() -> KafkaLogStreamWriter:
        return KafkaLogStreamWriter(parse_sink_options({"path": str(tmp_path / "log"), "topic": "t"}), schema)

    first = writer()
    message = first.write(iter([batch]))

    def commit_first(job: Path, owner: dict[str, Any]) -> None:
        writer().commit([message], 3)
        create_job(job, owner)

    monkeypatch.setattr(stream_writer, "create_job", commit_first)
    assert first.write(iter([batch])).partitions == []
    assert [row["value"] for row in kafkalog.scan(tmp_path / "log").to_table().to_pylist()] == [b"1", b"2"]
    assert hidden(tmp_path) == [".log.kafkalog-commits"]


@pytest.mark.parametrize("checkpoint", ["named", "of another file system"])
def test_an_aborted_batch_without_messages_leaves_no_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"ab-cd"}')
    schema = StructType([StructField("value", BinaryType())])
    where = f"file:{tmp_path / 'checkpoint'}" if checkpoint == "named" else "hdfs://host/checkpoint"

    def writer() -> KafkaLogStreamWriter:  # Spark makes one for the tasks, and one on the driver
        options = {"path": str(tmp_path / "log"), "topic": "t", "checkpointLocation": where}
        return KafkaLogStreamWriter(parse_sink_options(options), schema)

    for record in ({"query": "ab-cd", "batch": 3}, {"query": "ab-ce", "batch": 3}, {"query": "ab-cd", "batch": 30}):
        monkeypatch.setattr(stream_writer, "_this_batch", lambda record=record: record)
        writer().write(iter([pa.record_batch({"value": pa.array([b"1"])})]))
    writer().abort([None], 3)
    left = sorted("-".join(name.split("-")[:3]) for name in hidden(tmp_path))
    others = [".log.job-abcd-30", ".log.job-abce-3"]
    assert left == ([".log.job-abcd-3", *others] if checkpoint != "named" else others)


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
