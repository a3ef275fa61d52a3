"""How many files a process may have open: the soft limit is raised as far as work needs it, or the work refused.

A partition that is written has files open from its first record to the end of the load, so a load into thousands of
partitions needs more than the 1024 that most processes begin with.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

from kafkalog.errors import Reason, WriteError

SPARE_FILES: Final = 32
"""For what comes and goes besides: inputs, indexes, directories that are made durable."""
_UNKNOWN: Final = 64


def count_open_files() -> int:
    """Files that this process has open; a guess where nobody tells."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(directory))
    return _UNKNOWN


def allow_open_files(n: int, *, path: str | os.PathLike[str]) -> None:
    """See to it that this process may have so many files open, and some to spare.

    Parameters
    ----------
    n : int
    path : path-like
        What they are for.

    Raises
    ------
    WriteError
        The hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n + SPARE_FILES
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard == resource.RLIM_INFINITY or wanted <= hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
    most = soft if hard == resource.RLIM_INFINITY else hard
    detail = (
        f"at least {wanted} files have to be open at a time, and this process may have {most}: raise that before it"
        " starts (ulimit -n), or write fewer partitions at a time"
    )
    raise WriteError(Reason.WRITE_FAILED, detail, path=path)
