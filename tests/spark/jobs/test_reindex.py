"""Files that Spark rebuilds are those of a rebuild without Spark."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import golden_sets
import pytest

import kafkalog
import kafkalog.spark as jobs
from kafkalog.spark.jobs import reindex as reindexing
from kafkalog.spark.jobs.finished_tasks import job_directory
from kafkalog.spark.jobs.tables import findings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from job_results import KINDS, NOW, arrow, tree

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_rebuilt_files_are_those_of_a_rebuild_without_spark(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    expected = kafkalog.reindex(damaged, kinds=KINDS, output=tmp_path / "expected", now=NOW)
    frame = jobs.reindex(spark, damaged, kinds=KINDS, output=tmp_path / "made", now=NOW, task_bytes=2**15)
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


def test_a_topics_index_size_comes_from_the_clusters_metadata(spark: SparkSession, tmp_path: Path) -> None:
    source, root = golden_sets.unpacked("k44"), tmp_path / "data"
    shutil.copytree(source / "__cluster_metadata-0", root / "__cluster_metadata-0")
    logs = sorted((source / "p-idxroll-0").glob("*.log"))
    (root / "p-idxroll-0").mkdir()
    (root / "p-idxroll-0" / logs[0].name).write_bytes(b"".join(path.read_bytes() for path in logs))
    expected = kafkalog.reindex(root, topics=["p-idxroll"], dry_run=True).findings.rows
    assert any("segment.index.bytes is 96" in str(one) for one in expected)
    rows = arrow(jobs.reindex(spark, root, topics=["p-idxroll"], dry_run=True)).to_pylist()
    found = [str(finding) for row in rows for finding in findings_of(row["findings"])]
    assert sorted(found) == sorted(map(str, expected))


@pytest.mark.slow
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
        patch.setattr(reindexing, "run_now", then_fail)
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
