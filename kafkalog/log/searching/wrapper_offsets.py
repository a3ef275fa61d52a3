"""Reads where the offsets of compressed v0 and v1 messages begin, which their headers do not say.

The messages inside of a wrapper say it: those of v1 count from the first one, those of v0 have their own offsets, and
prove that of the wrapper. Where batches contradict each other, that tells more of them apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Limits
from kafkalog.log.searching.resync import Found
from kafkalog.records.batch_table import Window, whole_batches
from kafkalog.records.decode import decode
from kafkalog.storage.source import Bytes, ByteSource

_MOST_ROWS: Final = 4096
_MAGIC, _ATTRIBUTES = 16, 17  # positions in a message


class MessageHeader(NamedTuple):
    """What the first bytes of a message of v0 or v1 say."""

    magic: int
    is_compressed: bool


def header_of(source: ByteSource, position: int) -> MessageHeader:
    """Read the magic and the codec of a message."""
    head = source.window(position, min(position + _ATTRIBUTES + 1, source.size))
    header = MessageHeader(int(head[_MAGIC]), bool(head[_MAGIC] < 2 and head[_ATTRIBUTES] & kf.CODEC_MASK))
    source.release(head, position)
    return header


def read_wrappers(source: ByteSource, runs: Found, limits: Limits) -> tuple[Found, npt.NDArray[np.bool_]]:
    """The runs, with the first offset of each lone compressed message; and which of these prove their own offset wrong.

    Parameters
    ----------
    limits : Limits
    """
    first, is_wrong = runs.first_offset.copy(), np.zeros(len(runs), np.bool_)
    is_lone = (runs.leader_epoch < 0) & (runs.n_batches == 1) & (runs.first_offset == runs.last_offset)
    for row in np.flatnonzero(is_lone)[:_MOST_ROWS].tolist():
        start, end = int(runs.start[row]), int(runs.end[row])
        data = source.window(start, end)
        if data[_MAGIC] < 2 and data[_ATTRIBUTES] & kf.CODEC_MASK:
            offsets = _offsets_inside(data, limits)
            if offsets.size and int(offsets[-1]) == int(runs.last_offset[row]):
                first[row] = offsets[0]
            # of v1 the offsets inside are relative: they prove nothing about the wrapper's own
            elif offsets.size and data[_MAGIC] == 0:
                is_wrong[row] = True
        source.release(data, start)
        del data
    return replace(runs, first_offset=first), is_wrong


def _offsets_inside(data: Bytes, limits: Limits) -> npt.NDArray[np.int64]:
    """Offsets of the messages in a wrapper; none if it cannot be read, which does not make its offset wrong."""
    none = np.empty(0, np.int64)
    batches = whole_batches(data, 0)
    if len(batches) != 1:
        return none
    columns = decode(Window(data, 0, batches), ["offset"], check_crcs=False, limits=limits).columns
    return none if columns is None else np.asarray(columns["offset"])
