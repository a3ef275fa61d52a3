"""The output of a job: each task writes a directory of its own, and the driver moves what is in them into the output.

The directories of tasks lie beside the output until the driver takes them. Spark may run a task twice, at the same time
too, so the directory of a task appears only when it is complete, and replaces an earlier one. An attempt that is still
at work when the driver has taken them, or when the job has failed, fails at its next file and leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from kafkalog.storage.atomic import writing
from kafkalog.storage.staging import Stage, StagedDirectory, staged_directory


class TaskOutputs:
    """The directories of tasks, on the driver; see `task_outputs`.

    Attributes
    ----------
    path : str
        Where they are, for `task_output`: shared by driver and executors.
    """

    def __init__(self, stage: Stage, staged: StagedDirectory) -> None:
        self.path = str(stage.path)
        self._stage, self._staged = stage, staged

    def gather(self, names: Iterable[str], *, levels: int = 1) -> None:
        """Move what is in the tasks' directories into the staged output.

        Parameters
        ----------
        names : iterable of str
            Of the tasks; one without a directory wrote nothing.
        levels : int
            2 if the content of the directories in them is moved.

        Raises
        ------
        WriteError
            A move failed.
        """
        with writing(self._staged.target):
            # an attempt that is still running must not put another directory into place meanwhile
            self._stage.move_aside()
            for name in names:
                path = self._stage.path / name
                if path.is_dir():
                    _empty(path, self._staged.path, levels)


@contextlib.contextmanager
def task_outputs(staged: StagedDirectory) -> Iterator[TaskOutputs]:
    """Directories for tasks, beside a staged output; what is left of them is removed when the block ends."""
    place = staged.path.parent
    with Stage(staged.target, overwrite=False, stage_in=place, is_directory=True) as stage:
        yield TaskOutputs(stage, staged)


def task_output(outputs: str, name: str) -> AbstractContextManager[StagedDirectory]:
    """The directory that a task fills, complete and durable when the block ends.

    Parameters
    ----------
    outputs : str
        The `path` of the driver's `TaskOutputs`.
    name : str
        Of the task.
    """
    return staged_directory(Path(outputs) / name, overwrite=True)


def _empty(directory: Path, target: Path, levels: int) -> None:
    for entry in sorted(directory.iterdir()):
        if levels > 1:
            _empty(entry, target, levels - 1)
        else:
            # names do not collide: a partition is in one task
            os.rename(entry, target / entry.name)
