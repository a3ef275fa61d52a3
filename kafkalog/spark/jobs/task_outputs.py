"""The output of a job: each task writes a directory of its own, and the driver moves what is in them into the output.

Spark may run a task twice, so the directory of a task appears only when it is complete, and replaces an earlier one.
The output itself appears when the driver has moved everything.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from kafkalog.storage.atomic import writing
from kafkalog.storage.staging import StagedDirectory, staged_directory


def task_output(staged: str, number: int) -> AbstractContextManager[StagedDirectory]:
    """The directory that a task fills, complete and durable when the block ends.

    Parameters
    ----------
    staged : str
        Path of the staged output, shared with the driver.
    number : int
        Of the task.
    """
    return staged_directory(_path(Path(staged), number), overwrite=True)


def gather(staged: StagedDirectory, n: int, *, levels: int = 1) -> None:
    """Move what is in the tasks' directories into the staged output.

    Parameters
    ----------
    n : int
        Number of tasks; one without a directory wrote nothing.
    levels : int
        2 if the content of the directories in them is moved.

    Raises
    ------
    WriteError
        A move failed.
    """
    with writing(staged.target):
        for number in range(n):
            path = _path(staged.path, number)
            if path.is_dir():
                _empty(path, staged.path, levels)


def _empty(directory: Path, target: Path, levels: int) -> None:
    for entry in sorted(directory.iterdir()):
        if levels > 1:
            _empty(entry, target, levels - 1)
        else:
            os.rename(entry, target / entry.name)
    directory.rmdir()


def _path(staged: Path, number: int) -> Path:
    return staged / f".task-{number}"
