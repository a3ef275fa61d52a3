"""What an installation puts on the path: kafkalog from any folder, and the data source by its name alone."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import golden_sets
import pytest
from spark.sessions import QUICK_JVM, check_java

import kafkalog

pytestmark = pytest.mark.spark

COUNT = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
print(spark.read.format("kafkalog").option("subscribe", "p-multi").load(sys.argv[1]).count())
spark.stop()
"""


def run(folder, program, *arguments, **variables):
    """Run a program in a folder; of this process's environment it gets neither PYTHONPATH nor the names of Pythons."""
    dropped = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    environment = {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": QUICK_JVM, **variables}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_folder_with_the_name_of_the_package_does_not_hide_it(tmp_path):
    (tmp_path / "kafkalog" / "docs").mkdir(parents=True)  # as a clone of the repository is
    names = "print(kafkalog.__file__, *(one.name for one in pkgutil.iter_modules()))"
    done = run(tmp_path, f"import pkgutil, kafkalog; {names}")
    assert done.returncode == 0, f"install kafkalog again: pip install -e .\n{done.stderr}"
    file, *modules = done.stdout.split()
    assert Path(file).parent == Path(kafkalog.__file__).parent
    # Spark looks for data sources so
    assert "pyspark_kafkalog" in modules


@pytest.mark.slow
@pytest.mark.parametrize("how", ["activated", "named"])
def test_spark_finds_the_data_source_by_its_name(tmp_path, how):
    check_java()
    scripts = Path(sys.executable).parent
    variables = {"PYSPARK_PYTHON": sys.executable}
    if how == "activated":
        if not (scripts / "python3").exists():
            pytest.skip("not in a virtual environment")
        variables = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = run(tmp_path, COUNT, str(golden_sets.LOG_DIR), **variables)
    assert done.stdout.split() == ["303"], done.stderr[-3000:]


def test_the_module_that_spark_looks_for_does_no_harm_if_the_package_is_broken(tmp_path):
    installed = find_spec("pyspark_kafkalog")  # in the tree it has another place than in a wheel
    shutil.copytree(Path(installed.origin).parent, tmp_path / "pyspark_kafkalog")
    (tmp_path / "kafkalog.py").write_text("raise RuntimeError('broken')\n")
    done = run(tmp_path, "import pyspark_kafkalog as module; print(module.__file__, hasattr(module, 'DefaultSource'))")
    assert done.stdout.split() == [str(tmp_path / "pyspark_kafkalog" / "__init__.py"), "False"]
