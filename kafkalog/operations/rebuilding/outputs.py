"""Where rebuilt files go: nowhere, into a directory of their own, or in place of those that are there."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from kafkalog.errors import KafkalogError, Reason, UnsafePathError
from kafkalog.storage.atomic import remove_file, sync_directory
from kafkalog.storage.output_paths import copy_ownership
from kafkalog.storage.source import read_file
from kafkalog.storage.staging import StagedDirectory, remove_abandoned, staged_directory, staged_file

BACKUP_SUFFIX: Final = ".kafkalog-backup"
_MAX_OLD_BYTES: Final = 2**30


class Target(Protocol):
    """Takes files as they are made."""

    def put(self, path: Path, data: bytes) -> Path | None:
        """Take a file that is new or has changed; `path` is beside the `.log`. Returns where the old one is kept."""

    def keep(self, path: Path, data: bytes) -> None:
        """A file that is right as it is."""

    def remove(self, path: Path) -> Path | None:
        """Take note of a file that a broker removes. Returns where it is kept."""

    def settle(self) -> None:
        """What was put, kept and removed so far has to outlive a crash."""


class Nowhere:
    """A dry run of `InPlace`."""

    def put(self, path: Path, data: bytes) -> None:
        """Refuse what `InPlace.put` refuses."""
        _check_place(path)

    def keep(self, path: Path, data: bytes) -> None:
        """Nothing."""

    def remove(self, path: Path) -> None:
        """Nothing."""

    def settle(self) -> None:
        """Nothing."""


class Apart:
    """A directory of its own, with a directory a partition; it appears when all is done.

    Parameters
    ----------
    staged : StagedDirectory
    is_partition : bool
        It is that of a partition itself.
    """

    def __init__(self, staged: StagedDirectory, *, is_partition: bool = False) -> None:
        self._staged, self._is_partition = staged, is_partition

    def put(self, path: Path, data: bytes) -> None:
        """Write it."""
        name = path.name if self._is_partition else f"{path.absolute().parent.name}/{path.name}"
        with self._staged.create(name) as file:
            file.write(data)

    keep = put

    def remove(self, path: Path) -> None:
        """Nothing: it is not there."""

    def settle(self) -> None:
        """Nothing: it all appears at the end."""


class InPlace:
    """Each file is replaced in one step; a crash leaves the old one or the new one.

    A staged file lies beside its target under a hidden name that ends in no suffix of Kafka's: a broker ignores it, as
    it ignores backups.

    Parameters
    ----------
    backup : bool
        Keep each old file as ``NAME.kafkalog-backup`` beside it. A backup of an earlier run is never replaced: the next
        one is ``NAME.kafkalog-backup-2``.
    """

    def __init__(self, *, backup: bool) -> None:
        self._backup = backup
        self._directory: Path | None = None  # that of the files since `settle`

    def put(self, path: Path, data: bytes) -> Path | None:
        """Replace a file, and return the backup of the old one.

        Raises
        ------
        UnsafePathError
            It is a link out of the partition: what it leads to would be written; or it is no file.
        """
        _check_place(path)
        self._enter(path.parent)
        backup, is_new = self._keep_old(path)
        try:
            with staged_file(path, overwrite=True, is_lone=False) as file:
                file.write(data)
        except BaseException:
            if backup is not None and is_new:
                with contextlib.suppress(KafkalogError):
                    remove_file(backup)  # the file was not replaced
            raise
        copy_ownership(path, path.parent)
        return backup

    def keep(self, path: Path, data: bytes) -> None:
        """Nothing: it is there."""

    def remove(self, path: Path) -> Path | None:
        """Remove a file, and return its backup."""
        self._enter(path.parent)
        backup, _ = self._keep_old(path)
        remove_file(path)
        return backup

    def settle(self) -> None:
        """Make it durable.

        Raises
        ------
        WriteError
            That failed.
        """
        directory, self._directory = self._directory, None
        if directory is not None:
            sync_directory(directory)

    def _enter(self, directory: Path) -> None:
        if directory != self._directory:
            self.settle()
            remove_abandoned(directory)
            self._directory = directory

    def _keep_old(self, path: Path) -> tuple[Path | None, bool]:
        """The backup of a file, None for no file, and whether this made it."""
        if not self._backup or not path.exists():
            return None, False
        old = read_file(path, max_bytes=_MAX_OLD_BYTES)
        for number in itertools.count(1):
            backup = backup_of(path, number)
            if not os.path.lexists(backup):
                break
            if old_content(backup) == old:
                return backup, False  # an earlier run ended before it replaced the file
        with staged_file(backup, is_lone=False) as file:
            file.write(old)
        copy_ownership(backup, Path(backup).parent)
        return backup, True


def _check_place(path: Path) -> None:
    if path.is_symlink() and Path(os.path.realpath(path)).parent != Path(os.path.realpath(path.parent)):
        detail = "it is a link that leads out of the partition, where nothing is to be written: remove it first"
        raise UnsafePathError(Reason.LINK_OUTSIDE, detail, path=path)
    if path.exists() and not path.is_file():
        detail = "what is there is not a regular file: remove it first"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)


def backup_of(path: Path, number: int = 1) -> Path:
    """The name of a file's backup, or of a later one."""
    return path.with_name(path.name + BACKUP_SUFFIX + (f"-{number}" if number > 1 else ""))


def old_content(path: Path) -> bytes | None:
    """What is there; None for nothing, or nothing that can be read."""
    try:
        return read_file(path, max_bytes=_MAX_OLD_BYTES)
    except KafkalogError:
        return None


@contextlib.contextmanager
def target_for(out: str | os.PathLike[str] | None, *, in_place: bool, backup: bool, dry_run: bool) -> Iterator[Target]:
    """The target that the options ask for."""
    if dry_run:
        yield Nowhere()
    elif in_place:
        target = InPlace(backup=backup)
        try:
            yield target
        except BaseException:
            with contextlib.suppress(KafkalogError):
                target.settle()
            raise
        target.settle()
    elif out is not None:
        with staged_directory(out) as staged:
            yield Apart(staged)
    else:
        raise ValueError("say where to: out=, in_place=True or dry_run=True")
