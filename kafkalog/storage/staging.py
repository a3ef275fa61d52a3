"""Publishing: output is staged under a temporary name, made durable, and renamed into place last.

The one place that knows how. `staged_file` and `staged_directory` hand out something to write to; when the block ends
well, it is fsynced, renamed over the destination in one step, and the directory that holds it is fsynced. When anything
fails on the way (a write, an fsync, the rename, an exception in the block, Ctrl-C), the destination is as it was before
and nothing temporary is left.

What a crash leaves (SIGKILL, power cut), whatever the step: the destination as it was or complete, never a part of it;
and beside it at most one hidden entry, ``.NAME.XXXXXXXX.kafkalog-staged``. A process that is alive holds a lock on its
entry; one without an owner is removed by the next publication of the same name. On a file system that cannot exchange
two names (some network ones), replacing a directory is two renames: a crash between them leaves the destination absent
and its old content in ``.NAME.XXXXXXXX.kafkalog-old``, which nothing removes; and a failed fsync after the rename of a
file is reported with the new content in place.

Nothing here knows what is written. Who writes into a broker's log dir has to hold its lock, and to stage elsewhere: a
directory of a name that is no partition's stops a broker. What one process began is nothing to its forks: they can
neither write to it nor publish it, and what is left of it in them does no harm when it goes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.storage.atomic import (
    MAY_NOT_LAST,
    STAGED_SUFFIX,
    StrPath,
    fsync_directory,
    is_same,
    remove_tree,
    resolve,
    swap,
    try_lock,
    try_move,
    writing,
)

_STAGED_NAME: Final = re.compile(rf"\.(.+)\.[0-9a-f]{{8}}{re.escape(STAGED_SUFFIX)}", re.DOTALL)
_MAX_NAME_BYTES: Final = 200  # of the destination's name in the temporary one: names end at 255


class StagedFile(io.RawIOBase):
    """A file that is being staged: it takes bytes, counts them, and is durable when it is closed.

    Attributes
    ----------
    n_bytes : int
        Bytes written so far.

    Raises
    ------
    WriteError
        By `write` and `close`: the operating system did not take the bytes, or could not make them durable.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self._path = descriptor, path
        self.inode = os.fstat(descriptor).st_ino
        self._process = os.getpid()
        self.n_bytes = 0

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of a buffer; its size in bytes."""
        if self.closed:
            raise ValueError(f"{self._path} is closed")
        _check_process(self._process, self._path)
        view = memoryview(data).cast("B")
        size = view.nbytes
        with writing(self._path):
            while view.nbytes:
                n = os.write(self._descriptor, view)
                self.n_bytes += n
                view = view[n:]
        return size

    def tell(self) -> int:
        """Bytes written so far."""
        return self.n_bytes

    def set_modified(self, milliseconds: int) -> None:
        """When it is to seem to have been written, as long as nothing more is."""
        with writing(self._path):
            os.utime(self._descriptor, ns=(milliseconds * 10**6, milliseconds * 10**6))

    def close(self) -> None:
        """Make it durable."""
        if self.closed:
            return
        try:
            with writing(self._path):
                os.fsync(self._descriptor)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close it without asking that it be kept."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)

    def __del__(self) -> None:  # who forgets to close loses the file, not the descriptor
        self.discard()


class StagedDirectory:
    """A directory that is being staged.

    Attributes
    ----------
    path, target : pathlib.Path
        Where it is meanwhile, and where it will be.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.target = path, target
        self._process = os.getpid()
        self._files: dict[Path, StagedFile] = {}

    def create(self, name: str) -> StagedFile:
        """A new file in it, to be closed by the caller; directories on the way are made.

        Parameters
        ----------
        name : str
            Relative path, without ``..``.
        """
        relative = Path(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise ValueError(f"{name!r} does not lead into the directory")
        _check_process(self._process, self.target)
        path = self.path / relative
        with writing(self.target / relative):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, _CREATE, 0o666)
        self._files[relative] = file = StagedFile(descriptor, self.target / relative)
        return file

    def close(self) -> None:
        """Close what is still open, make the names in it durable, and see that all that was written is there.

        Raises
        ------
        WriteError
            A file could not be made durable; or somebody else removed or changed one meanwhile.
        """
        _check_process(self._process, self.target)
        for file in self._files.values():
            file.close()
        with writing(self.target):
            for root, _, _ in os.walk(self.path, topdown=False):
                fsync_directory(root)
        for relative, file in self._files.items():
            self._check_there(relative, file)

    def _check_there(self, relative: Path, file: StagedFile) -> None:
        with writing(self.target / relative):
            try:
                found = os.lstat(self.path / relative)
            except FileNotFoundError:
                raise OSError(errno.ENOENT, f"somebody removed it from {self.path} before it was in place") from None
            # another file of that name was put there whole, as indexes that are rebuilt where they are staged
            if found.st_ino == file.inode and found.st_size != file.n_bytes:
                detail = f"it has {found.st_size} bytes in {self.path}, of {file.n_bytes} that were written"
                raise OSError(errno.EIO, detail)

    def discard(self) -> None:
        """Close what is still open without asking that it be kept."""
        for file in self._files.values():
            file.discard()


@contextlib.contextmanager
def staged_file(
    target: StrPath, *, overwrite: bool = False, stage_in: StrPath | None = None, is_lone: bool = True
) -> Iterator[StagedFile]:
    """A file that appears under its name when the block ends well, and not before.

    Parameters
    ----------
    target : path-like
        A link is resolved: what it points to is replaced. A file that is replaced hands its permissions on.
    overwrite : bool
        Whether a file may be there already.
    stage_in : path-like, optional
        Directory on the same file system to write in meanwhile; default: that of the target.
    is_lone : bool
        False for one of many in a directory: it is complete at any time, and the caller does once for all of them what
        else goes with it, `remove_abandoned` before the first and `sync_directory` behind the last.

    Raises
    ------
    OutputExistsError
        Something is there.
    UnsafePathError
        What is there is no regular file.
    WriteError
        It could not be written, and the destination is as it was.

    Examples
    --------
    >>> with staged_file("records.csv") as file:  # doctest: +SKIP
    ...     file.write(b"offset,value\\n")
    """
    with Stage(target, overwrite=overwrite, stage_in=stage_in, is_directory=False, is_lone=is_lone) as stage:
        with writing(stage.target):
            file = StagedFile(os.dup(stage.descriptor), stage.target)
        try:
            yield file
            file.close()
        finally:
            file.discard()
        stage.publish()


@contextlib.contextmanager
def staged_directory(
    target: StrPath, *, overwrite: bool = False, stage_in: StrPath | None = None
) -> Iterator[StagedDirectory]:
    """A directory that appears under its name, with all that is in it, when the block ends well.

    Parameters and errors are those of `staged_file`; with `overwrite` a directory is replaced whole.
    """
    with Stage(target, overwrite=overwrite, stage_in=stage_in, is_directory=True) as stage:
        directory = StagedDirectory(stage.path, stage.target)
        try:
            yield directory
            directory.close()
        finally:
            directory.discard()
        stage.publish()


def remove_abandoned(directory: StrPath) -> None:
    """Remove what killed processes left of publications in a directory, whatever their names.

    Raises
    ------
    WriteError
        The directory cannot be read.
    """
    with writing(Path(directory)):
        _remove_abandoned(Path(directory))


_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stage:
    """A temporary name, the lock that tells that its owner lives, and the step into place."""

    def __init__(
        self,
        target: StrPath,
        *,
        overwrite: bool,
        stage_in: StrPath | None,
        is_directory: bool,
        is_lone: bool = True,
    ) -> None:
        self.target = resolve(target)
        self._given, self._overwrite, self._is_directory = os.fspath(target), overwrite, is_directory
        self._is_lone = is_lone
        self._directory = self.target.parent if stage_in is None else resolve(stage_in)
        self._is_published = self._is_final = False
        self._process = os.getpid()
        self.descriptor = -1
        self.path = self._directory

    def __enter__(self) -> Stage:
        name = os.fsdecode(os.fsencode(self.target.name)[:_MAX_NAME_BYTES])
        if self._is_lone:
            with writing(self._directory):
                _remove_abandoned(self._directory, name)  # also where the target is refused below
        old = self._check_target()
        with writing(self._directory):
            if os.stat(self._directory).st_dev != os.stat(self.target.parent).st_dev:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            while self.descriptor < 0:
                self._create(self._directory / f".{name}.{secrets.token_hex(4)}{STAGED_SUFFIX}")
        try:
            with writing(self.target):
                if old is not None:
                    os.fchmod(self.descriptor, stat.S_IMODE(old.st_mode))
        except BaseException:
            self._abort()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._is_published or self._process != os.getpid():  # what a fork has of it is not its own to remove
            os.close(self.descriptor)
        else:
            self._abort()

    def _check_target(self) -> os.stat_result | None:
        with writing(self.target):
            try:
                old = os.lstat(self.target)
            except FileNotFoundError:
                return None
        is_kind = stat.S_ISDIR if self._is_directory else stat.S_ISREG
        if not self._overwrite:
            raise OutputExistsError(Reason.OUTPUT_EXISTS, "it is there already", path=self._given)
        if not is_kind(old.st_mode):
            what = "a directory" if self._is_directory else "a regular file"
            raise UnsafePathError(Reason.UNSAFE_PATH, f"what is there is not {what}", path=self._given)
        return old

    def _create(self, path: Path) -> None:
        descriptor, is_made = -1, False
        try:
            if self._is_directory:
                os.mkdir(path)
                is_made = True
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            else:
                descriptor = os.open(path, _CREATE, 0o666)
                is_made = True
            if try_lock(descriptor) and is_same(descriptor, path):
                self.path, self.descriptor = path, descriptor
        except BaseException:
            if is_made:
                remove_tree(path)
            raise
        finally:
            if descriptor not in (-1, self.descriptor):  # also where another process took it for abandoned
                os.close(descriptor)

    def publish(self) -> None:
        """Into place; durable when this returns."""
        _check_process(self._process, self.target)
        old = self._check_target()
        with writing(self.target):
            self._move(replace=old is not None)
            try:
                if self._is_lone:
                    fsync_directory(self.target.parent)
                if self._directory != self.target.parent:
                    fsync_directory(self._directory)
            except OSError as error:
                if self._is_final:
                    raise OSError(error.errno, f"{error.strerror}; {MAY_NOT_LAST}") from error
                raise
        self.finish()

    def finish(self) -> None:
        """Nothing is taken back any more."""
        self._is_published = True
        remove_tree(self.path)  # what was there before, if anything

    def _move(self, *, replace: bool) -> None:
        if try_move(self.path, self.target, replace=replace):
            return
        if replace and self._is_directory:
            swap(self.path, self.target)
        else:
            if not replace and os.path.lexists(self.target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._is_final = replace
            os.rename(self.path, self.target)

    def _abort(self) -> None:
        """Everything as it was; what cannot be undone is left, for the error on its way says enough."""
        with contextlib.suppress(OSError):
            if not self._is_final and is_same(self.descriptor, self.target):
                if not os.path.lexists(self.path):
                    os.rename(self.target, self.path)
                else:
                    swap(self.path, self.target)
        with contextlib.suppress(OSError):
            if is_same(self.descriptor, self.path):
                remove_tree(self.path)
        os.close(self.descriptor)


def _check_process(process: int, path: Path) -> None:
    """Refuse a fork: two processes would write to one file, and one of them would publish what the other writes."""
    if process != os.getpid():
        raise WriteError(Reason.WRITE_FAILED, f"process {process} writes it, and this is a fork of that", path=path)


def _remove_abandoned(directory: Path, of: str | None = None) -> None:
    """Remove what killed processes left of their publications of a name, or of all."""
    for name in os.listdir(directory):
        staged = _STAGED_NAME.fullmatch(name) if name.endswith(STAGED_SUFFIX) else None
        if staged is None or (of is not None and staged[1] != of):
            continue
        path = directory / name
        if path.is_symlink():
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_same(descriptor, path):
                    remove_tree(path)
            finally:
                os.close(descriptor)
