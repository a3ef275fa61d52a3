"""Orders as JSON, in a log."""

import json
import struct

import pytest

from kafkalog import PartitionWriter

ORDERS = [
    {"id": i, "customer": {"name": f"c{i}", "age": i if i % 2 else None}, "tags": ["a", "b"][: i % 3]}
    for i in range(40)
]

BROKEN = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")


def written_orders(folder):
    """Orders as JSON with longs as keys; 7 is null, 9 and 11 are broken."""
    path = folder / "orders-0"
    values = [json.dumps(order).encode() for order in ORDERS]
    values[7], values[9], values[11] = None, b"{oops", b'{"a": \xff}'
    with PartitionWriter(path, batch_size=500) as writer:
        writer.append({"key": [struct.pack(">q", i) for i in range(40)], "value": values, "timestamp": [0] * 40})
    return path
