"""Where the changed files of a partition go: into a copy of it, in place of the old ones, or nowhere.

`Copied` makes a whole partition elsewhere. `InPlace` keeps the old files in a backup, then moves the new ones in, in an
order in which a broker can start after each step. What the changes are is not known here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kafkalog import format as kf
from kafkalog.storage.copying import Backup, copy_file
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import copy_ownership
from kafkalog.storage.staging import StagedDirectory

_INDEXES = (kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX, kf.TRANSACTION_INDEX_SUFFIX)


class PartitionOutput(Protocol):
    """Receives the changes to one partition; all names are those of files in its directory."""

    def write(self, name: str, data: bytes) -> None:
        """Give a file new content."""

    def copy(self, source: Path, name: str, size: int | None = None) -> None:
        """Give a file the content of another, or the first bytes of it."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def commit(self) -> None:
        """Make the changes, durably."""

    def abandon(self) -> None:
        """Make none of the changes."""


class Unwritten:
    """The output of a dry run."""

    def write(self, name: str, data: bytes) -> None:
        """Do nothing."""

    def copy(self, source: Path, name: str, size: int | None = None) -> None:
        """Do nothing."""

    def remove(self, name: str) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""


class Copied:
    """Makes a copy of a partition with the changes.

    Parameters
    ----------
    directory : Path
        The partition, which is only read.
    staged : StagedDirectory
    prefix : str
        Where the partition goes within `staged`, such as ``"orders-0/"``.
    names : sequence of str
        Files of the directory; those that are not changed are copied.
    progress : callable
        Called with the number of bytes of `.log` files copied since the last call.
    """

    def __init__(
        self,
        directory: Path,
        staged: StagedDirectory,
        prefix: str,
        names: Sequence[str],
        progress: Callable[[int], object],
    ) -> None:
        self._directory, self._staged, self._prefix, self._progress = directory, staged, prefix, progress
        self._left = dict.fromkeys(names)

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the copy."""
        self._left.pop(name, None)
        with self._staged.create(self._prefix + name) as file:
            file.write(data)

    def copy(self, source: Path, name: str, size: int | None = None) -> None:
        """Copy a file, or its first bytes, under a name."""
        self._left.pop(name, None)
        self._copy(source, name, size)

    def remove(self, name: str) -> None:
        """Leave a file out."""
        self._left.pop(name, None)

    def commit(self) -> None:
        """Copy the other files."""
        for name in self._left:
            self._copy(self._directory / name, name, None)
        self._left.clear()

    def abandon(self) -> None:
        """Leave the partition out."""
        self._staged.remove(self._prefix or ".")

    def _copy(self, source: Path, name: str, size: int | None) -> None:
        is_log = name.endswith(kf.LOG_SUFFIX)
        copy_file(source, self._staged, self._prefix + name, size=size, progress=self._progress if is_log else _ignore)


class InPlace:
    """Changes a partition in place, after its old files are in a backup.

    Parameters
    ----------
    directory : Path
    backup : Backup
        Gets the old files, in a subdirectory with the name of the partition.
    stage_in : path-like
        Directory to stage new files in, outside of the log dir.
    removes_last_first : bool
        Whether `.log` files are removed from the last to the first (the log loses its end) or from the first to the
        last (it loses its start). Either way no gap appears if a crash comes in between.

    Notes
    -----
    Nothing is staged until the first change. Order of the moves, each group durable before the next: `.log` files are
    removed; other files are removed; indexes are put; `.log` files are put; snapshots and epochs are put; `.swap` files
    are removed. An index that is shorter than its `.log` is harmless, and a broker that recovers the partition in
    between comes to the same result.
    """

    def __init__(
        self, directory: Path, backup: Backup, stage_in: str | Path, *, removes_last_first: bool = True
    ) -> None:
        self._directory, self._backup, self._stage_in = directory, backup, stage_in
        self._removes_last_first = removes_last_first
        self._put: list[str] = []
        self._removed: list[str] = []
        self._groups: list[list[Move]] = []
        self._stack = contextlib.ExitStack()
        self._staged: StagedDirectory | None = None

    def write(self, name: str, data: bytes) -> None:
        """Stage a file."""
        with self._stage().create(name) as file:
            file.write(data)
        self._put.append(name)

    def copy(self, source: Path, name: str, size: int | None = None) -> None:
        """Stage a copy of a file, or of its first bytes."""
        copy_file(source, self._stage(), name, size=size)
        self._put.append(name)

    def remove(self, name: str) -> None:
        """Plan a removal; a file that gets new content stays."""
        self._stage()
        if name not in self._put:
            self._removed.append(name)

    def commit(self) -> None:
        """Back up what is to change, then move the staged files in.

        Raises
        ------
        OutputExistsError, WriteError
            The partition is as it was before.
        """
        if self._staged is not None:
            self._groups += self._ordered()
            copy_ownership(self._staged.path, self._directory)
        self._stack.close()

    def abandon(self) -> None:
        """Discard what is staged."""
        error = RuntimeError("abandoned")
        with contextlib.suppress(RuntimeError):
            self._stack.__exit__(RuntimeError, error, None)

    def _stage(self) -> StagedDirectory:
        if self._staged is None:
            additions = staged_additions(
                self._directory, self._groups, stage_in=self._stage_in, prepare=self._keep_old_files
            )
            self._staged = self._stack.enter_context(additions)
        return self._staged

    def _keep_old_files(self) -> None:
        for name in [*self._removed, *self._put]:
            path = self._directory / name
            if path.exists():
                self._backup.keep(path, f"{self._directory.name}/{name}")
        self._backup.sync()

    def _ordered(self) -> list[list[Move]]:
        logs = sorted(
            (name for name in self._removed if name.endswith(kf.LOG_SUFFIX)), reverse=self._removes_last_first
        )
        swaps = [name for name in self._removed if name.endswith(kf.SWAP_SUFFIX)]
        others = [name for name in self._removed if name not in {*logs, *swaps}]
        indexes = [name for name in self._put if name.endswith(_INDEXES)]
        new_logs = [name for name in self._put if name.endswith(kf.LOG_SUFFIX)]
        rest = [name for name in self._put if name not in {*indexes, *new_logs}]
        return [
            *([Move(name, "take")] for name in logs),
            [Move(name, "take") for name in others],
            [Move(name, "put") for name in indexes],
            [Move(name, "put") for name in new_logs],
            [Move(name, "put") for name in rest],
            [Move(name, "take") for name in swaps],
        ]


def _ignore(n_bytes: int) -> None:
    pass
