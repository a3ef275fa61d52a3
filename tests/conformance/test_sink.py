"""A real broker serves what Spark wrote into its log dir, and consumers get the rows of the DataFrame."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.kafka import BrokerLife
from spark.sessions import settings

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

N = 500
JOB = f"""
import json, sys
from pyspark.sql import SparkSession
import kafkalog.spark
spark = SparkSession.builder.master("local[2]").config(map=json.loads(sys.argv[2])).getOrCreate()
kafkalog.spark.register(spark)
df = spark.range({N}).selectExpr(
    "CASE WHEN id % 7 > 0 THEN CAST(concat('k', id % 40) AS binary) END AS key",
    "CASE WHEN id % 11 > 0 THEN CAST(concat('v', id) AS binary) END AS value",
    "CASE WHEN id % 5 = 0 THEN array(struct('h' AS key, CAST(id AS string) AS value)) END AS headers",
    "timestamp_millis(1700000000000 + id) AS timestamp",
)
for first in ("timestamp < timestamp_millis(1700000000300)", "timestamp >= timestamp_millis(1700000000300)"):
    ready = kafkalog.spark.prepare(df.where(first), topic="sunk", num_partitions=3)
    options = {{"compression.type": "lz4", "batch.size": "2000"}}
    ready.write.format("kafkalog").mode("append").options(**options).save(sys.argv[1])
spark.stop()
"""


class Sunk(BrokerLife):
    """A broker that was stopped, written to by Spark, and started again."""

    def run(self):
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        python = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.run(
            [sys.executable, "-c", JOB, str(self.broker.log_dir), json.dumps(settings(self.folder))],
            env={**os.environ, **python},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def sunk(tmp_path):
    with Sunk(tmp_path, **{"broker.session.timeout.ms": 2500}) as sunk:
        yield sunk


def test_a_broker_serves_exactly_the_rows_and_keeps_spark_out_while_it_runs(sunk, tmp_path):
    sunk.boot()
    configs = {"retention.ms": -1}
    sunk.client.ask("create", topics=[{"name": "sunk", "partitions": 3, "configs": configs}])
    refused = sunk.run()
    assert refused.returncode != 0
    assert "a broker holds the lock of this log dir" in refused.stderr + refused.stdout
    sunk.broker.stop()
    done = sunk.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert [path.name for path in sunk.broker.log_dir.parent.iterdir() if "kafkalog" in path.name] == []
    found = [str(finding) for finding in kafkalog.verify(sunk.broker.log_dir, deep=True).findings]
    assert found == []
    sunk.boot()
    rows = sunk.client.consume(tmp_path / "read.jsonl", ["sunk"]).records["sunk"]
    assert len(rows) == N
    ends = {}
    for row in rows:
        number = row["timestamp"] - 1_700_000_000_000
        assert row["key"] == (b"k%d" % (number % 40) if number % 7 else None)
        assert row["value"] == (b"v%d" % number if number % 11 else None)
        assert [tuple(each) for each in row["headers"]] == ([] if number % 5 else [("h", b"%d" % number)])
        assert row["offset"] == ends.get(row["partition"], 0)
        ends[row["partition"]] = row["offset"] + 1
    assert sorted(ends) == [0, 1, 2]
    sunk.client.ask(
        "produce", topic="sunk", partitions=3, seed=5, first=0, kind="headers", records=9, per_batch=3,
        idempotent=True, codecs=["none"],
    )  # fmt: skip
    again = sunk.client.consume(tmp_path / "again.jsonl", ["sunk"]).records["sunk"]
    assert len(again) > N
    sunk.broker.stop()
