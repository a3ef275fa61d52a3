"""Pieces of an output: each appears when it is complete, replaces an earlier one, and is taken apart at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_results import tree

from kafkalog.storage.staging import staged_directory

pytest.importorskip("pyspark")

from kafkalog.spark.jobs.task_outputs import gather, task_output


def test_the_outputs_of_tasks_become_the_output(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "out") as staged:
        for number, content in ((0, b"first"), (2, b"old"), (2, b"third")):
            with task_output(str(staged.path), number) as made, made.create(f"t-{number}/x") as file:
                file.write(content)
        with pytest.raises(ZeroDivisionError), task_output(str(staged.path), 1) as made:
            made.create("t-1/x").write(bytes(1 // 0))
        gather(staged, 3)
    assert tree(tmp_path / "out") == {"t-0/x": b"first", "t-2/x": b"third"}


def test_the_content_of_directories_in_the_outputs_of_tasks_is_moved_on_request(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "out") as staged:
        with task_output(str(staged.path), 0) as made:
            made.create("t-0/x").close()
            made.create("t-0/y").close()
        gather(staged, 1, levels=2)
    assert sorted(tree(tmp_path / "out")) == ["x", "y"]
