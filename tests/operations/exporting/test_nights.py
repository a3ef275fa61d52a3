"""Nightly exports that are killed, of a log that is also created again or rewritten, and whose fields come and go."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import duckdb
import pytest
from effort import trials
from lakes import LAKES, Directory

import kafkalog
from kafkalog.errors import FileChangedError

SCRIPT = """
import sys, kafkalog
print("ready", flush=True)
options = {"decode": {"value": "json"}, "columns": ["offset", "value"], "partition_by": ["partition"], "resume": True}
kafkalog.export(sys.argv[1], sys.argv[2], format=sys.argv[3], **options)
"""
OPTIONS = {"decode": {"value": "json"}, "columns": ["offset", "value"], "partition_by": ["partition"]}


class Lines(Directory):
    """A directory of JSON lines."""

    format = "jsonl"

    def exists(self):
        return any(self.output.rglob("*.jsonl"))


NIGHTS = {**LAKES, "lines": Lines}
N_KILLS = trials(8, 17)


def append(root, values, epoch):
    with kafkalog.PartitionWriter(root / "orders-0", leader_epoch=epoch) as writer:
        writer.append({"value": [json.dumps(value).encode() for value in values]})


def night(draw, number):
    """The values of a night; a field is new, and another one dropped."""
    fields = [{"id"}, {"id", "a"}, {"id", "b"}, {"a", "b"}][draw.randrange(4)]
    return [dict.fromkeys(fields, number * 100 + at) for at in range(draw.randint(1, 9))]


def killed(root, lake, seconds):
    command = [sys.executable, "-c", SCRIPT, root, lake.name, lake.format]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **lake.environment}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("format", NIGHTS)
def test_a_table_is_what_the_log_was_or_the_run_is_refused(format, tmp_path):
    pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")
    draw = random.Random(format)
    root, number, epoch = tmp_path / "log", 0, 0
    root.mkdir()
    history: list[dict] = []
    lake = NIGHTS[format](tmp_path / "lake-0")
    lake.path.mkdir()
    for kill in range(N_KILLS):
        values = night(draw, kill)
        history += values
        append(root, values, epoch)
        killed(root, lake, draw.uniform(0.2, 2))
        if draw.random() < 0.3 and len(history) > 3:
            # all is exported, and then other records take the place of some
            lake.run(root, **OPTIONS)
            kept, epoch = draw.choice([(0, 0), (draw.randint(1, len(history) - 1), epoch + 1)])
            lost = len(history) - kept
            shutil.rmtree(root / "orders-0")
            for part, at in ((history[:kept], max(epoch - 1, 0)), (night(draw, 50) * lost, epoch)):
                if part:
                    append(root, part, at)
            with pytest.raises(FileChangedError):
                lake.run(root, **OPTIONS)
            assert table(lake) == history
            history = [json.loads(row) for row in kafkalog.read_table(root).column("value").to_pylist()]
            number += 1
            lake = NIGHTS[format](tmp_path / f"lake-{number}")
            lake.path.mkdir()
        if lake.exists():
            there = table(lake)
            assert there == history[: len(there)]
    lake.run(root, **OPTIONS)
    assert table(lake) == history
    assert number


def table(lake):
    """The values of the table, in the order of their offsets."""
    if lake.format == "jsonl":
        rows = [json.loads(line) for path in lake.output.rglob("*.jsonl") for line in path.read_text().splitlines()]
        values = [row["value"] for row in sorted(rows, key=lambda row: row["offset"])]
        return [{name: value for name, value in one.items() if value is not None} for one in values]
    files = lake.files()
    if lake.format == "parquet":
        files = [f"{files[0]}/**/*.parquet"]
    if not files:
        return []
    found = duckdb.execute(
        f'select value from read_parquet({files}, union_by_name = true) order by "offset"'
    ).fetchall()
    return [{name: value for name, value in row[0].items() if value is not None} for row in found]
