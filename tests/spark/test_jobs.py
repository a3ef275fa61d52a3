"""Jobs say and write what the same functions say and write without Spark, and go on where they were stopped."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.scanning.planning import plan
from kafkalog.spark import types
from kafkalog.spark.jobs import export as exporting
from kafkalog.spark.jobs import rebuild as rebuilding
from kafkalog.spark.jobs import verify as verifying
from kafkalog.spark.jobs.ledger import Ledger, job_directory, key_of
from kafkalog.spark.jobs.tables import findings_of, pack
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.storage.staging import staged_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SMALL = 2**16
KINDS = ("offset", "time", "txn", "snapshot", "epochs")
NOW = 1_700_100_000_000


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).to_pylist()


def arrow(frame: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)  # PySpark's, whenever Arrow is used
        return frame.toArrow()


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture
def damaged(log_dir_copy: Path) -> Path:
    """A value, an offset index, a transaction index and leader epochs are damaged, in four partitions."""
    flip(log_dir_copy / "p-multi-1" / "00000000000000000000.log", 200)
    flip(sorted((log_dir_copy / "p-zstd-java-0").glob("*.index"))[0], 5)
    flip(next(path for path in sorted((log_dir_copy / "p-txn-0").glob("*.txnindex")) if path.stat().st_size), 20)
    (log_dir_copy / "p-headers-0" / "leader-epoch-checkpoint").write_text("0\n2\n5 0\n3 10\n")
    return log_dir_copy


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_scan_has_the_records_of_a_scan_without_spark(spark: SparkSession, log_dir: Path, level: Any) -> None:
    columns = types.ALL_COLUMNS
    frame = jobs.scan(spark, log_dir, columns=columns, isolation_level=level, task_bytes=SMALL)
    expected = kafkalog.read_table(log_dir, columns=types.record_columns(columns), isolation_level=level)
    schema = types.arrow_schema(columns)
    ours = pa.Table.from_batches([types.to_spark(batch, schema) for batch in expected.to_batches()], schema)
    assert ordered(arrow(frame)) == ordered(ours)
    assert len(expected) > 2000


def test_ranges_filters_and_partitions_narrow_a_scan_before_spark_sees_it(spark: SparkSession, log_dir: Path) -> None:
    narrow: dict[str, Any] = {
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


def test_tasks_follow_bytes_and_not_files(spark: SparkSession, log_dir: Path) -> None:
    assert jobs.scan(spark, log_dir).rdd.getNumPartitions() == 1
    size = sum(path.stat().st_size for path in log_dir.rglob("*.log"))
    tasks = jobs.scan(spark, log_dir, task_bytes=size // 4).rdd.getNumPartitions()
    assert 4 <= tasks <= 12
    assert pack([1, 2, 3, 10, 1, 1], 5) == [0, 0, 1, 2, 3, 3]


def test_damage_names_file_and_position_and_leaves_other_rows_alone(spark: SparkSession, damaged: Path) -> None:
    frame = jobs.scan(spark, damaged, columns=["topic", "partition", "offset"])
    with pytest.raises(Exception, match=r"CorruptionError: .*p-multi-1/0{20}\.log@\d+ base_offset=\d+: crc_mismatch"):
        frame.collect()
    frame = jobs.scan(spark, damaged, columns=["topic", "partition", "offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        left = kafkalog.read_table(damaged, columns=["topic", "partition", "offset"], on_corruption="skip")
    assert ordered(arrow(frame)) == ordered(left)


def test_the_batch_table_is_that_of_all_segments(spark: SparkSession, log_dir: Path) -> None:
    made = arrow(jobs.batches(spark, log_dir, task_bytes=2**13))
    expected = kafkalog.batches(log_dir).to_table()
    assert made.schema.names == expected.schema.names
    assert made.schema.field("crc").type == pa.int64()

    def rows(table: pa.Table) -> list[dict[str, Any]]:
        return sorted(
            table.to_pylist(), key=lambda row: (row["topic"], row["partition"], row["segment"], row["position"])
        )

    assert rows(made) == rows(expected)


def test_verify_finds_what_verify_finds(spark: SparkSession, damaged: Path) -> None:
    (damaged / "p-multi-2" / "foo.index").touch()
    for path in (damaged / "p-txn-0").glob("00000000000000000304.*index"):
        path.unlink()
    expected = kafkalog.verify(damaged)
    rows = arrow(jobs.verify(spark, damaged, task_bytes=2**14)).to_pylist()
    found = [finding for row in rows for finding in findings_of(row["findings"])]
    assert sorted(map(str, found)) == sorted(map(str, expected.all_findings()))
    assert {str(one) for one in found if one.damage} == {str(one) for one in expected.all_findings() if one.damage}
    assert sum(finding.damage for finding in found) >= 5
    facts = {Path(finding.path or "").name for finding in found if not finding.damage}
    assert facts >= {"00000000000000000304.index", "00000000000000000304.txnindex"}
    by_path = {row["path"]: row for row in rows}
    for partition in expected.partitions:
        for segment in partition.segments:
            row = by_path[segment.path]
            assert (row["base_offset"], row["last_offset"]) == (segment.base_offset, segment.last_offset)
            assert (row["n_batches"], row["status"] == "ok") == (segment.n_batches, segment.is_ok)
        assert (by_path[partition.path]["status"] == "ok") == partition.is_ok
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in ("segment", "partition", "log_dir")] == [27, 10, 1]


def test_findings_beyond_the_limit_are_counted(spark: SparkSession, log_dir_copy: Path) -> None:
    path = log_dir_copy / "p-multi-1" / "00000000000000000000.log"
    for position in kafkalog.Segment(path).batches.position.tolist():
        flip(path, position + 70)
    frame = jobs.verify(spark, log_dir_copy / "p-multi-1", limits=kafkalog.Limits(max_findings=3))
    row = frame.where("kind = 'segment'").collect()[0]
    assert len(row.findings) == 3
    assert row.n_damage > 10


@pytest.mark.slow
def test_a_verification_goes_on_where_it_was_stopped(
    spark: SparkSession, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_fail(frame: Any) -> Any:
        arrow(frame)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verifying, "run_now", then_fail)
        with pytest.raises(KeyboardInterrupt):
            jobs.verify(spark, log_dir, topics="p-multi", work_dir=tmp_path / "work")
    kept = sorted((tmp_path / "work").rglob("result"))
    assert len(kept) == 4
    for path in kept:  # what is kept is believed, so a lie shows
        segment, seconds = pickle.loads(path.read_bytes())
        segment.n_batches = 4711
        path.write_bytes(pickle.dumps((segment, seconds)))
    rows = jobs.verify(spark, log_dir, topics="p-multi", work_dir=tmp_path / "work").where("kind = 'segment'").collect()
    assert [row.n_batches for row in rows] == [4711] * 4
    assert not (tmp_path / "work").exists()
    again = jobs.verify(spark, log_dir, topics="p-multi").where("kind = 'segment'").collect()
    assert 4711 not in [row.n_batches for row in again]


def test_rebuilt_files_are_those_of_a_rebuild_without_spark(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    expected = kafkalog.reindex(damaged, kinds=KINDS, output=tmp_path / "expected", now=NOW)
    frame = jobs.reindex(spark, damaged, kinds=KINDS, output=tmp_path / "made", now=NOW, task_bytes=2**14)
    assert len(tree(tmp_path / "made")) > 80
    assert tree(tmp_path / "made") == tree(tmp_path / "expected")
    rows = arrow(frame).to_pylist()
    files = sorted((file["path"], file["n_entries"], file["change"]) for row in rows for file in row["files"])
    assert files == sorted((file.path, file.n_entries, file.change) for file in expected.files)
    skipped = sorted((row["path"], one["kind"], one["why"]) for row in rows for one in row["skipped"])
    assert skipped == sorted((one.path, one.kind, one.why) for one in expected.skipped)
    found = [str(finding) for row in rows for finding in findings_of(row["findings"])]
    assert sorted(found) == sorted(map(str, expected.findings.rows))
    assert "p-multi-1" in "".join(found)
    assert sorted(os.listdir(tmp_path)) == ["expected", "log_dir", "made"]


def test_files_are_replaced_in_place_and_a_second_run_changes_nothing(
    spark: SparkSession, damaged: Path, tmp_path: Path
) -> None:
    twin = Path(shutil.copytree(damaged, tmp_path / "twin"))
    before = tree(damaged)
    dry = arrow(jobs.reindex(spark, damaged, kinds=KINDS, dry_run=True, now=NOW)).to_pylist()
    assert tree(damaged) == before
    made = arrow(jobs.reindex(spark, damaged, kinds=KINDS, in_place=True, backup=True, now=NOW)).to_pylist()
    kafkalog.reindex(twin, kinds=KINDS, in_place=True, backup=True, now=NOW)
    assert tree(damaged) == tree(twin) != before
    assert [row["status"] for row in dry] == [row["status"] for row in made]
    for backup in damaged.rglob("*.kafkalog-backup"):
        backup.unlink()
    again = jobs.reindex(spark, damaged, kinds=KINDS, in_place=True, now=NOW)
    assert {row.status for row in again.collect()} <= {"same", "damaged", "skipped"}


@pytest.mark.slow
def test_a_rebuild_goes_on_where_it_was_stopped(
    spark: SparkSession, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def then_fail(frame: Any) -> Any:
        arrow(frame)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rebuilding, "run_now", then_fail)
        with pytest.raises(KeyboardInterrupt):
            jobs.reindex(spark, log_dir, topics=["p-multi"], output=out, index_interval_bytes=0)
    assert [path.name for path in tmp_path.iterdir()] == [".out.kafkalog-job"]
    kept = sorted(job_directory(out).rglob("result"))
    assert len(kept) == 4
    for path in kept:
        found = pickle.loads(path.read_bytes())
        found.time_entries = found.time_entries[:0]
        path.write_bytes(pickle.dumps(found))
    jobs.reindex(spark, log_dir, topics=["p-multi"], output=out, index_interval_bytes=0)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    sizes = {path.suffix: path.stat().st_size for path in out.rglob("*index")}
    assert sizes[".index"] > 0 == sizes[".timeindex"]


def test_a_running_broker_or_another_job_keeps_a_job_out(
    spark: SparkSession, log_dir_copy: Path, tmp_path: Path
) -> None:
    (log_dir_copy / ".lock").touch()
    with hold_locks([log_dir_copy]), pytest.raises(UnsafePathError, match="a broker holds"):
        jobs.reindex(spark, log_dir_copy, in_place=True)
    with Ledger(str(job_directory(tmp_path / "out"))).held(), pytest.raises(UnsafePathError, match="another job"):
        jobs.export(spark, log_dir_copy, tmp_path / "out")
    with pytest.raises(UnsafePathError):
        jobs.export(spark, log_dir_copy, log_dir_copy / "out")
    job_directory(tmp_path / "open").mkdir()
    job_directory(tmp_path / "open").chmod(0o777)
    with pytest.raises(UnsafePathError, match="others may write"):
        jobs.export(spark, log_dir_copy, tmp_path / "open")


@pytest.mark.parametrize("keys", [(), ("topic", "date")])
def test_an_export_holds_all_records(spark: SparkSession, log_dir: Path, tmp_path: Path, keys: tuple[str, ...]) -> None:
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
    assert {row["status"] for row in rows} == {"written"}
    assert sorted({name for row in rows for name in row["files"]}) == [str(path.relative_to(out)) for path in files]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_killed_task_leaves_nothing_that_is_seen_and_only_what_is_missing_is_redone(
    spark: SparkSession, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export: Callable[..., Any] = exporting._export

    def dying(task: Any, writing: Any) -> Any:
        if any("p-zstd-java" in part.path for part in task.parts):
            with staged_directory(writing.ledger.place(writing.key(task)) / "files") as directory:
                directory.create("part-0.parquet").write(b"half of it")
                os.kill(os.getpid(), signal.SIGKILL)
        return export(task, writing)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_export", dying)
        with pytest.raises(Exception, match="Python worker exited unexpectedly"):
            jobs.export(spark, log_dir, out, task_bytes=2**16)
    assert [path.name for path in tmp_path.iterdir()] == [".out.kafkalog-job"]
    rows = arrow(jobs.export(spark, log_dir, out, task_bytes=2**16)).to_pylist()
    status = {row["topic"]: row["status"] for row in rows}
    assert status["p-zstd-java"] == "written"
    assert "resumed" in status.values()
    assert (
        sum(pq.read_metadata(path).num_rows for path in out.rglob("*.parquet")) == kafkalog.scan(log_dir).count_rows()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def test_an_export_that_is_there_is_not_made_again_unless_the_log_has_changed(
    spark: SparkSession, log_dir_copy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = jobs.export(spark, log_dir_copy, out, topics="p-multi", columns=["offset", "value"]).collect()
    before = tree(out)
    again = jobs.export(spark, log_dir_copy, out, topics="p-multi", columns=["offset", "value"]).collect()
    assert [row.n_records for row in again] == [row.n_records for row in first]
    assert {row.status for row in again} == {"present"}
    os.utime(log_dir_copy / "p-multi-0" / "00000000000000000000.log")
    with pytest.raises(OutputExistsError, match="log as it is now"):
        jobs.export(spark, log_dir_copy, out, topics="p-multi", columns=["offset", "value"])
    assert tree(out) == before
    jobs.export(spark, log_dir_copy, out, topics="p-multi", columns=["offset"], overwrite=True)
    assert pq.read_schema(next(out.glob("*.parquet"))).names == ["offset"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    with pytest.raises(OutputExistsError, match="nothing that an export made"):
        jobs.export(spark, log_dir_copy, foreign, overwrite=True)


def test_an_export_of_damage_raises_ours_and_skips_when_told(
    spark: SparkSession, damaged: Path, tmp_path: Path
) -> None:
    with pytest.raises(kafkalog.CorruptionError) as caught:
        jobs.export(spark, damaged, tmp_path / "out")
    assert caught.value.position is not None
    assert "p-multi-1" in str(caught.value.path)
    rows = arrow(jobs.export(spark, damaged, tmp_path / "out", on_corruption="skip")).to_pylist()
    found = [finding for row in rows if row["topic"] == "p-multi" for finding in findings_of(row["findings"])]
    assert [finding.reason for finding in found if finding.damage] == ["crc_mismatch"]


def test_keys_of_tasks_tell_apart_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    os.utime(path, ns=(1, 1))
    key = key_of("x", [1], files=[path])
    assert key == key_of("x", [1], files=[path])
    os.utime(path, ns=(1, 2))
    assert key_of("x", [1], files=[path]) != key
    assert key_of(pc.field("offset") > 1) != key_of(pc.field("offset") > 2)


def test_an_export_with_a_function_resumes_by_its_key_alone(log_dir: Path, tmp_path: Path) -> None:
    task = plan(log_dir).tasks[0]

    def key(resume_key: str, **reading: Any) -> str:
        ledger, form = exporting.Ledger(str(tmp_path)), exporting.OutputFormat("parquet")
        return exporting._Writing(ledger, ("key",), (), form, reading, kafkalog.Limits(), resume_key).key(task)

    assert key("a", where=len) == key("a", where=max) != key("b", where=len)
    assert key("a") == key("b") != key("a", check_crcs=False)
    assert key("a", where=len) != key("a")


def test_options_that_make_no_sense_are_refused(spark: SparkSession, log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say where to"):
        jobs.reindex(spark, log_dir)
    with pytest.raises(ValueError, match="is one segment"):
        jobs.reindex(spark, log_dir / "p-multi-0" / "00000000000000000000.log", dry_run=True)
    with pytest.raises(ValueError, match="choose one"):
        jobs.verify(spark, log_dir, deep=True, indexes_only=True)
    with pytest.raises(ValueError, match="no column"):
        jobs.scan(spark, log_dir, columns=["nonsense"])
    with pytest.raises(ValueError, match="format must be"):
        jobs.export(spark, log_dir, tmp_path / "out", format="xls")
    with pytest.raises(AttributeError):
        _ = jobs.nonsense


@pytest.mark.slow
def test_internal_topics_are_left_out_unless_they_are_named(spark: SparkSession, log_dir: Path, tmp_path: Path) -> None:
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
    rows = jobs.export(spark, mixed, tmp_path / "out", format="jsonl", internal=True).collect()
    assert {row.topic for row in rows} == {"orders", "__consumer_offsets"}
