"""Locks on open files: `flock`, and the record locks that brokers take.

`flock` keeps writers of kafkalog apart. A broker's `FileLock` is a POSIX record lock, which `flock` does not see.
Record locks are taken here for the open file: they conflict with a broker's, and are not lost when this process closes
another descriptor of the file.

Windows has neither: there nothing counts as locked, and `require_locks` raises.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import Reason, UnsupportedError
from kafkalog.format import LOCK_FILE
from kafkalog.storage.location import store_of

fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None

# From <fcntl.h>; Python has no names for them. `struct flock` has another order of fields on macOS
if sys.platform == "darwin":
    _OFD_SETLK: Final = 90
    _OFD_GETLK: Final = 92
    _LAYOUT: Final = "2q i 2h"
    _TYPE: Final = 3
else:
    _OFD_SETLK: Final = 37
    _OFD_GETLK: Final = 36
    _LAYOUT: Final = "2h 2q i 4x"
    _TYPE: Final = 0


def try_lock(descriptor: int) -> bool:
    """Take an exclusive `flock`; returns False if somebody else holds it, True on a file system without locks."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def lock(descriptor: int) -> None:
    """Take an exclusive `flock`; raises `OSError` if somebody else holds it, or if there are no locks."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Give an `flock` back."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def take_record_lock(descriptor: int) -> None:
    """Take the record lock of a whole file; raises `OSError` if another process holds one."""
    fcntl.fcntl(descriptor, _OFD_SETLK, _record_lock())


def is_locked(log_dir: str | os.PathLike[str]) -> bool:
    """Whether a process holds the lock of a log dir; False if that cannot be determined."""
    if fcntl is None or not store_of(log_dir).is_live:
        return False
    try:
        # O_NONBLOCK: a FIFO that is named `.lock` must not hang us
        descriptor = os.open(Path(log_dir) / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        answer = struct.unpack(_LAYOUT, fcntl.fcntl(descriptor, _OFD_GETLK, _record_lock()))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(answer[_TYPE] != fcntl.F_UNLCK)


def _record_lock() -> bytes:
    """`struct flock` of a lock on a whole file."""
    fields = [0] * 5  # from the start, as long as the file is
    fields[_TYPE] = fcntl.F_WRLCK
    return struct.pack(_LAYOUT, *fields)


def require_locks() -> None:
    """Raise `UnsupportedError` where files cannot be locked, so that nothing is written there."""
    if fcntl is None:
        detail = f"kafkalog writes on Linux and macOS only; on {sys.platform} it only reads"
        raise UnsupportedError(Reason.UNSUPPORTED_SYSTEM, detail)
