"""`kafkalog.spark.salvage` gives what `kafkalog.salvage` gives, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import FileChangedError, OutputExistsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from job_results import arrow, flip, tree

pytestmark = pytest.mark.spark


@pytest.fixture
def hit(damaged: Path) -> Path:
    """A log dir with damage in two partitions, and a log start offset inside of a segment."""
    flip(damaged / "p-txn-0" / "00000000000000000014.log", 3000)
    (damaged / "log-start-offset-checkpoint").write_text("0\n1\np-headers 0 7\n")
    return damaged


@pytest.mark.slow
def test_the_output_is_that_of_a_salvage_without_spark(spark: SparkSession, hit: Path, tmp_path: Path) -> None:
    # the same name, since the report has it
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "a")
        expected = kafkalog.salvage(hit, output="out", records=True)
        patch.chdir(tmp_path / "b")
        frame = jobs.salvage(spark, hit, output="out", records=True)
    made = tree(tmp_path / "b" / "out")
    assert made == tree(tmp_path / "a" / "out")
    assert {"p-multi-1.quarantine", "p-txn-0.quarantine", "salvage.json", "log-start-offset-checkpoint"} <= set(made)
    assert os.listdir(tmp_path / "b") == ["out"]
    rows = arrow(frame).to_pylist()
    assert [row["path"] for row in rows] == [one.path for one in expected.partitions]
    assert {row["path"].rpartition("/")[2] for row in rows if not row["ok"]} == {"p-multi-1", "p-txn-0"}
    for row, one in zip(rows, expected.partitions, strict=True):
        assert [row[name] for name in ("n_bytes_kept", "n_bytes_lost", "n_batches_kept", "n_records_kept")] == [
            one.total(name) for name in ("n_bytes_kept", "n_bytes_lost", "n_batches_kept", "n_records_kept")
        ]
        assert (row["start_offset"], row["end_offset"], row["n_lost"]) == (
            one.start_offset, one.end_offset, len(one.lost),
        )  # fmt: skip
    found = [finding["detail"] for row in rows for finding in row["findings"]]
    assert found == [finding.detail for finding in expected.findings.rows]


def test_a_dry_run_writes_nothing_and_says_what_cannot_be_read(spark: SparkSession, hit: Path, tmp_path: Path) -> None:
    before = tree(hit)
    (row,) = jobs.salvage(spark, hit, topics="p-multi", partitions=1, dry_run=True).collect()
    assert (row.ok, row.output, row.quarantine) == (False, None, None)
    assert tree(hit) == before
    with pytest.raises(ValueError, match="output="):
        jobs.salvage(spark, hit)
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExistsError):
        jobs.salvage(spark, hit, output=tmp_path / "there")
    log = hit / "p-multi-2" / "00000000000000000000.log"
    log.unlink()
    log.mkdir()
    expected = kafkalog.salvage(hit, topics="p-multi", dry_run=True)
    rows = jobs.salvage(spark, hit, topics="p-multi", dry_run=True).collect()
    found = [finding.path for row in rows for finding in row.findings]
    assert found == [finding.path for finding in expected.findings.rows]
    assert str(log.parent) in "".join(found)


def test_a_task_that_fails_leaves_no_output(
    spark: SparkSession, hit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalog.spark.jobs import salvage as module

    def fails(number: int, *args: object, **options: object) -> object:
        raise FileChangedError(
            kafkalog.errors.Reason.FILE_CHANGED, "somebody writes to it", path=f"partition number {number}"
        )

    monkeypatch.setattr(module, "_salvage", fails)
    with pytest.raises(FileChangedError, match="partition number 0"):
        jobs.salvage(spark, hit, topics="p-multi", output=tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["log_dir"]
