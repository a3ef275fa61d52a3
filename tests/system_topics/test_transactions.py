"""Transactions: what coordinators know, joined with what partitions have open, in log dirs that real brokers wrote."""

import json
import shutil

import pytest
from golden_sets import LOG_DIR, unpacked

import kafkalog
from kafkalog import PartitionWriter, TopicPartition
from kafkalog.cli import main
from kafkalog.errors import UnknownNameError

NOW = "2023-11-14T22:30:00Z"
"""16 minutes after the last record of the golden transaction that nobody ended."""


def test_what_coordinators_know():
    found = kafkalog.transactions(unpacked("k44"), now=NOW)
    assert not found.findings
    assert [
        (one.transactional_id, one.state, one.producer_id, one.producer_epoch, one.timeout_ms) for one in found
    ] == [
        ("p-ctx-A", "CompleteCommit", 9, 60, 60_000),
        ("p-otx", "CompleteCommit", 31, 3, 60_000),
        ("p-tx-A", "CompleteCommit", 1, 47, 60_000),
        ("p-tx-B", "CompleteAbort", 2, 26, 60_000),
        ("p-tx-open", "Ongoing", 3, 0, 800_000),
    ]
    assert [one.coordinator_partition for one in found] == [0, 0, 1, 0, 0]
    ongoing = found[-1]
    assert ongoing.partitions == [TopicPartition("p-txn", 0)]
    assert [(one.topic, one.start_offset, one.n_held, one.is_blocking) for one in ongoing.open] == [
        ("p-txn", 426, 4, True)
    ]
    assert not found.hanging, "its coordinator ends it when it is back"
    row = found.to_arrow().to_pylist()[-1]
    assert row["open"][0]["start_offset"] == 426
    assert (row.keys(), row["open"][0].keys()) == (ongoing.as_dict().keys(), ongoing.open[0].as_dict().keys())


def test_a_transaction_without_a_coordinator_hangs():
    (one,) = kafkalog.transactions(LOG_DIR, now=NOW)
    assert (one.transactional_id, one.state, one.producer_id, one.is_hanging) == (None, None, 3, True)
    assert one.open[0].abort_command.endswith("abort --topic p-txn --partition 0 --start-offset 426")
    (young,) = kafkalog.transactions(LOG_DIR, now="2023-11-14T22:14:00Z")
    assert not young.is_hanging
    assert young.is_open
    assert kafkalog.transactions(LOG_DIR, read_partitions=False) == []


def test_a_transaction_that_its_coordinator_has_forgotten_hangs(tmp_path):
    shutil.copytree(LOG_DIR / "p-txn-0", tmp_path / "p-txn-0")
    key = b"\0\0\0\x03ids"
    ended = b"\0\0" + (3).to_bytes(8, "big") + b"\0\0" + (60_000).to_bytes(4, "big") + b"\x04" + b"\xff" * 4
    with PartitionWriter(tmp_path / "__transaction_state-5") as writer:
        writer.append({"key": [key], "value": [ended + (7).to_bytes(8, "big") * 2]})
    (one,) = kafkalog.transactions(tmp_path, now=NOW)
    assert (one.transactional_id, one.state, one.coordinator_partition) == ("ids", "CompleteCommit", 5)
    assert one.is_hanging
    assert [one.abort_command for one in kafkalog.transactions(tmp_path, now=NOW, transactional_ids="i*").hanging]
    with pytest.raises(UnknownNameError):
        kafkalog.transactions(tmp_path, now=NOW, transactional_ids="other")
    assert kafkalog.transactions(tmp_path, transactional_ids="other", end_timestamp=NOW) == []


def test_as_of_a_time_an_offset_and_all_of_it():
    path = unpacked("k44")
    records = list(kafkalog.history(path, "__transaction_state"))
    of_one = [one for one in records if one.key and one.key["transactionalId"] == "p-tx-B"]
    states = []
    for record in of_one:
        assert record.value is not None
        (now,) = kafkalog.transactions(path, transactional_ids="p-tx-B", end_offset=record.offset + 1)
        assert now.last_update_timestamp == record.value["transactionLastUpdateTimestampMs"]
        assert now.open == []
        states.append(now.state)
    assert states[0] == "Empty"
    assert {"Ongoing", "PrepareAbort", "CompleteAbort", "CompleteCommit"} <= set(states)
    first = min(record.timestamp for record in of_one if record.timestamp is not None)
    assert kafkalog.transactions(path, transactional_ids="p-tx-B", end_timestamp=first) == []


def test_old_brokers_transactions():
    found = kafkalog.transactions(unpacked("k28"), now=NOW)
    assert [(one.transactional_id, one.state) for one in found] == [
        ("p-tx28-A", "CompleteCommit"),
        ("p-tx28-B", "CompleteAbort"),
        ("p-tx28-open", "Ongoing"),
    ]
    assert not found.findings


def test_the_command_says_the_same(capsys):
    path = str(unpacked("k44"))
    expected = kafkalog.transactions(path, now=NOW)
    assert main(["transactions", path, "--now", NOW, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [one.as_dict() for one in expected]
    assert main(["transactions", path, "--now", NOW, "--open"]) == 0
    first, _, row, total = capsys.readouterr().out.splitlines()
    assert first.startswith("p-tx-open: Ongoing, since ")
    assert row.split()[:2] == ["p-txn-0", "426"]
    assert total == "total: 5 transactional ids, 1 not ended"
    assert main(["transactions", str(LOG_DIR), "--now", NOW, "--hanging"]) == 0
    captured = capsys.readouterr()
    assert "ends it: kafka-transactions.sh" in captured.out
    assert "__transaction_state" in captured.err
    assert main(["transactions", path, "--history", "--end-offset", "1"]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [0, 0]
    assert main(["transactions", path, "--history", "--end-offset", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no records" in printed.err
