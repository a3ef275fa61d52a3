"""Each batch of a stream is written once, over restarts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_rows import frame, hidden, rows, save

import kafkalog
import kafkalog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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
