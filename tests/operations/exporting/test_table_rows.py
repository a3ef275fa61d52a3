"""Records in the types of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkalog.operations.exporting.resuming import TableRows

_MS = pa.timestamp("ms", "UTC")
_US = pa.timestamp("us", "UTC")


def test_types_of_columns_and_of_fields_in_them() -> None:
    schema = pa.schema(
        [
            ("timestamp", _MS),
            ("value", pa.struct([("at", _MS), ("small", pa.int8()), ("all", pa.list_(pa.int16()))])),
            ("codec", pa.dictionary(pa.int32(), pa.string())),
            ("map", pa.map_(pa.string(), _MS)),
        ]
    )
    rows = TableRows(schema, "iceberg")
    assert rows.schema.types == [
        _US,
        pa.struct([("at", _US), ("small", pa.int32()), ("all", pa.list_(pa.int32()))]),
        pa.string(),
        pa.map_(pa.string(), _US),
    ]
    value = {"timestamp": 5, "value": {"at": 7, "small": 1, "all": [1, 2]}, "codec": "zstd", "map": [("a", 9)]}
    batch = pa.RecordBatch.from_pylist([value], schema=schema)
    assert rows.of(batch).cast(rows.schema).to_pylist() == batch.to_pylist()
    assert rows.n_records == 1
    assert not rows.findings("table")


def test_dates_and_timestamps_that_do_not_fit() -> None:
    schema = pa.schema([("timestamp", _MS)])
    rows = TableRows(schema, "delta", with_date=True)
    stamps = [0, 86_400_000, -1, None, 2**62, -(2**63)]
    found = rows.of(pa.RecordBatch.from_arrays([pa.array(stamps, _MS)], schema=schema))
    assert [day and str(day) for day in found["date"].to_pylist()] == ["1970-01-01", "1970-01-02", *4 * [None]]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [0, 86_400_000_000, -1000, None, None, None]
    assert "2 values of timestamp" in rows.findings("table")[0].detail
    with pytest.raises(ValueError, match="the table already has one"):
        TableRows(pa.schema([("date", pa.string())]), "delta", with_date=True)
