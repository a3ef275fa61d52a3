"""`filters=`: conditions on records, applied to walked spans before any record is copied.

The notation is that of `pyarrow.parquet`: a list of ``(column, operation, value)`` that all have to hold, or a list of
such lists of which one has to hold. Conditions on columns with one value per batch, segment or partition rule those
out without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import kafkalog._kernels.filters as kernels
from kafkalog import format as kf
from kafkalog.records.batch_columns import batch_column
from kafkalog.records.batch_table import BatchTable, sequences
from kafkalog.records.columns import BINARY_COLUMNS
from kafkalog.records.decode import headers_of
from kafkalog.records.selection import FunctionFailure, Mask, hides_last_offset, no_timestamp
from kafkalog.records.spans import Spans
from kafkalog.values.mixed_fields import TEXT_OPERATIONS, matches_pattern

_INT64: Final = np.iinfo(np.int64)
_BOUNDED: Final = ("offset", "timestamp")

PLACE: Final = ("topic", "partition")
"""Columns with one value per partition."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
MEMBERSHIP = ("in", "not in")
NULLS = ("is null", "is not null")
BINARY_ONLY = ("starts_with", "contains")
"""Operations on text that a kernel applies."""
PATTERNS: Final = tuple(name for one in TEXT_OPERATIONS for name in (one, f"not {one}") if name not in BINARY_ONLY)
"""Operations on text that Arrow applies."""
OPERATIONS: Final = (*_COMPARISONS, *MEMBERSHIP, *NULLS, *BINARY_ONLY, *PATTERNS)

# Columns with one value per batch, known from its header. Not the base offset: the messages in a compressed v0 or v1
# message each have their own.
_OF_BATCH: Final = frozenset(
    {"leader_epoch", "producer_id", "producer_epoch", "is_transactional", "is_control", "compression", "batch_position"}
)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: a column, an operation, a value."""

    column: str
    """A record column, a derived one, or ``headers.NAME``."""
    operation: str
    """One of `OPERATIONS`; for ``headers`` also `has` and `has not`."""
    value: Any = None
    """A value in the type of the column: int, bool, bytes, str. A tuple of them for `in` and `not in`."""
    texts: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, column: str, operation: str, value: Any = None) -> Term:
        """The term for a value that is in the type of the column."""
        return cls(column, operation, value, _texts(column, operation, value))

    def __reduce__(self) -> Any:
        # a set of texts is compiled: the other process makes its own
        return Term.of, (self.column, self.operation, self.value)

    def __str__(self) -> str:
        if self.operation in NULLS:
            return f"{self.column} {self.operation}"
        value = self.value
        if self.column == "compression":
            value = tuple(map(_codec_name, value)) if self.operation in MEMBERSHIP else _codec_name(value)
        return f"{self.column} {self.operation} {list(value) if isinstance(value, tuple) else value!r}"

    @property
    def is_of_batch(self) -> bool:
        """Whether the batch header decides the condition for all records of the batch."""
        return self.column in _OF_BATCH

    @property
    def reads_headers(self) -> bool:
        """Whether the condition reads record headers."""
        return self.column == "headers" or self.column.startswith("headers.")

    @property
    def is_bound(self) -> bool:
        """Whether the condition is all that `Filter.bounds` says of it."""
        if self.column not in _BOUNDED or self.operation not in (">", ">=", "==", "<", "<="):
            return False
        bounds = (one for one in (_start(self), _end(self)) if one is not None)
        return all(_INT64.min <= one <= _INT64.max for one in bounds)

    def holds_for(self, value: Any) -> bool:
        """Whether the condition holds for a value."""
        return bool(_compare(np.array([value], object), None, self)[0])

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """bool[n]: batches that may hold a matching record; None if their headers rule out none."""
        if self.is_of_batch:
            return _compare(batch_column(self.column, batches), None, self)
        if self.column == "offset" and self.operation in (">", ">=", "==", "<", "<="):
            unknown = hides_last_offset(batches)
            mask = np.ones(len(batches), np.bool_)
            if self.operation in (">", ">=", "=="):
                mask &= (
                    _COMPARISONS[">=" if self.operation == "==" else self.operation](batches.last_offset, self.value)
                    | unknown
                )
            if self.operation in ("<", "<=", "=="):
                first = np.where(batches.base_offset >= 0, batches.base_offset, np.int64(-1))
                mask &= _COMPARISONS["<=" if self.operation == "==" else self.operation](first, self.value)
            return mask
        if self.column == "timestamp" and self.operation in (">", ">=", "=="):
            unknown = (batches.magic == 0) & (batches.codec != 0)
            compare = _COMPARISONS[">=" if self.operation == "==" else self.operation]
            may: npt.NDArray[np.bool_] = compare(batches.max_timestamp, self.value) | unknown
            return may
        return None

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> None:
        """Clear the records in `mask` that do not match."""
        if self.column in BINARY_COLUMNS:
            self._narrow_binary(spans, mask)
        elif self.reads_headers:
            self._narrow_headers(spans, mask)
        elif self.column in derived:
            column = derived[self.column]
            null = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None
            mask &= _compare(np.ma.getdata(column), null, self)
        elif self.column == "timestamp":
            mask &= _compare(spans.timestamp, no_timestamp(spans), self)
        elif self.column == "offset":
            mask &= _compare(spans.offset, None, self)
        elif self.column == "sequence":
            mask &= _compare(sequences(spans.offset, spans.batches, spans.batch_row()), None, self)
        else:
            own: dict[str, npt.NDArray[Any] | None] = {
                "timestamp_type": spans.timestamp_type,
                "batch_base_offset": spans.batch_base_offset,
            }
            mine = own.get(self.column)
            if mine is not None:
                mask &= _compare(mine, None, self)
                return
            matches = _compare(batch_column(self.column, spans.batches), None, self)
            if not matches.all():
                mask &= np.repeat(matches, spans.counts)

    def _narrow_binary(self, spans: Spans, mask: Mask) -> None:
        is_key = self.column == "key"
        start = spans.key_start if is_key else spans.value_start
        size = spans.key_size if is_key else spans.value_size
        if self.operation in PATTERNS:
            rows = np.flatnonzero(mask)
            ends = start[rows] + size[rows]
            values = [
                None if n < 0 else bytes(spans.data[begin:end])
                for begin, end, n in zip(start[rows].tolist(), ends.tolist(), size[rows].tolist(), strict=True)
            ]
            mask[rows] &= matches_pattern(pa.array(values, pa.binary()), self.operation, self.value)
            return
        if self.operation in MEMBERSHIP:
            texts, null_is_in = self.texts
            kernels.match_set(spans.data, start, size, texts, null_is_in, self.operation == "not in", mask)
        else:
            kernels.match_bytes(spans.data, start, size, kernels.OPERATIONS[self.operation], self.texts[0], mask)

    def _narrow_headers(self, spans: Spans, mask: Mask) -> None:
        has_not = self.operation == "has not"
        if spans.headers_start is None or spans.headers_count is None:
            if not has_not:
                mask[:] = 0
            return
        if self.operation in (*PATTERNS, *MEMBERSHIP):
            self._narrow_header_values(spans, mask)
            return
        any_value = self.operation in ("has", "has not")
        operation = kernels.OPERATIONS["==" if any_value else self.operation]
        name, value = self.texts
        kernels.match_header(
            spans.data, spans.headers_start, spans.headers_count, name, operation, value, any_value, has_not, mask
        )

    def _narrow_header_values(self, spans: Spans, mask: Mask) -> None:
        rows = np.flatnonzero(mask)
        headers = headers_of(spans.data, spans.headers_start, spans.headers_count, rows, rows.size, spans.n_headers)
        name = self.column.removeprefix("headers.").encode()
        places = np.flatnonzero(np.array([key == name for key in headers.key.to_pylist()], np.bool_))
        values = headers.value.take(places).to_pylist()
        if self.operation in PATTERNS:
            matches = matches_pattern(pa.array(values, pa.binary()), self.operation, self.value)
        else:
            matches = np.array([(value in self.value) == (self.operation == "in") for value in values], np.bool_)
        found = np.zeros(rows.size, np.bool_)
        found[np.searchsorted(headers.offsets, places[matches], side="right") - 1] = True
        mask[rows] &= found


def _codec_name(number: int | None) -> str | None:
    return None if number is None else kf.CODEC_NAMES[number]


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _compare(column: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None, term: Term) -> npt.NDArray[np.bool_]:
    """Compare as Arrow does: comparisons with null are false; null is `in` a list only if the list has None."""
    operation, value = term.operation, term.value
    if operation in PATTERNS:
        return matches_pattern(pa.array(column.tolist(), pa.string()), operation, value)
    if operation == "is null":
        return np.zeros(column.shape, np.bool_) if null is None else null
    if operation == "is not null":
        return np.ones(column.shape, np.bool_) if null is None else ~null
    if operation in MEMBERSHIP:
        return _is_listed(column, null, term)
    if column.dtype == np.float32:
        column = column.astype(np.float64)  # else the value would be rounded to float32, and match other numbers
    matches: npt.NDArray[np.bool_] = _COMPARISONS[operation](column, value).astype(np.bool_)
    return matches if null is None else matches & ~null


def _is_listed(column: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None, term: Term) -> npt.NDArray[np.bool_]:
    """Whether values are in a list, or not in it."""
    known = [value for value in term.value if value is not None]
    # numbers that the column cannot hold equal none of its values; NumPy would raise for them
    if column.dtype.kind in "iu":
        known = [value for value in known if np.iinfo(column.dtype).min <= value <= np.iinfo(column.dtype).max]
    kind = np.dtype(np.float64) if column.dtype.kind == "f" else column.dtype
    listed = np.isin(column, np.array(known, kind)) if known else np.zeros(column.shape, np.bool_)
    if null is not None:
        listed = np.where(null, None in term.value, listed)
    return ~listed if term.operation == "not in" else listed


@dataclass(frozen=True, slots=True)
class Filter:
    """Groups of terms. A record matches if all terms of one group hold."""

    groups: tuple[tuple[Term, ...], ...]
    """Without groups no record matches. An empty group matches every record."""
    derived: frozenset[str] = frozenset()
    """Names of the derived columns (`extract=`)."""

    def __str__(self) -> str:
        texts = [" and ".join(str(term) for term in group) or "true" for group in self.groups]
        return " or ".join(f"({text})" if len(texts) > 1 else text for text in texts) or "false"

    @property
    def reads_headers(self) -> bool:
        """Whether any term reads record headers."""
        return any(term.reads_headers for group in self.groups for term in group)

    @property
    def reads_derived(self) -> bool:
        """Whether any term reads a derived column."""
        return any(term.column in self.derived for group in self.groups for term in group)

    def split(self) -> tuple[Filter, ...]:
        """Filters that together equal this one; terms on derived columns come in a filter of their own.

        So columns are derived only for records that the other terms leave.
        """
        if len(self.groups) != 1 or not self.reads_derived:
            return (self,)
        parts = [tuple(term for term in self.groups[0] if (term.column in self.derived) == late) for late in (0, 1)]
        return tuple(Filter((part,), self.derived) for part in parts if part)

    def bind(self, place: Mapping[str, Any]) -> Filter | Literal[True] | None:
        """The filter that remains where topic, partition or segment are known; None if no record there can match.

        True if every record there matches.
        """
        groups = []
        for group in self.groups:
            rest = []
            for term in group:
                if term.column not in place:
                    rest.append(term)
                elif not _holds_in_place(term, place[term.column]):
                    break
            else:
                if not rest:
                    return True
                groups.append(tuple(rest))
        return Filter(tuple(groups), self.derived) if groups else None

    def bounds(self) -> dict[str, int]:
        """Bounds of 64 bits that hold for every matching record: `start_offset`, `end_offset`, and of timestamps."""
        of_groups: dict[str, list[int | None]] = {}
        for column in _BOUNDED:
            terms = [[term for term in group if term.column == column] for group in self.groups]
            of_groups[f"start_{column}"] = [max(_known(map(_start, some)), default=None) for some in terms]
            of_groups[f"end_{column}"] = [min(_known(map(_end, some)), default=None) for some in terms]
        bounds = {}
        for name, values in of_groups.items():
            known = _known(values)
            # a bound holds for the whole filter only if every group has one
            if known and len(known) == len(values):
                is_end = name.startswith("end")
                bound = max(known) if is_end else min(known)
                if not is_end or bound <= _INT64.max:
                    bounds[name] = min(max(bound, _INT64.min), _INT64.max)
        return bounds

    def within_bounds(self) -> Filter | None:
        """The filter that remains for records within `bounds`; None if all of them match."""
        if len(self.groups) != 1:
            return self
        rest = tuple(term for term in self.groups[0] if not term.is_bound)
        return Filter((rest,), self.derived) if rest else None

    def about(self, columns: Container[str], *more: Term) -> Filter:
        """The narrowest filter about some columns alone that matches whatever this one matches, with terms added."""
        groups = [tuple(term for term in group if term.column in columns) for group in self.groups]
        return Filter(tuple((*group, *more) for group in dict.fromkeys(groups)), self.derived)

    def batch_mask(self, batches: BatchTable) -> npt.NDArray[np.bool_] | None:
        """bool[n]: batches that may hold a matching record; None for all."""
        whole: npt.NDArray[np.bool_] | None = None
        for group in self.groups:
            masks = [mask for term in group if (mask := term.batch_mask(batches)) is not None]
            if not masks:
                return None
            mask = np.logical_and.reduce(masks)
            whole = mask if whole is None else whole | mask
        return whole

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        """Clear the records in `mask` that match no group."""
        if len(self.groups) == 1:
            self._narrow_group(self.groups[0], spans, mask, derived)
            return []
        left = mask.copy()
        mask[:] = 0
        for group in self.groups:
            mine = left.copy()
            self._narrow_group(group, spans, mine, derived)
            mask |= mine
            # a record that one group takes need not be looked at by the next
            left &= ~mine & 1
        return []

    def _narrow_group(
        self, group: Sequence[Term], spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        # cheap terms first: numbers, then bytes, then headers; each reads only the records that are left
        for term in sorted(group, key=lambda term: (term.reads_headers, term.column in BINARY_COLUMNS)):
            term.narrow(spans, mask, derived)


def _holds_in_place(term: Term, value: Any) -> bool:
    if value is None:
        if term.operation in MEMBERSHIP:
            return (None in term.value) == (term.operation == "in")
        return term.operation == "is null"
    if term.operation in NULLS:
        return term.operation == "is not null"
    return term.holds_for(value)


def _start(term: Term) -> int | None:
    if term.operation in (">=", "=="):
        return int(term.value)
    if term.operation == ">":
        return int(term.value) + 1
    if term.operation == "in" and term.value and None not in term.value:
        return int(min(term.value))
    return None


def _end(term: Term) -> int | None:
    if term.operation in ("<=", "=="):
        return int(term.value) + 1
    if term.operation == "<":
        return int(term.value)
    if term.operation == "in" and term.value and None not in term.value:
        return int(max(term.value)) + 1
    return None


def _texts(column: str, operation: str, value: Any) -> tuple[Any, ...]:
    """The operands of a term for the kernels: uint8 arrays; for a set, its texts and whether null is in it."""
    if column == "headers":
        return np.frombuffer(value, np.uint8), np.empty(0, np.uint8)
    if column.startswith("headers."):
        name = column.removeprefix("headers.").encode()
        text = b"" if value is None or operation in MEMBERSHIP else value
        return np.frombuffer(name, np.uint8), np.frombuffer(text, np.uint8)
    if column not in BINARY_COLUMNS:
        return ()
    if operation not in MEMBERSHIP:
        return (np.frombuffer(value or b"", np.uint8),)
    known = sorted({one for one in value if one is not None})
    offsets = np.cumsum([0, *map(len, known)], dtype=np.int64)
    return kernels.TextSet(np.frombuffer(b"".join(known), np.uint8), offsets), None in value
