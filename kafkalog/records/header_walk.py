"""Walk batch headers: bytes of a segment to batch tables, one window at a time.

Only headers are parsed; records are decoded elsewhere, after selecting. The walk never ends silently: if there is
neither a batch nor the end of the file, it raises, after yielding the batches before. `kafkalog.records.readers` reads
valid batches faster. Mirrors Kafka's `FileLogInputStream` and the header part of `DefaultRecordBatch` and
`AbstractLegacyRecordBatch`.

Layout of the header::

    v0, v1   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | (v1) timestamp 8 | key, value
    v2       base offset 8 | size 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
             | base timestamp 8 | max timestamp 8 | producer id 8, epoch 2 | base sequence 4 | records count 4 | records
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.resync as search_kernels
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    FileChangedError,
    KafkalogError,
    LimitExceededError,
    Limits,
    Reason,
    TruncatedTailError,
    UnsupportedError,
    error_from_status,
)
from kafkalog.records.batch_table import BatchTable, HeaderParser, Window, valid_crcs
from kafkalog.records.header import MAGIC_END, BatchHeader, Claims, claims_of
from kafkalog.storage.source import Bytes, ByteSource, is_padding

WINDOW_BYTES: Final = 2**22
"""Bytes read at a time: small enough to stay in a core's cache until its records are decoded."""
WINDOW_AFTER_DAMAGE: Final = 2**16
"""Bytes read first after damage, where more may follow."""

_FETCHED_BYTES: Final = 15 * 2**17  # a check that needs few bytes must not fetch many
_MIN_WINDOW = 64  # more than the 17 bytes up to and including the magic
_TORN_ENVELOPE = 17  # bytes up to and including the magic; a remainder of at most this size cannot be checked
_JUDGED: Final = _TORN_ENVELOPE + 1  # bytes in which a size or a magic that no batch has is found
_SEARCH_BYTES: Final = 2**23
_MOST_EXTRA_BYTES: Final = 2**26
_LOOK_BACK: Final = 256  # bytes before a window's start to read again, since an enclosing record may begin there
_SEARCH_ROWS: Final = 2**14
_LEAST_HOLE: Final = 2**18
"""Zeros of a hole that are read as fast as the hole is skipped."""
_MOST_HOLES: Final = 64  # small ones that are looked at for a window
LINKED: Final = search_kernels.KINDS["LINKED"]
INSIDE: Final = search_kernels.KINDS["INSIDE"]
_WRAPPED: Final = search_kernels.KINDS["WRAPPED"]
_NEED_MORE = STATUS["NEED_MORE"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]


def walk(
    source: ByteSource,
    *,
    start: int = 0,
    stop: int | None = None,
    previous_offset: int = -1,
    window_bytes: int = WINDOW_BYTES,
    first_window_bytes: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Window]:
    """Walk the batch headers of a segment from a batch boundary on; `stop` counts as the end of the file.

    Offsets must be above `previous_offset`; -1 for any. Windows have `window_bytes`; a larger batch gets a window of
    its own. If more damage may be near, `first_window_bytes` are read first, doubled from window to window. The windows
    are in file order, each with at least one batch. The caller may `source.release` them.

    Errors are raised after the batches before them were yielded. TruncatedTailError: the file ends inside a batch
    (`partial_tail`) or in zeros (`zero_fill`), which is normal at the end of a partition's last segment.
    CorruptionError: there is no batch at `position`, or its offset does not increase. LimitExceededError: a batch is
    larger than `limits.max_batch_bytes`.

    Kafka treats a truncated batch as the end of the log, so a wrong size field hides everything after it. This function
    accepts the end only if the rest of the file contains no intact batch.

    A preallocated file may be written to while it is walked. Anything irregular in it is read again as long as the file
    was modified recently, because it may be half written. Batches are yielded once their checksums match. The log ends
    where zeros follow a whole batch.

    Source: FileLogInputStream.nextBatch, Kafka 4.3.
    """
    stop = source.size if stop is None else stop
    window_bytes = max(window_bytes, _MIN_WINDOW)
    next_bytes = min(first_window_bytes or window_bytes, window_bytes)
    position = start
    if position >= stop:
        return
    parser = HeaderParser()
    while position < stop:
        data = window_of(source, position, min(position + next_bytes, stop))
        next_bytes = min(2 * next_bytes, window_bytes)
        # the source may have shrunk: a broker truncates the zeros of a preallocated file when it rolls
        stop, size, before = min(stop, source.size), data.size, previous_offset
        tables, status, reached, needed, previous_offset = parser.parse(data, position, before)
        # the first batch is larger than the window: read it whole
        if not tables and status == _NEED_MORE and size < needed <= stop - position:
            _check_batch_size(source, position, needed, stop, limits)
            source.release(data, position)
            data = window_of(source, position, position + needed)
            stop, size = min(stop, source.size), data.size
            tables, status, reached, needed, previous_offset = parser.parse(data, position, before)
        # Use the bytes that were walked: reading again may return different ones if the file is being written
        rest = data[reached - position :]
        head = rest[:_TORN_ENVELOPE].tobytes()
        may_be_padding = status == STATUS["SIZE_TOO_SMALL"] and is_padding(rest)
        del rest
        is_half_written = False
        if tables:
            table = BatchTable.concatenate(tables) if len(tables) > 1 else tables[0]
            # A wrong checksum may be a batch that the broker is still writing: end before it, and read it again
            if source.is_being_written() and (row := _half_written(source, Window(data, position, table))) is not None:
                is_half_written, reached, table = True, int(table.position[row]), table[:row]
                previous_offset = int(table.last_offset[-1]) if row else before
            if size > limits.max_batch_bytes and (table.size_in_bytes > limits.max_batch_bytes).any():
                row = int(np.argmax(table.size_in_bytes > limits.max_batch_bytes))
                if row:
                    yield Window(data, position, table[:row])
                _check_batch_size(source, int(table.position[row]), int(table.size_in_bytes[row]), stop, limits)
            if len(table):
                yield Window(data, position, table)
            else:
                source.release(data, position)
            del data, table, tables  # so that the next window can reuse the memory, unless the caller keeps it
        else:
            source.release(data, position)
        seen, at_end = position + size - reached, position + size == stop
        looked_at, position = position + size, reached
        if source.size < stop:  # the caller read on while it had the window, and detected a truncation
            if source.size < position:
                raise FileChangedError(Reason.FILE_CHANGED, f"was cut to {source.size} bytes", path=source.path)
            stop = source.size
            continue
        # An envelope that crosses the end of the window cannot be judged yet: read more
        goes_on = not at_end and (seen <= _TORN_ENVELOPE or position + needed <= stop)
        # continue at the first batch that was not taken, and read its start again
        if is_half_written or (status == _NEED_MORE and (position == stop or goes_on)):
            continue
        if source.size < stop:
            stop = source.size  # the file was truncated in the meantime
            continue
        try:
            if may_be_padding and source.is_padding(looked_at, stop):
                raise _zero_fill(source, position, stop)
            error = _explain(source, status, position, head, needed, previous_offset, stop, limits)
        except FileChangedError:
            if not source.follow_cut(position):
                raise
            stop = min(stop, source.size)
            continue
        # in a file that is being written to, the same bytes may be a whole batch a moment later
        if not source.await_writer(position):
            raise error


def window_of(source: ByteSource, start: int, stop: int) -> Bytes:
    """Read bytes of a source; fewer if a preallocated file was truncated in the meantime, as when a broker rolls it."""
    while True:
        try:
            return source.window(start, stop)
        except FileChangedError:
            if not source.follow_cut(start):
                raise
            stop = min(stop, source.size)


def valid_at(source: ByteSource, window: Window, batches: BatchTable) -> npt.NDArray[np.bool_]:
    """Which of a window's batches have a correct checksum; reads their bytes if the window has none."""
    if window.data.size or window.valid is not None:
        return valid_crcs(window, batches)
    valid, first = np.empty(len(batches), np.bool_), 0
    while first < len(batches):
        start = int(batches.position[first])
        last = max(int(np.searchsorted(batches.next_position, start + WINDOW_BYTES, side="right")), first + 1)
        some = batches[first:last]
        data = window_of(source, start, some.end_position)
        valid[first:last] = valid_crcs(Window(data, start, some))
        source.release(data, start)
        first = last
    return valid


def _half_written(source: ByteSource, window: Window) -> int | None:
    """First row of a window with a wrong checksum that may be half written, so worth reading again; None if none."""
    wrong = np.flatnonzero(~valid_crcs(window))
    if not wrong.size or not source.await_writer(int(window.batches.position[wrong[0]])):
        return None
    return int(wrong[0])


def is_followed(source: ByteSource, position: int, size: int, stop: int) -> bool:
    """Whether a batch of this size is followed by another one, by zeros or by the end: then its size is not damaged.

    Of a batch that is too large to be read, nothing else tells whether it is intact.
    """
    end = position + size
    if end >= stop:
        return end == stop
    header, before = (BatchHeader(window_of(source, at, min(at + MAGIC_END, stop))) for at in (end, position))
    if len(header) < MAGIC_END:
        return True
    is_batch = header.magic <= 2 and header.size_in_bytes > kf.LOG_OVERHEAD and header.offset >= before.offset
    return is_batch or source.is_padding(end, end + MAGIC_END)


def _check_batch_size(source: ByteSource, position: int, needed: int, stop: int, limits: Limits) -> None:
    if needed > limits.max_batch_bytes:
        if not is_followed(source, position, needed, stop):
            detail = "the size field leads to bytes that are no batch"
            offset = _offset_at(source, position, stop)
            raise error_from_status(
                STATUS["CRC_MISMATCH"], path=source.path, position=position, base_offset=offset, detail=detail
            )
        raise LimitExceededError(
            Reason.BATCH_TOO_LARGE,
            f"the batch has {needed} bytes, max_batch_bytes is {limits.max_batch_bytes}",
            path=source.path,
            position=position,
            base_offset=_offset_at(source, position, stop),
            length=needed,
        )


def _explain(
    source: ByteSource,
    status: int,
    position: int,
    head: bytes,
    needed: int,
    previous_offset: int,
    stop: int,
    limits: Limits,
) -> KafkalogError:
    """Return the error about a position where no batch could be parsed; `head` has the first bytes there."""
    left = stop - position
    offset = BatchHeader(head).offset if len(head) >= 8 else None
    if position == 0 and (kind := packed_kind(head)) is not None:
        detail = f"not damaged, but {kind}; unpack it under the same name first"
        return UnsupportedError(Reason.COMPRESSED_FILE, detail, path=source.path, position=0)
    if status == _NEED_MORE:
        # a wrong size field looks like a truncated batch: trust the size only if no intact batch follows
        is_whole = claims_up_to(source, position, stop, limits) is not None
        if left <= _TORN_ENVELOPE or (
            needed <= limits.max_batch_bytes
            and not is_whole
            and not _holds_batch(source, position, stop, previous_offset, limits)
        ):
            detail = f"the last {left} bytes are not a whole batch" + (f" of {needed} bytes" if needed else "")
            return TruncatedTailError(
                Reason.PARTIAL_TAIL, detail, path=source.path, position=position, base_offset=offset, length=left
            )
        return CorruptionError(
            Reason.SIZE_EXCEEDS_FILE,
            f"the size field needs {needed} bytes, but the checksum is that of the {left} that are left"
            if is_whole
            else f"the size field reaches {needed - left} bytes past the end of the file, over intact batches"
            if needed <= limits.max_batch_bytes
            else f"the size field needs {needed} bytes, but {left} are left",
            path=source.path,
            position=position,
            base_offset=offset,
            length=left,
        )
    detail = f"after offset {previous_offset}" if status == STATUS["OFFSET_ORDER"] else ""
    return error_from_status(
        status, path=source.path, position=position, base_offset=offset, length=needed or None, detail=detail
    )


def reason_of(
    source: ByteSource, start: int, end: int, stop: int, head: bytes, *, is_unwritten: bool, limits: Limits
) -> Reason:
    """Return why the bytes from `start` to `end`, which begin with `head`, are no batch: as `_explain` has it.

    For those who set bytes apart that a walk passes over. `stop` is the end of the file; `is_unwritten` says that all
    of the bytes are padding.
    """
    if start == 0 and packed_kind(head) is not None:
        return Reason.COMPRESSED_FILE
    if is_unwritten:
        return Reason.ZERO_FILL
    if len(head) < MAGIC_END or stop - start <= _TORN_ENVELOPE:
        return Reason.PARTIAL_TAIL if end == stop else Reason.SIZE_TOO_SMALL
    first = np.frombuffer(head.ljust(_JUDGED, b"\0"), np.uint8)[:_JUDGED]
    _, status, *_ = HeaderParser(1).parse(first, 0, -1)
    if status != _NEED_MORE:
        return error_from_status(status, path=None, position=start).reason
    header = BatchHeader(head)
    size = header.size_in_bytes
    if size > stop - start:
        return Reason.PARTIAL_TAIL if end == stop else Reason.SIZE_EXCEEDS_FILE
    if header.offset < 0:
        return Reason.OFFSET_OUTSIDE_SEGMENT
    is_large = limits.max_batch_bytes < size and is_followed(source, start, size, stop)
    return Reason.BATCH_TOO_LARGE if is_large else Reason.CRC_MISMATCH


_PACKED: Final = {
    b"\x1f\x8b\x08": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\x04\x22\x4d\x18": "compressed with lz4",
    b"\xfd7zXZ\0": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"\xff\x06\0\0sNaPpY": "compressed with snappy",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file, and no segment",
}
"""What a file begins with that somebody made of a segment. As a first offset it would be above 10**17."""


def packed_kind(head: bytes) -> str | None:
    """What somebody made of a segment, by its first bytes; None for none of these."""
    return next((name for start, name in _PACKED.items() if head.startswith(start)), None)


def _zero_fill(source: ByteSource, position: int, stop: int) -> TruncatedTailError:
    left = stop - position
    return TruncatedTailError(
        Reason.ZERO_FILL, f"the last {left} bytes are zeros", path=source.path, position=position, length=left
    )


def _offset_at(source: ByteSource, position: int, stop: int) -> int | None:
    if stop - position < 8:
        return None
    return BatchHeader(window_of(source, position, position + 8)).offset


def intact_batch_at(source: ByteSource, position: int, max_bytes: int) -> tuple[Window | None, int]:
    """Return the batch at a position, if one with a correct checksum starts there, and the number of bytes read."""
    window, n_read = batch_at(source, position, max_bytes)
    if window is None or valid_crcs(window)[0]:
        return window, n_read
    source.release(window.data, position)
    return None, n_read


def claims_up_to(source: ByteSource, position: int, stop: int, limits: Limits) -> Claims | None:
    """The header of the batch that has exactly these bytes, as its checksum says; None if there is none.

    A batch whose size field alone is wrong is whole: a write that did not end has no correct checksum.
    """
    size = stop - position
    if not kf.LEAST_BATCH_BYTES <= size <= limits.max_batch_bytes:
        return None
    data = window_of(source, position, stop)
    whole = data.copy()
    source.release(data, position)
    whole[8:12] = np.frombuffer((size - kf.LOG_OVERHEAD).to_bytes(4, "big"), np.uint8)
    tables, *_ = HeaderParser(1).parse(whole, 0, -1)
    is_whole = bool(tables) and bool(valid_crcs(Window(whole, 0, tables[0]))[0])
    return claims_of(BatchHeader(whole)) if is_whole else None


def intact_headers_at(source: ByteSource, position: int, max_bytes: int) -> BatchTable | None:
    """The headers of `intact_batch_at`, whose bytes are released."""
    window, _ = intact_batch_at(source, position, max_bytes)
    if window is None:
        return None
    source.release(window.data, position)
    return window.batches


def batch_at(source: ByteSource, position: int, max_bytes: int, previous_offset: int = -1) -> tuple[Window | None, int]:
    """Return the batch that `walk` finds at a position, if there is one, and the number of bytes read."""
    least = kf.LEAST_BATCH_BYTES
    if not 0 <= position <= source.size - least:
        return None, 0
    data = window_of(source, position, position + least)
    if data.size < least:
        return None, 0
    header = BatchHeader(data)
    source.release(data, position)
    size = header.size_in_bytes
    if not least <= size <= min(max_bytes, source.size - position) or header.magic > 2:
        return None, least
    data = window_of(source, position, position + size)
    tables, _, _, _, _ = HeaderParser(1).parse(data, position, previous_offset)
    if tables:
        return Window(data, position, tables[0]), size
    source.release(data, position)
    return None, size


def is_chain(source: ByteSource, position: int, n_bytes: int | None = None) -> bool:
    """Whether complete batches follow each other from a position on, for `n_bytes` or to the end of the file.

    Checksums are not compared.
    """
    if n_bytes is None:
        n_bytes = _FETCHED_BYTES if source.fetches_ranges else WINDOW_BYTES
    stop = min(position + n_bytes, source.size)
    data = window_of(source, position, stop)
    stop = position + data.size
    _, status, reached, needed, _ = HeaderParser().parse(data, position, -1)
    source.release(data, position)
    return status == _NEED_MORE and (reached == stop or (stop < source.size and reached + needed <= source.size))


def _holds_batch(source: ByteSource, position: int, stop: int, after_offset: int, limits: Limits) -> bool:
    """Whether an intact batch with an offset above `after_offset` begins after the start of a truncated batch."""
    return any(
        bool(((first_offset > after_offset) & (kind != LINKED) & (kind != INSIDE)).any())
        for _, _, first_offset, _, _, kind in search_batches(source, position, stop, is_damaged=True, limits=limits)
    )


def _before_hole(source: ByteSource, position: int, needed: int, end: int) -> int:
    """The end of a window: soon after the start of a hole that is worth skipping, with all bytes that are needed."""
    at = position
    for _ in range(_MOST_HOLES):
        if (hole := source.next_hole(at)) >= end:
            break
        at = source.next_data(hole)
        if at - hole > _LEAST_HOLE + 2 * _LOOK_BACK:
            return min(max(hole + _LOOK_BACK, position + needed), end)
    return end


def search_batches(
    source: ByteSource, start: int, stop: int, *, is_damaged: bool = False, limits: Limits
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Find all intact batches in a range, in time linear in its size; a batch should begin at `start`.

    With `is_damaged`, the batch at `start` is searched inside, although its size field may be right. Memory is bounded
    by four times `limits.max_batch_bytes`, or by 8 MiB if batches are small.

    Yields arrays: position, size in bytes, first offset, last offset, leader epoch and kind of batches, except those
    inside a damaged compressed message. `kafkalog._kernels.resync.scan_window` describes the kinds.
    """
    first = search_kernels.LOOK_INSIDE if is_damaged else search_kernels.EXPECTED
    state = np.array([first, 0, start, search_kernels.KINDS["CHAINED"], -1, 0, 0], np.int64)
    columns = [np.empty(_SEARCH_ROWS, dtype) for dtype in ("i8", "i4", "i8", "i8", "i4", "i1")]
    position, needed = start, 0
    while position < stop:
        # a size field in a hole is 0, which no batch has
        if not state[0] and (data := source.next_data(position) - kf.LOG_OVERHEAD) - position > _LEAST_HOLE:
            position = data
            continue
        low = max(position - _LOOK_BACK, start)
        end = min(position + max(_SEARCH_BYTES, needed + min(needed, _MOST_EXTRA_BYTES)), stop)
        window = window_of(source, low, _before_hole(source, position, needed, end))
        stop = min(stop, source.size)
        n_blocks = window.size // search_kernels.BLOCK_BYTES + 2
        # untouched memory costs nothing until a long candidate needs it
        sums = np.empty(n_blocks, np.uint32), np.empty(n_blocks, np.uint32), np.ones(2, np.int64)
        status = _OUTPUT_FULL
        while status == _OUTPUT_FULL:
            status, n, index, needed = search_kernels.scan_window(
                window, position - low, low, stop, limits.max_batch_bytes, *sums, state, *columns
            )
            position = low + index
            rows = columns[-1][:n] != _WRAPPED  # content of a damaged batch proves nothing
            if rows.any():
                yield tuple(column[:n].copy() if rows.all() else column[:n][rows] for column in columns)
        source.release(window, low)
        del window
        if status != _NEED_MORE:
            return
