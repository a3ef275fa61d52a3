"""Whether an output fits on its disk that has copies of logs."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kafkalog.errors import Finding, Reason, WriteError
from kafkalog.format import LOG_SUFFIX
from kafkalog.storage.atomic import FREE_SPACE, closest_parent, writing
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, kind_of, local_path, stat_of
from kafkalog.text import human_bytes

_SHARE_BLOCKS: Final = frozenset({"bcachefs", "btrfs", "ocfs2", "overlay", "xfs", "zfs"})
"""File systems that compress, or where a copy may share the blocks of the original."""
_NO_DISKS: Final = frozenset(
    {
        *("devtmpfs", "hugetlbfs", "mqueue", "proc", "ramfs", "sysfs", "tmpfs"),
        *("9p", "afs", "autofs", "ceph", "cifs", "fuse", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"),
    }
)
"""File systems in memory, those of the kernel, and those of other machines, which may not answer."""


def check_room(
    output: str | os.PathLike[str] | None,
    logs: Iterable[Place],
    note: Callable[[Finding], object],
    *,
    dry_run: bool,
    n_more: int = 0,
) -> None:
    """Raise WriteError if copies of `.log` files, or of those in partition directories, do not fit next to an output.

    `n_more` bytes are written as well. In a dry run, `note` gets that as a finding, if an output is named.
    """
    if output is None:
        return
    files = log_files(logs)
    detail = lacking_room(Path(os.path.realpath(output)), files, n_more)
    if not detail:
        return
    if dry_run:
        note(Finding(Reason.WRITE_FAILED, detail, path=os.fspath(output), damage=False))
    else:
        error = WriteError(Reason.WRITE_FAILED, detail, path=output)
        roomy = disk_with_room(sum(size for _, size in files) + n_more)
        error.add_note(f"{FREE_SPACE}{f', such as {roomy}' if roomy else ''}")
        raise error


def unwritable(output: Path) -> str:
    """Why nothing can be written next to an output, as on a disk that is mounted read-only; "" if that is not known."""
    parent = closest_parent(output)
    return "" if os.access(parent, os.W_OK) else f"{parent} cannot be written"


def lacking_room(output: Path, logs: Sequence[tuple[Place, int]], n_more: int = 0) -> str:
    """Return how much room logs need next to an output, and how much there is; "" if they fit, or may.

    `logs` are `.log` files with their sizes.
    """
    free = free_bytes(output)
    # holes, as at the end of preallocated files, need no room, but asking for them opens each file; written zeros count
    if sum(size for _, size in logs) + n_more <= free or _may_share_blocks(output, (path for path, _ in logs)):
        return ""
    n = sum(_data_bytes(path, size) for path, size in logs) + n_more
    return f"this needs {human_bytes(n)}, and the disk has {human_bytes(free)} free" if n > free else ""


def disk_with_room(n_bytes: int) -> str:
    """A disk where so many bytes may be written, the one with the most room, and how much that is; "" if none has."""
    found: dict[str, tuple[int, str]] = {}
    for where, kind, device in _mounts():
        if kind.partition(".")[0] in _NO_DISKS or not (os.path.isdir(where) and os.access(where, os.W_OK)):
            continue
        with contextlib.suppress(OSError, WriteError):
            free = free_bytes(Path(where) / "output")
            # a device may be mounted several times
            found[device] = min(found.get(device, (-free, where)), (-free, where), key=lambda one: len(one[1]))
    free, where = min(found.values(), default=(0, ""))
    return f"{where} with {human_bytes(-free)} free" if -free >= n_bytes and where else ""


def free_bytes(output: Path) -> int:
    """How many bytes may be written next to a new output."""
    with writing(output):
        status = os.statvfs(closest_parent(output))
    # blocks that a file system reserves are root's
    return (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize


def n_log_bytes(logs: Iterable[Place]) -> int:
    """The size of `.log` files, and of those in partition directories."""
    return sum(size for _, size in log_files(logs))


def log_files(logs: Iterable[Place]) -> list[tuple[Place, int]]:
    """The `.log` files among paths, and those in partition directories, with their sizes; each as often as given."""
    found: list[tuple[Place, int]] = []
    for path in logs:
        if kind_of(path) == "file":
            found.append((path, stat_of(path).st_size))
        else:
            found += logs_in(Listing.or_empty(path))
    return found


def logs_in(listing: Listing) -> list[tuple[Place, int]]:
    """The `.log` files of a partition directory with their sizes."""
    found: list[tuple[Place, int]] = []
    for name in listing.files:
        if name.endswith(LOG_SUFFIX):
            with contextlib.suppress(OSError):  # a running broker has removed it
                found.append((listing.path / name, listing.status(name).st_size))
    return found


def _data_bytes(path: Place, size: int) -> int:
    """How many bytes of a file are not in holes; all of an object, and where the system cannot tell."""
    if not isinstance(path, Path) or not hasattr(os, "SEEK_DATA"):
        return size
    total = end = 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0  # what cannot be read is not written
    try:
        while end < size:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            total += end - start
    except OSError as error:
        return total if error.errno == errno.ENXIO else size
    finally:
        os.close(descriptor)
    return total


def _may_share_blocks(output: Path, logs: Iterable[Place]) -> bool:
    """Whether copies may take no room, or less than their size: the file system is of such a kind."""
    of_output = _mount(closest_parent(output))
    local = (one for one in logs if isinstance(one, Path))
    return of_output[0] in _SHARE_BLOCKS and any(_mount(local_path(one)) == of_output for one in local)


def _mount(path: Path) -> tuple[str, str]:
    """The type and the device of the file system that a path is on, by Linux's list."""
    real, best = os.path.realpath(path), ("", "", "")
    for where, kind, device in _mounts():
        is_above = real == where or real.startswith(where.rstrip("/") + "/")
        if is_above and len(where) >= len(best[0]):
            best = where, kind, device
    return best[1:]


def _mounts() -> Iterator[tuple[str, str, str]]:
    """Yield the mount points of Linux's list, each with the type and the device of its file system."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").rstrip("\n").split("\n")
    except OSError:
        return
    for line in lines:
        # spaces, tabs, line breaks and backslashes are octal there
        where = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])
        kind, device = line.partition(" - ")[2].split(" ")[:2]
        yield where, kind, device
