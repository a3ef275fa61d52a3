"""Executors in other processes that lack a path or a module: the job fails with what to do, never with a finding."""

import json
import shutil
import sys

import golden_sets
import pytest
from spark.sessions import check_java
from spark.test_cluster import run_session

import kafkalog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

MODULE = "def wanted(offset):\n    return offset < 5\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/cwd leads to another folder in each process")
def test_what_an_executor_lacks_is_said(tmp_path):
    check_java()
    alone, broken = tmp_path / "alone", tmp_path / "broken"
    alone.mkdir()
    (alone / "only_here.py").write_text(MODULE)
    broken.mkdir()
    (broken / "kafkalog.py").write_text("raise ModuleNotFoundError(\"No module named 'kafkalog'\", name='kafkalog')\n")
    done = run_session(
        "executors_session.py",
        tmp_path,
        str(shutil.copytree(golden_sets.LOG_DIR, tmp_path / "log")),
        SCRATCH=str(tmp_path),
        BROKEN=str(broken),
        ALONE=str(alone),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    for name in ("verify", "export", "source"):
        assert "ReadError" in answer[name], answer[name]
        assert "/proc/self/cwd/p-" in answer[name] or name == "source"
        assert "cannot open it" in answer[name]
        assert "mount the log dir at this path on every node" in answer[name]
    assert answer["verify"].count("\n") == 0
    assert not (tmp_path / "out").exists()
    assert answer["relative"] == kafkalog.scan(golden_sets.LOG_DIR).count_rows()
    assert answer["relative job"] > 0
    expected = kafkalog.scan(golden_sets.LOG_DIR, topics="p-multi", filters="offset < 5").count_rows()
    assert answer["function"] == answer["shipped"] == expected
    assert "cannot import 'only_here'" in answer["module"]
    assert "addPyFile" in answer["module"]
    assert "cannot import 'kafkalog'" in answer["package"]
    assert "install it on every node" in answer["package"]
