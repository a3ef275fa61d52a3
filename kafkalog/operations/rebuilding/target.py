"""Targets of rebuilt files: a dry run, a directory of their own, or the existing files. Does not make the content."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from kafkalog.errors import KafkalogError, Reason, UnsafePathError
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.storage.atomic import remove_file, sync_directory
from kafkalog.storage.files import read_if_there
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import kind_of
from kafkalog.storage.own_names import BACKUP_SUFFIX
from kafkalog.storage.staging import StagedDirectory, remove_abandoned, staged_directory, staged_file

_MAX_OLD_BYTES: Final = 2**30


ONE_PLACE: Final = "exactly one of output=, in_place=True and dry_run=True is required"


class RebuildTarget:
    """Receives rebuilt files; every `path` lies next to the `.log`. Without another word it does nothing."""

    def look(self, found: RecoveredSegment) -> None:
        """Look at what was read of a segment, before the batches for its producers are dropped."""

    def put(self, path: Path, data: bytes) -> Path | None:
        """Write a file that is new or has changed. Returns the path of the old file's backup."""
        return None

    def keep(self, path: Path, data: bytes) -> None:
        """Handle a file whose content is already right."""

    def remove(self, path: Path) -> Path | None:
        """Handle a file that a broker would delete. Returns the path of its backup."""
        return None

    def sync(self) -> None:
        """Make the changes so far durable."""


class DryRun(RebuildTarget):
    """The target of a dry run: checks what `InPlace` checks and writes nothing."""

    def put(self, path: Path, data: bytes) -> None:
        """Raise where `InPlace.put` refuses a path."""
        _check_path(path)


class OutputDirectory(RebuildTarget):
    """Writes to a staged output directory, with one subdirectory per partition."""

    def __init__(self, staged: StagedDirectory) -> None:
        self._staged = staged

    def put(self, path: Path, data: bytes) -> None:
        """Write the file."""
        with self._staged.create(f"{path.absolute().parent.name}/{path.name}") as file:
            file.write(data)

    keep = put


class InPlace(RebuildTarget):
    """Replaces each file in one step; a crash leaves the old one or the new one.

    A staged file lies next to its target under a hidden name with none of Kafka's suffixes. A broker ignores it, as it
    ignores backups. With `backup`, each old file stays as ``NAME.kafkalog-backup``. A backup of an earlier run is never
    replaced; the next one is ``NAME.kafkalog-backup-2``.
    """

    def __init__(self, *, backup: bool) -> None:
        self._backup = backup
        self._directory: Path | None = None  # directory of the files written since `sync`

    def put(self, path: Path, data: bytes) -> Path | None:
        """Replace a file and return the backup; UnsafePathError for a link out of the partition, or no file."""
        _check_path(path)
        self._enter(path.parent)
        # the backup first: a crash in between leaves both
        backup, is_new = self._keep_old(path)
        try:
            with staged_file(path, overwrite=True, is_lone=False, like=path.parent) as file:
                file.write(data)
        except BaseException:
            if backup is not None and is_new:
                with contextlib.suppress(KafkalogError):
                    remove_file(backup)  # the old file is still in place: its backup is not needed
            raise
        return backup

    def remove(self, path: Path) -> Path | None:
        """Remove a file, and return its backup."""
        self._enter(path.parent)
        backup, _ = self._keep_old(path)
        remove_file(path)
        return backup

    def sync(self) -> None:
        """Sync the directory, so that the renames in it are durable."""
        directory, self._directory = self._directory, None
        if directory is not None:
            sync_directory(directory)

    def _enter(self, directory: Path) -> None:
        if directory != self._directory:
            self.sync()
            remove_abandoned(directory)
            self._directory = directory

    def _keep_old(self, path: Path) -> tuple[Path | None, bool]:
        """The path of a file's backup (None if there is no file), and whether this call made it."""
        old = read_if_there(path, max_bytes=_MAX_OLD_BYTES) if self._backup else None
        if old is None:
            return None, False
        names = Listing(path.parent).names
        for number in itertools.count(1):
            backup = backup_of(path, number)
            if backup.name not in names:
                break
            if compared(backup, old) == "same":
                return backup, False  # an earlier run ended before it replaced the file
        with staged_file(backup, is_lone=False, like=path) as file:
            file.write(old)
        sync_directory(path.parent)
        return backup, True


def _check_path(path: Path) -> None:
    if path.is_symlink() and Path(os.path.realpath(path)).parent != Path(os.path.realpath(path.parent)):
        detail = "a link that leads out of the partition, where kafkalog does not write: remove it first"
        raise UnsafePathError(Reason.LINK_OUTSIDE, detail, path=path)
    if kind_of(path) not in (None, "file"):
        detail = "the path exists but is not a regular file: remove it first"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)


def backup_of(path: Path, number: int = 1) -> Path:
    """The path of a file's backup; a `number` above 1 gives that of a later backup."""
    return path.with_name(path.name + BACKUP_SUFFIX + (f"-{number}" if number > 1 else ""))


def compared(path: Path, data: bytes) -> Literal["same", "changed", "new"]:
    """Whether this content is new, changed or the same for a file; a file that cannot be read counts as changed."""
    try:
        old = read_if_there(path, max_bytes=_MAX_OLD_BYTES)
    except KafkalogError:
        return "changed"
    return "new" if old is None else "same" if old == data else "changed"


@contextlib.contextmanager
def target_for(
    output: str | os.PathLike[str] | None, *, in_place: bool, backup: bool, dry_run: bool
) -> Iterator[RebuildTarget]:
    """Yield the target for the given options; sync or publish it at the end."""
    if dry_run:
        yield DryRun()
    elif in_place:
        target = InPlace(backup=backup)
        try:
            yield target
        except BaseException:
            with contextlib.suppress(KafkalogError):
                target.sync()
            raise
        target.sync()
    elif output is not None:
        with staged_directory(output) as staged:
            yield OutputDirectory(staged)
    else:
        raise ValueError(ONE_PLACE)
