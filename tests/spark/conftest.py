"""One real Spark, ``local[2]``, for all tests here."""

import os
import sys
from pathlib import Path

import builder
import pytest
from needs import missing
from spark.sessions import check_java, settings

import kafkalog
import kafkalog.spark
from kafkalog import format as kf
from kafkalog.indexes.index_files import OffsetIndex


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
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


@pytest.fixture(scope="module")
def session(spark):
    kafkalog.spark.register(spark)
    return spark


@pytest.fixture
def source(spark):
    """``source(path, option=value, ...)``: a DataFrame."""
    kafkalog.spark.register(spark)

    def load(path, schema=None, **options):
        reader = spark.read.format("kafkalog")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**{name.replace("__", "."): str(value) for name, value in options.items()}).load(
            str(path)
        )

    return load


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    """A log dir of one topic, four partitions of two segments, 1000 records each."""
    root = tmp_path_factory.mktemp("log")
    for number in range(4):
        path = root / f"t-{number}"
        path.mkdir()
        for base in (0, 500):
            batches = []
            for first in range(base, base + 500, 10):
                records = [builder.record_v2(i, i, b"k%d" % (first + i), b"v" * 50) for i in range(10)]
                batches.append(
                    builder.batch_v2(
                        records,
                        base_offset=first,
                        base_timestamp=10**12 + 1000 * first,
                        max_timestamp=10**12 + 1000 * first + 9,
                    )
                )
            (path / kf.segment_file_name(base)).write_bytes(b"".join(batches))
        for segment in kafkalog.Partition(path).segments:
            built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=1024)
            segment.path.with_suffix(".index").write_bytes(built.entries.tobytes())
    return root
