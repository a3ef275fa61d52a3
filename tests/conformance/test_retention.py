"""A real broker deletes at once what a load said that it would, and nothing else."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.jars import class_path, java
from conformance.kafka import Broker, Client, wait_until

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DAY = 86_400_000
N = 20
TOPICS: dict[str, tuple[int, dict[str, object]]] = {
    "overdue": (8, {}),
    "recent": (6, {}),
    "for-ever": (8, {"retention.ms": -1}),
    "short": (2, {"retention.ms": DAY}),
    "compacted": (8, {"cleanup.policy": "compact"}),
    "both": (8, {"cleanup.policy": "compact,delete"}),
    "unstamped": (0, {}),
}
"""How many days ago the newest record is from, and what the topic is set to."""
GONE = ("both", "overdue", "short")


@pytest.fixture
def client_and_broker(tmp_path: Path) -> Iterator[tuple[Client, Broker]]:
    program = java()
    jars = class_path(program)
    properties = {"log.initial.task.delay.ms": 500, "log.retention.check.interval.ms": 500}
    client = Client(program, jars, tmp_path)
    broker = Broker(program, jars, tmp_path, **{"broker.session.timeout.ms": 2500, **properties})
    try:
        yield client, broker
    finally:
        client.close()
        if broker.is_running:
            broker.kill()


def boot(client: Client, broker: Broker) -> None:
    broker.start()
    client.server = broker.address
    client.ask("ready")


def test_a_broker_deletes_what_the_note_says(client_and_broker: tuple[Client, Broker], tmp_path: Path) -> None:
    client, broker = client_and_broker
    boot(client, broker)
    topics = [{"name": name, "partitions": 1, "configs": configs} for name, (_, configs) in TOPICS.items()]
    client.ask("create", topics=topics)
    client.ask("ready")
    broker.stop()
    now = time.time_ns() // 10**6
    with (tmp_path / "x.jsonl").open("w") as file:
        for name, (days, _) in TOPICS.items():
            for i in range(N):
                stamp = now - days * DAY - N + i if days else None
                file.write(json.dumps({"topic": name, "key": f"k{i}", "value": "v", "timestamp": stamp}) + "\n")
    result = kafkalog.load([tmp_path / "x.jsonl"], broker.log_dir, install=True, encoding="utf8")
    (note,) = [one for one in result.notes if one.startswith("the records of both-0, ")]
    assert f"as those of {len(GONE) - 1} more: the newest" in note
    boot(client, broker)

    def left() -> dict[str, int]:
        while True:
            try:
                records = client.consume(tmp_path / "read.jsonl", list(TOPICS)).records
                break
            except RuntimeError as error:
                if "OffsetOutOfRange" not in str(error):  # deleted between being listed and being read
                    raise
        return Counter({name: len(rows) for name, rows in records.items() if rows})

    wait_until(lambda: len(left()) <= len(TOPICS) - len(GONE), "old segments are deleted")
    time.sleep(2)  # the task has looked at all of them several times
    assert left() == {name: N for name in TOPICS if name not in GONE}
    broker.stop()
