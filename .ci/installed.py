"""Checks an installed kafkalog against the tree that it was made from: `python installed.py TREE [plain | spark]`.

Run by the Python of an environment that has the wheel and nothing of the tree, from a directory outside of it. "plain"
is for an environment without pyspark: every module but those for Spark, and the documents' commands. "spark" is for one
with it: the other modules, the data source, and the documents' Python for Spark.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(sys.argv[1]).resolve()
KIND = sys.argv[2]
DISCOVERY = "pyspark_kafkalog"
PROGRAM = Path(sys.prefix, "bin", "kafkalog")
DOCUMENTS = [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]


def main() -> None:
    os.environ.pop("PYTHONPATH", None)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # for a JVM that lives for seconds
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    plain, for_spark = modules_of_the_tree()
    wanted = plain if KIND == "plain" else for_spark
    assert wanted
    for name in wanted:
        import_installed(name)
    print(f"{len(wanted)} modules imported")
    if KIND == "plain":
        # in an environment without pyspark it does no harm
        assert not hasattr(import_installed(DISCOVERY), "DefaultSource")
        check_data_files()
        run_console_blocks()
    else:
        assert import_installed(DISCOVERY).DefaultSource.__name__ == "KafkaLogSource"
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(shutil.copytree(TREE / "tests" / "golden" / "log_dir", Path(scratch, "log_dir")))
            run_spark_python(copy, Path(scratch))


def modules_of_the_tree() -> tuple[list[str], list[str]]:
    """Names of the modules that need no pyspark, and of those that do."""
    files = [*(TREE / "kafkalog").rglob("*.py"), *(TREE / "kafkalog" / "_kernels").glob("*.pyx")]
    names = {".".join(file.relative_to(TREE).with_suffix("").parts).removesuffix(".__init__") for file in files}
    names -= {name for name in names if DISCOVERY in name}
    for_spark = {name for name in names if name.startswith("kafkalog.spark")}
    return sorted(names - for_spark), sorted(for_spark)


def import_installed(name: str) -> object:
    """A module; it has to lie in this environment."""
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).is_relative_to(sys.prefix), f"{name} is {module.__file__}"
    return module


def check_data_files() -> None:
    """Types are shipped; sources of kernels are not."""
    kafkalog = import_installed("kafkalog")
    installed = Path(str(kafkalog.__file__)).parent  # type: ignore[attr-defined]
    assert (installed / "py.typed").is_file()
    assert not [*installed.rglob("*.pyx"), *installed.rglob("*.c")]


def blocks(language: str) -> list[str]:
    """Fenced blocks of a language, of all documents."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [block for document in DOCUMENTS for block in pattern.findall(document.read_text())]


def run_console_blocks() -> None:
    """The commands whose output the documents show, and that need nothing but the golden data."""
    n_run = 0
    shown = [part for block in blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    for command, _, expected in (part.partition("\n") for part in shown):
        program, *arguments = shlex.split(command)
        # one that shows its exit code may read what an earlier block wrote, or need an extra
        if program != "kafkalog" or " tests/golden/" not in command or " -o " in command or ";" in command:
            continue
        # there the paths are right; a console script does not look for modules where it is started
        done = subprocess.run([PROGRAM, *arguments], cwd=TREE, capture_output=True, text=True, check=True)
        check = doctest.OutputChecker().check_output
        # a terminal shows both streams, and documents may show the notes or not
        shown = [done.stdout, done.stderr + done.stdout, done.stdout + done.stderr]
        assert any(check(expected, text, doctest.ELLIPSIS) for text in shown), f"{command}\n{shown[1]}"
        n_run += 1
    print(f"{n_run} commands run")
    assert n_run >= 10


def run_spark_python(log_dir: Path, scratch: Path) -> None:
    """The documents' Python that reads by Spark or runs jobs; the data source is found by its name alone."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("kafkalog installed")
    for name, value in {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    shown = [block for block in blocks("python") if "spark.read." in block or "jobs." in block]
    examples = [block for block in shown if "s3://" not in block]  # needs a store
    assert len(examples) >= 2
    for example in examples:
        for said, here in {
            "/backup/kafka": str(log_dir),
            "/var/lib/kafka": str(log_dir),
            "/lake/kafka": str(scratch / "lake"),
            "/new/": f"{scratch}/",
            '"orders,payments"': '"p-multi,p-txn"',
            '"orders"': '"p-multi"',
        }.items():
            example = example.replace(said, here)
        with contextlib.chdir(scratch):
            exec(compile(example, "documents", "exec"), {"spark": spark})
    assert (scratch / "lake").is_dir()
    assert spark.read.format("kafkalog").load(str(log_dir)).count() > 1000
    spark.stop()
    print(f"{len(examples)} examples run on Spark")


main()
