"""Commits that are read in columns are those that are decoded one by one."""

import json
import random
import struct

import numpy as np
import pytest
from effort import fuzz_inputs
from message_bytes import made_up

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.format import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_message
from kafkalog.protocol.framing import decode_record
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.system_topics.commits import CommittedOffsets, read_commits


@pytest.mark.parametrize("seed", range(50))
def test_offsets_of_which_any_expires_are_those_of_which_one_does(seed):
    rng = random.Random(seed)
    n, now = rng.randrange(5), 100
    committed = CommittedOffsets.__new__(CommittedOffsets)
    committed._expiry = np.array([rng.choice([-1, *range(98, 103)]) for _ in range(n)], np.int64)
    committed._time = np.array([rng.randrange(85, 95) for _ in range(n)], np.int64)
    since, retention = rng.choice([None, *range(85, 95)]), rng.choice([None, 10])
    pairs = zip(committed._expiry.tolist(), committed._time.tolist(), strict=True)
    expected = any(
        now >= expiry
        if expiry >= 0
        else retention is not None and now - (time if since is None else since) >= retention
        for expiry, time in pairs
    )
    assert committed.may_expire(slice(None), now, since, retention) is expected


def column(parts):
    texts = [part or b"" for part in parts]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    valid = np.array([part is not None for part in parts], np.bool_)
    return BinaryColumn(offsets, np.frombuffer(b"".join(texts), np.uint8), valid)


def one_by_one(keys, values):
    rows = []
    for key, value in zip(keys, values, strict=True):
        try:
            one = decode_record(CONSUMER_OFFSETS, key, value)
        except MessageError:
            rows.append(None)
            continue
        if value is None or not one.type.endswith("OffsetCommit"):
            rows.append(None)
            continue
        key_fields, fields = one.key or {}, one.value or {}
        told = (fields["offset"], fields.get("leaderEpoch", -1), fields["metadata"], fields["commitTimestamp"])
        told += (fields.get("expireTimestamp", -1),)
        rows.append((key_fields["group"], key_fields["topic"], key_fields["partition"], *told))
    return rows


def in_columns(keys, values):
    is_commit, commits = read_commits(column([*keys]), column(values))
    found = [None] * len(keys)
    rows = zip(*(column.tolist() for column in commits), strict=True)
    for row, one in zip(np.flatnonzero(is_commit).tolist(), rows, strict=True):
        found[row] = one
    return found


def part(name, version, rng):
    message = messages()[name]
    number = version if name.endswith("Value") else message.key
    fields = made_up(message.fields, version, rng)
    return struct.pack(">h", number) + encode_message(name, version, fields)


def test_commits_of_all_versions_are_read_in_columns():
    rng = random.Random(18)
    keys = []
    values = []
    for kind, versions in (("LegacyOffsetCommit", range(1)), ("OffsetCommit", range(5)), ("GroupMetadata", range(4))):
        for version in versions:
            keys += [part(f"{kind}Key", 0, rng) for _ in range(20)]
            values += [part(f"{kind}Value", version, rng) for _ in range(20)]
    found, expected = in_columns(keys, values), one_by_one(keys, values)
    assert len([one for one in found if one]) > 110
    assert [one for row, one in enumerate(found) if one] == [expected[row] for row, one in enumerate(found) if one]
    assert in_columns(keys, [value and value + b"more" for value in values]) == found, "bytes behind are passed over"
    assert in_columns([], []) == []


def test_whatever_is_read_in_columns_is_read_one_by_one():
    rng = random.Random(180)
    for _ in range(max(fuzz_inputs() // 1000, 1)):
        keys = []
        values = []
        for _ in range(1000):
            kind = rng.choice(["LegacyOffsetCommit", "OffsetCommit"])
            version = 0 if kind[0] == "L" else rng.randrange(5)
            pair = [bytearray(part(f"{kind}Key", 0, rng)), bytearray(part(f"{kind}Value", version, rng))]
            for data in pair:
                if rng.random() < 0.4:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 3, 0x20, 0x7F])
                if rng.random() < 0.2:
                    del data[rng.randrange(len(data)) :]
            keys.append(bytes(pair[0]))
            values.append(None if rng.random() < 0.05 else bytes(pair[1]))
        found = in_columns(keys, values)
        expected = one_by_one(keys, values)
        assert any(found)
        assert [one for row, one in enumerate(found) if one] == [expected[row] for row, one in enumerate(found) if one]
        # what is left to the other: versions with tagged fields, and text that is long
        assert sum(one is not None for one in expected) - sum(one is not None for one in found) < 150


def test_text_that_is_not_utf_8_is_left_to_the_decoder_of_one():
    key = b"\0\1\0\1\xff\0\1t\0\0\0\0"
    value = b"\0\3" + struct.pack(">qihq", 5, 1, 0, 7)
    good = ("g", "t", 0, 5, 1, "", 7, -1)
    keys = [key.replace(b"\xff", b"g"), key, key.replace(b"\xff", b"g")]
    assert in_columns(keys, [value] * 3) == [good, None, good]
    assert in_columns([key], [value]) == [None]


def made_up_part(name, rng):
    """A key or value of a random version, at times with a byte changed or cut."""
    message = messages()[name]
    assert message.key is not None
    is_key = name.endswith("Key")
    version = 0 if is_key else rng.randint(message.versions.first, message.versions.last)
    content = encode_message(name, version, made_up(message.fields, version, rng))
    data = bytearray(struct.pack(">h", message.key if is_key else version) + content)
    if rng.random() < 0.2:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.05 else data)


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
def test_every_table_is_made(topic, tmp_path):
    rng = random.Random(topic)
    kinds = sorted(name.removesuffix("Key") for name, one in messages().items() if one.topic == topic and "Key" in name)
    n = fuzz_inputs(6) // 3  # of each topic
    while n > 0:
        records = {"key": [], "value": []}
        for _ in range(min(n, 500)):
            kind = rng.choice(kinds)
            other = kind if rng.random() < 0.9 else rng.choice(kinds)
            records["key"].append(made_up_part(f"{kind}Key", rng))
            records["value"].append(None if rng.random() < 0.1 else made_up_part(f"{other}Value", rng))
        n -= 500
        with PartitionWriter(tmp_path / f"{topic}-0") as writer:
            writer.append(records)
    groups, transactions = kafkalog.groups(tmp_path), kafkalog.transactions(tmp_path, read_partitions=False)
    assert (transactions if topic == TRANSACTION_STATE else groups) != []
    found = [*groups.findings, *transactions.findings]
    assert found
    assert {finding.reason for finding in found} == {"internal_record"}
    for one in (*groups, *transactions):
        json.dumps(one.as_dict())
    groups.to_arrow()
    transactions.to_arrow()
    for record in kafkalog.history(tmp_path, topic):
        json.dumps(record.as_dict())
