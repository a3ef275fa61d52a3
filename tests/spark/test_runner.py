"""The runner of jobs: errors of executors, and the files of tasks."""

import shutil
from pathlib import Path

import golden_sets
import pytest
from job_results import tree

from kafkalog.errors import ReadError, WriteError
from kafkalog.scanning.planning import plan
from kafkalog.spark import runner
from kafkalog.spark.runner import Piece
from kafkalog.storage.staging import scratch_directory, staged_directory

pytestmark = pytest.mark.spark


def test_results_come_in_the_order_of_the_pieces_and_small_ones_share_a_task(spark):
    from pyspark import TaskContext

    def where(number):
        context = TaskContext.get()
        return number, None if context is None else context.partitionId()

    pieces = [Piece(number, size) for number, size in enumerate([1, 2, 3, 10, 1, 1])]
    found = runner.results(spark, pieces, where, task_bytes=5)
    assert found == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 3)]
    assert runner.results(spark, [], where, task_bytes=5) == []


def test_a_log_dir_that_is_not_there_is_no_deletion(tmp_path):
    root = Path(shutil.copytree(golden_sets.LOG_DIR, tmp_path / "log"))
    (task,) = plan(root, topics="p-multi", task_bytes=2**30).tasks
    for path in root.glob("p-multi-*"):
        shutil.rmtree(path)
    runner.check_log_dirs(task)  # a broker has deleted the topic
    with pytest.raises(ReadError, match="mount"):
        runner.check_files(runner.files_of_task(task))
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ReadError, match="mount"):
        runner.check_log_dirs(task)
    root.rmdir()
    with pytest.raises(ReadError, match="mount"):
        runner.check_log_dirs(task)


def test_the_files_of_attempts_that_are_named_become_the_output(tmp_path):
    with scratch_directory(tmp_path, "out") as job:
        made = []
        for name in ("0", "2", "2"):  # the last one twice
            with runner.task_directory(job) as staged, staged.create(f"t-{name}/x") as file:
                file.write(name.encode())
            made.append(str(staged.path / f"t-{name}" / "x"))
        with pytest.raises(ZeroDivisionError), runner.task_directory(job) as staged:
            staged.create("t-1/x").write(bytes(1 // 0))
        late = runner.task_directory(job)
        late.__enter__().create("t-0/x").close()
        with staged_directory(tmp_path / "out") as output:
            runner.publish(output, [(made[0], "t-0/x"), (made[2], "t-2/x")])
    assert tree(tmp_path / "out") == {"t-0/x": b"0", "t-2/x": b"2"}
    # an attempt that outlives the job fails, and so does one that begins later
    with pytest.raises(WriteError):
        late.__exit__(None, None, None)
    with pytest.raises(WriteError), runner.task_directory(job):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
