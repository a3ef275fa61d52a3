"""Scans and batch tables of Spark jobs are those without Spark."""

import shutil
import sys

import pyarrow as pa
import pytest
from job_results import SMALL, arrow, ordered

import kafkalog
import kafkalog.spark as jobs
from kafkalog.spark import types

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("level", [pytest.param("read_uncommitted", marks=pytest.mark.slow), "read_committed"])
def test_a_scan_has_the_records_of_a_scan_without_spark(spark, log_dir, level):
    columns = types.ALL_COLUMNS
    frame = jobs.scan(spark, log_dir, columns=columns, isolation_level=level, task_bytes=SMALL)
    expected = kafkalog.read_table(log_dir, columns=types.record_columns(columns), isolation_level=level)
    schema = types.arrow_schema(columns)
    ours = pa.Table.from_batches([types.to_spark(batch, schema) for batch in expected.to_batches()], schema)
    assert ordered(arrow(frame)) == ordered(ours)
    assert len(expected) > 2000


def test_ranges_filters_and_partitions_narrow_a_scan_before_spark_sees_it(spark, log_dir):
    narrow = {
        "topics": "p-multi",
        "partitions": [0, 1],
        "start_offset": 10,
        "end_offset": {("p-multi", 0): 50, ("p-multi", 1): 60},
        "filters": [("key", "starts_with", b"k")],
    }
    frame = jobs.scan(spark, log_dir, columns=["topic", "partition", "offset"], task_bytes=SMALL, **narrow)
    expected = kafkalog.read_table(log_dir, columns=["topic", "partition", "offset"], **narrow)
    assert 0 < len(expected) < 90
    assert ordered(arrow(frame)) == ordered(expected)


@pytest.mark.slow
def test_the_latest_records_of_keys_are_those_without_spark(spark, log_dir):
    names = ["topic", "partition", "offset"]
    expected = kafkalog.read_table(log_dir, columns=names, latest="key")
    assert 100 < len(expected) < kafkalog.scan(log_dir).count_rows()
    assert ordered(arrow(jobs.scan(spark, log_dir, columns=names, task_bytes=SMALL, latest="key"))) == ordered(expected)


def test_tasks_follow_bytes_and_not_files(spark, log_dir):
    assert jobs.scan(spark, log_dir).rdd.getNumPartitions() == 1
    size = sum(path.stat().st_size for path in log_dir.rglob("*.log"))
    tasks = jobs.scan(spark, log_dir, task_bytes=size // 4).rdd.getNumPartitions()
    assert 4 <= tasks <= 12


def test_damage_names_file_and_position_and_leaves_other_rows_alone(spark, damaged):
    frame = jobs.scan(spark, damaged, columns=["topic", "partition", "offset"])
    with pytest.raises(Exception, match=r"p-multi-1/0{20}\.log@\d+ base_offset=\d+: crc_mismatch"):
        frame.collect()
    frame = jobs.scan(spark, damaged, columns=["topic", "partition", "offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        left = kafkalog.read_table(damaged, columns=["topic", "partition", "offset"], on_corruption="skip")
    assert ordered(arrow(frame)) == ordered(left)


def test_the_batch_table_is_that_of_all_segments(spark, log_dir):
    made = arrow(jobs.batches(spark, log_dir, task_bytes=2**15))
    expected = kafkalog.batches(log_dir).to_table()
    assert made.schema.names == expected.schema.names
    assert made.schema.field("crc").type == pa.int64()

    def rows(table):
        return sorted(
            table.to_pylist(), key=lambda row: (row["topic"], row["partition"], row["segment"], row["position"])
        )

    assert rows(made) == rows(expected)


@pytest.mark.slow
def test_internal_topics_are_left_out_unless_they_are_named(spark, log_dir, tmp_path):
    mixed = tmp_path / "mixed"
    for source, name in (("p-multi-0", "orders-0"), ("p-multi-1", "__consumer_offsets-7")):
        shutil.copytree(log_dir / source, mixed / name)
    assert jobs.scan(spark, mixed).count() == 122
    assert jobs.scan(spark, mixed, internal=True).count() == 122 + 99
    assert jobs.scan(spark, mixed, topics="__consumer_offsets").count() == 99
    jobs.register(spark)
    source = spark.read.format("kafkalog")
    assert source.load(str(mixed)).count() == 122
    assert source.option("internal", "true").load(str(mixed)).count() == 122 + 99
    keys = ["topic"]
    jobs.export(spark, mixed, tmp_path / "out", format="jsonl", internal=True, partition_by=keys)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"topic=orders", "topic=__consumer_offsets"}


def test_a_function_without_numba_is_refused_on_the_driver(spark, log_dir, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "numba", None)
    for run in (jobs.scan, lambda *where, **options: jobs.export(*where, tmp_path / "out", **options)):
        with pytest.raises(ImportError, match=r"pip install 'kafkalog\[numba\]'"):
            run(spark, log_dir, where=lambda offset: offset < 5)
