"""Partitions that no coordinator loads are named by all commands that meet them."""

import random

import numpy as np
import pytest
from coordinator_records import drawn, of_unknown_type, record, torn
from effort import THOROUGH

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.cli.app import main
from kafkalog.errors import Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.system_topics.coordinator_load import load_failures


def write(root, partitions, topic="__consumer_offsets"):
    root.mkdir(exist_ok=True)
    for number, records in partitions.items():
        with PartitionWriter(root / f"{topic}-{number}", max_records_per_batch=1) as writer:
            for key, value in records:
                writer.append({"key": [key], "value": [value], "timestamp": np.array([1_795_870_000_000])})
    return root


def failures(root):
    return {one.path.rpartition("-")[2]: one.base_offset for one in load_failures(LogDir(root))}


MEMBER = [
    record("ConsumerGroupMemberMetadata", "g"),
    record("ConsumerGroupMetadata", "g"),
    record("ConsumerGroupTargetAssignmentMetadata", "g"),
    record("ConsumerGroupTargetAssignmentMember", "g"),
    record("ConsumerGroupCurrentMemberAssignment", "g", owned=[0, 1]),
]
GONE = [
    record(kind, "g", value=False)
    for kind in (
        *("ConsumerGroupCurrentMemberAssignment", "ConsumerGroupTargetAssignmentMember"),
        *("ConsumerGroupTargetAssignmentMetadata", "ConsumerGroupMemberMetadata", "ConsumerGroupMetadata"),
    )
]
ENDED = record("GroupMetadata", "g", value=False)
CASES = {
    "a group that came and went": ([*MEMBER, *GONE], None),
    "tombstones of a group that is not there": (GONE, None),
    "a commit before a consumer group": ([record("OffsetCommit", "g"), *MEMBER], None),
    "a classic group before a consumer group": ([record("GroupMetadata", "g"), *MEMBER], 1),
    "a simple classic group before it": ([record("GroupMetadata", "g", protocolType=""), *MEMBER], None),
    "a classic group before tombstones": ([record("GroupMetadata", "g"), GONE[0]], 1),
    "a classic group that ended": (
        [record("GroupMetadata", "g"), record("GroupMetadata", "g", value=False), *GONE],
        None,
    ),
    "a member's tombstone alone": ([*MEMBER, GONE[3]], 5),
    "a member without an assignment": ([MEMBER[0], GONE[3]], 1),
    "a tombstone of a streams group after a commit": (
        [record("OffsetCommit", "g"), record("StreamsGroupMetadata", "g", value=False)],
        1,
    ),
    "a group without an assignment epoch": ([MEMBER[1], GONE[4]], 1),
    "a group's tombstone alone": ([*MEMBER, GONE[4]], 5),
    "a partition that is owned twice": (
        [*MEMBER, record("ConsumerGroupCurrentMemberAssignment", "g", "m2", owned=[1])],
        5,
    ),
    "a partition of a later epoch": (
        [*MEMBER, record("ConsumerGroupCurrentMemberAssignment", "g", "m2", memberEpoch=3, owned=[1])],
        None,
    ),
    "a commit before a share group": ([record("OffsetCommit", "g"), record("ShareGroupMetadata", "g")], 1),
    "a commit after a share group": ([record("ShareGroupMetadata", "g"), record("OffsetCommit", "g")], None),
    "a share group after a consumer group": ([MEMBER[1], record("ShareGroupMetadata", "g")], 1),
    "a streams group after a commit": ([record("OffsetCommit", "g"), record("StreamsGroupMetadata", "g")], None),
    "a torn commit that was replaced": ([torn("OffsetCommit", "g"), record("OffsetCommit", "g")], 0),
    "a type of a newer Kafka": ([of_unknown_type(), record("OffsetCommit", "g")], None),
    "other groups": ([record("GroupMetadata", "a"), record("OffsetCommit", "b"), *MEMBER], None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_record_is_named_on_which_a_coordinator_stops(tmp_path, name):
    records, offset = CASES[name]
    found = failures(write(tmp_path / "log", {7: records}))
    assert found == ({} if offset is None else {"7": offset})


def test_every_command_names_them(tmp_path, capsys):
    good, bad = [record("OffsetCommit", "fine"), *MEMBER], [record("GroupMetadata", "g"), *MEMBER]
    root = write(tmp_path / "log", {0: good, 1: [*bad, record("OffsetCommit", "lost")]})
    kafkalog.write_table({"value": [b""] * 9}, root, topic="orders")
    words = "a coordinator does not load __consumer_offsets-1: offset 1: group g is not a consumer group"
    for command, code in (
        (["groups", str(root)], 0),
        (["verify", "--deep", str(root)], 1),
        (["preflight", str(root)], 0),
        (["boot", str(root), "--dry-run"], 1),
    ):
        assert main(command) == code
        out = "".join(capsys.readouterr())
        assert words in out
        assert "__consumer_offsets-0:" not in out.replace(f"{words}", "")
    groups = kafkalog.groups(root)
    assert {group.name for group in groups} == {"fine", "g", "lost"}, "their offsets are shown all the same"
    offsets = tmp_path / "offsets.jsonl"
    assert main(["groups", str(root), "-o", str(offsets)]) == 0
    report = kafkalog.boot(root, tmp_path / "new", groups=offsets)
    assert report.ok
    assert failures(tmp_path / "new" / "data") == {}


def test_transactions_after_an_unknown_state_are_not_known(tmp_path, capsys):
    records = []
    for name, state in (("t1", 0), ("t2", 9), ("t3", 0)):
        value = {
            "producerId": 1,
            "producerEpoch": 0,
            "transactionTimeoutMs": 1,
            "transactionStatus": state,
            "transactionPartitions": None,
            "transactionLastUpdateTimestampMs": 1,
            "transactionStartTimestampMs": 1,
        }
        records.append(encode_keyed_record("TransactionLog", 0, {"transactionalId": name}, value))
    root = write(tmp_path / "log", {0: records}, "__transaction_state")
    assert failures(root) == {"0": 1}
    (finding,) = kafkalog.transactions(root, now=0).findings
    assert (finding.reason, finding.base_offset) == (Reason.INTERNAL_RECORD, 1)
    assert main(["verify", "--deep", str(root)]) == 1
    assert main(["boot", str(root), "--dry-run"]) == 1
    assert "stops loading __transaction_state-0: offset 1: unknown transaction state 9" in capsys.readouterr().out


def test_the_answer_does_not_depend_on_batches(tmp_path):
    rng = random.Random(3)
    for number in range(40 if THOROUGH else 12):
        records = drawn(rng, 12)
        root = write(tmp_path / f"a{number}", {0: records})
        other = tmp_path / f"b{number}"
        other.mkdir()
        with PartitionWriter(other / "__consumer_offsets-0") as writer:
            writer.append({"key": [key for key, _ in records], "value": [value for _, value in records]})
        assert failures(root) == failures(other)
