"""Where share groups stand: snapshots, updates behind them, and what overlaps."""

from __future__ import annotations

import random
from pathlib import Path

import kafkalog
from kafkalog import Delivery, PartitionWriter
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.system_topics.share_state import _combined

TOPIC_ID = "RxLbS2aoRLmJ9xc1exUYuQ"


def record(kind: str, start: int, *batches: tuple[int, int, int, int]) -> tuple[bytes, bytes]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    value = {
        "startOffset": start,
        "leaderEpoch": -1,
        "stateBatches": [dict(zip(names, one, strict=True)) for one in batches],
    }
    return encode_keyed_record(kind, 0, {"groupId": "g", "topicId": TOPIC_ID, "partition": 3}, value)


def state(tmp_path: Path, *records: tuple[bytes, bytes | None]) -> list[kafkalog.GroupOffset]:
    tmp_path.mkdir(exist_ok=True)
    with PartitionWriter(tmp_path / "__share_group_state-0") as writer:
        for key, value in records:
            writer.append({"key": [key], "value": [value]})
    found = kafkalog.groups(tmp_path)
    assert not found.findings
    return found[0].offsets if found else []


def test_updates_add_to_the_snapshot_before_them(tmp_path: Path) -> None:
    (one,) = state(
        tmp_path,
        record("ShareSnapshot", 5, (5, 9, 2, 1)),
        record("ShareUpdate", 10, (10, 14, 0, 1)),
        record("ShareUpdate", -1, (15, 19, 2, 2), (20, 20, 4, 5), (21, 21, 3, 5)),
    )
    assert (one.topic, one.partition, one.offset) == (TOPIC_ID, 3, 10), "the last update leaves the start as it was"
    assert one.deliveries == [
        Delivery(10, 14, "available", 1),
        Delivery(15, 19, "acknowledged", 2),
        Delivery(20, 20, "archived", 5),
        Delivery(21, 21, "archiving", 5),
    ]


def test_a_snapshot_replaces_and_a_tombstone_removes(tmp_path: Path) -> None:
    first = record("ShareSnapshot", 5, (5, 9, 2, 1))
    (one,) = state(tmp_path / "a", first, record("ShareSnapshot", 7, (8, 8, 0, 1)))
    assert (one.offset, one.deliveries) == (7, [Delivery(8, 8, "available", 1)])
    assert state(tmp_path / "b", first, (first[0], None)) == []


def test_overlaps_against_a_map_of_each_offset() -> None:
    rng = random.Random(18)
    ranks = ["available", "acquired", "acknowledged", "archiving", "archived"]
    for _ in range(300):
        start = rng.randint(-1, 15)
        given = []
        for _ in range(rng.randint(0, 6)):
            first = rng.randint(0, 25)
            given.append(Delivery(first, first + rng.randint(0, 8), rng.choice(ranks), rng.randint(1, 3)))
        expected: dict[int, tuple[int, int]] = {}
        for one in given:
            for offset in range(max(one.first_offset, start), one.last_offset + 1):
                rank = one.delivery_count, ranks.index(one.state)
                expected[offset] = max(expected.get(offset, (0, 0)), rank)
        found = _combined(given, start)
        told = {
            offset: (one.delivery_count, ranks.index(one.state))
            for one in found
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        assert told == expected
        assert sum(one.last_offset - one.first_offset + 1 for one in found) == len(expected), "without overlaps"
