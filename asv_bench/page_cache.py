"""Files that are measured are read from disk first, since how they lie in the page cache decides what reading costs.

A file that was just written, or that grew by small appends, may lie there in pieces of a page or two, one that was
read from disk in pieces of up to megabytes (Linux, file systems with large folios). Out of small pieces copying takes a
third longer and mapping three times as long, with the same bytes. Segments that one reads without their broker mostly
come from disk.
"""

from __future__ import annotations

import os
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def read_from_disk(path: str | Path) -> None:
    """Put a file out of the page cache and read it once from its first byte to its last.

    Where the system cannot do that (tmpfs, macOS), the file is only read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if hasattr(os, "posix_fadvise"):
            os.fsync(descriptor)  # pages that wait to be written stay where they are
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        at = 0
        while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
            at += len(chunk)
    finally:
        os.close(descriptor)
