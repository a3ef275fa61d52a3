"""Scans that decode values: their types, their ends, and options that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orders import BROKEN, ORDERS, written_orders

import kafkalog


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_orders(tmp_path_factory.mktemp("log"))


@BROKEN
def test_head_and_tail_read_the_types_of_their_own_records(orders: Path) -> None:
    scan = kafkalog.scan(orders, decode={"value": "json"})
    assert scan.head(2).column("value").to_pylist() == ORDERS[:2]
    assert scan.tail(2).column("value").to_pylist() == ORDERS[-2:]


@BROKEN
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": {"value": "yaml"}}, "no format 'yaml'"),
        ({"decode": {"body": "json"}}, "decode takes key and value"),
        ({"decode": {"value": "json"}, "columns": ["value.nothing"]}, "there are id, customer, tags"),
        ({"decode": {"value": "json"}, "columns": ["value.id.x"]}, "there are int64"),
        ({"decode": {"value": "json"}, "columns": ["valu"]}, "did you mean"),
        ({"decode": {"value": "json"}, "filters": "value.id == x"}, "does not compare"),
        ({"decode": {"value": "json"}, "filters": "value == 3"}, "compares with nothing"),
        ({"decode": {"value": "avro"}}, "no topic _schemas"),
        ({"decode": {"value": {"format": "avro", "framed": False}}}, "name no schema"),
        ({"decode": {"value": {"format": "json", "schema": "{}"}}}, "json has no schema"),
        ({"schemas": "."}, "schemas is for decode="),
    ],
)
def test_options_that_cannot_be_say_why(orders: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kafkalog.read_table(orders, **options)


def test_numpy_has_no_structs(orders: Path) -> None:
    with pytest.raises(ValueError, match="Arrow"):
        kafkalog.read_numpy(orders, decode={"value": "json"})
