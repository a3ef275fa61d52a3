"""Producers of a partition, their open transactions, what hangs and what that blocks."""

import json

import builder
import golden_sets
import pytest
from builder import batch_v2, record_v2
from golden_sets import unpacked

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.cli import main
from kafkalog.errors import CorruptionError
from kafkalog.format import INTERNAL_TOPICS
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.system_topics.list_producers import list_producers

START = 1_700_000_000_000
MINUTE = 60_000


def data(offset, producer_id, timestamp):
    return builder.batch_v2(
        [builder.record_v2(0)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        base_timestamp=timestamp,
    )


@pytest.fixture
def partition(tmp_path):
    """One transaction that hangs, one that is just open, one that was committed."""
    path = tmp_path / "orders-0"
    path.mkdir()
    batches = [
        data(0, 7, START),
        data(1, 9, START + MINUTE),
        data(2, 8, START + 20 * MINUTE),
        builder.control_batch(1, base_offset=3, producer_id=9, timestamp=START + 20 * MINUTE, coordinator_epoch=4),
    ]
    (path / f"{0:020d}.log").write_bytes(b"".join(batches))
    return kafkalog.Partition(path)


def test_a_transaction_hangs_when_nothing_was_written_in_it_for_longer_than_any_may_be_open(partition):
    found = list_producers(partition, now_ms=START + 21 * MINUTE)
    assert [one.producer_id for one in found.producers] == [7, 8, 9]
    assert [one.producer_id for one in found.open] == [7, 8]
    assert [one.producer_id for one in found.overdue] == [7]
    assert (found.last_stable_offset, found.log_end_offset) == (0, 4)
    overdue = found.overdue[0]
    assert overdue.is_blocking
    assert (overdue.transaction_start_offset, overdue.transaction_start_timestamp) == (0, START)
    assert overdue.idle_ms == 21 * MINUTE
    assert not found.open[1].is_blocking
    assert found.producers[2].coordinator_epoch == 4
    longer = list_producers(partition, now_ms=START + 21 * MINUTE, transaction_max_timeout_ms=60 * MINUTE)
    assert longer.overdue == []
    assert len(list_producers(partition, now_ms=START + 60 * MINUTE).overdue) == 2


def test_a_transaction_that_began_below_the_first_segment_is_known_from_its_snapshot(tmp_path):
    import numpy as np

    from kafkalog import format as kf
    from kafkalog.state.producers import encode_snapshot

    path = tmp_path / "orders-0"
    path.mkdir()
    (path / f"{50:020d}.log").write_bytes(data(50, 8, START))
    entry = np.array([(7, 1, 9, 40, 0, START, -1, 38)], kf.PRODUCER_SNAPSHOT_DTYPE)
    (path / f"{50:020d}.snapshot").write_bytes(encode_snapshot(entry))
    found = list_producers(kafkalog.Partition(path), now_ms=START)
    assert [(one.producer_id, one.transaction_start_offset) for one in found.open] == [(7, 38), (8, 50)]
    assert found.open[0].transaction_start_timestamp is None
    assert found.last_stable_offset == 50
    (path / f"{50:020d}.snapshot").write_bytes(b"junk")
    assert [one.producer_id for one in list_producers(kafkalog.Partition(path)).open] == [8]


def test_golden_partitions_have_the_last_stable_offsets_of_a_replay():
    n_producers = 0
    for name in golden_sets.SETS:
        for path in golden_sets.partitions(name).values():
            partition = kafkalog.Partition(path)
            found = list_producers(partition)
            assert found.last_stable_offset == partition.last_stable_offset
            assert found.log_end_offset == partition.log_end_offset
            n_producers += len(found.producers)
    assert n_producers > 15


def test_damage_raises_or_is_passed_over(partition):
    path = partition.segments[0].path
    content = bytearray(path.read_bytes())
    content[8:12] = b"\0\0\0\1"
    path.write_bytes(content)
    with pytest.raises(CorruptionError):
        list_producers(kafkalog.Partition(partition.path))
    findings = []
    list_producers(kafkalog.Partition(partition.path), on_corruption="skip", report=findings.append)
    assert findings


def test_the_command_lists_producers_in_text_and_json(partition, capsys):
    now = str(START + 21 * MINUTE)
    assert main(["producers", str(partition.path), "--now", now]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "orders-0: 3 producers; last stable offset 0, 4 before the end"
    assert out[2].split()[:4] == ["7", "0", "0", "0"]
    assert out[2].split()[5:] == ["from", "0", "21", "min", "overdue,", "blocking"]
    assert out[3].split()[5:] == ["from", "2", "1", "min", "open"]
    assert out[-1] == "total: 2 open transactions, 1 of them overdue"
    assert main(["producers", "--open", "--json", str(partition.path), "--now", "2023-11-14T22:15:00Z"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert [one["producer_id"] for one in row["producers"]] == [7, 8]
    assert (row["n_open"], row["n_overdue"], row["last_stable_offset"]) == (2, 0, 0)
    assert main(["producers", str(partition.path), "--now", "yesterday"]) == 2


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_records_are_those_of_a_dump(topic):
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


def test_what_cannot_be_decoded_keeps_its_bytes(tmp_path):
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


def test_a_topic_that_is_not_known():
    with pytest.raises(ValueError):
        kafkalog.history(unpacked("k44"), "orders")
    assert len(INTERNAL_TOPICS) == 5


def test_secrets_are_left_out(tmp_path):
    # frame version, type, version; name, mechanism, salt, stored key, server key, iterations, no tagged fields
    value = b"\x01\x0b\x00" + b"\x04ann\x01" + b"\x03ss" + b"\x03kk" + b"\x03vv" + b"\0\0\x10\0" + b"\0"
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(batch_v2([record_v2(value=value)]))
    (one,) = kafkalog.history(tmp_path, "__cluster_metadata")
    assert one.value == {"name": "ann", "mechanism": 1, "iterations": 4096}


def test_values_of_settings_that_may_be_secrets_are_hidden(tmp_path):
    settings = {"ssl.key.password": "pw", "retention.ms": "5", "sasl.jaas.config": None}
    values = [
        encode_metadata_record("Config", 0, resourceType=4, resourceName="1", name=name, value=value)
        for name, value in settings.items()
    ]
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(batch_v2([record_v2(n, value=value) for n, value in enumerate(values)]))
    found = {one.value["name"]: one.value["value"] for one in kafkalog.history(tmp_path, "__cluster_metadata")}
    assert found == {"ssl.key.password": "[hidden]", "retention.ms": "5", "sasl.jaas.config": None}
