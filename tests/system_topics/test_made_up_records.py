"""Records that nobody wrote, in topics that hold state: every table is made of them, or a finding says why not."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from effort import fuzz_inputs
from message_bytes import made_up

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.format import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_message


def made_up_part(name: str, rng: random.Random) -> bytes:
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
def test_every_table_is_made(topic: str, tmp_path: Path) -> None:
    rng = random.Random(topic)
    kinds = sorted(name.removesuffix("Key") for name, one in messages().items() if one.topic == topic and "Key" in name)
    n = fuzz_inputs(6) // 3  # of each topic
    while n > 0:
        records: dict[str, list[bytes | None]] = {"key": [], "value": []}
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
