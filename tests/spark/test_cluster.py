"""The source on executors that are processes of their own, found by its name as an installed package is."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import builder
import duckdb
import golden_sets
import pyarrow.parquet as pq
import pytest
from lakes import Delta, Iceberg
from sink_rows import hidden
from spark import speculation_session
from spark.cluster_session import N_ROWS, N_TASKS
from spark.sessions import QUICK_JVM, check_java, settings

import kafkalog
from kafkalog import format as kf

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def spark_home(folder):
    """PySpark's own, but for its work directory: that would be in site-packages."""
    folder.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for path in Path(spec.origin).parent.iterdir():
        if path.name in ("bin", "jars", "python", "sbin", "conf", "data"):
            (folder / path.name).symlink_to(path)
    return folder


def run_session(script, folder, *arguments, **variables):
    """Run a driver in a process of its own."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(spark_home(folder / "home")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": QUICK_JVM,  # of master, workers and executors, too
        "KAFKALOG_TEST_SETTINGS": json.dumps(settings(folder)),
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )


def keys_by_place(log):
    """The partition, offset and key of each record; the log is intact."""
    assert kafkalog.verify(log, deep=True).ok
    written = kafkalog.read_table(log, columns=["partition", "offset", "key"])
    return sorted(zip(*(written[name].to_pylist() for name in written.column_names), strict=True))


def keys_of(n_rows, n_tasks):
    """What `keys_by_place` returns if each record was written once."""
    in_a_task = n_rows // n_tasks
    return [(n // in_a_task, n % in_a_task, str(n).encode()) for n in range(n_rows)]


def test_executors_in_other_processes_read_what_the_driver_planned(tmp_path):
    check_java()
    damaged = tmp_path / "damaged" / "t-0"
    damaged.mkdir(parents=True)
    data = bytearray(builder.batch_v2([builder.record_v2(0, 0, None, b"v")]) * 1)
    data[-1] ^= 1
    log = damaged / kf.segment_file_name(0)
    log.write_bytes(data)
    arguments = [golden_sets.LOG_DIR, damaged.parent, tmp_path / "local", tmp_path / "log", *golden_sets.tiered()]
    lakes = [Delta(tmp_path / "lake"), Iceberg(tmp_path / "lake")]
    done = run_session("cluster_session.py", tmp_path, *map(str, arguments), **lakes[1].environment)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    table = kafkalog.read_table(golden_sets.LOG_DIR, columns=["topic"])
    expected = {row["values"]: row["counts"] for row in table["topic"].value_counts().to_pylist()}
    assert answer["processes"] == 2
    assert answer["counts"] == expected
    assert answer["tiered"] == len(golden_sets.tiered_truth("read_uncommitted"))
    assert answer["exports"] == [[True, 200]] * 4
    for lake in lakes:
        files = f"read_parquet({lake.files()}, hive_partitioning = true, union_by_name = true)"
        rows = duckdb.execute(f'select partition, "offset", value.a, value.b from {files} order by all').fetchall()
        assert rows == [(part, at, at % 100, at % 100 if at > 99 else None) for part in (0, 1) for at in range(200)]
    committed = kafkalog.scan(golden_sets.LOG_DIR, topics="p-txn", isolation_level="read_committed").count_rows()
    assert answer["committed"] == committed < expected["p-txn"]
    assert f"{log}@0 base_offset=0: crc_mismatch" in answer["error"]
    # a worker and an executor were killed in the middle of their tasks
    assert answer["failed"] >= 2
    assert hidden(tmp_path) == []
    assert keys_by_place(tmp_path / "log") == keys_of(N_ROWS, N_TASKS)


def test_a_task_that_is_started_twice_writes_its_records_once(tmp_path):
    check_java()
    scratch, marker = tmp_path / "scratch", tmp_path / "marker"
    scratch.mkdir()
    done = run_session(
        "speculation_session.py", tmp_path, str(scratch), str(tmp_path / "log"), KAFKALOG_TEST_MARKER=str(marker)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert marker.exists()  # the first attempt waited for it, and only the second makes it before
    expected = keys_of(speculation_session.N_ROWS, speculation_session.N_TASKS)
    assert keys_by_place(tmp_path / "log") == expected
    # the same of readers, and of jobs whose tasks write files
    read, steps = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert read == [[*place, key.decode()] for *place, key in expected]
    exported = pq.read_table(tmp_path / "export", columns=["partition", "offset", "key"])
    assert sorted(zip(*(exported[name].to_pylist() for name in exported.column_names), strict=True)) == expected
    kafkalog.reindex(tmp_path / "log", output=tmp_path / "local")
    assert contents(tmp_path / "reindex") == contents(tmp_path / "local")
    assert {step.rstrip("0123456789") for step in steps} == {"read", "export", "reindex"}
    assert hidden(tmp_path) == []
    assert {f"marker-{step}-{attempt}" for step in steps for attempt in (0, 1)} <= {
        path.name for path in tmp_path.iterdir()
    }


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
