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
import ctypes
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError

StrPath = str | os.PathLike[str]

STAGED_SUFFIX: Final = ".kafkalog-staged"
OLD_SUFFIX: Final = ".kafkalog-old"

_LOG_DIR_FILES: Final = (
    kf.META_PROPERTIES,
    kf.RECOVERY_POINT_CHECKPOINT,
    kf.HIGH_WATERMARK_CHECKPOINT,
    kf.LOG_START_OFFSET_CHECKPOINT,
    kf.CLEAN_SHUTDOWN_FILE,
)
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_CANNOT: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})
_MAY_NOT_LAST: Final = "it is in place, but may not outlive a crash"
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
        with _writing(self._path):
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
        with _writing(self._path):
            os.utime(self._descriptor, ns=(milliseconds * 10**6, milliseconds * 10**6))

    def close(self) -> None:
        """Make it durable."""
        if self.closed:
            return
        try:
            with _writing(self._path):
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
        with _writing(self.target / relative):
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
        with _writing(self.target):
            for root, _, _ in os.walk(self.path, topdown=False):
                _sync_directory(root)
        for relative, file in self._files.items():
            self._check_there(relative, file)

    def _check_there(self, relative: Path, file: StagedFile) -> None:
        with _writing(self.target / relative):
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
    with _Stage(target, overwrite=overwrite, stage_in=stage_in, is_directory=False, is_lone=is_lone) as stage:
        with _writing(stage.target):
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
    with _Stage(target, overwrite=overwrite, stage_in=stage_in, is_directory=True) as stage:
        directory = StagedDirectory(stage.path, stage.target)
        try:
            yield directory
            directory.close()
        finally:
            directory.discard()
        stage.publish()


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
    A crash leaves the directory as it was after one of the moves, each file complete.
    """
    with _Stage(target, overwrite=True, stage_in=stage_in, is_directory=True) as stage:
        directory = StagedDirectory(stage.path, stage.target)
        try:
            yield directory
            directory.close()
        finally:
            directory.discard()
        prepare()
        _move_all(stage, groups)
        stage.finish()


def _move_all(stage: _Stage, groups: list[list[Move]]) -> None:
    undo: list[Callable[[], object]] = []
    try:
        for group in groups:
            for name, what in group:
                new, there = stage.path / name, stage.target / name
                aside = stage.path / f"{name}{OLD_SUFFIX}"
                with _writing(there):
                    if what == "take":
                        if os.path.lexists(there):
                            undo.append(partial(_rename_back, aside, there))
                            os.rename(there, aside)
                    elif what == "put" and os.path.lexists(there):
                        undo.append(partial(_swap_back, new, there, os.lstat(there)))
                        _swap(new, there)
                    else:
                        undo.append(partial(_rename_back, there, new))
                        _rename_new(new, there)
            with _writing(stage.target):
                _sync_directory(stage.target)
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(OSError):
                step()
        raise


def _rename_back(path: Path, old: Path) -> None:
    """Undo a rename, if it was made."""
    if not os.path.lexists(old):
        os.rename(path, old)


def _swap_back(new: Path, there: Path, old: os.stat_result) -> None:
    """Undo an exchange, if it was made."""
    if not os.path.samestat(os.lstat(there), old):
        _swap(new, there)


def _rename_new(path: Path, target: Path) -> None:
    """Rename to a name that nothing has."""
    try:
        _renameat2(path, target, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(path, target)


def truncate_file(path: StrPath, size: int) -> None:
    """Cut a file in place, durably.

    Raises
    ------
    WriteError
        It cannot be cut, or not be made durable.
    """
    target = Path(path)
    with _writing(target):
        descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_file(path: StrPath) -> None:
    """Remove a file, if it is there; `sync_directory` makes that durable.

    Raises
    ------
    WriteError
        It cannot be removed.
    """
    target = Path(path)
    with _writing(target):
        target.unlink(missing_ok=True)


def remove_abandoned(directory: StrPath) -> None:
    """Remove what killed processes left of publications in a directory, whatever their names.

    Raises
    ------
    WriteError
        The directory cannot be read.
    """
    with _writing(Path(directory)):
        _remove_abandoned(Path(directory))


def sync_directory(directory: StrPath) -> None:
    """Make durable what files have which names.

    Raises
    ------
    WriteError
        That failed: all is in place, but may not outlive a crash.
    """
    with _writing(Path(directory)):
        try:
            _sync_directory(directory)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}; {_MAY_NOT_LAST}") from error


def staging_directory(target: StrPath) -> Path:
    """Where to stage what goes into a log dir: beside the log dir, where no broker takes it for a partition.

    Raises
    ------
    UnsafePathError
        There is no such place on the same file system, or nothing may be written there; `stage_in` has to be given.
    WriteError
        The log dir is not there.
    """
    log_dir = _resolve(target).parent
    if any(part.endswith(STAGED_SUFFIX) for part in log_dir.parts):
        return log_dir  # all of it is being staged
    outside = log_dir.parent
    with _writing(log_dir):
        is_near = os.stat(outside).st_dev == os.stat(log_dir).st_dev
    if is_near and os.access(outside, os.W_OK | os.X_OK) and not _kafka_directory(outside):
        return outside
    if _kafka_directory(log_dir):
        detail = (
            f"{outside} is on another file system, or may not be written to: name a directory outside of the log dir"
            " and on its file system to write in meanwhile (stage_in)"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))
    return log_dir


def check_outside(target: StrPath, sources: Iterable[StrPath]) -> None:
    """Refuse a place for output that would do harm.

    Parameters
    ----------
    target : path-like
    sources : iterable of path-like
        Files and directories that are read.

    Raises
    ------
    UnsafePathError
        The target is a source, lies in one or holds one; or it lies in a log dir or a partition directory, read or not,
        where a broker would trip over it.
    """
    resolved = _resolve(target)
    for source in map(_resolve, sources):
        if resolved == source or resolved in source.parents or (source in resolved.parents and source.is_dir()):
            raise UnsafePathError(
                Reason.UNSAFE_PATH, f"{source} is being read, and sources are never modified", path=os.fspath(target)
            )
    for directory in (resolved, *resolved.parents):
        if what := _kafka_directory(directory):
            detail = f"{directory} is a {what}: a broker may not start, or lose data, with foreign files in it"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(target))


def check_stage_in(stage_in: StrPath) -> None:
    """Refuse a place to write in meanwhile where a broker would trip over it: a partition, or what lies in a log dir.

    A directory of partitions is a log dir, be it formatted or not; one that is further up is none if it holds other
    directories as well, such as ``/tmp``, since no broker starts on that.

    Raises
    ------
    UnsafePathError
        It is one, or lies in one.
    """
    check_outside(stage_in, [])
    resolved = _resolve(stage_in)
    if any(part.endswith(STAGED_SUFFIX) for part in resolved.parts):
        return  # partitions that are being staged are in no log dir yet
    below = None
    for directory in (resolved, *resolved.parents):
        partition, others = _directories_in(directory)
        if partition and (below is None or not others - {below}):
            detail = (
                f"{directory} is a log dir, with partitions such as {partition}: a broker does not start with foreign"
                " directories in it; stage in another one on the same file system (stage_in)"
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=os.fspath(stage_in))
        below = directory.name


def check_log_dir(log_dir: StrPath) -> None:
    """Refuse a place for partitions that a broker would trip over: in a partition, or below a log dir.

    Raises
    ------
    UnsafePathError
        It is one.
    """
    resolved = _resolve(log_dir)
    for directory in (resolved, *resolved.parents):
        what = _kafka_directory(directory)
        if what == "partition directory" or (what and directory != resolved):
            raise UnsafePathError(Reason.UNSAFE_PATH, f"{directory} is a {what}", path=os.fspath(log_dir))


def hand_over(path: StrPath, like: StrPath) -> None:
    """Give files to whom others belong: root may write what a broker of another user has to open."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        owner = os.stat(like)
        os.chown(path, owner.st_uid, owner.st_gid)
        for root, directories, names in os.walk(path):
            for name in (*directories, *names):
                os.chown(os.path.join(root, name), owner.st_uid, owner.st_gid)


_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Stage:
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
        self.target = _resolve(target)
        self._given, self._overwrite, self._is_directory = os.fspath(target), overwrite, is_directory
        self._is_lone = is_lone
        self._directory = self.target.parent if stage_in is None else _resolve(stage_in)
        self._is_published = self._is_final = False
        self._process = os.getpid()
        self.descriptor = -1
        self.path = self._directory

    def __enter__(self) -> _Stage:
        old = self._check_target()
        with _writing(self._directory):
            if os.stat(self._directory).st_dev != os.stat(self.target.parent).st_dev:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            name = os.fsdecode(os.fsencode(self.target.name)[:_MAX_NAME_BYTES])
            if self._is_lone:
                _remove_abandoned(self._directory, name)
            while self.descriptor < 0:
                self._create(self._directory / f".{name}.{secrets.token_hex(4)}{STAGED_SUFFIX}")
        try:
            with _writing(self.target):
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
        with _writing(self.target):
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
            if _lock(descriptor) and _is_same(descriptor, path):
                self.path, self.descriptor = path, descriptor
        except BaseException:
            if is_made:
                _remove(path)
            raise
        finally:
            if descriptor not in (-1, self.descriptor):  # also where another process took it for abandoned
                os.close(descriptor)

    def publish(self) -> None:
        """Into place; durable when this returns."""
        _check_process(self._process, self.target)
        old = self._check_target()
        with _writing(self.target):
            self._move(replace=old is not None)
            try:
                if self._is_lone:
                    _sync_directory(self.target.parent)
                if self._directory != self.target.parent:
                    _sync_directory(self._directory)
            except OSError as error:
                if self._is_final:
                    raise OSError(error.errno, f"{error.strerror}; {_MAY_NOT_LAST}") from error
                raise
        self.finish()

    def finish(self) -> None:
        """Nothing is taken back any more."""
        self._is_published = True
        _remove(self.path)  # what was there before, if anything

    def _move(self, *, replace: bool) -> None:
        try:
            _renameat2(self.path, self.target, _RENAME_EXCHANGE if replace else _RENAME_NOREPLACE)
            return
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
        if replace and self._is_directory:
            aside = self.path.with_suffix(OLD_SUFFIX)
            os.rename(self.target, aside)
            try:
                os.rename(self.path, self.target)
            except BaseException:
                os.rename(aside, self.target)
                raise
            os.rename(aside, self.path)
        else:
            if not replace and os.path.lexists(self.target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._is_final = replace
            os.rename(self.path, self.target)

    def _abort(self) -> None:
        """Everything as it was; what cannot be undone is left, for the error on its way says enough."""
        with contextlib.suppress(OSError):
            if not self._is_final and _is_same(self.descriptor, self.target):
                if not os.path.lexists(self.path):
                    os.rename(self.target, self.path)
                else:
                    _swap(self.path, self.target)
        with contextlib.suppress(OSError):
            if _is_same(self.descriptor, self.path):
                _remove(self.path)
        os.close(self.descriptor)


def _resolve(path: StrPath) -> Path:
    return Path(os.path.realpath(path))


def _kafka_directory(path: Path) -> str:
    """What of Kafka's a directory is; "" for none."""
    if any((path / name).exists() for name in _LOG_DIR_FILES):
        return "log dir"
    if kf.parse_partition_directory(path.name) is not None:
        with contextlib.suppress(OSError):
            names = os.listdir(path)
            if any(name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None for name in names):
                return "partition directory"
    return ""


def _directories_in(directory: Path) -> tuple[str, set[str]]:
    """A partition with segments that lies in a directory, "" for none; and directories that are no partitions."""
    partition, others = "", set()
    with contextlib.suppress(OSError):
        for name in sorted(entry.name for entry in os.scandir(directory) if entry.is_dir()):
            if kf.parse_partition_directory(name) is None:
                others.add(name)
            elif not partition and _kafka_directory(directory / name) == "partition directory":
                partition = name
    return partition, others


def _check_process(process: int, path: Path) -> None:
    """Refuse a fork: two processes would write to one file, and one of them would publish what the other writes."""
    if process != os.getpid():
        raise WriteError(Reason.WRITE_FAILED, f"process {process} writes it, and this is a fork of that", path=path)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """What the operating system says against writing, as our error."""
    try:
        yield
    except (WriteError, OutputExistsError, UnsafePathError):
        raise
    except FileExistsError as error:
        raise OutputExistsError(Reason.OUTPUT_EXISTS, "it appeared meanwhile", path=path) from error
    except OSError as error:
        failed = WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=path)
        if error.errno == errno.EMFILE:
            failed.add_note("a higher limit (ulimit -n), or fewer writers at a time")
        raise failed from error


def _lock(descriptor: int) -> bool:
    """Tell others that somebody is at work; False if somebody else says so. A file system without locks is taken on."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether a name leads to what is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


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
                if _is_same(descriptor, path):
                    _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file or a directory with all that is in it, if it is there and lets itself be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _sync_directory(path: StrPath) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(one: Path, other: Path) -> None:
    """Exchange two names, in one step where the file system can."""
    try:
        _renameat2(one, other, _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        aside = one.with_suffix(OLD_SUFFIX)
        os.rename(other, aside)
        os.rename(one, other)
        os.rename(aside, one)


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """``rename`` that refuses to replace, or that exchanges; Python has no name for it."""
    function = getattr(_LIBC, "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
