"""The source on executors that are processes of their own, found by its name as an installed package is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import builder
import golden_sets
import pytest
from spark.sessions import check_java, settings

import kafkalog
from kafkalog import format as kf

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = Path(kafkalog.__file__).parent


def site(folder: Path) -> Path:
    """What is on the path of an installation: the package, and beside it the module that Spark looks for."""
    folder.mkdir()
    (folder / "kafkalog").symlink_to(PACKAGE)
    (folder / "pyspark_kafkalog").symlink_to(PACKAGE / "spark" / "pyspark_kafkalog")
    return folder


def spark_home(folder: Path) -> Path:
    """PySpark's own, but for its work directory: that would be in site-packages."""
    folder.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for path in Path(spec.origin).parent.iterdir():
        if path.name in ("bin", "jars", "python", "sbin", "conf", "data"):
            (folder / path.name).symlink_to(path)
    return folder


def test_executors_in_other_processes_read_what_the_driver_planned(tmp_path: Path) -> None:
    check_java()
    damaged = tmp_path / "damaged" / "t-0"
    damaged.mkdir(parents=True)
    data = bytearray(builder.batch_v2([builder.record_v2(0, 0, None, b"v")]) * 1)
    data[-1] ^= 1
    log = damaged / kf.segment_file_name(0)
    log.write_bytes(data)
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home(tmp_path / "home")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(site(tmp_path / "site")),
        "KAFKALOG_TEST_SETTINGS": json.dumps(settings(tmp_path)),
    }
    arguments = [str(golden_sets.LOG_DIR), str(damaged.parent), str(tmp_path / "local")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("cluster_session.py")), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    table = kafkalog.read_table(golden_sets.LOG_DIR, columns=["topic"])
    expected = {row["values"]: row["counts"] for row in table["topic"].value_counts().to_pylist()}
    assert answer["processes"] == 2
    assert answer["counts"] == expected
    committed = kafkalog.scan(golden_sets.LOG_DIR, topics="p-txn", isolation_level="read_committed").count_rows()
    assert answer["committed"] == committed < expected["p-txn"]
    assert f"{log}@0 base_offset=0: crc_mismatch" in answer["error"]


def test_the_discovery_module_does_no_harm_where_the_package_cannot_be_imported(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "pyspark_kafkalog").symlink_to(PACKAGE / "spark" / "pyspark_kafkalog")
    (folder / "kafkalog.py").write_text("raise RuntimeError('broken')\n")
    command = "import pyspark_kafkalog as module; print(hasattr(module, 'DefaultSource'))"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
