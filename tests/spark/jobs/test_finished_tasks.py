"""A directory of finished tasks is that of one job at a time, and its keys depend on all that the results do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

import kafkalog.spark as jobs
from kafkalog.errors import UnsafePathError
from kafkalog.spark.jobs.finished_tasks import FinishedTasks, job_directory, key_of
from kafkalog.storage.broker_lock import hold_locks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_running_broker_or_another_job_keeps_a_job_out(
    spark: SparkSession, log_dir_copy: Path, tmp_path: Path
) -> None:
    (log_dir_copy / ".lock").touch()
    with hold_locks([log_dir_copy]), pytest.raises(UnsafePathError, match="a broker holds"):
        jobs.reindex(spark, log_dir_copy, in_place=True)
    with (
        FinishedTasks(str(job_directory(tmp_path / "out"))).held(),
        pytest.raises(UnsafePathError, match="another job"),
    ):
        jobs.export(spark, log_dir_copy, tmp_path / "out")
    with pytest.raises(UnsafePathError):
        jobs.export(spark, log_dir_copy, log_dir_copy / "out")
    job_directory(tmp_path / "open").mkdir()
    job_directory(tmp_path / "open").chmod(0o777)
    with pytest.raises(UnsafePathError, match="others may write"):
        jobs.export(spark, log_dir_copy, tmp_path / "open")


def test_keys_of_tasks_tell_apart_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    os.utime(path, ns=(1, 1))
    key = key_of("x", [1], files=[path])
    assert key == key_of("x", [1], files=[path])
    os.utime(path, ns=(1, 2))
    assert key_of("x", [1], files=[path]) != key
    assert key_of(pc.field("offset") > 1) != key_of(pc.field("offset") > 2)
