"""A directory of finished tasks is that of one job at a time, and its keys depend on all that the results do."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

import kafkalog.spark as jobs
from kafkalog.errors import UnsafePathError, WriteError
from kafkalog.spark.jobs import finished_tasks
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


def test_a_task_that_outlives_its_job_fails_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = FinishedTasks(str(tmp_path / ".out.kafkalog-job"))
    tried = []

    def remove(path: Path, ignore_errors: bool) -> None:
        # while the directory is removed
        with pytest.raises(WriteError, match="its job is over"):
            finished.put("aabb", 2)
        tried.append(path)
        removed(path, ignore_errors)

    removed = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", remove)
    with finished.held():
        finished.put("aabb", 1)
        assert (finished.has("aabb"), finished.find("aabb")) == (True, 1)
    assert len(tried) == 1
    with pytest.raises(WriteError, match="its job is over"):
        finished.put("aabb", 2)
    assert list(tmp_path.iterdir()) == []


def test_the_driver_waits_for_attempts_that_are_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = FinishedTasks(str(tmp_path / ".out.kafkalog-job"))
    late, waited = finished.attempt(), []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            late.__exit__(None, None, None)

    monkeypatch.setattr(finished_tasks.time, "sleep", wait)
    with finished.held():
        with contextlib.suppress(ZeroDivisionError), finished.waits_for_attempts():
            with finished.attempt(), finished.attempt():
                pass
            late.__enter__()
            raise ZeroDivisionError
        assert len(waited) == 3
        with pytest.raises(WriteError, match="its job is over"), finished.attempt():
            pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_removal_left_is_removed_by_the_next_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = FinishedTasks(str(tmp_path / ".out.kafkalog-job"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        with finished.held():
            finished.put("aabb", 1)
    assert len(list(tmp_path.iterdir())) == 1
    with finished.held():
        assert not finished.has("aabb")
    assert list(tmp_path.iterdir()) == []


def test_keys_of_tasks_tell_apart_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    os.utime(path, ns=(1, 1))
    key = key_of("x", [1], files=[path])
    assert key == key_of("x", [1], files=[path])
    os.utime(path, ns=(1, 2))
    assert key_of("x", [1], files=[path]) != key
    assert key_of(pc.field("offset") > 1) != key_of(pc.field("offset") > 2)
