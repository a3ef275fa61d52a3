"""A `pyarrow.compute.Expression` as a filter: applied to decoded columns, unless filters say exactly the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.column_names import ALL_COLUMNS
from kafkalog.interchange.arrow_buffers import no_rows
from kafkalog.interchange.arrow_output import columns_needed, extend_schema, record_schema
from kafkalog.interchange.expression_trees import columns_read
from kafkalog.scanning.conditions.arrow_filters import both, translate
from kafkalog.scanning.conditions.filter_tuples import Filters, parse_filters
from kafkalog.scanning.conditions.filters import Filter

if TYPE_CHECKING:
    import pyarrow.compute as pc

_FIELD: Final = re.compile(r"FieldRef\.Name\((.*?)\)")
_ROW = "__row"


def is_expression(value: Any) -> TypeGuard[pc.Expression]:
    """Whether a value is a `pyarrow.compute.Expression`.

    The module is slow to import. Without it in `sys.modules`, the value cannot be one.
    """
    compute = sys.modules.get("pyarrow.compute")
    return compute is not None and isinstance(value, compute.Expression)


def conditions_of(
    filters: Filters | pc.Expression | None,
    derived: Mapping[str, np.dtype[Any]],
    end_ms: Callable[[], int] | None = None,
) -> tuple[Filter | None, Residual | None]:
    """The two parts of `filters=`: a filter, and the expression that has to be applied as well.

    `end_ms` returns the latest timestamp, for times relative to it.
    """
    if filters is None:
        return None, None
    if is_expression(filters):
        return narrowed(None, None, filters, derived)
    return parse_filters(cast(Filters, filters), derived, end_ms), None


def narrowed(
    condition: Filter | None,
    residual: Residual | None,
    expression: pc.Expression,
    derived: Mapping[str, np.dtype[Any]],
) -> tuple[Filter | None, Residual | None]:
    """A filter and a residual narrowed by an expression; see `conditions_of`."""
    schema = extend_schema(record_schema(ALL_COLUMNS), derived)
    translation = translate(expression, schema)
    joined, is_whole = both(condition or Filter(((),), frozenset(derived)), translation)
    is_needed = not (translation.is_exact and is_whole)
    if residual is not None and not residual.expression.equals(expression):
        is_needed = is_needed or residual.is_needed
        expression = residual.expression & expression
    return None if joined.groups == ((),) else joined, Residual(expression, schema, is_needed=is_needed)


def implied_filter(
    expression: pc.Expression, decoded: Collection[str], condition: Filter | None = None
) -> Filter | None:
    """What an expression says about columns that are not decoded: a filter that matches all that it matches.

    With a condition, the filter narrows it.
    """
    known = [one.with_type(pa.null()) if one.name in decoded else one for one in record_schema(ALL_COLUMNS)]
    joined, _ = both(condition or Filter(((),)), translate(expression, pa.schema(known)))
    return None if joined.groups == ((),) else joined


class Residual:
    """An expression over record columns, applied to decoded columns if `is_needed`: no filter says all that it says.

    `schema` is given for all columns that exist. The attribute has those that the expression reads; none if not needed.
    """

    def __init__(self, expression: pc.Expression, schema: pa.Schema, *, is_needed: bool = True) -> None:
        self.expression, self.is_needed, self.schema = expression, is_needed, pa.schema([])
        if not is_needed:
            return
        # Arrow does not list the fields of an expression. Where its form is not known, it is applied to no rows, and
        # each field that Arrow misses is added.
        names = sorted(columns_read(expression) or ())
        while True:
            for name in names:
                if name not in schema.names:
                    raise ValueError(f"no column {name!r} to filter by; there are {', '.join(schema.names)}")
            self.schema = pa.schema([schema.field(name) for name in names])
            try:
                self.rows(no_rows(self.schema), 0)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                missing = _FIELD.search(str(error))
                if missing is None or missing[1] in names:
                    raise ValueError(f"the filter {expression} cannot be applied: {error}") from error
                names.append(missing[1])
            else:
                return

    @property
    def record_columns(self) -> list[str]:
        """Record columns to decode for the expression."""
        return columns_needed(pa.schema([field for field in self.schema if field.name in ALL_COLUMNS]))

    def rows(self, batch: pa.RecordBatch, n: int) -> npt.NDArray[np.int64]:
        """int64[m]: numbers of the rows for which it is true.

        `n` is the number of rows: a batch without columns has no length of its own.
        """
        # pyarrow has no function for the rows that match: numbers in a column of their own are filtered along
        numbers = pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(np.arange(n))])
        table = pa.Table.from_arrays([*batch.columns, numbers], names=[*batch.schema.names, _ROW])
        rows: npt.NDArray[np.int64] = table.filter(self.expression).column(_ROW).to_numpy()
        return rows
