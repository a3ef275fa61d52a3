"""Record columns as Arrow arrays of the types that the schema names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import kafkalog
from kafkalog.interchange.arrow_output import ALL_COLUMNS

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def test_the_schema_is_the_documented_one_in_every_form(log_dir: Path) -> None:
    scan = kafkalog.scan(log_dir)
    assert scan.schema.equals(SCHEMA)
    assert scan.to_reader().schema.equals(SCHEMA)
    table = scan.to_table()
    assert table.schema.equals(SCHEMA)
    table.validate(full=True)
    assert scan.count_rows() == table.num_rows
    everything = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    everything.validate(full=True)
    assert everything.column_names == list(ALL_COLUMNS)
