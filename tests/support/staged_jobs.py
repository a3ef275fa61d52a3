"""A log dir, and jobs that stage records for its partitions."""

from __future__ import annotations

import os
from pathlib import Path

from writing import columns_of, draw

from kafkalog import LogConfig, PartitionWriter
from kafkalog import format as kf
from kafkalog.writing.job_commit import StagedPartition, StagedWriter
from kafkalog.writing.job_directories import StagingArea, create_job, this_owner

SMALL = LogConfig(segment_bytes=2000)


def write(path: Path, n: int, seed: int = 0) -> None:
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of(draw(n, seed)))


def make_log_dir(path: Path) -> Path:
    """Partitions with records, with none, and with an empty segment as brokers make it."""
    path.mkdir()
    write(path / "t-0", 50)
    write(path / "t-1", 0)
    (path / "t-2").mkdir()
    return path


def stage(area: StagingArea, job: Path, *names: str, n: int = 60, seed: int = 1) -> list[StagedPartition]:
    """A job of this process, and a task of it for each partition."""
    create_job(job, this_owner(os.getpid()))
    staged = []
    for name in names:
        task = job / f"task-{len(list(job.iterdir()))}"
        task.mkdir()
        directory = kf.parse_partition_directory(name)
        assert directory is not None
        one = StagedWriter(area, task, directory.topic_partition, config=SMALL)
        result = one.writer.append(columns_of(draw(n, seed)))
        staged.append(one.finish(n, result.first_offset))
    return staged
