"""What tasks lose is counted on the driver."""

import shutil
import time

import pytest

import kafkalog
import kafkalog.spark as jobs
from kafkalog import format as kf

pytestmark = pytest.mark.spark
COUNTS = ("n_lost_records", "n_skipped_segments", "n_undecoded", "n_nulls")


@pytest.fixture
def counting(session):
    name = "spark.sql.pyspark.worker.logging.enabled"
    session.conf.set(name, "true")
    yield session
    session.conf.unset(name)


@pytest.fixture
def lossy(tmp_path):
    """A log with a damaged batch of 3 records, and two values that do not decode."""
    root = tmp_path / "log"
    root.mkdir()
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b'{"a": 1}', b"oops", b'{"a": "text"}', b'{"a": 2}']})
        writer.append({"value": [b"lost"] * 3})
    path = root / "t-0" / kf.segment_file_name(0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with kafkalog.PartitionWriter(root / "u-0") as writer:
        writer.append({"value": [b'{"a": 3}']})
    return root


def total(session):
    """The counts of all executions so far."""
    rows = jobs.losses(session).collect()
    return {name: sum(row[name] for row in rows) for name in COUNTS}


def since(session, before):
    return {name: n - before[name] for name, n in total(session).items() if n != before[name]}


@pytest.mark.slow
def test_the_driver_counts_what_tasks_lose(counting, lossy):
    before = total(counting)
    reader = counting.read.format("kafkalog").options(
        valueFormat="json", valueSchema="a bigint", onDecodeError="skip", onCorruption="skip"
    )
    assert sorted(row.a for row in reader.load(str(lossy)).select("value.a").collect()) == [1, 2, 3]
    assert since(counting, before) == {"n_lost_records": 3, "n_undecoded": 2}
    # a query that runs again is an execution of its own; a job counts as the source does
    before = total(counting)
    frame = jobs.scan(counting, lossy, columns=["offset"], on_corruption="skip")
    assert [frame.count(), frame.count()] == [5, 5]
    assert since(counting, before) == {"n_lost_records": 6}
    # a task of Spark that reads several parts has the losses of each
    shutil.copytree(lossy / "t-0", lossy / "t-1")
    before = total(counting)
    frame = counting.read.format("kafkalog").options(onCorruption="skip", taskBytes="1", subscribe="t")
    assert frame.load(str(lossy)).coalesce(1).count() == 8
    assert since(counting, before) == {"n_lost_records": 6}
    before = total(counting)
    frame = counting.read.format("kafkalog").options(failOnDataLoss="false", taskBytes="1").load(str(lossy / "u-0"))
    assert frame.count() == 1
    shutil.rmtree(lossy / "u-0")
    (lossy / "u-0").mkdir()
    assert frame.count() == 0
    assert since(counting, before) == {"n_skipped_segments": 1}


@pytest.mark.slow
def test_the_progress_of_a_stream_counts_the_undecoded_values_of_each_batch(session, lossy, tmp_path):
    from pyspark.sql import functions as F

    options = {"valueFormat": "json", "valueSchema": "a bigint", "columns": "offset,value,value_error"}
    options |= {"startingOffsets": "earliest", "onCorruption": "skip", "subscribe": "t"}
    stream = session.readStream.format("kafkalog").options(**options, maxOffsetsPerTrigger=2).load(str(lossy))
    stream = stream.observe("losses", F.count("value_error").alias("n_undecoded"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start()
    deadline = time.monotonic() + 120
    while query.isActive and time.monotonic() < deadline:
        query.awaitTermination(1)
    assert query.exception() is None
    # the batches of the offsets 0, 1 and 2, 3; those of the damaged batch are empty
    counts = [progress["observedMetrics"]["losses"]["n_undecoded"] for progress in query.recentProgress]
    assert counts[:2] == [1, 1]
    assert not any(counts[2:])


def test_a_session_that_does_not_collect_the_counts_is_refused(session):
    with pytest.raises(ValueError, match=r"set spark\.sql\.pyspark\.worker\.logging\.enabled to true"):
        jobs.losses(session)
