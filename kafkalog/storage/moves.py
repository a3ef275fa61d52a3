"""Move staged files into an existing directory: in a given order, each group durable before the next, with undo.

`staged_additions` stages files and moves them. `move_groups` moves files that were staged before, and can resume the
moves of a process that died. The caller chooses the files and their order; nothing here knows the reasons.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from kafkalog.storage.atomic import (
    StrPath,
    fsync_directory,
    identity,
    rename_back,
    rename_new,
    replace_file,
    swap,
    take_back,
    try_move,
    writing,
)
from kafkalog.storage.own_names import OLD_SUFFIX
from kafkalog.storage.staging import Stage, StagedDirectory

Undo = list[Callable[[], object]]
"""Steps that undo what was done; to be called from the last to the first."""


class Move(NamedTuple):
    """One step of moving staged files into an existing directory."""

    name: str
    what: Literal["add", "put", "take", "swap"]
    """`add` a file that must not exist yet, `put` one that may replace another, `take` one away if it exists; `swap`
    gives a `.swap` file of the directory, whose place is free, its name without the suffix."""


@contextlib.contextmanager
def staged_additions(
    target: StrPath,
    groups: list[list[Move]],
    *,
    stage_in: StrPath | None = None,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[StagedDirectory]:
    """Stage files, and move them one by one into an existing directory when the block ends without an exception.

    Each file has the owner and the mode of the one that it replaces, or else those of the directory.

    The caller fills in the groups within the block. The moves of a group are made one after the other, and are durable
    before the next group starts. `prepare` is called before the first move, when all staged files are durable. Raises
    OutputExistsError if a file to be added exists, and WriteError after undoing the moves already made.

    The undo only touches files that were moved here: a file that somebody else has replaced or written to since then
    stays. A crash leaves the directory in the state after one of the moves, with each file complete.
    """
    with Stage(target, overwrite=True, stage_in=stage_in, is_directory=True) as stage:
        directory = StagedDirectory(stage.path, stage.target, is_added=True)
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
            # to the end, even if one fails: each file that can be put back is
            for step in reversed(undo):
                with contextlib.suppress(OSError):
                    step()
            raise
        stage.finish()


def move_groups(
    staged: Path, target: Path, groups: Sequence[Sequence[Move]], undo: Undo, *, resumes: bool = False
) -> None:
    """Move files from one directory into another on the same file system, group by group.

    `undo` gets a step that undoes each move, before the move is made; if this raises, the caller has to call them.
    `resumes` skips moves that a process that died may have made. With it only files can be replaced, and in two steps,
    so the caller has to hold a lock.
    """
    added = {name for group in groups for name, what in group if what != "take"} if resumes else set()
    for group in groups:
        for name, what in group:
            new, there, aside = staged / name, target / name, staged / f"{name}{OLD_SUFFIX}"
            # a file that is no longer staged was moved by the process that died
            is_done = resumes and name in added and not os.path.lexists(new)
            with writing(there):
                if is_done or (what == "take" and (os.path.lexists(aside) or not os.path.lexists(there))):
                    continue
                if what == "take":
                    undo.append(partial(rename_back, aside, there))
                    os.rename(there, aside)
                    continue
                if what == "swap":
                    final = there.with_suffix("")
                    undo.append(partial(rename_back, final, there))
                    rename_new(there, final)
                    continue
                # recorded before the move: an interrupt may come right after it, and `take_back` checks what was done
                undo.append(partial(take_back, there, new, identity(new), aside if what == "put" else None))
                if what == "add" or not os.path.lexists(there):
                    rename_new(new, there)
                # an exchange keeps whatever others have put at `there` since; a resuming process makes none, since it
                # takes a missing staged name as "this move is done"
                elif not resumes and try_move(new, there, replace=True):
                    pass
                elif there.is_dir():
                    swap(new, there)
                else:
                    replace_file(new, there, aside)
        # A crash must not leave a later group in place without an earlier one
        with writing(target):
            fsync_directory(target)
