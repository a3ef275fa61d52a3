"""All partitions of a job or none, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_rows import fails_at, frame, hidden, rows, save

from kafkalog.writing.job_directories import StagingArea, create_job, this_owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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


@pytest.mark.slow
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
