"""Spark itself reads the Delta and Iceberg tables that exports write, with the jars of both formats."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conformance.jars import java, lake_jars
from lakes import Delta, Iceberg

import kafkalog

PYTHON = os.environ.get("KAFKALOG_PYSPARK_41")
"""A Python with PySpark 4.1, the newest for which both formats have jars; kafkalog needs a newer one."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="not tested here: KAFKALOG_PYSPARK_41 names no Python with PySpark 4.1"),
]


def test_spark_reads_tables_with_the_jars_of_their_formats(tmp_path):
    log, lakes = tmp_path / "log", [Delta(tmp_path / "lake"), Iceberg(tmp_path / "lake")]
    log.mkdir()
    options = {"decode": {"value": "json"}, "columns": ["offset", "value"], "partition_by": ["partition"]}
    for fields in (["a"], ["a", "b"]):
        for partition in range(2):
            with kafkalog.PartitionWriter(log / f"orders-{partition}") as writer:
                writer.append({"value": [json.dumps(dict.fromkeys(fields, n)).encode() for n in range(50)]})
        for lake in lakes:
            lake.exporter(log, **options).run()
    jars = lake_jars(java()).replace(os.pathsep, ",")
    script = str(Path(__file__).with_name("lake_reader.py"))
    command = [str(PYTHON), script, jars, str(tmp_path / "lake"), str(tmp_path)]
    without = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    variables = {**without, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(PYTHON)}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=800, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [[part, at, at % 50, at % 50 if at > 49 else None] for part in (0, 1) for at in range(100)]
    assert [json.loads(line) for line in done.stdout.splitlines()[-2:]] == [{"delta": expected}, {"iceberg": expected}]
