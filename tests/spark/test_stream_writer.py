"""A stream into a log dir, by `foreachBatch` and a `jobId` for each batch: each is written once, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_rows import frame, hidden, rows, save

import kafkalog.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_stream_from_our_source_to_our_sink_is_equal_over_restarts(session: SparkSession, tmp_path: Path) -> None:
    log, mirror = tmp_path / "log", tmp_path / "mirror"
    checkpoint = tmp_path / "checkpoint"

    def write(batch: DataFrame, number: int) -> None:
        ready = kafkalog.spark.prepare(batch, preserve_offsets=True, num_tasks=2)
        save(ready, mirror, preserveOffsets=True, jobId=f"mirror-{number}")

    def run() -> None:
        reader = session.readStream.format("kafkalog").options(startingOffsets="earliest", includeHeaders="true")
        stream = reader.option("maxOffsetsPerTrigger", "200").load(str(log))
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
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


def test_a_stream_writer_says_how_to_write_a_stream(session: SparkSession, tmp_path: Path) -> None:
    stream = session.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writer = stream.writeStream.format("kafkalog").option("topic", "t").option("path", str(tmp_path / "log"))
    with pytest.raises(Exception, match="foreachBatch"):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
