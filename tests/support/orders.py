"""Orders as JSON, in a log."""

from __future__ import annotations

import pytest

ORDERS = [
    {"id": i, "customer": {"name": f"c{i}", "age": i if i % 2 else None}, "tags": ["a", "b"][: i % 3]}
    for i in range(40)
]

BROKEN = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
