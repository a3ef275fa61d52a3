"""Whether a broker is running on a log dir: a POSIX record lock on its `.lock`, which `flock` does not see.

Mirrors the reading side of Kafka's `FileLock`; taking the lock belongs to what writes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from kafkalog.format import LOCK_FILE

_FLOCK = "hhqqi4x"  # struct flock on Linux, 64-bit
_F_OFD_GETLK = 36


def is_locked(log_dir: str | os.PathLike[str]) -> bool:
    """Whether some process holds the lock of a log dir; False where that cannot be told."""
    try:
        descriptor = os.open(Path(log_dir) / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, _F_OFD_GETLK, request))[0]
        return kind != fcntl.F_UNLCK
    except OSError:
        return False
    finally:
        os.close(descriptor)
