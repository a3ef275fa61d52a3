"""Tables to load."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def table_of(n: int, **more: Any) -> pa.Table:
    """Records with everything that records have."""
    columns: dict[str, Any] = {
        "timestamp": pa.array([None if i % 11 == 5 else 1_700_000_000_000 + i for i in range(n)], kafkalog_timestamp()),
        "key": pa.array([None if i % 7 == 3 else b"key-%d" % (i % 50) for i in range(n)], pa.binary()),
        "value": pa.array([None if i % 13 == 0 else b"v" * (i % 90) for i in range(n)], pa.binary()),
        "headers": pa.array(
            [[{"key": "h", "value": None if i % 2 else b"%d" % i}] * (i % 3) for i in range(n)], pa.list_(PAIR)
        ),
    }
    return pa.table({**columns, **more})


def kafkalog_timestamp() -> pa.DataType:
    return pa.timestamp("ms", "UTC")
