"""Publishing: stage output under a temporary name, make it durable, and rename it into place last.

`staged_file` and `staged_directory` give the caller a file or directory to write to. When the block ends without an
exception, the output is fsynced and renamed over the destination in one step, and the directory that contains it is
fsynced. If anything fails (a write, an fsync, the rename, an exception in the block, Ctrl-C), the destination stays
unchanged and nothing temporary is left.

After a crash (SIGKILL, power cut) at any step, the destination is unchanged or complete, never partial. Beside it
there is at most one hidden entry, ``.NAME.XXXXXXXX.kafkalog-staged``. A live process holds a lock on its entry; the
next publication of the same name removes entries without an owner.

Some file systems (such as some network ones) cannot exchange two names. There, replacing a directory takes several
renames: a crash between them leaves the destination absent and its old content in ``.NAME.XXXXXXXX.kafkalog-old``,
which nothing removes. And if the fsync after the rename of a file fails, the error is raised with the new content in
place.

Nothing here knows what is written. Callers that write into a broker's log dir have to hold its lock and to stage
elsewhere: a directory whose name is not a partition's stops a broker. Forks of a process cannot write to or publish
what the process has staged, and do not remove it when they exit.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.storage.atomic import (
    MAY_NOT_LAST,
    StrPath,
    check_free,
    fsync_directory,
    is_same,
    make_parents,
    remove_tree,
    resolve,
    swap,
    take_owner,
    try_move,
    writing,
)
from kafkalog.storage.file_locks import lock, try_lock
from kafkalog.storage.own_names import MAX_NAME_BYTES, STAGED_FORM, STAGED_NAME, STAGED_SUFFIX

_FICLONE: Final = 0x40049409
_MAX_UNSYNCED: Final = 32  # closed files that wait for their fsync; each has a descriptor until then
_SYNC_THREADS: Final = 8  # a journal makes files durable with one commit if that is requested for them together


class OutputFile(Protocol):
    """What writers need of a `StagedFile`."""

    @property
    def n_bytes(self) -> int: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> Any: ...
    def write(self, data: Any, /) -> int: ...
    def set_modified(self, milliseconds: int) -> None: ...
    def close(self) -> None: ...


class OutputFiles(Protocol):
    """What writers need of a `StagedDirectory`."""

    def create(self, name: str) -> OutputFile:
        """Create a file, to be closed by the caller."""


class StagedFile(io.RawIOBase):
    """A file that is being staged: accepts bytes, counts them in `n_bytes`, and is durable once it is closed.

    One in a `StagedDirectory` is durable once the directory is closed: many files together take far less time. `write`,
    `close` and `sync` raise WriteError if the bytes cannot be written, or not be made durable.
    """

    _descriptor = -1  # an interrupt may come before there is one

    def __init__(self, descriptor: int, path: Path, sync_later: Callable[[StagedFile], object] | None = None) -> None:
        self._descriptor, self._path, self._sync_later = descriptor, path, sync_later
        self.inode = os.fstat(descriptor).st_ino
        self._process = os.getpid()
        self.n_bytes = 0

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of a buffer; returns its size in bytes."""
        if self.closed:
            raise ValueError(f"{self._path} is closed")
        _check_process(self._process, self._path)
        view = memoryview(data).cast("B")
        size = view.nbytes
        with writing(self._path):
            # a write may take fewer bytes than given: a disk that fills up, or more than 2 GiB
            while view.nbytes:
                n = os.write(self._descriptor, view)
                self.n_bytes += n
                view = view[n:]
        return size

    def clone(self, path: Path, size: int) -> bool:
        """Share the first bytes of another file, copy on write; returns False where the file system cannot.

        Only for a file to which nothing was written.
        """
        import fcntl  # not on every system, and `atomic` says so first

        _check_process(self._process, self._path)
        with writing(self._path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(self._descriptor, _FICLONE, descriptor)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        with writing(self._path):
            os.ftruncate(self._descriptor, size)
            self.n_bytes = os.lseek(self._descriptor, 0, os.SEEK_END)
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self.n_bytes

    def set_modified(self, milliseconds: int) -> None:
        """Set the modification time, in milliseconds since 1970; a later write changes it again."""
        with writing(self._path):
            os.utime(self._descriptor, ns=(milliseconds * 10**6, milliseconds * 10**6))

    def close(self) -> None:
        """Close the file, and fsync it, or leave that to its directory."""
        if self.closed:
            return
        if self._sync_later is None:
            self.sync()
            return
        super().close()
        self._sync_later(self)

    def sync(self) -> None:
        """Fsync and close the file, unless that was done."""
        if self._descriptor < 0:
            return
        try:
            with writing(self._path):
                os.fsync(self._descriptor)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file without an fsync."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            super().close()
            os.close(descriptor)

    def __del__(self) -> None:  # a file that was never closed is not durable, but must not leak its descriptor
        if self._descriptor >= 0:
            self.discard()


class StagedDirectory:
    """A directory that is being staged at `path`, to appear at `target`. Threads may share it.

    With `is_added`, its files are moved into `target` one by one: each has the owner and mode of the one that it
    replaces, or else those of `target`.
    """

    def __init__(self, path: Path, target: Path, *, is_added: bool = False) -> None:
        self.path, self.target, self._is_added = path, target, is_added
        self._process = os.getpid()
        self._files: dict[Path, StagedFile] = {}
        self._unsynced: list[StagedFile] = []

    def create(self, name: str, like: Path | None = None) -> StagedFile:
        """Create a file by a relative path, to be closed by the caller; parent directories are created.

        It gets the owner and the mode of `like`, see `take_owner`.
        """
        relative = Path(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise ValueError(f"{name!r} does not lead into the directory")
        _check_process(self._process, self.target)
        path = self.path / relative
        with writing(self.target / relative):
            # below the staging directory only: if it was removed, as that of an aborted job, it must not come back
            for folder in reversed(relative.parents[:-1]):
                (self.path / folder).mkdir(exist_ok=True)
            descriptor = os.open(path, _CREATE, 0o666)
            if like is not None or self._is_added:
                take_owner(descriptor, like or self.target / relative)
        self._files[relative] = file = StagedFile(descriptor, self.target / relative, self._sync_later)
        return file

    def put(self, name: str, content: str | bytes) -> None:
        """Create a file with this content; see `create`."""
        with self.create(name) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def _sync_later(self, file: StagedFile) -> None:
        self._unsynced.append(file)
        if len(self._unsynced) >= _MAX_UNSYNCED:
            files, self._unsynced = self._unsynced, []
            _each(StagedFile.sync, files)

    def remove(self, name: str) -> None:
        """Remove a file that was created here, or a directory with all its files; nothing if there is none."""
        relative = Path(name)
        for path in [path for path in [*self._files] if path == relative or relative in path.parents]:
            self._files.pop(path).discard()
        remove_tree(self.path / relative)

    def lift(self, name: str) -> None:
        """Move all files of a subdirectory into this directory, and remove the subdirectory."""
        with writing(self.target):
            for file in os.listdir(self.path / name):
                os.rename(self.path / name / file, self.path / file)
            os.rmdir(self.path / name)

    def close(self) -> None:
        """Close the open files, fsync the directories, and check that every file still exists with its full size."""
        _check_process(self._process, self.target)
        _each(StagedFile.sync, [*self._files.values()])
        with writing(self.target):
            # fsync of a file does not make its name durable: that is in the directory
            _each(fsync_directory, [root for root, _, _ in os.walk(self.path)])
        for relative, file in self._files.items():
            if (problem := self._problem(relative, file)) is not None:
                with writing(self.target / relative):
                    raise problem

    def _problem(self, relative: Path, file: StagedFile) -> OSError | None:
        """Why a file is not there as it was written; None if it is."""
        try:
            found = os.lstat(self.path / relative)
        except FileNotFoundError:
            return OSError(errno.ENOENT, f"another process removed it from {self.path}")
        except OSError as error:
            return error
        # A different inode is accepted: the caller replaced the file, as indexes rebuilt in the staged directory
        if found.st_ino == file.inode and found.st_size != file.n_bytes:
            return OSError(errno.EIO, f"it has {found.st_size} of {file.n_bytes} written bytes in {self.path}")
        return None

    def discard(self) -> None:
        """Close the open files without an fsync."""
        for file in self._files.values():
            file.discard()


@contextlib.contextmanager
def staged_file(
    target: StrPath,
    *,
    overwrite: bool | None = None,
    stage_in: StrPath | None = None,
    is_lone: bool = True,
    like: Path | None = None,
    parents: bool = False,
) -> Iterator[StagedFile]:
    """A file that appears under its name when the block ends without an exception, and not before.

    A symbolic link is resolved: the file that it points to is replaced. The new file gets the owner and the mode of the
    one that it replaces; if there is none, those of `like`, see `take_owner`. `stage_in` is a directory on the same
    file system for the temporary file; default: that of the target. `is_lone` is False for one of many files in a
    directory. Each is still complete whenever it is visible; the caller calls `remove_abandoned` before the first and
    `sync_directory` after the last, once for all of them.

    With `parents`, missing directories above it are made. `overwrite` replaces what is there; a writer whose users can
    choose passes False if they did not, and the error advises it.

    Raises OutputExistsError if the path exists without `overwrite`, UnsafePathError if it is not a regular file, and
    WriteError if the file could not be written; the destination is unchanged then.
    """
    given: dict[str, Any] = {"overwrite": overwrite, "stage_in": stage_in, "is_lone": is_lone, "like": like}
    with Stage(target, is_directory=False, parents=parents, **given) as stage:
        with writing(stage.target):
            # an flock belongs to the open file, which both descriptors share: closing the copy does not give it back
            file = StagedFile(os.dup(stage.descriptor), stage.target)
        try:
            yield file
            file.close()
        finally:
            file.discard()
        stage.publish()


@contextlib.contextmanager
def staged_directory(
    target: StrPath, *, overwrite: bool | None = None, stage_in: StrPath | None = None
) -> Iterator[StagedDirectory]:
    """A directory that appears under its name, with all its content, when the block ends without an exception.

    Parameters and errors are those of `staged_file`; with `overwrite` an existing directory is replaced as a whole. An
    empty directory is replaced in any case, and missing directories above it are made.
    """
    with Stage(target, overwrite=overwrite, stage_in=stage_in, is_directory=True, parents=True) as stage:
        directory = StagedDirectory(stage.path, stage.target)
        try:
            yield directory
            directory.close()
        finally:
            directory.discard()
        stage.publish()


@contextlib.contextmanager
def scratch_directory(directory: Path, name: str) -> Iterator[Path]:
    """A hidden directory for temporary files in another one, which is removed when the block ends.

    This process holds a lock on it. The next one of the same name removes a directory without a lock, which a killed
    process left.
    """
    target = directory / f"{name}.scratch"  # which is never made
    with Stage(target, overwrite=None, stage_in=None, is_directory=True) as stage:
        yield stage.path


def remove_abandoned(directory: StrPath, of: str | None = None) -> None:
    """Remove the staged entries in a directory that belong to no live process: those of one name, or all."""
    with writing(Path(directory)):
        _remove_abandoned(Path(directory), of)


_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stage:
    """A temporary name, the lock that shows that its owner is alive, and the step into place."""

    def __init__(
        self,
        target: StrPath,
        *,
        overwrite: bool | None,
        stage_in: StrPath | None,
        is_directory: bool,
        is_lone: bool = True,
        like: Path | None = None,
        parents: bool = False,
    ) -> None:
        self.target = resolve(target)
        self._makes_parents = parents
        self._like = like
        self._given, self._overwrite, self._is_directory = os.fspath(target), overwrite, is_directory
        self._is_lone = is_lone
        self._directory = self.target.parent if stage_in is None else resolve(stage_in)
        self._is_published = self._is_final = False
        self._made: list[Path] = []
        self._process = os.getpid()
        self.descriptor = -1
        self.path = self._directory

    def __enter__(self) -> Stage:
        name = os.fsdecode(os.fsencode(self.target.name)[:MAX_NAME_BYTES])
        if self._makes_parents:
            self._made = make_parents(self.target)
        if self._is_lone:
            with writing(self._directory):
                # only who publishes this name again looks for what a killed process has left under it
                _remove_abandoned(self._directory, name)  # before the checks below, which may raise
        old = self._check_target()
        try:
            with writing(self._directory):
                if os.stat(self._directory).st_dev != os.stat(self.target.parent).st_dev:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                # between making the entry and locking it, another process may take it for abandoned and remove it
                while self.descriptor < 0:
                    self._create(self._directory / STAGED_FORM.format(name, secrets.token_hex(4)))
            with writing(self.target):
                # not those of this process: others, such as a broker, may have to read it
                if old is not None or self._like is not None:
                    take_owner(self.descriptor, self.target if self._like is None or old is not None else self._like)
            return self  # within: an interrupt may come here, too
        except BaseException:
            if self.descriptor >= 0:
                self._abort()
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._is_published or self._process != os.getpid():  # a fork must not remove its parent's files
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
            is_replaceable = self._overwrite is not None and is_kind(old.st_mode)
            if not self._is_directory:
                raise OutputExistsError.at(self._given, is_replaceable=is_replaceable)
            check_free(self._given, is_replaceable=is_replaceable)
        if not is_kind(old.st_mode):
            what = "a directory" if self._is_directory else "a regular file"
            raise UnsafePathError(Reason.UNSAFE_PATH, f"the path exists but is not {what}", path=self._given)
        return old

    def _create(self, path: Path) -> None:
        descriptor = -1
        try:
            if self._is_directory:
                os.mkdir(path)
                with contextlib.suppress(FileNotFoundError):  # another process removed it already
                    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            else:
                descriptor = os.open(path, _CREATE, 0o666)
            if descriptor != -1 and try_lock(descriptor) and is_same(descriptor, path):
                self.path, self.descriptor = path, descriptor
        except FileExistsError:
            raise  # somebody else's
        except BaseException:
            # an interrupt may come as soon as the entry is made: whether it was is not asked, as its name is random
            remove_tree(path)
            raise
        finally:
            if descriptor not in (-1, self.descriptor):  # an error, or another process removed it before the lock
                os.close(descriptor)

    def publish(self) -> None:
        """Move the output into place; it is durable when this returns (unless `is_lone` is False)."""
        _check_process(self._process, self.target)
        # again: the target may have appeared, or changed its kind, while the output was written
        old = self._check_target()
        with writing(self.target):
            self._move(replace=old is not None)
            try:
                if self._is_lone:
                    fsync_directory(self.target.parent)
                # the rename took a name out of the other directory, too
                if self._directory != self.target.parent:
                    fsync_directory(self._directory)
            except OSError as error:
                if self._is_final:
                    raise OSError(error.errno, f"{error.strerror}; {MAY_NOT_LAST}") from error
                raise
        self.finish()

    def finish(self) -> None:
        """Point of no return: nothing is rolled back after this."""
        self._is_published = True
        remove_tree(self.path)  # after an exchange, this is the old content of the destination

    def move_aside(self) -> None:
        """Give the staged output another temporary name.

        Other processes that write into a directory by its path fail from now on. So they cannot come between while it
        is removed, or while its content is moved.
        """
        name = os.fsdecode(os.fsencode(self.target.name)[:MAX_NAME_BYTES])
        aside = self.path.with_name(STAGED_FORM.format(name, secrets.token_hex(4)))
        os.rename(self.path, aside)
        self.path = aside

    def _move(self, *, replace: bool) -> None:
        if try_move(self.path, self.target, replace=replace):
            return
        if replace and self._is_directory:
            swap(self.path, self.target)
        else:
            if not replace and os.path.lexists(self.target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._is_final = replace  # the old file is gone with this rename: it cannot be undone
            os.rename(self.path, self.target)

    def _abort(self) -> None:
        """Undo the move and remove the staged output; errors are ignored, since another one is being raised."""
        with contextlib.suppress(OSError):
            # the error may have come before or after the move: the open file shows which name it has now
            if not self._is_final and is_same(self.descriptor, self.target):
                if not os.path.lexists(self.path):
                    os.rename(self.target, self.path)
                else:
                    swap(self.path, self.target)
        with contextlib.suppress(OSError):
            if is_same(self.descriptor, self.path):
                with contextlib.suppress(OSError):
                    self.move_aside()
                remove_tree(self.path)
        os.close(self.descriptor)
        for directory in reversed(self._made):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _each(sync: Callable[[Any], None], what: list[Any]) -> None:
    """Make things durable, several at a time."""
    with ThreadPoolExecutor(_SYNC_THREADS, "kafkalog-sync") as pool:
        for _ in pool.map(sync, what):
            pass


def _check_process(process: int, path: Path) -> None:
    """Raise in a fork: otherwise two processes would write to one file, and one could publish the other's data."""
    if process != os.getpid():
        raise WriteError(Reason.WRITE_FAILED, f"process {process} writes it; a fork cannot", path=path)


def _remove_abandoned(directory: Path, of: str | None = None) -> None:
    """Remove staged entries without a live owner: those of one destination name, or all."""
    for name in os.listdir(directory):
        staged = STAGED_NAME.fullmatch(name) if name.endswith(STAGED_SUFFIX) else None
        if staged is None or (of is not None and staged[1] != of):
            continue
        path = directory / name
        # a link to somewhere else is nobody's staged output
        if path.is_symlink():
            continue
        with contextlib.suppress(OSError):
            # O_NONBLOCK: somebody may have put a FIFO there, on which `open` would wait for a writer
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                # raises if the owner is alive; the name may have been given to another file before the lock
                lock(descriptor)
                if is_same(descriptor, path):
                    remove_tree(path)
            finally:
                os.close(descriptor)
