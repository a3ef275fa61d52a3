"""Moves of staged files into a directory that is there: in an order, each group durable before the next, with undo.

`staged_additions` stages files and moves them; `move_groups` moves what was staged before, and resumes where a process
that died had come to. What is moved, and why in this order, is not known here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from kafkalog.storage.atomic import (
    OLD_SUFFIX,
    StrPath,
    fsync_directory,
    identity,
    rename_back,
    rename_new,
    swap,
    take_back,
    writing,
)
from kafkalog.storage.staging import Stage, StagedDirectory

Undo = list[Callable[[], object]]
"""Steps that take back what was done, to be called from the last to the first."""


class Move(NamedTuple):
    """A step on the way of staged files into a directory that is there."""

    name: str
    what: Literal["add", "put", "take"]
    """`add` a file that must not be there, `put` one that may replace another, `take` one away if it is there."""


@contextlib.contextmanager
def staged_additions(
    target: StrPath,
    groups: list[list[Move]],
    *,
    stage_in: StrPath | None = None,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[StagedDirectory]:
    """Files that are added to a directory that is there, when the block ends well: one by one, in an order.

    Parameters
    ----------
    target : path-like
    groups : list of list of Move
        To be filled in within the block. The moves of a group are made one after the other, and are durable before the
        next group comes.
    stage_in : path-like, optional
        As for `staged_file`.
    prepare : callable
        Called when all that is staged is durable, before the first move.

    Raises
    ------
    OutputExistsError
        A file is there that was to be added.
    WriteError
        They could not be written or moved; the moves that were made are taken back.

    Notes
    -----
    Only what was placed here is taken back: a file that somebody replaced or wrote to meanwhile stays. A crash leaves
    the directory as it was after one of the moves, each file complete.
    """
    with Stage(target, overwrite=True, stage_in=stage_in, is_directory=True) as stage:
        directory = StagedDirectory(stage.path, stage.target)
        try:
            yield directory
            directory.close()
        finally:
            directory.discard()
        prepare()
        undo: Undo = []
        try:
            move_groups(stage.path, stage.target, groups, undo)
        except BaseException:
            for step in reversed(undo):
                with contextlib.suppress(OSError):
                    step()
            raise
        stage.finish()


def move_groups(
    staged: Path, target: Path, groups: Sequence[Sequence[Move]], undo: Undo, *, resumes: bool = False
) -> None:
    """Move files out of one directory into another, group by group.

    Parameters
    ----------
    staged, target : Path
        Directories on one file system.
    groups : sequence of sequence of Move
    undo : list of callable
        Given what takes back each move, before it is made.
    resumes : bool
        Whether some of the moves may have been made before, by a process that died: these are passed over. Only files
        are replaced then, in two steps, so that a lock has to keep others out.

    Raises
    ------
    OutputExistsError, WriteError
        See `staged_additions`; `undo` is for the caller to call.
    """
    added = {name for group in groups for name, what in group if what != "take"} if resumes else set()
    for group in groups:
        for name, what in group:
            new, there, aside = staged / name, target / name, staged / f"{name}{OLD_SUFFIX}"
            is_done = resumes and name in added and not os.path.lexists(new)
            with writing(there):
                if is_done or (what == "take" and (os.path.lexists(aside) or not os.path.lexists(there))):
                    continue
                if what == "take":
                    undo.append(partial(rename_back, aside, there))
                    os.rename(there, aside)
                    continue
                undo.append(partial(take_back, there, new, identity(new), aside if resumes and what == "put" else None))
                if what == "add" or not os.path.lexists(there):
                    rename_new(new, there)
                elif not resumes:
                    swap(new, there)  # in one step: nothing that others put there meanwhile is lost
                else:
                    # its name in what is staged is gone once it is in place, which tells whoever resumes
                    _keep(there, aside)
                    os.replace(new, there)
        with writing(target):
            fsync_directory(target)


def _keep(path: Path, aside: Path) -> None:
    """A second name for a file that is about to be replaced; a copy where a file can have but one."""
    if os.path.lexists(aside):
        return
    try:
        os.link(path, aside)
    except OSError:
        shutil.copy2(path, aside)
