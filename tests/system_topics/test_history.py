"""Every record of a topic that holds state, as Kafka's own tool shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builder import batch_v2, record_v2
from golden_sets import unpacked

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.format import INTERNAL_TOPICS


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_records_are_those_of_a_dump(topic: str) -> None:
    found = list(kafkalog.history(unpacked("k44"), topic))
    files = sorted(unpacked("k44").glob(f"{topic}-*/*.log"))
    decoder = {"__consumer_offsets": "offsets", "__transaction_state": "transaction-log"}.get(topic, "cluster-metadata")
    rows = [row for row in kafkalog.dump(files, topic_decoder=decoder).rows() if row["kind"] == "record"]
    plain = [one for one in found if one.value is not None or one.key is not None]
    dumped = [row for row in rows if row.get("key") is not None or row.get("value") is not None]
    dumped = [row for row in dumped if row.get("control_type") in (None, -1) and "control" not in row]
    assert plain
    assert not [one for one in found if one.error]
    by_offset = {(one.offset, json.dumps(one.key)): one for one in plain}
    n_same = 0
    for row in dumped:
        key = row["key"]["data"] if row.get("key") else None
        one = by_offset.get((row["offset"], json.dumps(key)))
        if one is None:
            continue
        shown = row["value"]
        assert one.value == (None if shown is None or shown == "<DELETE>" else shown["data"])
        n_same += 1
    assert n_same == len(plain)


def test_what_cannot_be_decoded_keeps_its_bytes(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "__consumer_offsets-3") as writer:
        writer.append({"key": [b"\0\x63", None], "value": [b"v", b"\0"], "timestamp": [5, 6]})
    with PartitionWriter(tmp_path / "_schemas-0") as writer:
        writer.append({"key": [b"{", b'{"keytype":"NOOP"}'], "value": [None, None]})
    first, second, broken, noop = kafkalog.history(tmp_path, ["__consumer_offsets", "_schemas"])
    assert (first.partition, first.timestamp, first.type, first.key, first.value) == (
        *(3, 5, None),
        *({"base64": "AGM="}, {"base64": "dg=="}),
    )
    assert [one.error is not None for one in (first, second, broken, noop)] == [True, True, True, False]
    assert noop.type == "NOOP"


def test_a_topic_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="cannot decode records of orders"):
        kafkalog.history(unpacked("k44"), "orders")
    assert len(INTERNAL_TOPICS) == 5


def test_secrets_are_left_out(tmp_path: Path) -> None:
    # frame version, type, version; name, mechanism, salt, stored key, server key, iterations, no tagged fields
    value = b"\x01\x0b\x00" + b"\x04ann\x01" + b"\x03ss" + b"\x03kk" + b"\x03vv" + b"\0\0\x10\0" + b"\0"
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(batch_v2([record_v2(value=value)]))
    (one,) = kafkalog.history(tmp_path, "__cluster_metadata")
    assert one.value == {"name": "ann", "mechanism": 1, "iterations": 4096}
