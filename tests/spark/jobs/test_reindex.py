"""Files that Spark rebuilds are those of a rebuild without Spark."""

import os
import shutil
from pathlib import Path

import golden_sets
import pytest
from job_results import KINDS, NOW, arrow, findings_of, tree

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import UnsafePathError
from kafkalog.storage.broker_lock import hold_locks

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_rebuilt_files_are_those_of_a_rebuild_without_spark(spark, damaged, tmp_path):
    expected = kafkalog.reindex(damaged, kinds=KINDS, output=tmp_path / "expected", now=NOW)
    frame = jobs.reindex(spark, damaged, kinds=KINDS, output=tmp_path / "made", now=NOW, task_bytes=2**15)
    assert len(tree(tmp_path / "made")) > 80
    assert tree(tmp_path / "made") == tree(tmp_path / "expected")
    rows = arrow(frame).to_pylist()
    files = sorted((file["path"], file["n_entries"], file["change"]) for row in rows for file in row["files"])
    assert files == sorted((file.path, file.n_entries, file.change) for file in expected.files)
    skipped = sorted((one["path"], one["kind"], one["why"]) for row in rows for one in row["skipped"])
    assert skipped == sorted((one.path, one.kind, one.why) for one in expected.skipped)
    found = [str(finding) for row in rows for finding in findings_of(row["findings"])]
    assert sorted(found) == sorted(map(str, expected.findings.rows))
    assert "p-multi-1" in "".join(found)
    assert sorted(os.listdir(tmp_path)) == ["expected", "log_dir", "made"]


def test_a_topics_index_size_comes_from_the_clusters_metadata(spark, tmp_path):
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
def test_files_are_replaced_in_place_and_a_second_run_changes_nothing(spark, damaged, tmp_path):
    twin = Path(shutil.copytree(damaged, tmp_path / "twin"))
    before = tree(damaged)
    dry = arrow(jobs.reindex(spark, damaged, kinds=KINDS, dry_run=True, now=NOW)).to_pylist()
    assert tree(damaged) == before
    made = arrow(jobs.reindex(spark, damaged, kinds=KINDS, in_place=True, backup=True, now=NOW)).to_pylist()
    kafkalog.reindex(twin, kinds=KINDS, in_place=True, backup=True, now=NOW)
    assert tree(damaged) == tree(twin) != before
    changes = [[(file["path"], file["change"]) for file in row["files"]] for row in made]
    assert changes == [[(file["path"], file["change"]) for file in row["files"]] for row in dry]
    assert {file["backup"] for row in made for file in row["files"]} - {None} == set(
        map(str, damaged.rglob("*-backup"))
    )
    for backup in damaged.rglob("*.kafkalog-backup"):
        backup.unlink()
    again = jobs.reindex(spark, damaged, kinds=KINDS, in_place=True, now=NOW)
    assert {file.change for row in again.collect() for file in row.files} == {"same"}
    assert not list(damaged.rglob("*.kafkalog-backup"))


def test_a_running_broker_keeps_a_job_out(spark, log_dir_copy):
    (log_dir_copy / ".lock").touch()
    with hold_locks([log_dir_copy]), pytest.raises(UnsafePathError):
        jobs.reindex(spark, log_dir_copy, in_place=True)
