"""Pieces of an output: each appears when it is complete, replaces an earlier one, and is taken apart at the end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from job_results import tree

from kafkalog.errors import WriteError
from kafkalog.storage.staging import staged_directory

pytest.importorskip("pyspark")

from kafkalog.spark.jobs.task_outputs import task_output, task_outputs


def test_the_outputs_of_tasks_become_the_output(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "out") as staged, task_outputs(staged) as outputs:
        for name, content in (("0", b"first"), ("2", b"old"), ("2", b"third")):
            with task_output(outputs.path, name) as made, made.create(f"t-{name}/x") as file:
                file.write(content)
        with pytest.raises(ZeroDivisionError), task_output(outputs.path, "1") as made:
            made.create("t-1/x").write(bytes(1 // 0))
        outputs.gather(["0", "1", "2"])
    assert tree(tmp_path / "out") == {"t-0/x": b"first", "t-2/x": b"third"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_content_of_directories_in_the_outputs_of_tasks_is_moved_on_request(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "out") as staged, task_outputs(staged) as outputs:
        with task_output(outputs.path, "0") as made:
            made.create("t-0/x").close()
            made.create("t-0/y").close()
        outputs.gather(["0"], levels=2)
    assert sorted(tree(tmp_path / "out")) == ["x", "y"]


@pytest.mark.parametrize("is_full", [False, True])
def test_an_attempt_that_outlives_the_others_fails_and_leaves_nothing(tmp_path: Path, is_full: bool) -> None:
    # as the second attempt of a task, which Spark kills only when the first has finished
    with staged_directory(tmp_path / "out") as staged, task_outputs(staged) as outputs:
        late = task_output(outputs.path, "0")
        made = late.__enter__()
        made.create("t-0/x").close()
        with task_output(outputs.path, "0") as first:
            for name in ("x", "y"):
                first.create(f"t-0/{name}").close()
        if is_full:
            made.create("t-0/y").close()
        outputs.gather(["0"])
        with pytest.raises(WriteError), task_output(outputs.path, "1"):
            pass  # it begins after all others
        if not is_full:
            with pytest.raises(WriteError) as error:
                made.create("t-0/y")
            late.__exit__(WriteError, error.value, None)
    if is_full:
        with pytest.raises(WriteError):
            late.__exit__(None, None, None)
    assert sorted(tree(tmp_path / "out")) == ["t-0/x", "t-0/y"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_attempt_that_outlives_a_job_that_failed_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as failed:
        failed.enter_context(contextlib.suppress(ZeroDivisionError))
        staged = failed.enter_context(staged_directory(tmp_path / "out"))
        late = task_output(failed.enter_context(task_outputs(staged)).path, "0")
        late.__enter__().create("t-0/x").write(bytes(1))
        raise ZeroDivisionError
    with pytest.raises(WriteError):
        late.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []
