"""Whoever takes records, as a table, frames, arrays or a stream, gets the same."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.interchange.arrow_output import ALL_COLUMNS


def test_every_consumer_of_arrow_takes_a_scan_each_time_anew(log_dir: Path) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    scan = kafkalog.scan(log_dir, topics="p-multi")
    expected = scan.to_table()
    for _ in range(2):
        assert pa.table(scan).equals(expected)
        assert pa.RecordBatchReader.from_stream(scan).read_all().equals(expected)
        frame = pl.DataFrame(scan)
        assert frame["offset"].to_list() == expected.column("offset").to_pylist()
        assert frame["value"].to_list() == expected.column("value").to_pylist()
        if hasattr(pd.DataFrame, "from_arrow"):  # pandas 3; PySpark needs an older one
            assert pd.DataFrame.from_arrow(scan).shape == (303, 8)
        counted = duckdb.sql('select count(*), max("offset"), count(distinct partition) from scan').fetchall()
        assert counted == [(303, 123, 3)]


@pytest.mark.parametrize("binary_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_pandas_has_what_pyarrow_makes_of_the_table(log_dir: Path, binary_type: pa.DataType) -> None:
    columns = ["value", "topic", "offset", "headers", "key", "segment", "timestamp", "compression"]
    for names in (columns, ["key"], ["headers"], ["offset"]):
        table = kafkalog.read_table(log_dir, columns=names, binary_type=binary_type)
        frame = kafkalog.read_pandas(log_dir, columns=names, binary_type=binary_type)
        expected = table.to_pandas()
        assert list(frame.columns) == names
        assert (frame.index == expected.index).all()
        for name in names:
            if name == "headers":
                assert [list(row) for row in frame[name]] == [list(row) for row in expected[name]]
            else:
                assert frame[name].tolist() == expected[name].tolist()
        if "topic" in names and binary_type != pa.binary_view():
            assert str(frame["topic"].dtype) == "category"


def test_pandas_has_the_same_values_and_keeps_arrows_types_on_request(log_dir: Path) -> None:
    frame = kafkalog.read_pandas(log_dir, topics="p-headers")
    table = kafkalog.read_table(log_dir, topics="p-headers")
    assert frame["value"].tolist() == table.column("value").to_pylist()
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    arrow = kafkalog.read_pandas(log_dir, topics="p-headers", dtype_backend="pyarrow")
    assert pa.types.is_binary(arrow["value"].dtype.pyarrow_dtype)
    with pytest.raises(ValueError, match="dtype_backend"):
        kafkalog.read_pandas(log_dir, dtype_backend="numpy")


def test_numpy_columns_hold_the_same_as_arrow(log_dir: Path) -> None:
    records = kafkalog.read_numpy(log_dir, columns=ALL_COLUMNS)
    table = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    assert records.n_records == table.num_rows
    assert records.key.to_pylist() == table.column("key").to_pylist()
    assert records.value.to_pylist() == table.column("value").to_pylist()
    assert records.headers.to_pylist() == [
        [(header["key"].encode(), header["value"]) for header in headers]
        for headers in table.column("headers").to_pylist()
    ]
    for name in ("offset", "partition", "leader_epoch", "producer_id", "sequence", "is_control", "batch_position"):
        assert records[name].tolist() == table.column(name).to_pylist()
    assert records.topic.tolist() == table.column("topic").to_pylist()
    assert records.segment.tolist() == table.column("segment").to_pylist()
    assert records.key.offsets.dtype == np.int64
    assert records.slice(5, 8).value.to_pylist() == records.value.to_pylist()[5:8]
    assert records.value[-1] == records.value.to_pylist()[-1]
    assert pickle.loads(pickle.dumps(records)).value.to_pylist() == records.value.to_pylist()
    of_one = kafkalog.read_numpy(log_dir / "p-multi-1", columns=["topic", "partition", "segment"])
    assert (of_one.topic == "p-multi").all()
    assert (of_one.partition == 1).all()
    assert of_one.n_records > 1
    assert not any(column.flags.writeable for column in (*of_one.values(), records.topic, records.partition))
    with pytest.raises(AttributeError, match="columns="):
        _ = kafkalog.read_numpy(log_dir, columns=["offset"]).key
