"""Options that all commands of `kafkalog spark` share, and the session that they run in."""

from __future__ import annotations

import argparse
import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import HelpText, add_command, assignment, n_bytes
from kafkalog.cli.parser import Parser
from kafkalog.cli.scan_options import usage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS: Final = """
--master is local[*] by default, all processors of this machine; spark://HOST:PORT, yarn, k8s://... are clusters, whose
nodes need kafkalog and these paths. --conf gives Spark's settings, such as spark.executor.memory=2g."""


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
        help="a setting of Spark's; may be repeated",
    )
    where.add_argument(
        "--task-bytes",
        metavar="N",
        type=functools.partial(n_bytes, least=1),
        help="bytes of .log files a task (K, M, G understood)",
    )
    parser.add_argument("--json", action="store_true", help="an object per line")
    return parser


@contextlib.contextmanager
def running(args: argparse.Namespace, console: Console) -> Iterator[SparkSession]:
    """Run a Spark session that shows Spark's progress, and raise its failures as kafkalog's errors."""
    from kafkalog.spark.session import SparkUnavailableError, session

    conf = {"spark.ui.showConsoleProgress": str(console.shows_progress).lower()}
    if console.verbose:
        conf["spark.log.level"] = "WARN"
    # PySpark warns of much that a user of the command line cannot change
    warnings.simplefilter("ignore")
    try:
        with session(args.master, {**conf, **dict(args.conf)}, name=f"kafkalog {args.job}") as spark:
            from kafkalog.spark.runner import raised_errors

            with usage_errors(), raised_errors():
                yield spark
    except (SparkUnavailableError, ImportError) as error:
        raise UsageError(str(error)) from error


def task_bytes(args: argparse.Namespace) -> dict[str, Any]:
    """The size of tasks as a keyword argument, if one is given."""
    return {} if args.task_bytes is None else {"task_bytes": args.task_bytes}
