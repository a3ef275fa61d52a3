"""Starts a Spark session for the command line, watches its progress, and turns its failures into kafkalog's errors."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.25

_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_QUIET: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
}
_RAISED: Final = re.compile(r"^(?:\S*\.)?kafkalog\.errors\.(?P<name>\w+): (?P<text>.*)$", re.MULTILINE)
# Python's errors reach the driver as text alone: it is taken apart again
_TEXT: Final = re.compile(
    r"(?P<path>.*?)(?:@(?P<position>\d+))?(?: base_offset=(?P<base_offset>-?\d+))?"
    r": (?P<reason>[a-z0-9_]+)(?:: (?P<detail>.*))?"
)


class SparkUnavailableError(Exception):
    """Spark cannot be started; the message names what is missing and how to install it."""


@contextlib.contextmanager
def session(master: str, conf: Mapping[str, str], *, name: str = "kafkalog") -> Iterator[SparkSession]:
    """Start a session that stops when the block ends; an active session is used instead and not stopped.

    Parameters
    ----------
    master : str
        ``local[*]``, ``spark://HOST:PORT``, ``yarn``, ``k8s://...``
    conf : mapping of str to str
        Spark's settings.
    name : str
        Name of the application.

    Raises
    ------
    SparkUnavailableError
        PySpark or Java is missing, or the master cannot be reached.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailableError(f"pyspark is not installed: pip install pyspark ({error})") from error
    # inside of a notebook or of spark-submit
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    _check_java()
    is_local = master.startswith("local")
    # the path of this interpreter need not exist on the machines of a cluster
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable if is_local else "python3")
    settings = {**_QUIET, **({"spark.ui.enabled": "false", **_LOOPBACK} if is_local else {}), **conf}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        made = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SparkUnavailableError(
            f"Spark did not start on {master}: {_first_line(error)}; it needs Java 17 or later, and a master that"
            " can be reached"
        ) from error
    try:
        yield made
    finally:
        made.stop()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home is not None and not Path(home, "bin", "java").exists():
        raise SparkUnavailableError(f"there is no java in JAVA_HOME ({home}): Spark needs Java 17 or later")
    if home is None and shutil.which("java") is None:
        raise SparkUnavailableError(
            "Java was not found: Spark needs Java 17 or later on PATH or in JAVA_HOME"
            " (apt install openjdk-17-jre-headless)"
        )


@contextlib.contextmanager
def watched(spark: SparkSession, tell: Callable[[int, int], object]) -> Iterator[None]:
    """Report the number of finished and of known tasks while the block runs.

    Parameters
    ----------
    tell : callable
        ``tell(n_done, n_tasks)``, called from a thread of its own.
    """
    ended = threading.Event()
    # Spark's own progress bar counts stages, and breaks the lines of others
    thread = threading.Thread(target=_watch, args=(spark, tell, ended), name="kafkalog-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(spark: SparkSession, tell: Callable[[int, int], object], ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not ended.wait(POLL_SECONDS):
        for job in tracker.getActiveJobsIds():
            known = tracker.getJobInfo(job)
            for stage in known.stageIds if known is not None else ():
                # kept: the tracker forgets stages that have ended
                stages.setdefault(stage, (0, 0))
        for stage, (done, n) in stages.items():
            found = None if n and done == n else tracker.getStageInfo(stage)
            if found is not None:
                stages[stage] = found.numCompletedTasks, found.numTasks
        tell(sum(done for done, _ in stages.values()), sum(n for _, n in stages.values()))


@contextlib.contextmanager
def our_errors() -> Iterator[None]:
    """Raise an executor's error on the driver.

    Raises
    ------
    KafkalogError
        The error of the executor, or `ReadError` for any other failure of Spark.
    ValueError
        Spark cannot parse or resolve the query.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise ValueError(_first_line(error)) from error
    except PySparkException as error:
        raise error_of(str(error)) from error


def error_of(text: str) -> errors.KafkalogError:
    """Return the error at the end of an executor's traceback; `ReadError` if it is not one of kafkalog's."""
    raised = _RAISED.findall(text)
    if raised:
        name, message = raised[-1]
        kind: Any = getattr(errors, name, errors.KafkalogError)
        match = _TEXT.fullmatch(message)
        if match is not None and issubclass(kind, errors.KafkalogError):
            numbers = {key: None if match[key] is None else int(match[key]) for key in ("position", "base_offset")}
            with contextlib.suppress(ValueError, TypeError):
                found: errors.KafkalogError = kind(
                    match["reason"], match["detail"] or "", path=match["path"], **numbers
                )
                return found
    return errors.ReadError(errors.Reason.FILE_UNREADABLE, f"Spark failed: {text.strip().splitlines()[-1]}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
