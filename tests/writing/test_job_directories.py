"""What jobs keep beside a log dir: dead jobs are removed, living ones and brokers are left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from staged_jobs import make_log_dir, stage

from kafkalog.errors import UnsafePathError
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.writing.job_commit import commit, recover
from kafkalog.writing.job_directories import StagingArea, this_owner


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
