"""Finds the intact batches in images and devices: bytes to rows of headers, in bounded memory.

The rows go to a journal, a file that also says how far the search came, so that a search that was stopped goes on
where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.header_walk as kernels
from kafkalog import format as kf
from kafkalog.errors import Limits, ReadError, Reason, UnsafePathError, UnsupportedError
from kafkalog.interchange.file_types import VIRTUAL_DISKS
from kafkalog.log.log_dir import missing_path
from kafkalog.log.searching.resync import INSIDE, LINKED, IntactRuns, find_batches
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.header_walk import window_of
from kafkalog.storage.atomic import writing
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.file_locks import try_lock
from kafkalog.storage.location import kind_of, refuse_url
from kafkalog.storage.source import Bytes, ByteSource

BATCH: Final = np.dtype([
    ("position", "i8"), ("first_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"),
    ("max_timestamp", "i8"), ("producer_id", "i8"), ("image", "i4"), ("size", "i4"), ("leader_epoch", "i4"),
    ("crc", "u4"), ("base_sequence", "i4"), ("n_records", "i4"), ("attributes", "i2"), ("producer_epoch", "i2"),
    ("control_type", "i2"), ("magic", "i2"),
])  # fmt: skip
"""A row of the journal: a batch, or a mark of size 0, up to whose position the image has been searched. With a negative
size it is a header at the start of a block whose batch is not intact there: its position, offsets and checksum."""
_COLUMNS: Final = {
    "size": "size_in_bytes",
    "leader_epoch": "partition_leader_epoch",
    "n_records": "records_count",
} | {name: name for name in (
    "position", "last_offset", "magic", "crc", "attributes", "base_timestamp", "max_timestamp", "producer_id",
    "producer_epoch", "base_sequence", "control_type",
)}  # fmt: skip
_MARK_EVERY: Final = 2**28  # bytes that a stopped search does again at most
_MAGIC: Final = b"kafkalog-undelete-4\n"
_DIGITS: Final = 11  # of a limit, with the end of its line
_EXT4_MAGIC_AT: Final = 1024 + 56
_LEAST_BLOCK: Final = 1024
_NO_BYTES: Final = np.empty(0, np.uint8)


class Journal:
    """The file of rows; it is read as one array."""

    def __init__(self, path: Path, images: Sequence[ByteSource], limits: Limits, *, is_kept: bool) -> None:
        self.path = path
        searched = json.dumps([[str(image.path), image.size] for image in images]).encode()
        head = _MAGIC + searched + b"\n%d\n" % limits.max_batch_bytes
        self._start = len(head)
        with writing(path):
            self._file = open(path, "a+b" if is_kept else "w+b")  # noqa: SIM115 - closed by `__exit__`
            if not try_lock(self._file.fileno()):
                self._file.close()
                detail = "another search writes this journal: wait for it, or name a new file"
                raise UnsafePathError(Reason.OUTPUT_EXISTS, detail, path=path)
            if not self._file.tell():
                self._file.write(head)
                self._file.flush()
        self._file.seek(0)
        found = self._file.read(len(head))
        if found != head:
            others = self._file.read(_DIGITS)
            self._file.close()
            # it may be anything, even an image
            detail = "is no journal of undelete: name a new file"
            if found.startswith(_MAGIC):
                of = "of other images"
                if found.startswith(_MAGIC + searched + b"\n"):
                    most = (found + others).removeprefix(_MAGIC + searched + b"\n").partition(b"\n")[0].decode()
                    of = f"with --limits max_batch_bytes={most}"
                detail = f"is the journal of a search {of}: remove it to search again, or name a new file"
            raise UnsafePathError(Reason.NOT_KAFKA, detail, path=path)

    def resume_at(self, image: int) -> int:
        """Where the search of an image goes on; cuts what came after the last mark of the newest image."""
        rows = self.rows()
        marks = np.flatnonzero(rows["size"] == 0)
        of_image = marks[rows["image"][marks] == image]
        position = int(rows["position"][of_image[-1]]) if of_image.size else 0
        n_kept = int(marks[-1]) + 1 if marks.size else 0
        del rows
        self._file.truncate(self._start + n_kept * BATCH.itemsize)
        self._file.seek(0, os.SEEK_END)
        return position

    def append(self, rows: npt.NDArray[np.void]) -> None:
        """Add rows at the end."""
        with writing(self.path):
            self._file.write(rows.view(np.uint8).data)

    def mark(self, image: int, position: int) -> None:
        """Note that an image has been searched up to here."""
        row = np.zeros(1, BATCH)
        row["image"], row["position"] = image, position
        self.append(row)
        self._file.flush()

    def rows(self) -> npt.NDArray[np.void]:
        """All complete rows, mapped."""
        self._file.flush()
        n = (os.fstat(self._file.fileno()).st_size - self._start) // BATCH.itemsize
        if not n:
            return np.empty(0, BATCH)
        return np.memmap(self._file, BATCH, "r", self._start, n).view(np.ndarray)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def open_image(path: str | os.PathLike[str]) -> BadSectorSource:
    """Open an image file, or a block device; bad sectors read as zeros.

    Raises ReadError, or UnsupportedError for an image that is compressed, or whose blocks are not in the disk's order.
    """
    refuse_url(path)
    if kind_of(path) is None:
        raise missing_path(path)
    source = BadSectorSource(path, devices=True)
    if not source.size:
        source.close()
        raise ReadError(Reason.FILE_UNREADABLE, "is empty", path=path)
    first = bytes(window_of(source, 0, min(source.size, 8)))
    detail = next((detail for magic, detail in _NOT_RAW.items() if first.startswith(magic)), None)
    if detail is not None:
        source.close()
        raise UnsupportedError(Reason.COMPRESSED_FILE, detail, path=path, position=0)
    return source


_NOT_RAW: Final = {
    **{
        magic: f"a virtual disk ({suffix[1:]}), whose blocks are not in the order of the disk: make a raw image first,"
        " with qemu-img convert -O raw"
        for suffix, magics in VIRTUAL_DISKS.items()
        for magic in magics
    },
    **dict.fromkeys(
        (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"), "a compressed image: unpack it first"
    ),
}
"""What is wrong with an image that begins so."""


def block_size(source: ByteSource) -> int:
    """The size of the blocks of the file system in an image, 4096 unless the superblock of an ext4 says less."""
    if source.size < _EXT4_MAGIC_AT + 2:
        return 4096
    superblock = window_of(source, 0, _EXT4_MAGIC_AT + 2)[1024:]
    is_ext = superblock[56:].tobytes() == b"\x53\xef"
    log = int(superblock[24])
    return _LEAST_BLOCK << log if is_ext and log < 2 else 4096


def search_image(
    number: int, source: ByteSource, journal: Journal, start: int, limits: Limits, progress: Callable[[int], object]
) -> None:
    """Search an image from a position on, and add a row for each intact batch."""
    marked = at = start
    windows = _SearchedImage(source, number, start, limits)
    for runs in find_batches(windows, start=start, limits=limits):
        end = int(runs.end[-1])
        is_intact = (runs.kind != LINKED) & (runs.kind != INSIDE)
        journal.append(windows.rows_before(runs if is_intact.all() else runs[is_intact], end))
        if end - marked >= _MARK_EVERY:
            journal.mark(number, end)
            marked = end
        progress(end - at)
        at = end
    journal.append(windows.rows_before(IntactRuns.empty(), source.size))
    journal.mark(number, source.size)
    progress(source.size - at)


class _SearchedImage(ByteSource):
    """An image whose windows give the headers of their batches while a search reads them.

    They are looked through for headers at the starts of blocks, too. A file that lies in several places may have its
    first batch divided between two of them: then its header is not that of an intact batch.
    """

    def __init__(self, source: ByteSource, number: int, start: int, limits: Limits) -> None:
        self._source, self.path, self.size, self._limits = source, source.path, source.size, limits
        self._number, self._block, self._seen = number, block_size(source), start
        self._torn = np.empty(0, BATCH)
        self._window, self._start = _NO_BYTES, start

    def window(self, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop`."""
        data = self._source.window(start, stop)
        self._window, self._start = data, start
        first = -(-max(self._seen, start) // self._block) * self._block - start
        n = (data.size - first - kf.RECORD_BATCH_OVERHEAD) // self._block + 1
        if n > 0:
            rows = np.zeros(n, BATCH)
            most = self._limits.max_batch_bytes
            n_found = kernels.find_headers(data, start, first, self._block, most, self._number, rows)
            self._torn = np.concatenate([self._torn, rows[:n_found]]) if n_found else self._torn
            self._seen = start + first + n * self._block
        return data

    def rows_before(self, batches: IntactRuns, end: int) -> npt.NDArray[np.void]:
        """The headers of batches of the last window, and those at starts of blocks before `end` outside of them."""
        rows = empty(len(batches), BATCH)
        kernels.read_at(self._window, self._start, batches.start, self._number, rows)
        torn, self._torn = self._torn[self._torn["position"] < end], self._torn[self._torn["position"] >= end]
        if torn.size and rows.size:
            before = np.searchsorted(batches.start, torn["position"], side="right") - 1
            torn = torn[(before < 0) | (torn["position"] >= batches.end[before])]
        if not torn.size:
            return rows
        rows = np.concatenate([torn, rows])
        return rows[np.argsort(rows["position"], kind="stable")]

    def next_data(self, position: int) -> int:
        """See `ByteSource.next_data`."""
        return self._source.next_data(position)

    def next_hole(self, position: int) -> int:
        """See `ByteSource.next_hole`."""
        return self._source.next_hole(position)

    def release(self, window: Bytes, start: int) -> None:
        """See `ByteSource.release`."""
        self._window = _NO_BYTES  # a view would keep its memory from being used again
        self._source.release(window, start)


def rows_of(batches: BatchTable) -> npt.NDArray[np.void]:
    """Rows of the journal with the headers of a table."""
    rows = np.zeros(len(batches), BATCH)
    for name, column in _COLUMNS.items():
        rows[name] = getattr(batches, column)
    # of a compressed message of v0 or v1 only the last offset is known
    rows["first_offset"] = np.where(batches.base_offset >= 0, batches.base_offset, batches.last_offset)
    return rows
