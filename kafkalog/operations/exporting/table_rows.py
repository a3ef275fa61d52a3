"""Records in the types of tables: Delta and Iceberg have timestamps of microseconds, and fewer kinds of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import Finding, Reason
from kafkalog.interchange.arrow_buffers import fits_microseconds
from kafkalog.operations.exporting.partitioned_files import NO_DAY, days_of

MICROSECONDS: Final = "us"
_DATE: Final = pa.field("date", pa.date32())


class TableRows:
    """Makes the rows of a table from records.

    Parameters
    ----------
    schema : pyarrow.Schema
        The wanted columns of the scan.
    keys : sequence of str
        What the table is partitioned by: those columns are added.
    wider : mapping of pyarrow.DataType to pyarrow.DataType
        What types become that the table does not have.
    with_date : bool
        Whether a table by date has a column for it.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the table.
    n_records : int
        The rows made so far.
    n_overflows : int
        Timestamps that do not fit into 64 bits as microseconds: they are null in the table.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: tuple[str, ...],
        wider: Mapping[pa.DataType, pa.DataType],
        *,
        with_date: bool,
    ) -> None:
        self.n_records = self.n_overflows = 0
        fields = [field.with_type(_type(field.type, wider)) for field in schema]
        self._with_date = with_date and "date" in keys
        if self._with_date:
            if "date" in schema.names:
                raise ValueError("partition_by date adds a column date to the table, and there is one already")
            fields.append(_DATE)
        self.schema = pa.schema(fields)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for a record batch of the scan."""
        self.n_records += batch.num_rows
        columns = []
        for field in self.schema:
            if self._with_date and field.name == _DATE.name:
                days = days_of(batch.column("timestamp"))
                columns.append(pa.array(days.astype(np.int32), pa.int32(), mask=days == NO_DAY).cast(pa.date32()))
                continue
            column = batch.column(field.name)
            if field.name == "timestamp" and column.type == pa.timestamp("ms", "UTC"):
                fits = fits_microseconds(column)
                if not fits.all():
                    self.n_overflows += int(np.count_nonzero(~fits))
                    column = pc.if_else(pa.array(fits), column, pa.scalar(None, column.type))
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def findings(self) -> list[Finding]:
        """What of the records the table does not hold."""
        if not self.n_overflows:
            return []
        detail = f"{self.n_overflows} timestamps do not fit into 64 bits as microseconds: they are null in the table"
        return [Finding(Reason.COLUMN_VALUE, detail, damage=False)]


def _type(kind: pa.DataType, wider: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """The type of a column in the table."""
    if kind in wider:
        return wider[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp(MICROSECONDS, kind.tz)
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, wider)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type, wider)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type(field.type, wider)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type, wider), _type(kind.item_type, wider))
    return kind
