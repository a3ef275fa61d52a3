"""Where rebuilt files go: nowhere, into a directory of their own, or in place of those that are there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from kafkalog.errors import KafkalogError, OutputExistsError, Reason, UnsafePathError
from kafkalog.file_steps import remove_file, sync_directory
from kafkalog.publish import StagedDirectory, remove_abandoned, staged_directory, staged_file
from kafkalog.source import read_file

BACKUP_SUFFIX: Final = ".kafkalog-backup"
_MAX_OLD_BYTES: Final = 2**30


class Target(Protocol):
    """Takes files as they are made."""

    def put(self, path: Path, data: bytes) -> None:
        """A file that is new or has changed, or (apart from in place) is the same; `path` is beside the `.log`."""

    def keep(self, path: Path, data: bytes) -> None:
        """A file that is right as it is."""

    def remove(self, path: Path) -> None:
        """A file that a broker removes."""

    def settle(self) -> None:
        """What was put, kept and removed so far has to outlive a crash."""


class Nowhere:
    """A dry run of `InPlace`."""

    def put(self, path: Path, data: bytes) -> None:
        """Only what `InPlace.put` refuses is refused."""
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

    A staged file lies beside its target under a hidden name that ends in no suffix of Kafka's: a broker passes it over.
    """

    def __init__(self, *, backup: bool) -> None:
        self._backup = backup
        self._directory: Path | None = None  # that of the files since `settle`

    def put(self, path: Path, data: bytes) -> None:
        """Replace it.

        Raises
        ------
        UnsafePathError
            It is a link out of the partition: what it leads to would be written; or it is no file.
        """
        _check_place(path)
        self._enter(path.parent)
        is_kept = self._keep_old(path)
        try:
            with staged_file(path, overwrite=True, is_lone=False) as file:
                file.write(data)
        except BaseException:
            if is_kept:
                with contextlib.suppress(KafkalogError):
                    remove_file(backup_of(path))  # of what is still there
            raise
        self._hand_over(path)

    def keep(self, path: Path, data: bytes) -> None:
        """Nothing: it is there."""

    def remove(self, path: Path) -> None:
        """Remove it."""
        self._enter(path.parent)
        self._keep_old(path)
        remove_file(path)

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

    def _keep_old(self, path: Path) -> bool:
        if not self._backup or not path.exists():
            return False
        with staged_file(backup_of(path), is_lone=False) as file:
            file.write(read_file(path, max_bytes=_MAX_OLD_BYTES))
        self._hand_over(backup_of(path))
        return True

    def _hand_over(self, path: Path) -> None:
        """To whom the partition belongs: root may rebuild what a broker of another user has to open."""
        if os.geteuid() == 0:
            owner = path.parent.stat()
            with contextlib.suppress(OSError):
                os.chown(path, owner.st_uid, owner.st_gid)


def _check_place(path: Path) -> None:
    if path.is_symlink() and Path(os.path.realpath(path)).parent != Path(os.path.realpath(path.parent)):
        detail = "it is a link that leads out of the partition, where nothing is to be written: remove it first"
        raise UnsafePathError(Reason.LINK_OUTSIDE, detail, path=path)
    if path.exists() and not path.is_file():
        detail = "what is there is not a regular file: remove it first"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)


def backup_of(path: Path) -> Path:
    """Where the old file is kept."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def check_no_backups(directories: list[Path]) -> None:
    """Refuse to begin where backups of an earlier run are: they may be the only good copies."""
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(directory)):
                if name.endswith(BACKUP_SUFFIX):
                    detail = "a backup of an earlier run is there, of what that replaced; move it away first"
                    raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=str(directory / name))


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
