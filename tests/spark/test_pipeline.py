"""The nightly pipeline of the guide is exactly-once: log dir, JSON, windows, Parquet, killed three times."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spark.pipeline_session import PIPELINE
from spark.sessions import check_java, settings

import kafkalog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

HOUR = 3_600_000
BEGIN = 1_700_000_000_000 // HOUR * HOUR
N = 2400
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


def fill(root, first, n):
    """Orders of some customers, a minute apart, in two partitions; some are no JSON."""
    for partition in range(2):
        numbers = range(first + partition, first + n, 2)
        values = [
            b"oops" if i % 50 == 0 else b'{"customer": "c%d", "amount": %d, "other": [%d]}' % (i % 5, i, i)
            for i in numbers
        ]
        with kafkalog.PartitionWriter(root / f"orders-{partition}") as writer:
            writer.append({"value": values, "timestamp": [BEGIN + 60_000 * i for i in numbers]})


def expected(n):
    """The totals of hours that are over: the watermark is beyond their ends."""
    totals = {}
    for i in range(n):
        one = totals.setdefault((i // 60, None if i % 50 == 0 else f"c{i % 5}"), [0, 0])
        one[0] += 0 if i % 50 == 0 else i
        one[1] += 1
    over = (n - 2) // 60
    return Counter((hour, name, *sums) for (hour, name), sums in totals.items() if hour < over)


def test_the_pipeline_of_the_guide_is_exactly_once_over_kills(tmp_path):
    check_java()
    assert PIPELINE.strip() in GUIDE.read_text()
    log, lake = tmp_path / "log", tmp_path / "lake"
    session = str(Path(__file__).with_name("pipeline_session.py"))
    variables = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-W", "ignore", session, str(log), str(lake), json.dumps(settings(tmp_path))]

    def start():
        return subprocess.Popen(
            command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip

    def batches():
        return len(list((lake / "state" / "commits").glob("[0-9]*")))

    log.mkdir()
    fill(log, 0, N // 2)
    n_before = 0
    for kill in range(3):
        if kill == 2:
            fill(log, N // 2, N // 2)
        process = start()
        assert process.stdout is not None
        # in the middle of a batch that is not the first of this run
        deadline = time.monotonic() + 240
        while batches() < n_before + 1 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None, process.stdout.read()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        n_before = batches()
    process = start()
    out, _ = process.communicate(timeout=600)
    assert out.split()[-1] == "done"
    found = Counter()
    # the files that Spark's log of the sink lists are those that readers of the directory see
    lines = [
        line for path in (lake / "totals" / "_spark_metadata").glob("[0-9]*") for line in path.read_text().splitlines()
    ]
    for path in {json.loads(line)["path"] for line in lines if line.startswith("{")}:
        for row in pq.read_table(path.removeprefix("file://")).to_pylist():
            hour = (int(row["start"].timestamp()) * 1000 - BEGIN) // HOUR
            found[hour, row["customer"], row["amount"] or 0, row["n"]] += 1
    assert found == expected(N)
    assert sum(found.values()) > 150
