"""The limit on open files (`RLIMIT_NOFILE`): raise the soft limit as far as needed, or raise `WriteError`.

A partition writer keeps its files open from the first record to the end of the load. A load into thousands of
partitions therefore needs more than the usual soft limit of 1024.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

from kafkalog.errors import Reason, WriteError

SPARE_FILES: Final = 64
"""Allowance for files that are open only for a while: inputs, indexes, files and directories being fsynced."""
_UNKNOWN: Final = 64


def count_open_files() -> int:
    """Number of files that this process has open; a guess if the system does not list them."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(directory))
    return _UNKNOWN


def allow_open_files(n: int, *, path: str | os.PathLike[str]) -> None:
    """Make sure that this process may have `n` files and `SPARE_FILES` more open; `path` is what they are for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n + SPARE_FILES
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard == resource.RLIM_INFINITY or wanted <= hard:
        # another limit of the system, such as macOS's, may refuse what the hard limit allows
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
    most = soft if hard == resource.RLIM_INFINITY else hard
    detail = (
        f"the process needs {wanted} open files, but its limit is {most}: raise the limit (ulimit -n), or write fewer"
        " partitions at a time"
    )
    raise WriteError(Reason.WRITE_FAILED, detail, path=path)
