"""What an export wrote is the same log again, whatever the layout, and in whatever order times are."""

import random

import pytest
from effort import fuzz_inputs

import kafkalog

LAYOUTS = [
    [], ["date"], ["topic", "date"], ["date", "topic", "partition"], ["partition", "date"], ["topic", "partition"],
]  # fmt: skip
COLUMNS = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]


def random_log(root, rng):
    root.mkdir()
    days = [86_400_000 * day for day in range(19_000, 19_004)]
    for topic in ("a", "b")[: rng.randrange(1, 3)]:
        for partition in range(rng.randrange(1, 3)):
            with kafkalog.PartitionWriter(root / f"{topic}-{partition}", batch_size=300) as writer:
                n, offset = rng.randrange(1, 60), rng.randrange(100)
                offsets = [offset := offset + rng.choice([1, 1, 1, 5]) for _ in range(n)]
                stamps = [rng.choice([-1, *(day + rng.randrange(86_400_000) for day in days)]) for _ in range(n)]
                keys = [rng.choice([None, b"", b"k", "ü".encode()]) for _ in range(n)]
                values = [rng.choice([None, b"", b"v,\n\"'", b"%d" % row]) for row in range(n)]
                headers = [rng.choice([[], [("h", b"v"), ("h", None)]]) for _ in range(n)]
                table = {"offset": offsets, "timestamp": stamps, "key": keys, "value": values}
                items = [[{"key": name, "value": one} for name, one in row] for row in headers]
                writer.append({**table, "headers": items})


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_an_export_of_any_layout_is_loaded_as_the_same_log(tmp_path, suffix):
    rng = random.Random(suffix)
    for number in range(max(fuzz_inputs() // 2000, 1)):
        layout = rng.choice(LAYOUTS)
        log, output, again = (tmp_path / f"{name}-{number}" for name in ("log", "out", "again"))
        random_log(log, rng)
        output = output if layout else output.with_suffix(f".{suffix}")
        kafkalog.export(log, output, format=suffix, partition_by=layout, batch_size=rng.choice([None, 7]))
        kafkalog.load(output, again)
        first, second = (kafkalog.read_table(one, columns=COLUMNS) for one in (log, again))
        assert first.equals(second), (number, layout)
        assert not kafkalog.verify(again).findings


def test_an_export_that_grew_by_date(tmp_path):
    log, output = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    day = 86_400_000
    for stamps in ([day, 0, day + 1], [5, 3 * day], [day + 2, 1]):
        with kafkalog.PartitionWriter(log / "a-0") as writer:
            writer.append({"value": [b"v"] * len(stamps), "timestamp": stamps})
        kafkalog.export(log, output, partition_by=["date"], resume=True)
    kafkalog.load(output, tmp_path / "again")
    assert kafkalog.read_table(tmp_path / "again").equals(kafkalog.read_table(log))
