"""Options that all commands of `kafkalog spark` share, and the session that they run in."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import HelpText, add_command, assignment, n_bytes
from kafkalog.cli.parser import Parser
from kafkalog.cli.scan_options import usage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
MASTERS: Final = """
The default --master, local[*], uses all cores of this machine. spark://HOST:PORT, yarn and k8s://... are clusters,
whose nodes need kafkalog and the same paths. --conf takes Spark's settings, such as spark.executor.memory=2g."""


def add_job(jobs: Any, name: str, words: HelpText, run: Any, **options: Any) -> Parser:
    """Add a command with the options of all jobs; `options` are those of `add_command`."""
    parser = add_command(jobs, name, words, run, **options)
    where = parser.add_argument_group("Spark")
    where.add_argument("--master", metavar="URL", default="local[*]", help="where to run (default: %(default)s)")
    where.add_argument(
        "--conf",
        metavar="K=V",
        action="append",
        default=[],
        type=assignment("spark.executor.memory=2g"),
        help="a setting of Spark; repeatable",
    )
    where.add_argument(
        "--task-bytes",
        metavar="N",
        type=functools.partial(n_bytes, least=1),
        help="bytes of .log files per task (with K, M or G)",
    )
    parser.add_argument("--json", action="store_true", help="an object per line")
    return parser


@contextlib.contextmanager
def running(args: argparse.Namespace, console: Console) -> Iterator[SparkSession]:
    """Run a Spark session, and raise its failures as kafkalog's errors; an active session is used and not stopped."""
    # PySpark warns of much that a user of the command line cannot change
    warnings.simplefilter("ignore")
    try:
        from pyspark.sql import SparkSession

        from kafkalog.spark.runner import raised_errors
    except ImportError as error:
        raise UsageError(f"pyspark is not installed: pip install pyspark ({error})") from error
    active = SparkSession.getActiveSession()  # inside of a notebook or of spark-submit
    spark = active or _start(args, console)
    try:
        with usage_errors(), raised_errors():
            yield spark
    except ImportError as error:
        raise UsageError(str(error)) from error
    finally:
        if active is None:
            spark.stop()


def _start(args: argparse.Namespace, console: Console) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    check_java()
    is_local = args.master.startswith("local")
    # the path of this interpreter need not exist on the machines of a cluster
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable if is_local else "python3")
    builder = SparkSession.builder.master(args.master).appName(f"kafkalog {args.job}")
    own = {
        "spark.ui.showConsoleProgress": str(console.shows_progress).lower(),
        "spark.log.level": "WARN" if console.verbose else "OFF",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in {**own, **(_LOOPBACK if is_local else {}), **dict(args.conf)}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"Spark did not start on {args.master}: {first}; it needs Java 17 or later and a master that can be reached"
        ) from error


def check_java() -> None:
    """Raise UsageError where there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if home is not None and not Path(home, "bin", "java").exists():
        raise UsageError(f"there is no java in JAVA_HOME ({home}): Spark needs Java 17 or later")
    if home is None and shutil.which("java") is None:
        raise UsageError(
            "Java was not found: Spark needs Java 17 or later on PATH or in JAVA_HOME"
            " (apt install openjdk-17-jre-headless)"
        )


def task_bytes(args: argparse.Namespace) -> dict[str, Any]:
    """The size of tasks as a keyword argument, if the user set one."""
    return {} if args.task_bytes is None else {"task_bytes": args.task_bytes}
