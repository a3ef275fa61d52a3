"""Records in the types of tables."""

import pyarrow as pa
import pytest

from kafkalog.interchange.table_types import lost_findings
from kafkalog.operations.exporting.resuming import TableRows

_MS = pa.timestamp("ms", "UTC")
_US = pa.timestamp("us", "UTC")


def test_dates_and_timestamps_that_do_not_fit():
    schema = pa.schema([("timestamp", _MS)])
    rows = TableRows(schema, "delta", with_date=True)
    stamps = [0, 86_400_000, -1, None, 2**62, -(2**63)]
    found = rows.of(pa.RecordBatch.from_arrays([pa.array(stamps, _MS)], schema=schema))
    assert [day and str(day) for day in found["date"].to_pylist()] == ["1970-01-01", "1970-01-02", *4 * [None]]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [0, 86_400_000_000, -1000, None, None, None]
    assert "2 values of timestamp" in lost_findings(rows.lost, "table")[0].detail
    with pytest.raises(ValueError, match="partition_by"):
        TableRows(pa.schema([("date", pa.string())]), "delta", with_date=True)
