"""A `pyarrow.compute.Expression` as a filter. It is applied to decoded columns, and rules out no batch unread."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.interchange.arrow_buffers import no_rows
from kafkalog.interchange.arrow_output import ALL_COLUMNS, columns_needed

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


class Residual:
    """An expression over record columns.

    Parameters
    ----------
    expression : pyarrow.compute.Expression
    schema : pyarrow.Schema
        Schema of all columns that exist.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the columns that the expression reads.

    Raises
    ------
    ValueError
        The expression names a column that does not exist, or has no boolean result.
    """

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self.expression = expression
        # Expressions do not list their fields: apply this one to no rows, and add each field that Arrow misses.
        names: list[str] = []
        while True:
            self.schema = pa.schema([schema.field(name) for name in names])
            try:
                self.rows(no_rows(self.schema), 0)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                missing = _FIELD.search(str(error))
                if missing is None or missing[1] in names:
                    raise ValueError(f"the filter {expression} cannot be applied: {error}") from error
                if missing[1] not in schema.names:
                    known = ", ".join(schema.names)
                    raise ValueError(f"no column {missing[1]!r} to filter by; there are {known}") from None
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
        numbers = pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(np.arange(n))])
        table = pa.Table.from_arrays([*batch.columns, numbers], names=[*batch.schema.names, _ROW])
        rows: npt.NDArray[np.int64] = table.filter(self.expression).column(_ROW).to_numpy()
        return rows
