"""Committed offsets of many records of `__consumer_offsets` at once, a column at a time.

`kafkalog.protocol` decodes such a record alone, of any version, and says what is wrong with it. A topic has as many of
them as groups have partitions, so the versions that brokers write are read here in columns; other records, and those
that break off, are left to it.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.records.columns import BinaryColumn

_LEGACY, _COMMIT = 0, 1
_WITH_EPOCH: Final = 3
_WITH_EXPIRY: Final = 1
_FLEXIBLE: Final = 4
_ID_TAG, _ID_BYTES = 0, 16
_SLACK: Final = 8

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


class Commits(NamedTuple):
    """Committed offsets, a list for each field."""

    group: list[str]
    topic: list[str]
    partition: list[int]
    offset: list[int]
    leader_epoch: list[int]
    metadata: list[str]
    commit_timestamp: list[int]


def read_commits(keys: BinaryColumn, values: BinaryColumn) -> tuple[Mask, Commits]:
    """Read the records that are commits, of versions 0 to 4.

    Returns
    -------
    bool[n]
        Which records these are. Those that break off, or have text that is not UTF-8, are not among them.
    Commits
        In their order.
    """
    key, value = _Records(keys), _Records(values)
    kind, version = key.number(">i2"), value.number(">i2")
    is_legacy, is_flexible = kind == _LEGACY, version == _FLEXIBLE
    key.only(is_legacy | (kind == _COMMIT))
    value.only((version >= 0) & (version <= np.where(is_legacy, 0, _FLEXIBLE)))
    names = key.text(), key.text()
    partition = key.number(">i4")
    offset = value.number(">i8")
    epoch = np.where(version >= _WITH_EPOCH, value.number(">i4", version >= _WITH_EPOCH), -1)
    metadata = value.text(is_flexible)
    time = value.number(">i8")
    value.number(">i8", version == _WITH_EXPIRY)
    has_id = value.number("u1", is_flexible, at_most=1) == 1  # of tagged fields, a topic id may be there
    has_id &= is_flexible
    value.number("u1", has_id, at_most=_ID_TAG)
    value.only((value.number("u1", has_id) == _ID_BYTES) | ~has_id)
    value.skip(np.where(has_id, _ID_BYTES, 0))
    rows = np.flatnonzero(key.fits & value.fits)
    texts = [*(key.decoded(name, rows) for name in names), value.decoded(metadata, rows)]
    if any(None in some for some in texts):
        is_text = [None not in some for some in zip(*texts, strict=True)]
        rows, texts = rows[is_text], [[*compress(some, is_text)] for some in texts]
    is_commit = np.zeros(len(keys), np.bool_)
    is_commit[rows] = True
    numbers = [column[rows].tolist() for column in (partition, offset, epoch)]
    return is_commit, Commits(*texts[:2], *numbers, texts[2], time[rows].tolist())  # type: ignore[call-arg]


class _Records:
    """A position in each of some byte strings.

    Attributes
    ----------
    fits : bool[n]
        Whether what was read so far lies within the byte string.
    """

    def __init__(self, column: BinaryColumn) -> None:
        # a number may be read behind the last byte string, and is dropped then
        self._data = np.concatenate([column.data, np.zeros(_SLACK, np.uint8)])
        self._at, self._stop = column.offsets[:-1].copy(), column.offsets[1:]
        self.fits = np.ones(len(column), np.bool_) if column.validity is None else column.validity.copy()

    def only(self, wanted: Mask) -> None:
        """Leave out the others."""
        self.fits &= wanted

    def number(self, kind: str, wanted: Mask | None = None, at_most: int | None = None) -> Numbers:
        """The next number; only where it is wanted, the others keep their position."""
        dtype = np.dtype(kind)
        size = dtype.itemsize if wanted is None else np.where(wanted, dtype.itemsize, 0)
        self.fits &= self._at + size <= self._stop
        # a record that has broken off reads at 0 from here on, so that no index leaves the buffer
        at = np.where(self.fits, self._at, 0)
        found: Numbers = self._data[at[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]
        found = found.astype(dtype.newbyteorder("="))
        self._at += size
        if at_most is not None:
            self.fits &= (found <= at_most) | (size == 0)
        return found

    def skip(self, sizes: Numbers) -> None:
        """Pass over bytes."""
        self._at += sizes
        self.fits &= self._at <= self._stop

    def text(self, is_compact: Mask | None = None) -> tuple[Numbers, Numbers]:
        """Where the next text begins and ends. Its length takes two bytes, or one where it is compact."""
        if is_compact is None:
            size = self.number(">i2").astype(np.int64)
        else:
            long, short = self.number(">i2", ~is_compact), self.number("u1", is_compact, at_most=0x7F)
            size = np.where(is_compact, short.astype(np.int64) - 1, long)
        self.fits &= (size >= 0) & (size <= self._stop - self._at)
        start = self._at.copy()
        self._at += np.where(self.fits, size, 0)
        return start, self._at.copy()

    def decoded(self, bounds: tuple[Numbers, Numbers], rows: Numbers) -> list[Any]:
        """Texts of some records; None for those that are not UTF-8."""
        whole = self._data.tobytes()
        start, stop = (bound[rows].tolist() for bound in bounds)
        try:
            return [whole[a:b].decode() if a < b else "" for a, b in zip(start, stop, strict=True)]
        except UnicodeDecodeError:
            return [_text(whole[a:b]) for a, b in zip(start, stop, strict=True)]


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
