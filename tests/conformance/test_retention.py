"""A real broker deletes at once what a load said that it would, and nothing else."""

import json
import random
import shutil
import time
from collections import Counter

import pytest
from compactions import RandomPartition
from conformance.kafka import BrokerLife, Client, wait_until
from conformance.test_boot import QUICK, listeners, served

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DAY = 86_400_000
N = 20
TOPICS = {
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
def life(tmp_path):
    properties = {"log.initial.task.delay.ms": 500, "log.retention.check.interval.ms": 500}
    with BrokerLife(tmp_path, **{"broker.session.timeout.ms": 2500, **properties}) as life:
        yield life


def test_a_broker_deletes_what_the_note_says(life, tmp_path):
    client = life.client
    life.boot()
    topics = [{"name": name, "partitions": 1, "configs": configs} for name, (_, configs) in TOPICS.items()]
    client.ask("create", topics=topics)
    client.ask("ready")
    life.stop()
    now = time.time_ns() // 10**6
    with (tmp_path / "x.jsonl").open("w") as file:
        for name, (days, _) in TOPICS.items():
            for i in range(N):
                stamp = now - days * DAY - N + i if days else None
                file.write(json.dumps({"topic": name, "key": f"k{i}", "value": "v", "timestamp": stamp}) + "\n")
    result = kafkalog.load([tmp_path / "x.jsonl"], life.log_dir, install=True, encoding="utf8")
    (note,) = [one for one in result.notes if "will soon delete the records of both-0" in one]
    assert f" and {len(GONE) - 1} more: the newest" in note
    life.boot()

    def left():
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


HOUR = 3_600_000
SETTINGS = {
    "time": {"retention.ms": DAY},
    "size": {"retention.ms": -1, "retention.bytes": 1500},
    "both": {"retention.ms": 2 * DAY, "retention.bytes": 2500},
    "nothing-stays": {"retention.ms": -1, "retention.bytes": 0},
    "for-ever": {"retention.ms": -1},
    "compacted": {"cleanup.policy": "compact", "retention.ms": 1, "min.cleanable.dirty.ratio": 1},
    "compacted-and-deleted": {
        "cleanup.policy": "compact,delete",
        "retention.ms": DAY,
        "retention.bytes": 4000,
        "min.cleanable.dirty.ratio": 1,
    },
}
N_EACH = 7


def test_a_broker_deletes_the_segments_that_trim_deletes(tmp_path):
    now = time.time_ns() // 10**6
    rng = random.Random(20261127)
    settings = {}
    for kind, values in SETTINGS.items():
        for number in range(N_EACH):
            settings[name := f"{kind}-{number}"] = {setting: str(value) for setting, value in values.items()}
            directory = tmp_path / "data" / f"{name}-0"
            directory.mkdir(parents=True)
            # the last of each kind has messages without timestamps, so that the times of the files count
            partition = RandomPartition(rng.getrandbits(60), now, old_formats=number == N_EACH - 1, has_gaps=False)
            partition.producers = []
            for _ in range(rng.randrange(1, 8)):
                partition.stamp = now - rng.choice((-HOUR, HOUR, 20 * HOUR, 30 * HOUR, 3 * DAY))
                partition.append(directory, 1, is_first=False)
    report = kafkalog.boot(
        tmp_path / "data", tmp_path / "out", settings=settings, retention="as-was", listeners=listeners()
    )
    out = tmp_path / "out" / "data"
    before = segments_of(out)
    shutil.copytree(out, tmp_path / "trimmed")
    kafkalog.trim(tmp_path / "trimmed", retention=True, in_place=True)
    wanted = segments_of(tmp_path / "trimmed")
    gone = {name for name in wanted if wanted[name] != before[name]}
    assert len(gone) > 15
    assert {name.rpartition("-")[0].rpartition("-")[0] for name in gone} == {*SETTINGS} - {"for-ever", "compacted"}
    with Client(tmp_path) as client, served(client, report, complains=True, **QUICK):
        deadline = time.monotonic() + 20
        while segments_of(out) != wanted and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(2)  # retention has looked at all of them several times
    found = segments_of(out)
    assert {name: (found[name], wanted[name], before[name]) for name in wanted if found[name] != wanted[name]} == {}


def segments_of(root):
    """Names and sizes of the segments of each partition."""
    return {
        path.name: {log.name: log.stat().st_size for log in sorted(path.glob("*.log"))}
        for path in sorted(root.iterdir())
        if path.is_dir() and not path.name.startswith("__")
    }
