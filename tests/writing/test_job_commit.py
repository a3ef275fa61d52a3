"""Results of tasks come into a log dir all at once, whichever process dies."""

import errno
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from effort import thinned
from refusals import fails_with
from writing import columns_of, draw

import kafkalog
from kafkalog import LogConfig, PartitionWriter, TopicPartition
from kafkalog import format as kf
from kafkalog.errors import ReadError, TruncatedTailError, WriteError
from kafkalog.storage import moves
from kafkalog.storage.atomic import rename_new
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.writing import job_commit
from kafkalog.writing.job_commit import StagedWriter, commit, recover
from kafkalog.writing.job_directories import StagingArea, create_job, remove_job

SMALL = LogConfig(segment_bytes=2000)


def write(path, n, seed=0):
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of(draw(n, seed)))


def make_log_dir(path):
    """Partitions with records, with none, and with an empty segment as brokers make it."""
    path.mkdir()
    write(path / "t-0", 50)
    write(path / "t-1", 0)
    (path / "t-2").mkdir()
    return path


def stage(area, job, *names, n=60, seed=1):
    """A job of this process, and a task of it for each partition."""
    if not job.exists():
        create_job(job)
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


class Killed(BaseException):
    """No `except Exception` sees a SIGKILL either."""


def content(log_dir):
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file()}


def values(path, *, is_going_on=False):
    # a commit that is going on puts the index before its segment, or has taken it away: a broker helps itself
    found = [str(finding) for finding in kafkalog.verify(path, deep=True).findings]
    assert [
        text for text in found if not is_going_on or not re.search("without a .log|index_missing|log_end_missing", text)
    ] == []
    table = kafkalog.read_table(path, columns=["offset", "value"])
    assert table.column("offset").to_pylist() == list(range(table.num_rows))
    return list(table.column("value").to_pylist())


@pytest.fixture
def log_dir(tmp_path):
    return make_log_dir(tmp_path / "log")


NAMES = ("t-0", "t-1", "t-2", "t-3")
NEW = [record.value for record in draw(60, 1)]
OLD = [record.value for record in draw(50)]
AFTER = {"t-0": OLD + NEW, "t-1": NEW, "t-2": NEW, "t-3": NEW}


def test_new_and_old_partitions_go_on_as_a_writer_of_their_own_would_write_them(log_dir, tmp_path):
    twin = tmp_path / "twin"
    twin.mkdir()
    write(twin / "t-0", 50)
    write(twin / "t-1", 0)
    for name in NAMES:
        write(twin / name, 60, 1)
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, *NAMES)
    assert content(log_dir).keys() < content(twin).keys()
    assert commit(area, job, staged)
    assert content(log_dir) == content(twin)
    assert sum(name.endswith(".log") for name in content(log_dir)) > 8
    assert {name: values(log_dir / name) for name in NAMES} == AFTER
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def steps(monkeypatch, fail_at, error, names=("rename", "replace", "link")):
    """Let the n-th rename or link of a commit fail."""
    count = 0

    def counting(function):
        def step(*args):
            nonlocal count
            count += 1
            if count == fail_at:
                raise error
            function(*args)

        return step

    failing = {name: counting(getattr(os, name)) for name in names}
    for module in (job_commit, moves):
        monkeypatch.setattr(module, "os", SimpleNamespace(**{**vars(os), **failing}))
        monkeypatch.setattr(module, "rename_new", counting(rename_new))
    return lambda: count


@pytest.mark.parametrize("at", thinned(range(1, 40, 2), 3))
def test_a_commit_that_is_killed_is_finished_by_who_comes_next(log_dir, tmp_path, monkeypatch, at):
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, *NAMES)
    with monkeypatch.context() as patch:
        count = steps(patch, at, Killed())
        try:
            commit(area, job, staged, "a")
        except Killed:
            assert count() == at
        else:
            assert count() < at
            assert at > 20
    # each partition is sound meanwhile, and holds nothing that the other half does not belong to
    for path in log_dir.iterdir():
        if any(path.glob("*.log")):
            values(path, is_going_on=True)
    recover(area)
    assert {name: values(log_dir / name) for name in NAMES} == AFTER
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".log.kafkalog-commits"]
    assert recover(area) == []
    job = area.job("job-2")
    assert not commit(area, job, stage(area, job, "t-0"), "a")
    assert values(log_dir / "t-0") == AFTER["t-0"]
    assert area.jobs() == []


@pytest.mark.parametrize("at", range(1, 16, 3))
def test_a_commit_that_fails_leaves_the_log_dir_as_it_was(log_dir, monkeypatch, at):
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, *NAMES)
    before = content(log_dir)
    with monkeypatch.context() as patch:
        steps(patch, at, OSError(28, "No space left on device"), ("rename", "replace"))
        with fails_with("write_failed"):
            commit(area, job, staged)
    assert content(log_dir) == before
    remove_job(job)
    assert recover(area) == []
    assert content(log_dir) == before


def test_a_log_that_moved_is_not_appended_to(log_dir):
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, *NAMES)
    write(log_dir / "t-0", 5, 3)
    before = content(log_dir)
    with fails_with("file_changed"):
        commit(area, job, staged)
    assert content(log_dir) == before
    staged = stage(area, job, "t-3")
    write(log_dir / "t-3", 1)
    with fails_with("output_exists"):
        commit(area, job, staged)


def test_a_commit_is_not_finished_behind_who_wrote_in_between(log_dir, monkeypatch):
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    staged = stage(area, job, *NAMES)
    with monkeypatch.context() as patch:
        steps(patch, 1, Killed())
        with pytest.raises(Killed):
            commit(area, job, staged)
    write(log_dir / "t-0", 5, 3)
    before = content(log_dir)
    with fails_with("file_changed"):
        recover(area)
    assert content(log_dir) == before


def test_a_job_without_a_plan_keeps_nobody_from_finishing_another(log_dir, monkeypatch):
    area = StagingArea.of(log_dir)
    earlier, job = area.job("job-0"), area.job("job-1")
    stage(area, earlier, "t-0")
    staged = stage(area, job, *NAMES)
    with monkeypatch.context() as patch:
        steps(patch, 1, Killed())
        with pytest.raises(Killed):
            commit(area, job, staged)
    assert recover(area) == [*NAMES]
    assert {name: values(log_dir / name) for name in NAMES} == AFTER
    assert area.jobs() == [earlier]


def test_two_tasks_on_a_partition_are_refused_and_told_what_helps(log_dir):
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    with fails_with("unsafe_path"):
        commit(area, job, stage(area, job, "t-0", "t-0"))


def test_a_torn_end_is_not_continued(log_dir):
    last = sorted((log_dir / "t-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-3])
    area = StagingArea.of(log_dir)
    with pytest.raises(TruncatedTailError):
        stage(area, area.job("job-1"), "t-0")


def test_what_dead_jobs_left_is_removed_and_what_the_living_have_is_not(log_dir):
    area = StagingArea.of(log_dir)
    for name in ("job-dead", "job-live"):
        stage(area, area.job(name), "t-0")
    dead = area.job("job-dead")
    for path in (*dead.rglob("*"), dead):
        os.utime(path, (0, 0))
    assert recover(area) == []
    assert area.jobs() == [area.job("job-live")]


@pytest.mark.parametrize("has_records", [False, True])
def test_a_task_that_outlives_its_job_fails_and_leaves_nothing(log_dir, has_records):
    # as a task of Spark that is killed late: the driver has removed the job's directory by then
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    create_job(job)
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


def test_a_broker_keeps_jobs_out(log_dir):
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
        with fails_with("unsafe_path"):
            commit(area, job, staged)
        broker.communicate(b"\n")
    with hold_locks([log_dir]):
        assert commit(area, job, staged)


def test_a_commit_whose_intent_cannot_be_read_has_not_failed_to_begin(tmp_path, monkeypatch):
    (tmp_path / job_commit.INTENT_NAME).write_text("{}")
    assert job_commit.has_begun(tmp_path)
    assert not job_commit.has_begun(tmp_path / "none")

    def stat(path, *options, **more):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(ReadError):
        job_commit.has_begun(tmp_path)
