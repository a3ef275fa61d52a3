"""Records in the columns of a table: see `kafkalog.interchange.table_types`."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from kafkalog.errors import Finding
from kafkalog.interchange.table_types import Conversion, evolved_schema, lost_findings, stored_schema
from kafkalog.operations.exporting.partitioned_files import NO_DAY, days_of

_DATE: Final = pa.field("date", pa.date32())


class TableRows:
    """Makes the rows of a table from records.

    Parameters
    ----------
    schema : pyarrow.Schema
        The wanted columns of the scan.
    target : {"delta", "iceberg"}
    known : pyarrow.Schema, optional
        The columns of a table that exists: they stay, and new ones follow.
    with_date : bool
        Whether the table has a column for the date.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the table.
    n_records : int
        The rows made so far.

    Raises
    ------
    ValueError, UnwritableError
        The table cannot have two of the columns.
    """

    def __init__(
        self, schema: pa.Schema, target: str, known: pa.Schema | None = None, *, with_date: bool = False
    ) -> None:
        self.n_records = 0
        self._with_date = with_date
        if with_date:
            if _DATE.name in schema.names:
                raise ValueError("partition_by date adds a column date to the table, and there is one already")
            schema = schema.append(_DATE)
        self.schema = stored_schema(schema, target)
        if known is not None:
            # checked again: a new field may differ from an old one by case only
            self.schema = stored_schema(evolved_schema(stored_schema(known, target), self.schema), target)
        self._conversion = Conversion(self.schema, target)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for a record batch of the scan."""
        self.n_records += batch.num_rows
        if self._with_date:
            days = days_of(batch.column("timestamp"))
            dates = pa.array(days.astype(np.int32), pa.int32(), mask=days == NO_DAY).cast(_DATE.type)
            batch = pa.RecordBatch.from_arrays([*batch.columns, dates], schema=batch.schema.append(_DATE))
        return self._conversion.of(batch)

    def findings(self, where: str) -> list[Finding]:
        """What of the records the table does not hold."""
        return lost_findings(self._conversion.lost, where)
