"""Read good batches of a file and fill columns with their records, in one kernel call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels import fill as fill_kernels
from kafkalog._kernels import header_walk as kernels
from kafkalog._kernels.header_rows import HeaderRows
from kafkalog.errors import Limits
from kafkalog.records.batch_table import COLUMNS, BatchTable, ReadTable, Window, all_valid, filled_counts
from kafkalog.records.columns import RecordColumns
from kafkalog.records.fill import VIEWED_ARENA, FillCall, Filled, Form, room_for, thread_rates, with_batch_columns
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.source import NO_BYTES, Bytes

_READ_BYTES: Final = 2**18  # read at a time: they stay in a core's cache until they are decoded
_LEAST_ROWS, _MOST_ROWS = 2**6, 2**16  # batches per call
_LEAST_LARGEST: Final = 2**14


def read_filled(
    of: int | Bytes,
    start: int,
    stop: int,
    previous_offset: int,
    names: Sequence[str],
    *,
    form: Form,
    offsets: tuple[int, int],
    check_crcs: bool,
    n_bytes: int,
    limits: Limits,
    stop_at: int = 0,
    maps: bool = False,
) -> Window | None:
    """Read batches of a file and fill columns with their records, in pieces that fit a core's cache.

    Parameters
    ----------
    of : int or uint8[n]
        A file descriptor to read from, or the bytes themselves, from `start` on.
    start, stop : int
        Positions in the file; a batch begins at `start`.
    previous_offset : int
        Offsets must rise above this one.
    names, form, limits
        See `fill`.
    offsets : tuple of int
        Half-open; the call ends before a batch with other offsets.
    check_crcs : bool
    n_bytes : int
        Number of bytes of payload for which to make room.
    stop_at : int
        The call ends before a batch of v2 with one of these attribute bits.
    maps : bool
        Whether to map the file instead of reading it; not for views.

    Returns
    -------
    Window or None
        With the records, and the bytes if they were given, or if views point to them. None if the first batch is not
        one that the kernel reads.
    """
    rates = thread_rates()
    n_bytes = room_for(stop - start, n_bytes)
    if rates.is_compressed and form == "views":
        n_bytes = min(n_bytes, VIEWED_ARENA)
    rows = HeaderRows(min(int(1.25 * rates.n_batches * n_bytes) + _LEAST_ROWS, _MOST_ROWS))
    call = FillCall(names, form, n_bytes, limits, announced=None, decompress=True)
    descriptor, data, room = -1, None, None
    if isinstance(of, int):
        descriptor = of
        room = None if maps else empty(n_bytes if form == "views" else _READ_BYTES, np.uint8)
    else:
        data = of

    def work(filler: fill_kernels.Filler) -> tuple[int, int]:
        nonlocal room
        while True:
            n, needed, ending = kernels.read_intact(
                descriptor,
                start,
                stop,
                previous_offset,
                limits.max_batch_bytes,
                check_crcs,
                stop_at,
                *offsets,
                _READ_BYTES,
                room,
                data,
                filler,
                rows,
            )
            if n or room is None or not room.size < needed <= min(limits.max_batch_bytes, stop - start):
                return ending, n
            room = empty(needed, np.uint8)  # one batch larger than that: try again with room for it

    n_batches = call.make(work)
    if not n_batches:
        return None
    batches, bits = ReadTable(rows), rows.attribute_bits
    n_bytes = rows.end_position - start
    rates.largest = max(rows.largest, _LEAST_LARGEST)
    rates.is_compressed = bool(bits & kf.CODEC_MASK)
    rates.n_batches = n_batches / n_bytes
    if data is not None:
        kept = data[:n_bytes]
    elif room is not None and form == "views":
        kept = room[:n_bytes]  # nothing was read behind them
    else:
        kept = NO_BYTES
    filled = call.filled(n_batches, kept)
    if filled.n_records:
        is_usual = rows.magics == 1 << 2 and not bits & kf.CONTROL_BIT
        of_records = (lambda: batches) if is_usual else partial(_of_records, batches, filled_counts(rows), filled)
        has_create_times = not (rows.magics & 1 or bits & kf.TIMESTAMP_TYPE_BIT)
        records = with_batch_columns(filled, of_records, names, has_create_times=has_create_times)
    else:
        records = RecordColumns.empty(names)
    return Window(kept, start, batches, all_valid(n_batches) if check_crcs else None, records, rows.next_offset)


def _of_records(batches: BatchTable, n_filled: npt.NDArray[np.int32], filled: Filled) -> BatchTable:
    """The batches with records; those of v0 and v1 get counts and base offsets that their headers may lack."""
    # messages of v0 and v1 have a row each: copying the table takes a tenth of the time
    if not n_filled.all():
        batches, n_filled = batches[n_filled > 0], n_filled[n_filled > 0]
    is_hidden = batches.records_count < 0
    if not is_hidden.any():
        return batches
    offset: Any = filled.columns.get("offset")
    base_offset = batches.base_offset
    if offset is not None:
        base_offset = base_offset.copy()
        base_offset[is_hidden] = offset[(np.cumsum(n_filled, dtype=np.int64) - n_filled)[is_hidden]]
    return BatchTable(
        **{name: getattr(batches, name) for name in COLUMNS} | {"records_count": n_filled, "base_offset": base_offset}
    )
