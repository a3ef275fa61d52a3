"""Segments in remote storage are read by source, streams and jobs as if they were local."""

import shutil
import time

import golden_sets
import pytest
from conftest import GOLDEN
from job_results import arrow, ordered
from tiered_sets import TieredSet

import kafkalog
import kafkalog.spark as jobs
from kafkalog.spark.source_options import parse_options
from kafkalog.spark.stream_reader import KafkaLogStreamReader
from kafkalog.spark.types import spark_schema

LOG_DIR = GOLDEN / "log_dir"
COLUMNS = ["topic", "partition", "offset", "key", "value"]
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tiered(tmp_path_factory):
    place = tmp_path_factory.mktemp("tiered")
    shutil.copytree(LOG_DIR, place / "data")
    moved = TieredSet(place / "data", place / "remote")
    for partition in ("p-multi-0", "p-multi-1", "p-txn-0", "p-headers-0"):
        moved.move(partition)
    moved.finish()
    return moved


def test_the_source_reads_remote_segments(source, tiered):
    for level in ("read_uncommitted", "read_committed"):
        options = {"columns": ",".join(COLUMNS), "kafka.isolation.level": level, "tiered": tiered.remote}
        whole = kafkalog.read_table(LOG_DIR, columns=COLUMNS, isolation_level=level)
        assert ordered(arrow(source(tiered.log_dir, **options))) == ordered(whole)
    del options["tiered"]
    assert source(tiered.log_dir, **options).count() < len(whole)


def test_a_local_part_alone_is_said_to_be_a_part(spark, tiered, tmp_path):
    local = shutil.copytree(tiered.log_dir, tmp_path / "data")
    (local / "log-start-offset-checkpoint").write_text("0\n1\np-multi 0 0\n")
    with pytest.warns(UserWarning, match=r"are in remote storage.*Name the remote storage"):
        jobs.scan(spark, local, topics="p-multi", columns=["offset"])


@pytest.mark.slow
def test_jobs_read_remote_segments(spark, tiered, tmp_path):
    opened, whole = kafkalog.open(tiered.log_dir, tiered=tiered.remote), kafkalog.open(LOG_DIR)
    assert ordered(arrow(jobs.scan(spark, opened, columns=COLUMNS))) == ordered(whole.to_table(columns=COLUMNS))
    assert jobs.batches(spark, opened).where("topic like 'p-%'").count() == jobs.batches(spark, LOG_DIR).count()
    written = jobs.export(spark, opened, tmp_path / "out").agg({"n_records": "sum"}).first()[0]
    assert written == len(whole.to_table(columns=["offset"]))
    rows = jobs.verify(spark, opened).where("kind = 'segment' and topic like 'p-%'").collect()
    assert sum(row["n_batches"] for row in rows) == jobs.batches(spark, LOG_DIR).count()
    assert all(row["ok"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_stream_begins_with_remote_segments_and_follows_the_local_ones(spark, source, tiered, tmp_path, level):
    jobs.register(spark)
    reader = spark.readStream.format("kafkalog").option("tiered", str(tiered.remote))
    options = {"subscribe": "p-multi,p-txn", "startingOffsets": "earliest", "columns": ",".join(COLUMNS)}
    options["kafka.isolation.level"] = level
    stream = reader.options(**options).load(str(tiered.log_dir))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    drained(writer.option("path", str(tmp_path / "rows")))
    whole = kafkalog.read_table(LOG_DIR, topics=["p-multi", "p-txn"], columns=COLUMNS, isolation_level=level)
    assert ordered(arrow(spark.read.parquet(str(tmp_path / "rows")))) == ordered(whole)


def drained(writer):
    """Run a stream until it has read what is there."""
    query = writer.trigger(availableNow=True).start()
    deadline = time.monotonic() + 250
    while query.isActive and time.monotonic() < deadline:
        query.awaitTermination(1)
    assert query.exception() is None


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_source_stream_and_jobs_read_what_a_consumer_read(spark, source, tmp_path, level):
    log_dir, remote = golden_sets.tiered()
    opened, truth = kafkalog.open(log_dir, tiered=remote), golden_sets.tiered_truth(level)
    columns = [*COLUMNS, "timestamp"]
    options = {"columns": ",".join(columns), "kafka.isolation.level": level, "tiered": str(remote)}
    assert rows_of(source(log_dir, **options)) == truth
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "900"}
    reader = spark.readStream.format("kafkalog").options(**options)
    state, out = str(tmp_path / "state"), str(tmp_path / "rows")
    stream = reader.load(str(log_dir)).writeStream.format("parquet")
    drained(stream.option("checkpointLocation", state).option("path", out))
    assert rows_of(spark.read.parquet(out)) == truth
    assert rows_of(jobs.scan(spark, opened, columns=columns, isolation_level=level)) == truth
    to = tmp_path / "table"
    frame = jobs.export(spark, opened, to, format="delta", columns=columns, isolation_level=level, resume=True)
    assert frame.agg({"n_records": "sum"}).first()[0] == len(truth)
    exported = pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed").DeltaTable(to)
    assert rows_of(spark.read.parquet(*exported.file_uris())) == truth
    frame = jobs.export(spark, opened, to, format="delta", columns=columns, isolation_level=level, resume=True)
    assert frame.agg({"n_records": "sum"}).first()[0] is None


def rows_of(frame):
    """Rows in the form and the order of `golden_sets.tiered_truth`."""
    millis = "cast(unix_millis(timestamp) as bigint) as timestamp"
    found = frame.selectExpr("topic", "partition", "offset", millis, "key", "value").toArrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=lambda row: row[:3])


def test_a_stream_of_a_store_is_refused_before_it_starts():
    options = parse_options({"path": "s3://bucket/logs", "storage.endpoint": "http://localhost:1"})
    with pytest.raises(ValueError, match="a stream follows log dirs on a disk"):
        KafkaLogStreamReader(options, spark_schema(options.columns))
