"""Redaction: parts of records are set to null or replaced by a hash, column by column.

Redacted bytes are removed from the columns' data, not only marked as null. This module does not choose the records.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import Column, RecordColumns

ACTIONS: Final = ("null", "hash")
TARGETS: Final = ("key", "value", "headers", "headers.NAME")
_HEADER = "headers."

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Redaction:
    """The parts of a record to redact, and how."""

    actions: tuple[tuple[str, str], ...]
    """Target and action. Targets are ``key``, ``value``, ``headers`` (all of them) and ``headers.NAME`` (the values of
    every header of that name). Actions are ``null`` (removes all headers if the target is ``headers``) and
    ``hash``.
    """
    secret: bytes | None = None
    """With a secret the hash is HMAC-SHA-256, else SHA-256; 64 hex digits either way. Null stays null."""

    @classmethod
    def parse(cls, redact: Mapping[str, str | None], secret: bytes | str | None = None) -> Redaction:
        """Check and convert an option: a mapping of target to action, None for ``null``."""
        if not isinstance(redact, Mapping):
            raise TypeError(f"redact must be a mapping such as {{'value': 'null'}}, not {type(redact).__name__}")
        actions = []
        for target, given in redact.items():
            action = "null" if given is None else given
            if target not in TARGETS[:3] and not (isinstance(target, str) and target.removeprefix(_HEADER) != target):
                raise ValueError(f"no part {target!r} to redact; expected one of {', '.join(TARGETS)}")
            if action not in ACTIONS or target == _HEADER:
                raise ValueError(f"redact {target!r} with {' or '.join(map(repr, ACTIONS))}, not {action!r}")
            if target == "headers" and action != "null":
                raise ValueError("all headers can only become 'null'; to hash one, name it: headers.NAME")
            actions.append((target, action))
        if not actions:
            raise ValueError("redact names nothing to redact")
        if secret is not None and not any(action == "hash" for _, action in actions):
            raise ValueError("a secret needs a part with the action 'hash'")
        return cls(tuple(actions), secret.encode() if isinstance(secret, str) else secret)

    @property
    def removes_keys(self) -> bool:
        """Whether keys become null."""
        return ("key", "null") in self.actions

    def apply(self, columns: RecordColumns, rows: Mask) -> RecordColumns:
        """Return the records with those in `rows` (bool[n]) redacted."""
        changed: dict[str, Column] = dict(columns)
        for target, action in self.actions:
            column: Any = changed["headers" if target.startswith(_HEADER) else target]
            if target == "headers":
                changed[target] = _without_headers(column, rows)
            elif target.startswith(_HEADER):
                name = target.removeprefix(_HEADER).encode()
                mask = np.repeat(rows, np.diff(column.offsets)) & (column.key == name)
                changed["headers"] = HeadersColumn(column.offsets, column.key, self._change(column.value, mask, action))
            else:
                changed[target] = self._change(column, rows, action)
        return RecordColumns(columns.n_records, changed)

    def _change(self, column: BinaryColumn, rows: Mask, action: str) -> BinaryColumn:
        return _nulled(column, rows) if action == "null" else self._hashed(column, rows)

    def _hashed(self, column: BinaryColumn, rows: Mask) -> BinaryColumn:
        if column.validity is not None:
            rows = rows & column.validity
        size = np.diff(column.offsets)
        size[rows] = _HASH_SIZE
        parts: list[npt.NDArray[np.uint8]] = []
        at = 0
        for row in np.flatnonzero(rows).tolist():
            start, stop = int(column.offsets[row]), int(column.offsets[row + 1])
            parts += (column.data[at:start], self._hash(column.data[start:stop]))
            at = stop
        data = np.concatenate([*parts, column.data[at : column.offsets[-1]]])
        return BinaryColumn(_offsets(size), data, column.validity)

    def _hash(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        if self.secret is None:
            digest = hashlib.sha256(data).hexdigest()
        else:
            digest = hmac.new(self.secret, data, hashlib.sha256).hexdigest()
        return np.frombuffer(digest.encode(), np.uint8)


_HASH_SIZE = 64


def _nulled(column: BinaryColumn, rows: Mask) -> BinaryColumn:
    size = np.diff(column.offsets)
    # the bytes go, too: a null may still point at them, and whoever reads the column's data would see them
    data = column.data[: column.offsets[-1]][np.repeat(~rows, size)]
    size[rows] = 0
    validity = ~rows if column.validity is None else column.validity & ~rows
    return BinaryColumn(_offsets(size), data, validity)


def _without_headers(headers: HeadersColumn, rows: Mask) -> HeadersColumn:
    count = np.diff(headers.offsets)
    kept = np.repeat(~rows, count)
    count[rows] = 0
    return HeadersColumn(_offsets(count), _filtered(headers.key, kept), _filtered(headers.value, kept))


def _filtered(column: BinaryColumn, kept: Mask) -> BinaryColumn:
    size = np.diff(column.offsets)
    data = column.data[: column.offsets[-1]][np.repeat(kept, size)]
    return BinaryColumn(_offsets(size[kept]), data, None if column.validity is None else column.validity[kept])


def _offsets(size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(size.size + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return offsets
