"""What nothing that reads a segment can go below on this machine: its bytes and checksums, and no records.

Pieces of 256 KiB stay in a core's cache between reading, checksum and copy, as kafkalog's own do.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from shapes import BenchSegment

from kafkalog._kernels.crc import checksum_crc32c
from peers import Side, timed

_PIECE_BYTES = 2**18
_MAPPED_BYTES = 2**21
_COPIED_BYTES = 2**23


def copying(segment: BenchSegment) -> Side:
    """Read a segment piece by piece, take the checksum of each, and copy it once, as columns of Arrow need."""
    piece, copies = np.empty(_PIECE_BYTES, np.uint8), np.zeros(_COPIED_BYTES, np.uint8)

    def work() -> tuple[int, int]:
        descriptor = os.open(segment.path, os.O_RDONLY)
        try:
            at = 0
            while n := os.preadv(descriptor, [piece], at):
                checksum_crc32c(piece[:n])
                start = at % _COPIED_BYTES
                copies[start : start + n] = piece[:n]
                at += n
        finally:
            os.close(descriptor)
        return segment.n_records, -1

    return timed(work)


def mapping(segment: BenchSegment) -> Side:
    """Map a segment piece by piece, and take the checksums: nothing is copied."""

    def work() -> tuple[int, int]:
        descriptor = os.open(segment.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
            for start in range(0, size, _MAPPED_BYTES):
                n = min(_MAPPED_BYTES, size - start)
                with mmap.mmap(descriptor, n, flags, mmap.PROT_READ, offset=start) as mapped:
                    data = np.frombuffer(mapped, np.uint8)
                    for at in range(0, n, _PIECE_BYTES):
                        checksum_crc32c(data[at : at + _PIECE_BYTES])
                    del data
        finally:
            os.close(descriptor)
        return segment.n_records, -1

    return timed(work)
