"""Options of a writer: names of partitions, the topic's codec, and values that are refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from writing import sound, write

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.errors import (
    UnsafePathError,
)


def test_a_topic_s_codec_is_taken_if_none_is_said(path: Path) -> None:
    topic = LogConfig(compression_type="zstd", compression_zstd_level=5)
    for number, (given, expected) in enumerate([(None, 4), ("none", 0), ("gzip", 1)]):
        target = path.with_name(f"orders-{number}")
        write(target, 50, config=topic, compression=given)
        assert set(kafkalog.Partition(target).segments[0].batches.codec.tolist()) == {expected}
    write(path.with_name("orders-9"), 50, config=LogConfig(compression_type="uncompressed"))
    with pytest.raises(ValueError):
        PartitionWriter(path.with_name("orders-10"), compression="snappy", compression_level=3)


NO_NAMES = ["orders", "orders-", "-0", "orders-x", "orders-00", "orders-+1", "orders-2147483648", ".-0",
            "..-0", "a b-0", "a/../b-0x", "é-0", "a\n-0", "orders-0.0123456789abcdef0123456789abcdef-delete",
            "a" * 250 + "-0", "__cluster_metadata-0", "ord\x1bers-0", "orders-٣"]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_no_partition_s_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafePathError):
        PartitionWriter(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_the_longest_name_will_do(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / ("a" * 249 + "-12345"))
    assert sound(tmp_path / "logs" / ("a" * 249 + "-12345")) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"config": {"segment.bytes": "1048576"}}, TypeError, "config is a LogConfig, not dict: .*from_properties"),
        ({"batch_size": "16K"}, TypeError, "batch_size must be an int, not '16K'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1,"),
        ({"batch_size": None}, TypeError, "batch_size must be an int"),
        ({"max_records_per_batch": 1.5}, TypeError, "max_records_per_batch must be an int"),
        ({"max_records_per_batch": 0}, ValueError, "max_records_per_batch must be at least 1,"),
        ({"producer": 5}, TypeError, r"producer is Producer\(producer_id, producer_epoch\) or a tuple of both, not 5"),
        ({"producer": "ab"}, TypeError, "producer is"),
        ({"producer": ()}, TypeError, "producer is"),
        ({"producer": ("5", 0)}, TypeError, "producer_id must be an int, not '5'"),
        ({"producer": (2**63, 0)}, ValueError, "producer_id must be 0 to "),
        ({"producer": (1, 2**15)}, ValueError, "producer_epoch must be 0 to 32767"),
        ({"leader_epoch": "new"}, TypeError, "leader_epoch must be an int"),
        ({"leader_epoch": 2**31}, ValueError, "leader_epoch must be -1 to "),
        ({"log_append_time": -7}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": -1}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": "now"}, TypeError, "log_append_time must be an int"),
        ({"limits": {}}, TypeError, "limits is a Limits, not dict"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_name(
    options: Any, error: type[Exception], message: str, path: Path
) -> None:
    with pytest.raises(error, match=message):
        PartitionWriter(path, **options)
    assert not path.exists()
    if "producer" in options:
        with pytest.raises(error, match=message), PartitionWriter(path) as writer:
            writer.append({"value": [b"x"]}, **options)
