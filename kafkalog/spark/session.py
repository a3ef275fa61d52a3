"""A Spark session for the command line."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_QUIET: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
}


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
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_QUIET, **(_LOOPBACK if is_local else {}), **conf}.items():
        builder = builder.config(key, value)
    try:
        made = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise SparkUnavailableError(
            f"Spark did not start on {master}: {first}; it needs Java 17 or later, and a master that can be reached"
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
