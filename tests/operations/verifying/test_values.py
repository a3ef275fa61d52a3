"""Keys and values that do not decode: the first of each topic, how many, and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from orders import written_orders

import kafkalog


@pytest.fixture
def two_topics(tmp_path: Path) -> Path:
    """Orders with two broken values, and numbers of which two have another length."""
    written_orders(tmp_path)
    for partition, values in enumerate(([b"\0\0\0\1", None], [b"\0\0\0\2", b"1", b"12"])):
        with kafkalog.PartitionWriter(tmp_path / f"numbers-{partition}") as writer:
            writer.append({"value": values, "timestamp": [0] * len(values)})
    return tmp_path


def test_the_first_of_each_topic_and_all_reasons(two_topics: Path) -> None:
    numbers, orders = kafkalog.verify(two_topics, decode={"value": "json"}).values
    assert (numbers.topic, numbers.n_records, numbers.n_undecoded) == ("numbers", 5, 2)
    assert (numbers.first_partition, numbers.first_offset) == (0, 0)
    assert (orders.topic, orders.n_records, orders.first_partition, orders.first_offset) == ("orders", 40, 0, 9)
    assert orders.reasons == {"not JSON": 1, "not UTF-8": 1}
    result = kafkalog.verify(two_topics, topics="numbers", decode={"value": "int", "key": "utf8"})
    values, keys = result.values
    assert (values.column, values.n_undecoded, values.first_partition, values.first_offset) == ("value", 2, 1, 1)
    assert (keys.column, keys.ok) == ("key", True)
    assert not result.ok
    assert [(one.reason, one.path, one.base_offset) for one in result.all_findings() if one.damage] == [
        (kafkalog.Reason.VALUE_UNDECODED, str(two_topics / "numbers-1"), 1)
    ]
    assert kafkalog.verify(two_topics, topics="numbers", decode={"key": "json"}).ok


def test_numbers_are_those_of_a_scan(two_topics: Path) -> None:
    for found in kafkalog.verify(two_topics, decode={"value": "json"}).values:
        with pytest.warns(kafkalog.DecodeWarning):
            table = kafkalog.read_table(
                two_topics, topics=found.topic, columns=["value_error"], decode={"value": "json"}
            )
        reasons = Counter(one for one in table.column(0).to_pylist() if one is not None)
        assert (found.n_records, found.reasons) == (len(table), reasons)


def test_the_command(run: Any, two_topics: Path) -> None:
    code, out, _ = run("verify", "--values", "--value-format", "int", two_topics, "-t", "numbers", "--json")
    (row,) = [one for one in map(json.loads, out.splitlines()) if one["kind"] == "values"]
    assert (code, row["ok"], row["topic"], row["n_undecoded"]) == (1, False, "numbers", 2)
    code, out, _ = run("verify", "--values", "--value-format", "int", two_topics, "-t", "numbers")
    assert code == 1
    assert "numbers-1@1" in out
    assert run("verify", "--values", "--key-format", "utf8", two_topics)[0] == 0
    assert run("verify", "--values", two_topics)[0] == run("verify", "--value-format", "json", two_topics)[0] == 2
    assert run("verify", "--values", "--value-format", "avro", two_topics)[0] == 2  # there are no schemas
