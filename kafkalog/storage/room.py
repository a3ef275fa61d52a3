"""Whether an output fits on its disk that has copies of logs."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kafkalog.errors import Finding, Reason, WriteError
from kafkalog.format import LOG_SUFFIX
from kafkalog.storage.atomic import closest_parent, writing
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, kind_of, local_path, stat_of
from kafkalog.text import human_bytes

_SHARE_BLOCKS: Final = frozenset({"bcachefs", "btrfs", "ocfs2", "overlay", "xfs", "zfs"})
"""File systems that compress, or where a copy may share the blocks of the original."""


def check_room(
    output: str | os.PathLike[str] | None, logs: Iterable[Place], note: Callable[[Finding], object], *, dry_run: bool
) -> None:
    """Raise WriteError if copies of `.log` files, or of those in partition directories, do not fit next to an output.

    In a dry run, `note` gets that as a finding, if an output is named.
    """
    detail = "" if output is None else lacking_room(Path(os.path.realpath(output)), logs)
    if output is None or not detail:
        return
    if dry_run:
        note(Finding(Reason.WRITE_FAILED, detail, path=os.fspath(output), damage=False))
    else:
        error = WriteError(Reason.WRITE_FAILED, detail, path=output)
        error.add_note("free space there, or choose an output on another disk")
        raise error


def lacking_room(output: Path, logs: Iterable[Place]) -> str:
    """Return how much room logs need next to an output, and how much there is; "" if they fit, or may."""
    logs = [*logs]
    free = free_bytes(output)
    # holes, as at the end of preallocated files, need no room, but asking for them opens each file; written zeros count
    if n_log_bytes(logs) <= free or _may_share_blocks(output, logs):
        return ""
    n = sum(_data_bytes(path, size) for one in logs for path, size in _files(one).items())
    return f"this needs {human_bytes(n)}, and the disk has {human_bytes(free)} free" if n > free else ""


def free_bytes(output: Path) -> int:
    """How many bytes may be written next to a new output."""
    with writing(output):
        status = os.statvfs(closest_parent(output))
    # blocks that a file system reserves are root's
    return (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize


def n_log_bytes(logs: Iterable[Place]) -> int:
    """The size of `.log` files, and of those in partition directories."""
    return sum(sum(_files(one).values()) for one in logs)


def _files(path: Place) -> dict[Place, int]:
    """The `.log` files of a partition directory with their sizes, or a file with its size."""
    if kind_of(path) == "file":
        return {path: stat_of(path).st_size}
    listing, found = Listing.or_empty(path), dict[Place, int]()
    for name in listing.files:
        if name.endswith(LOG_SUFFIX):
            with contextlib.suppress(OSError):  # a running broker has removed it
                found[path / name] = listing.status(name).st_size
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
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").rstrip("\n").split("\n")
    except OSError:
        return "", ""
    for line in lines:
        # spaces, tabs, line breaks and backslashes are octal there
        where = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])
        kind, device = line.partition(" - ")[2].split(" ")[:2]
        is_above = real == where or real.startswith(where.rstrip("/") + "/")
        if is_above and len(where) >= len(best[0]):
            best = where, kind, device
    return best[1:]
