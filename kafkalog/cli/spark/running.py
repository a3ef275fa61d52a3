"""What all commands of `kafkalog spark` share: their options, and a session that shows its progress."""

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


_task_size = functools.partial(n_bytes, least=1)


def add_job(jobs: Any, name: str, words: HelpText, run: Any, *, takes_bytes: bool = True, **options: Any) -> Parser:
    """Add a command with the options of all jobs.

    Parameters
    ----------
    takes_bytes : bool
        Whether the size of tasks can be said.
    options
        Those of `add_command`.
    """
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
    if takes_bytes:
        where.add_argument(
            "--task-bytes",
            metavar="N",
            type=_task_size,
            help="bytes of .log files a task (K, M, G understood)",
        )
    parser.add_argument("--json", action="store_true", help="an object per line")
    return parser


@contextlib.contextmanager
def running(args: argparse.Namespace, console: Console) -> Iterator[SparkSession]:
    """Run a Spark session, show its progress, and turn its failures into kafkalog's errors."""
    from kafkalog.spark.session import SparkUnavailableError, our_errors, session, watched

    conf = dict(args.conf)
    if console.verbose:
        conf.setdefault("spark.log.level", "WARN")
    console.start_progress(0, args.job, unit=" tasks")

    def tell(done: int, n: int) -> None:
        console.progress.resize(n)
        console.progress.reach(done)

    # PySpark warns of much that a user of the command line cannot change
    warnings.simplefilter("ignore")
    try:
        with session(args.master, conf, name=f"kafkalog {args.job}") as spark, contextlib.ExitStack() as stack:
            if console.shows_progress:
                stack.enter_context(watched(spark, tell))
            with usage_errors(), our_errors():
                yield spark
    except SparkUnavailableError as error:
        raise UsageError(str(error)) from error
    finally:
        console.progress.close()


def task_bytes(args: argparse.Namespace) -> dict[str, Any]:
    """The size of tasks as a keyword argument, if one is given."""
    return {} if args.task_bytes is None else {"task_bytes": args.task_bytes}
