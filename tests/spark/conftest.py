"""One real Spark, ``local[2]``, for all tests here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from needs import missing
from spark.sessions import check_java, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session; not to be stopped."""
    check_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        missing(str(error))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # workers import what we import; a name from the tests' own folders is not among it
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("kafkalog tests")
    for name, value in settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
