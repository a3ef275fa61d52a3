"""What jobs keep beside a log dir: dead jobs are removed, living ones and brokers are left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from staged_jobs import SMALL, make_log_dir, stage
from writing import columns_of, draw

from kafkalog import TopicPartition
from kafkalog.errors import UnsafePathError, WriteError
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.writing.job_commit import StagedWriter, commit, recover
from kafkalog.writing.job_directories import StagingArea, create_job, remove_job, this_owner


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return make_log_dir(tmp_path / "log")


def test_what_dead_jobs_left_is_removed_and_what_the_living_have_is_not(log_dir: Path) -> None:
    area = StagingArea.of(log_dir)
    owner = this_owner(os.getpid())
    for name, whose in (("job-dead", {**owner, "started": "1"}), ("job-live", owner)):
        job = area.job(name)
        stage(area, job, "t-0")
        (job / "owner.json").write_text(json.dumps(whose))
    assert recover(area) == []
    assert area.jobs() == [area.job("job-live")]


@pytest.mark.parametrize("has_records", [False, True])
def test_a_task_that_outlives_its_job_fails_and_leaves_nothing(log_dir: Path, has_records: bool) -> None:
    # as a task of Spark that is killed late: the driver has removed the job's directory by then
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    create_job(job, this_owner(os.getpid()))
    task = job / "task-0"
    task.mkdir()
    staged = StagedWriter(area, task, TopicPartition("t", 5), config=SMALL)
    if has_records:
        staged.writer.append(columns_of(draw(10, 1)))
    remove_job(job)
    with pytest.raises(WriteError):
        staged.writer.append(columns_of(draw(200, 2)))
    staged.abandon()
    assert list(log_dir.parent.glob(".*")) == []
    assert area.jobs() == []


def test_a_broker_keeps_jobs_out(log_dir: Path) -> None:
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, "t-0")
    (log_dir / "meta.properties").write_text("version=1\n")
    hold = (
        "import sys; from kafkalog.storage.broker_lock import hold_locks\n"
        "with hold_locks([sys.argv[1]]): print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline()
        with pytest.raises(UnsafePathError, match="a broker holds the lock"):
            commit(area, job, staged)
        broker.communicate(b"\n")
    with hold_locks([log_dir]):
        assert commit(area, job, staged)
