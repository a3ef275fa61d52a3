"""Single durable steps with files and directories: rename, exchange, truncate, remove, fsync.

`staging` and `moves` are built on them. `writing` turns errors of the operating system into kafkalog's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kafkalog.errors import OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.storage.file_locks import require_locks
from kafkalog.storage.location import not_local
from kafkalog.storage.own_names import OLD_SUFFIX

require_locks()  # all that writes imports this module first

StrPath = str | os.PathLike[str]

_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
URL: Final = re.compile(r"[A-Za-z][\w+.-]+:/")
_CANNOT: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})
FREE_SPACE: Final = "free space there, or choose an output on another disk"
MAY_NOT_LAST: Final = "it is in place, but may not outlive a crash"
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `WriteError`, or an `OutputExistsError` if the file exists."""
    try:
        yield
    except (WriteError, OutputExistsError, UnsafePathError):
        raise
    except FileExistsError as error:
        raise OutputExistsError(Reason.OUTPUT_EXISTS, "it appeared meanwhile", path=path) from error
    except OSError as error:
        failed = WriteError(Reason.WRITE_FAILED, error.strerror or str(error), path=path)
        if error.errno == errno.EMFILE:
            failed.add_note("increase the limit (ulimit -n), or use fewer writers at a time")
        elif error.errno in (errno.EACCES, errno.EROFS):
            failed.add_note("write permission is needed; or choose another output")
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            failed.add_note(FREE_SPACE)
        raise failed from error


def check_free(path: StrPath, *, is_replaceable: bool = False) -> None:
    """Raise OutputExistsError if something is at the path of a new directory, unless it is an empty directory.

    A mount point cannot be replaced by the directory that was staged next to it. For `is_replaceable` see
    `OutputExistsError.at`.
    """
    if not os.path.lexists(path):
        return
    error = OutputExistsError.at(path, is_replaceable=is_replaceable)
    if not os.path.islink(path) and os.path.isdir(path):
        if os.path.ismount(path):
            error.advise(f"it is a mount point: name a new directory in it, such as {os.path.join(path, 'kafka')}")
        else:
            with writing(Path(path)), os.scandir(path) as entries:
                if next(entries, None) is None:
                    return
    raise error


def make_parents(path: Path) -> list[Path]:
    """Make the missing directories above a path, durably; return them, the highest first."""
    missing = [parent for parent in path.parents if not os.path.lexists(parent)][::-1]
    with writing(path):
        for directory in missing:
            directory.mkdir(exist_ok=True)
            fsync_directory(directory.parent)
    return missing


def closest_parent(path: Path) -> Path:
    """The closest directory above a path that exists."""
    return next(filter(os.path.isdir, path.parents))


def resolve(path: StrPath) -> Path:
    """The absolute path of an output, with all symbolic links resolved; raises UnsafePathError for a URL."""
    # `pathlib` has made one slash of two; the path would end in a directory `s3:` here
    if URL.match(os.fspath(path)):
        raise not_local(path, is_output=True)
    return Path(os.path.realpath(path))


def is_same(descriptor: int, path: Path) -> bool:
    """Whether a path still names the file or directory that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with its content; ignore it if it is absent or cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def try_move(source: Path, target: Path, *, replace: bool) -> bool:
    """Rename to an unused name, or exchange two names (`replace`), in one step.

    Returns False if the file system does not support that.
    """
    try:
        _renameat2(source, target, _RENAME_EXCHANGE if replace else _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def rename_new(path: Path, target: Path) -> None:
    """Rename to an unused name; raises `FileExistsError` if it is in use."""
    if not try_move(path, target, replace=False):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(path, target)


def rename_back(path: Path, old: Path) -> None:
    """Undo a rename, if it was made and the old name is still free."""
    if not os.path.lexists(old):
        os.rename(path, old)


def swap(one: Path, other: Path) -> None:
    """Exchange two names, in one step if the file system supports it; a failure leaves both unchanged.

    Without that support, a kill between the three renames leaves no `other`: `replace_file` replaces a file.
    """
    if try_move(one, other, replace=True):
        return
    # if one of the renames fails, those before it are undone
    aside = one.with_suffix(OLD_SUFFIX)
    os.rename(other, aside)
    try:
        os.rename(one, other)
        try:
            os.rename(aside, one)
        except BaseException:
            os.rename(other, one)
            raise
    except BaseException:
        os.rename(aside, other)
        raise


def replace_file(new: Path, there: Path, aside: Path) -> None:
    """Replace a file in one step, and keep the old one as `aside`: as a hard link, or as a copy on such file systems.

    A kill leaves `there` old or new, and never absent. An `aside` of a killed run stays: it has the oldest content.
    """
    _keep(there, aside)
    os.replace(new, there)


def _keep(path: Path, aside: Path) -> None:
    if os.path.lexists(aside):
        return
    try:
        os.link(path, aside)
    except OSError:
        # under another name first: after a kill, a part of a copy must not pass for the file
        part = aside.with_name(f"{aside.name}-part")
        shutil.copy2(path, part)
        descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            take_owner(descriptor, path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(part, aside)


def take_owner(descriptor: int, like: Path) -> None:
    """Give an open file or directory the owner and the mode of `like`.

    If `like` is the directory of the file, the mode is the directory's without execution. If it does not exist, the
    nearest directory above counts. Root so writes files for a broker that runs as another user, and a umask changes
    nothing. Other users keep what they own.
    """
    while not os.path.exists(like):
        like = like.parent
    own, wanted = os.fstat(descriptor), os.stat(like)
    mode = stat.S_IMODE(wanted.st_mode)
    if stat.S_ISDIR(wanted.st_mode) and not stat.S_ISDIR(own.st_mode):
        mode &= 0o666
    # some file systems have neither
    if (own.st_uid, own.st_gid) != (wanted.st_uid, wanted.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
    if stat.S_IMODE(own.st_mode) != mode:
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, mode)


def identity(path: Path) -> tuple[int, int, int, int]:
    """Device, inode, size and modification time (ns): differs for another file, and after a write to the same one."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def take_back(there: Path, new: Path, placed: tuple[int, int, int, int], aside: Path | None) -> None:
    """Undo a rename, a replacement or an exchange, if it was made and the moved file is still there unchanged.

    The file was moved from `new` to `there`; `placed` is its `identity` before the move. A file that others put in its
    place, or wrote to, is left there. `aside` has the replaced file; after an exchange, that is at `new` instead.
    """
    if os.path.lexists(there):
        if identity(there) != placed:
            return
        if os.path.lexists(new):
            swap(new, there)
        elif aside is not None and os.path.lexists(aside):
            # in this order, the name is never absent
            _keep(there, new)
            os.replace(aside, there)
        else:
            os.rename(there, new)
        return
    if os.path.lexists(new) and identity(new) != placed:
        os.rename(new, there)


def truncate_file(path: StrPath, size: int) -> None:
    """Truncate a file in place, durably."""
    target = Path(path)
    with writing(target):
        descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_file(path: StrPath) -> None:
    """Remove a file if it exists; `sync_directory` makes that durable."""
    target = Path(path)
    with writing(target):
        target.unlink(missing_ok=True)


def sync_directory(directory: StrPath) -> None:
    """Fsync a directory, so that renames and removals in it are durable.

    If that fails, the files are in place, but the change may not survive a crash: the WriteError says so.
    """
    with writing(Path(directory)):
        try:
            fsync_directory(directory)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}; {MAY_NOT_LAST}") from error


def sync_files(root: Path, names: Iterable[str]) -> None:
    """Fsync files below a directory that another library wrote, and the directories that they are in.

    Names without a file are ignored.
    """
    files = [root / name for name in names if os.path.exists(root / name)]
    directories = {above for path in files for above in path.parents if root in (above, *above.parents)}
    with writing(root):
        for path in (*files, *sorted(directories, reverse=True), root.parent):
            _fsync(path)


def fsync_directory(path: StrPath) -> None:
    """Fsync a directory; raises `OSError`."""
    _fsync(path, os.O_DIRECTORY)


def _fsync(path: StrPath, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """Call ``renameat2``, which can refuse to replace a file, or exchange two; Python's `os` does not have it."""
    # glibc has it from 2.28 on
    function = getattr(_LIBC, "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
