"""Exports by Spark hold all records, or do not appear."""

import os
import signal

import lakes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_results import arrow, findings_of, ordered, tree

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.spark.jobs import export as exporting
from kafkalog.spark.runner import task_directory

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(), ("topic", "date")])
def test_an_export_holds_all_records(spark, log_dir, tmp_path, keys):
    out = tmp_path / "out"
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    frame = jobs.export(spark, log_dir, out, partition_by=keys, columns=columns, task_bytes=2**16)
    files = sorted(out.rglob("*.parquet"))
    parts = []
    for path in files:
        table = pq.ParquetFile(path).read()
        for key, value in (part.split("=") for part in path.parent.relative_to(out).parts):
            if key != "date":
                kind = pa.string() if key == "topic" else pa.int32()
                table = table.append_column(key, pa.array([value] * len(table)).cast(kind))
        parts.append(table.select(columns))
    expected = kafkalog.read_table(log_dir, columns=columns)
    assert ordered(pa.concat_tables(parts)) == ordered(expected)
    rows = arrow(frame).to_pylist()
    assert sum(row["n_records"] for row in rows) == len(expected)
    assert sorted({name for row in rows for name in row["files"]}) == [str(path.relative_to(out)) for path in files]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_killed_task_leaves_nothing(spark, log_dir, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export = exporting._export

    def dying(job, *more):
        if any("p-zstd-java" in part.path for part in more[-1].parts):
            with task_directory(job) as directory:
                directory.create("part-0.parquet").write(b"half of it")
                os.kill(os.getpid(), signal.SIGKILL)
        return export(job, *more)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_export", dying)
        with pytest.raises(Exception, match="Python worker exited unexpectedly"):
            jobs.export(spark, log_dir, out, task_bytes=2**16)
    assert list(tmp_path.iterdir()) == []
    jobs.export(spark, log_dir, out, task_bytes=2**16)
    n_written = sum(pq.read_metadata(path).num_rows for path in out.rglob("*.parquet"))
    assert n_written == kafkalog.scan(log_dir).count_rows()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_only_an_export_is_replaced(spark, log_dir, tmp_path):
    out = tmp_path / "out"
    jobs.export(spark, log_dir, out, topics="p-multi", columns=["offset", "value"])
    before = tree(out)
    with pytest.raises(OutputExistsError):
        jobs.export(spark, log_dir, out, topics="p-multi")
    assert tree(out) == before
    jobs.export(spark, log_dir, out, topics="p-multi", columns=["offset"], overwrite=True)
    assert pq.read_schema(next(out.glob("*.parquet"))).names == ["offset"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    with pytest.raises(OutputExistsError):
        jobs.export(spark, log_dir, foreign, overwrite=True)
    with pytest.raises(UnsafePathError):
        jobs.export(spark, log_dir, log_dir / "out")


@pytest.mark.slow
def test_spark_reads_each_record_of_resumed_exports_once(spark, tmp_path):
    lake = lakes.Directory(tmp_path)
    for partition in (0, 1, 0):
        lakes.grow(tmp_path / "logs", 30, partition)
        lake.run(tmp_path / "logs")
    found = spark.read.parquet(str(lake.output)).where("topic = 'orders' and partition = 0")
    assert sorted(row.offset for row in found.select("offset").collect()) == [*range(60)]


def test_an_export_of_damage_raises_ours_and_skips_when_told(spark, damaged, tmp_path):
    with pytest.raises(kafkalog.CorruptionError) as caught:
        jobs.export(spark, damaged, tmp_path / "out")
    assert caught.value.position is not None
    assert "p-multi-1" in str(caught.value.path)
    rows = arrow(jobs.export(spark, damaged, tmp_path / "out", on_corruption="skip")).to_pylist()
    found = [finding for row in rows for finding in findings_of(row["findings"])]
    assert [finding.reason for finding in found if finding.damage] == ["crc_mismatch"]


def test_options_that_make_no_sense_are_refused(spark, log_dir, tmp_path):
    with pytest.raises(ValueError, match="output"):
        jobs.reindex(spark, log_dir)
    with pytest.raises(ValueError):
        jobs.reindex(spark, log_dir / "p-multi-0" / "00000000000000000000.log", dry_run=True)
    with pytest.raises(ValueError):
        jobs.verify(spark, log_dir, deep=True, indexes_only=True)
    with pytest.raises(ValueError, match="no column"):
        jobs.scan(spark, log_dir, columns=["nonsense"])
    with pytest.raises(ValueError, match="format"):
        jobs.export(spark, log_dir, tmp_path / "out", format="xls")
    with pytest.raises(AttributeError):
        _ = jobs.nonsense
