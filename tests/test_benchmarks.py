"""The benchmarks of asv: found where libraries are missing, less is better in every number, and they run in a clone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from needs import by_todays_clock

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "asv_bench" / "benchmarks"
MODULES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in ("__init__", "common"))
UNITS = {"MiB", "ms", "us", "ns", "MS_PER_100_MB"}
"""Of these less is better, as of ratios, whose unit names both sides."""
MEASURES = (", CPU time", ", by the clock", ", bytes read")
COMPARED = ("boto3", "datafusion", "duckdb", "fastavro", "google", "numba", "obstore", "pandas", "polars", "pyspark")
IMPORT_WITHOUT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in {compared!r}:
    sys.modules[name] = None
skipped = []
for name in {modules!r}:
    module = importlib.import_module(f"benchmarks.{{name}}")
    if hasattr(module, "libraries"):
        try:
            module.libraries.require()
        except NotImplementedError as problem:
            skipped.append(name)
            assert "pip install" in str(problem)
print(*skipped)
"""

pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are not part of the package")


@pytest.mark.parametrize("name", MODULES)
def test_less_is_better_in_every_number(name):
    nodes = [*ast.walk(ast.parse((BENCHMARKS / f"{name}.py").read_text()))]
    tracked = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("track_")}
    assigned = [(node.targets[0], node.value) for node in nodes if isinstance(node, ast.Assign)]
    units = {
        target.value.id: ast.unparse(value).strip("\"'")
        for target, value in assigned
        if isinstance(target, ast.Attribute) and target.attr == "unit"
    }
    assert set(units) == tracked
    for unit in units.values():
        assert unit in UNITS or (" / " in unit and unit.endswith(MEASURES)), unit


def test_benchmarks_are_found_where_what_they_compare_with_is_missing():
    program = IMPORT_WITHOUT.format(compared=COMPARED, modules=MODULES)
    command = [sys.executable, "-c", program, str(BENCHMARKS.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["convert", "pushdown", "stores", "values"]
    assert done.stderr.count("benchmarks are skipped: ") == 4


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_asv_builds_an_environment_of_a_clone_and_runs_one_round_in_it(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    env = by_todays_clock()
    env.pop("PYTHONPATH", None)
    env |= {"HOME": str(tmp_path), "KAFKALOG_BENCH_MIB": "1", "KAFKALOG_BENCH_CACHE": str(tmp_path / "segments")}
    env["PIP_CACHE_DIR"] = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))

    subprocess.run([programs / "pip", "install", "-q", "asv", "virtualenv"], check=True, env=env)

    def asv(*words):
        command = [programs / "python", "-m", "asv", *words]
        return subprocess.run(command, cwd=clone / "asv_bench", env=env, capture_output=True, text=True, check=False)

    assert asv("machine", "--yes").returncode == 0
    # of the clients only with large batches: with small ones they take minutes
    clients = "codec.Clients.track_ratio_encode.*5,000"
    some = f"headers|codec.SmallCalls|{clients}|values.Json.time_all|decode.ToReader.time"
    done = asv("run", "HEAD^!", "--quick", "--show-stderr", "-b", some)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "failed" not in done.stdout, done.stdout[-3000:]
    assert "No module named" not in done.stdout, done.stdout[-3000:]
    assert "headers.HeaderWalk.time_" in done.stdout
    for name in ("values.Json.time_all_fields", "decode.ToReader.time_to_reader", "codec.Clients.track_ratio_encode"):
        assert f"{name} " in done.stdout
