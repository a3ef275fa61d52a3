"""A real broker deletes the segments that `trim` deletes by retention, and nothing else."""

import contextlib
import random
import shutil
import time

import pytest
from compactions import RandomPartition
from conformance.clusters import listeners, served
from conformance.kafka import Client, wait_until
from conformance.test_boot import QUICK

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DAY = 86_400_000
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
        tmp_path / "data",
        tmp_path / "out",
        settings={**settings, "*": {"retention": "as-was"}},
        nodes=listeners(),
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
        with contextlib.suppress(TimeoutError):  # the difference is shown below
            wait_until(lambda: segments_of(out) == wanted, "retention deletes")
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
